"""Time and weigh features that lie on the disk: `python benchmarks/rows.py [--rows 100000 200000] [--out FILE.json]`.

For each number of rows it makes Parquet shards of float16 embeddings, and starts three processes. The first reads the
shards into the cache (`sitar data prepare`). The second trains one epoch on them, with a validation and the final
evaluation of all splits (`sitar train`). The third runs the same network in a plain loop over features that are in
memory as float32, at most `MOST_HELD` rows of them. The processes report seconds, and their largest anonymous memory
(RssAnon): what a program needs for itself, without the pages of files, which the system can drop. Seconds are those of
the clock, and of the processors (`cpu`), which other programs disturb less. Files are removed.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

SHARD_ROWS = 100_000
GROUP_ROWS = 50_000  # of a row group
MOST_HELD = 1_000_000  # rows of the plain loop
SAMPLE_SECONDS = 0.02
SETTINGS = ["train.epochs=1", "train.least_steps=0"]


def make_shards(folder: Path, rows: int, width: int) -> None:
    """Write a shard of embeddings, and as many copies of it, in each of which one number is another.

    The first eight dimensions carry the label weakly, and `site` follows it in nine of ten rows.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    random, n = np.random.default_rng(0), min(rows, SHARD_ROWS)
    label = random.integers(2, size=n)
    site = np.where(random.random(n) < 0.9, label, 1 - label)
    x = random.standard_normal((n, width), dtype=np.float32)
    x[:, :8] += 0.5 * (2 * label[:, None] - 1)
    x[:, 8] += 3 * (2 * site - 1)
    half = x.astype(np.float16)
    values = pa.Array.from_buffers(pa.float16(), half.size, [None, pa.py_buffer(half)])
    embedding = pa.FixedSizeListArray.from_arrays(values, width)
    table = pa.table({"embedding": embedding, "label": label, "site": site})
    first = folder / "part-00000.parquet"
    pq.write_table(table, first, row_group_size=GROUP_ROWS, compression="none", use_dictionary=False)
    place = first.read_bytes().index(half[0].tobytes())
    for shard in range(1, rows // n):
        with shutil.copyfile(first, folder / f"part-{shard:05}.parquet").open("r+b") as file:
            file.seek(place)
            file.write(np.float16(shard).tobytes())


@contextmanager
def weighed() -> Iterator[dict[str, Any]]:
    """Measure the seconds of a block and the largest anonymous memory of this process meanwhile, in megabytes."""
    found: dict[str, Any] = {"megabytes": anonymous()}
    done = threading.Event()

    def watch() -> None:
        while not done.wait(SAMPLE_SECONDS):
            found["megabytes"] = max(found["megabytes"], anonymous())

    thread, began, cpu = threading.Thread(target=watch, daemon=True), time.perf_counter(), time.process_time()
    thread.start()
    yield found
    done.set()
    thread.join()
    found |= {"seconds": round(time.perf_counter() - began, 2), "cpu": round(time.process_time() - cpu, 2)}


def anonymous() -> float:
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return round(int(status.split("RssAnon:")[1].split()[0]) / 1024, 1)


def prepare(folder: Path, batch: int, overrides: list[str]) -> dict[str, Any]:
    """Read the shards into the cache."""
    from sitar.data.own_data.feature_table import Features, FeaturesConfig

    with weighed() as found:
        Features.prepare(FeaturesConfig(file=str(folder / "shards"), attribute_column="site"))
    return found


def train(folder: Path, batch: int, overrides: list[str]) -> dict[str, Any]:
    """Train an epoch from the cache."""
    import sitar
    from sitar.training.loop import Loop

    cpu, run_epoch = [], Loop._epoch

    def epoch(*arguments: Any) -> None:
        began = time.process_time()
        run_epoch(*arguments)
        cpu.append(time.process_time() - began)

    Loop._epoch = epoch  # type: ignore[method-assign]
    settings = [*SETTINGS, f"data.file={folder / 'shards'}", "data.attribute_column=site", f"train.batch_size={batch}"]
    settings += overrides
    with weighed() as found:
        run = sitar.train("features/erm", overrides=settings, out=folder / "run", device="cpu", progress=False)
    line = json.loads(run.path.joinpath("metrics.jsonl").read_text(encoding="utf-8").splitlines()[0])
    task = json.loads(run.path.joinpath("result.json").read_text(encoding="utf-8"))
    samples = sum(task["task"]["class_counts"])
    rate = rates(samples, line["seconds"], cpu[0])
    accuracy = {split: round(values["average"], 4) for split, values in task["splits"].items()}
    return {
        **found,
        **rate,
        "accuracy": accuracy,
        "threads": json.loads((run.path / "environment.json").read_text())["threads"],
    }


def plain(folder: Path, batch: int, overrides: list[str]) -> dict[str, Any]:
    """Train the same network for an epoch, as a user would write it: features in memory, shuffled indices, Adam."""
    import pyarrow.parquet as pq
    import torch
    from torch.nn import functional as F

    from sitar.data.types import Task
    from sitar.methods import build_method
    from sitar.presets import load_config

    torch.set_num_threads(json.loads((folder / "run" / "environment.json").read_text(encoding="utf-8"))["threads"])
    config = load_config("features/erm", [f"data.file={folder / 'shards'}"], 0)
    (array,) = (folder / "cache").glob("features-*/features.npy")
    with weighed() as found:
        mapped = np.load(array, mmap_mode="r")
        held = min(MOST_HELD, len(mapped))
        x = torch.from_numpy(mapped[:held].astype(np.float32))
        files = sorted((folder / "shards").iterdir())[: -(-held // SHARD_ROWS)]
        labels = [pq.read_table(file, columns=["label"]).column(0).to_numpy() for file in files]
        y = torch.from_numpy(np.concatenate(labels)[:held].copy())
        counts = tuple(torch.bincount(y).tolist())
        network = build_method(config, Task((x.shape[1],), 2, held, counts, (x.mean(0), x.std(0))))
        optimiser = torch.optim.Adam(network.parameters(), lr=1e-3)
        network.train()
        began, cpu = time.perf_counter(), time.process_time()
        for index in torch.randperm(held).split(batch):
            optimiser.zero_grad()
            F.cross_entropy(network.logits(x[index]), y[index]).backward()
            optimiser.step()
        epoch = rates(held, time.perf_counter() - began, time.process_time() - cpu)
    return {**found, **epoch}


def rates(samples: int, seconds: float, cpu: float) -> dict[str, float]:
    """Return how fast an epoch was."""
    return {
        "samples": samples,
        "epoch_seconds": round(seconds, 2),
        "epoch_cpu": round(cpu, 2),
        "samples_per_second": round(samples / seconds),
        "samples_per_cpu_second": round(samples / cpu),
    }


PARTS: dict[str, Callable[[Path, int, list[str]], dict[str, Any]]] = {
    "prepare": prepare,
    "train": train,
    "plain": plain,
}


def measure(rows: int, width: int, batch: int, within: Path, overrides: list[str]) -> dict[str, Any]:
    """Make the shards, run each part in a process of its own, and remove everything."""
    folder = Path(tempfile.mkdtemp(dir=within, prefix="rows-"))
    environment = {**os.environ, "SITAR_CACHE": str(folder / "cache")}
    try:
        (folder / "shards").mkdir()
        make_shards(folder / "shards", rows, width)
        found: dict[str, Any] = {"rows": rows, "width": width, "batch": batch, "gigabytes": rows * width * 2 / 1e9}
        found["settings"] = overrides
        for part in PARTS:
            command = [sys.executable, __file__, "--part", part, "--batch", str(batch), "--within", str(folder)]
            command += [word for setting in overrides for word in ("--set", setting)]
            found[part] = json.loads(subprocess.run(command, env=environment, check=True, stdout=-1).stdout)
        for rate in ("samples_per_second", "samples_per_cpu_second"):
            found[f"{rate}_of_plain"] = round(found["train"][rate] / found["plain"][rate], 3)
        return found
    finally:
        shutil.rmtree(folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument(
        "--rows", type=int, nargs="+", default=[100_000, 200_000, 400_000, 800_000], help="multiples of 100,000"
    )
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--within", type=Path, default=Path(tempfile.gettempdir()), help="folder for the files")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="settings of the training")
    parser.add_argument("--out", type=Path, help="a record to write; what it holds of other rows is kept")
    parser.add_argument("--part", choices=PARTS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part:
        print(json.dumps(PARTS[options.part](options.within, options.batch, options.set)))
        return
    from sitar.training.environment import commit  # here: the parts measure their own memory

    record: dict[str, Any] = {
        "what": "Features on the disk: seconds, and peak anonymous memory (RssAnon), by the number of rows.",
        "command": "python benchmarks/rows.py --rows N --out reproduce/records/rows.json",
        "commit": commit(),
        "machine": f"{os.cpu_count()} CPU cores, with other work on them",
        "measurements": [],
    }
    if options.out and options.out.is_file():
        record["measurements"] = json.loads(options.out.read_text(encoding="utf-8"))["measurements"]
    for rows in options.rows:
        found = measure(rows, options.width, options.batch, options.within, options.set)
        print(json.dumps(found, indent=1), flush=True)
        others = [one for one in record["measurements"] if (one["rows"], one["width"]) != (rows, options.width)]
        record["measurements"] = sorted([*others, found], key=lambda one: (one["width"], one["rows"]))
        if options.out:
            options.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
