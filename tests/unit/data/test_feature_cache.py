"""Features are read once, in little memory, by one process at a time, and half a file is never taken for a whole."""

from __future__ import annotations

import errno
import json
import multiprocessing
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from sitar.data import feature_cache, load_data
from sitar.data.own_data.feature_table import FeaturesConfig
from sitar.data.tables import ParquetTable
from sitar.errors import DataError
from sitar.testing.datasets import assert_same_data

N, D = 200, 8
X = np.random.default_rng(1).normal(size=(N, D)).astype(np.float32)


def write(path: Path, x: np.ndarray, **options: Any) -> str:
    embedding = pa.FixedSizeListArray.from_arrays(pa.array(x.ravel()), x.shape[1])
    pq.write_table(pa.table({"embedding": embedding, "label": np.arange(len(x)) % 2}), path, **options)
    return str(path)


def folders(cache: Path) -> list[Path]:
    return sorted(cache.glob("features-*"))


def test_the_file_is_read_once(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = FeaturesConfig(file=write(tmp_path / "x.parquet", X))
    first = load_data(config)
    monkeypatch.setattr(ParquetTable, "blocks", lambda *_: pytest.fail("read again"))
    assert_same_data(load_data(config), first)
    assert sorted(path.name for path in folders(cache)[0].iterdir()) == [
        "features.npy", "index.json", "lock", "sums.npy",
    ]  # fmt: skip


def test_what_is_read_decides_the_cache_and_the_checksum(tmp_path: Path, cache: Path) -> None:
    """The same numbers are the same data, however they are packed; other numbers or another type are not."""
    first = load_data(FeaturesConfig(file=write(tmp_path / "x.parquet", X)))
    packed = load_data(FeaturesConfig(file=write(tmp_path / "y.parquet", X, compression="gzip", row_group_size=7)))
    assert packed.checksum == first.checksum
    other = X.copy()
    other[17, 3] += 1
    assert load_data(FeaturesConfig(file=write(tmp_path / "x.parquet", other))).checksum != first.checksum
    half = load_data(FeaturesConfig(file=str(tmp_path / "y.parquet"), dtype="float16"))
    assert half.checksum != first.checksum
    assert half.train.x.dtype == torch.float16
    np.testing.assert_array_equal(half.train.x.numpy(), packed.train.x.numpy().astype(np.float16))
    assert len(folders(cache)) == 4


def test_float16_is_kept_and_is_exact_in_a_batch(tmp_path: Path) -> None:
    data = load_data(FeaturesConfig(file=write(tmp_path / "x.parquet", X.astype(np.float16))))
    assert data.train.x.dtype == torch.float16
    batch = data.train.batch(torch.arange(9))
    assert batch.x.dtype == torch.float32
    assert torch.equal(batch.x, data.train.x[:9].float())
    wide = load_data(FeaturesConfig(file=str(tmp_path / "x.parquet"), dtype="float32"))
    assert torch.equal(wide.train.x, data.train.x.float())


def test_float16_that_is_too_small_is_said(tmp_path: Path) -> None:
    file = write(tmp_path / "x.parquet", np.where(X[5, 5] == X, 1e5, X).astype(np.float32))
    load_data(FeaturesConfig(file=file))
    with pytest.raises(DataError, match=r"first is sample 6 .*above 65,504 need data\.dtype=float32"):
        load_data(FeaturesConfig(file=file, dtype="float16"))


@pytest.mark.parametrize("name", ["features.npy", "sums.npy", "index.json"])
def test_one_flipped_bit_of_the_cache_is_named(tmp_path: Path, cache: Path, name: str) -> None:
    config = FeaturesConfig(file=write(tmp_path / "x.parquet", X))
    load_data(config)
    file = folders(cache)[0] / name
    sound = file.read_bytes()
    end = 8 * len(sound) - (0 if name == "sums.npy" else 64)  # the last bytes of index.json hold nothing
    for bit in np.random.default_rng(0).integers(8 * 128, end, 10).tolist():
        changed = bytearray(sound)
        changed[bit // 8] ^= 1 << bit % 8
        file.write_bytes(changed)
        with pytest.raises(DataError, match="damaged"):
            load_data(config)


def test_a_cache_of_an_earlier_release_is_compared_as_a_whole_once(tmp_path: Path, cache: Path) -> None:
    config = FeaturesConfig(file=write(tmp_path / "x.parquet", X))
    data = load_data(config)
    (folder,) = folders(cache)
    index = json.loads((folder / "index.json").read_text())

    def of_an_earlier_release() -> None:
        (folder / "sums.npy").unlink()
        (folder / "index.json").write_text(json.dumps({key: index[key] for key in index if key != "sums"}))

    of_an_earlier_release()
    assert_same_data(load_data(config), data)
    assert json.loads((folder / "index.json").read_text()) == index
    of_an_earlier_release()
    features = np.load(folder / "features.npy", mmap_mode="r+")
    features[11, 2] += 1
    features.flush()
    with pytest.raises(DataError, match=r"damaged \(rows 0 to 200"):
        load_data(config)


class KilledError(BaseException):
    """A kill: nothing that is caught."""


def test_a_killed_process_leaves_nothing_that_is_used(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, blocks = FeaturesConfig(file=write(tmp_path / "x.parquet", X, row_group_size=50)), ParquetTable.blocks
    monkeypatch.setattr("sitar.data.tables.BLOCK_ROWS", 50)

    def killed(self: Any, names: Any) -> Any:
        for number, block in enumerate(blocks(self, names)):
            if number == 2:
                raise KilledError
            yield block

    with monkeypatch.context() as patch:
        patch.setattr(ParquetTable, "blocks", killed)
        patch.setattr(Path, "unlink", lambda *_, **__: None)  # a killed process cleans nothing up
        with pytest.raises(KilledError):
            load_data(config)
    (folder,) = folders(cache)
    left = [path.name for path in folder.iterdir() if path.name != "lock"]
    assert len(left) == 1
    assert left[0].startswith(".features.npy.")
    data = load_data(config)
    monkeypatch.setenv("SITAR_CACHE", str(tmp_path / "other"))
    assert_same_data(load_data(config), data)
    assert not (folder / left[0]).exists()


def test_a_cache_of_an_earlier_version_is_left_alone(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = FeaturesConfig(file=write(tmp_path / "x.parquet", X))
    monkeypatch.setattr(feature_cache, "VERSION", 0)
    load_data(config)
    (earlier,) = folders(cache)
    np.save(earlier / "features.npy", np.zeros((N, D), np.float32))  # numbers that must not be used
    monkeypatch.undo()
    monkeypatch.setenv("SITAR_CACHE", str(cache))
    assert load_data(config).train.x.any()


@pytest.mark.parametrize("damage", ["cut", "other shape", "no json"])
def test_a_damaged_cache_is_named(damage: str, tmp_path: Path, cache: Path) -> None:
    config = FeaturesConfig(file=write(tmp_path / "x.parquet", X))
    load_data(config)
    (folder,) = folders(cache)
    if damage == "cut":
        os.truncate(folder / "features.npy", 1000)
    elif damage == "other shape":
        np.save(folder / "features.npy", X[:-1])
    else:
        (folder / "index.json").write_text("{")
    with pytest.raises(DataError, match=r"The cache .* is damaged .*Remove that folder"):
        load_data(config)


def test_a_full_disk_is_said_before_anything_is_written(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = type("Usage", (), {"free": 2**26 + N * D * 4 - 1})
    monkeypatch.setattr(feature_cache.shutil, "disk_usage", lambda _: usage)
    config = FeaturesConfig(file=write(tmp_path / "x.parquet", X))
    with pytest.raises(DataError, match=r"need 0\.00 GB \(6,400 bytes\) in .* free on that disk.*SITAR_CACHE"):
        load_data(config)
    assert not [path for path in folders(cache)[0].iterdir() if path.name != "lock"]
    usage.free += 1
    load_data(config)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_disk_that_fills_up_meanwhile_is_said(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config, opened = FeaturesConfig(file=write(tmp_path / "x.parquet", X)), Path.open

    def full(self: Path, mode: str = "r", *rest: Any, **more: Any) -> Any:
        if not self.name.startswith(".features.npy."):
            return opened(self, mode, *rest, **more)
        os.symlink("/dev/full", self)
        return opened(self, "wb", *rest, **more)

    monkeypatch.setattr(Path, "open", full)
    with pytest.raises(DataError, match=r"6,400 bytes.*SITAR_CACHE") as raised:
        load_data(config)
    assert isinstance(raised.value.__cause__, OSError)
    assert raised.value.__cause__.errno == errno.ENOSPC
    monkeypatch.undo()
    monkeypatch.setenv("SITAR_CACHE", str(cache))
    load_data(config)


def _checksum_of(file: str, cache: str, results: Any) -> None:
    os.environ["SITAR_CACHE"] = cache
    results.put(load_data(FeaturesConfig(file=file), progress=False).checksum)


@pytest.mark.ci
def test_processes_that_start_together_read_the_file_once(tmp_path: Path, cache: Path) -> None:
    file = write(tmp_path / "x.parquet", np.tile(X, (100, 1)) + np.arange(100 * N)[:, None])
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    processes = [context.Process(target=_checksum_of, args=(file, str(cache), results)) for _ in range(3)]
    for process in processes:
        process.start()
    assert len({results.get(timeout=120) for _ in processes}) == 1
    for process in processes:
        process.join()
    (folder,) = folders(cache)
    assert json.loads((folder / "index.json").read_text())["rows"] == 100 * N


WEIGHED = """
import sys, threading
from pathlib import Path
from sitar.data import load_data
from sitar.data.own_data.feature_table import FeaturesConfig
import pyarrow.parquet, pyarrow.compute
def anonymous():
    return int(Path("/proc/self/status").read_text().split("RssAnon:")[1].split()[0]) * 1024
load_data(FeaturesConfig(file=sys.argv[2]), progress=False)  # what is loaded once, however large a file is
before, most, done = anonymous(), [0], threading.Event()
def watch():
    while not done.wait(0.005):
        most[0] = max(most[0], anonymous())
thread = threading.Thread(target=watch)
thread.start()
data = load_data(FeaturesConfig(file=sys.argv[1]), progress=False)
done.set()
thread.join()
print(max(most[0], anonymous()) - before, len(data.train))
"""


@pytest.mark.ci
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")
@pytest.mark.parametrize("kind", ["float", "list"])
def test_loading_takes_little_more_memory_than_the_features(kind: str, tmp_path: Path, cache: Path) -> None:
    """The splits of 82 MB are copied into memory, as they are few; besides, some blocks are in memory."""
    rows, width = 80_000, 256
    x = np.random.default_rng(0).standard_normal((rows, width), dtype=np.float32)
    values, label = pa.array(x.ravel()), np.arange(rows) % 2
    lists = pa.ListArray.from_arrays(pa.array(np.arange(0, rows * width + 1, width, dtype=np.int32)), values)
    embedding = lists if kind == "list" else pa.FixedSizeListArray.from_arrays(values, width)
    pq.write_table(pa.table({"embedding": embedding, "label": label}), tmp_path / "x.parquet", row_group_size=20_000)
    command = [sys.executable, "-c", WEIGHED, str(tmp_path / "x.parquet"), write(tmp_path / "small.parquet", X)]
    taken, samples = map(int, subprocess.run(command, check=True, capture_output=True, text=True).stdout.split())
    assert samples == 56_000
    assert taken < 1.5 * x.nbytes
