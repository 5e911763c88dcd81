"""Pieces of work that tests interrupt.

A piece may be done again and again in its place, and goes on where it stopped. `outcome` is what it leaves, as plain
values that can be compared.
"""

from __future__ import annotations

import csv
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from helpers import asking, made_data, toys
from helpers.cli import sitar
from helpers.forked import forked_workers
from helpers.runs import FULL, TINY_MODEL, hashes, run, settings, toy, write_settings
from helpers.scripts import script
from sitar.data import load_data
from sitar.files import read_npz
from sitar.run_folder import RunFolder
from sitar.sweeps.folder import SweepFolder


@dataclass(frozen=True)
class Work:
    """A piece of work: what is there before it begins, what is done, and what it leaves.

    `do` ends with a SitarError or an OSError if it cannot go on. Commands turn both into one message.
    """

    name: str
    prepare: Callable[[Path], object]
    do: Callable[[Path], object]
    outcome: Callable[[Path], Any]

    def __str__(self) -> str:
        return self.name


# Training


def _prepare_training(shared: Path) -> None:
    with toys.entered():
        config = toy("toy_annealed", train={"epochs": 8, **FULL}, noise="direction")
    write_settings(config, shared / "settings.yaml")


def _train(place: Path) -> None:
    with toys.entered():
        sitar("train", place.parent / "settings.yaml", "--out", place / "run", "--resume", "--device", "cpu", "--quiet")


def _trained(place: Path) -> Any:
    return _run(place / "run")


def _run(path: Path) -> Any:
    """What a run leaves, without how long it took and when."""
    folder = RunFolder(path)
    assert folder.is_done
    lines = [{**line, "seconds": 0} for line in folder.metrics()]
    arrays = {name: array.tolist() for name, array in folder.predictions().items()}
    return {**folder.result(), "seconds": 0}, lines, arrays, folder.model(), folder.read_config()


# Caching


def _prepare_images(shared: Path) -> None:
    asking.save_images(shared / "images" / "train" / "a", 400, size=24)
    asking.save_images(shared / "images" / "train" / "b", 400, size=23)
    asking.save_images(shared / "images" / "val" / "a", 200, size=22)
    asking.save_images(shared / "images" / "val" / "b", 200, size=21)


def _prepare_shards(shared: Path) -> None:
    split = ["train"] * 300 + ["validation"] * 60 + ["test"] * 60
    made_data.shards(shared / "images", split, lambda i: {"label": i % 2, "place": i // 2 % 2, "bird": i % 3})


@contextmanager
def own_cache(place: Path) -> Iterator[None]:
    """The cache of this place, whose states come to the disk often."""
    from sitar.images import cache

    before, seconds = os.environ.get("SITAR_CACHE"), cache.CHECKPOINT_SECONDS
    os.environ["SITAR_CACHE"], cache.CHECKPOINT_SECONDS = str(place / "cache"), 0.0
    try:
        yield
    finally:
        os.environ.pop("SITAR_CACHE")
        if before is not None:
            os.environ["SITAR_CACHE"] = before
        cache.CHECKPOINT_SECONDS = seconds


def _decode(place: Path) -> None:
    with own_cache(place):
        sitar("data", "prepare", "folder", "--root", place.parent / "images", "--set", "image_size=16")


def _decode_shards(place: Path) -> None:
    with own_cache(place):
        sitar("data", "prepare", "waterbirds", "--root", place.parent / "images", "--set", "image_size=16")


def _cached(place: Path) -> Any:
    (index,) = (place / "cache").glob("*/index.json")
    content = {name: digest for name, digest in hashes(index.parent).items() if name != "lock"}
    assert {"images.npy", "state.npy", "bad.json", "index.json"} <= content.keys()
    return content


def _prepare_features(shared: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    x = np.random.default_rng(1).normal(size=(20_000, 32)).astype(np.float32)
    column = pa.FixedSizeListArray.from_arrays(pa.array(x.ravel()), x.shape[1])
    table = pa.table({"embedding": column, "label": np.arange(len(x)) % 2})
    pq.write_table(table, shared / "x.parquet", row_group_size=200)


def _read_features(place: Path) -> None:
    from sitar.data import tables
    from sitar.data.own_data.feature_table import FeaturesConfig

    tables.BLOCK_ROWS = 200
    with own_cache(place):
        load_data(FeaturesConfig(file=str(place.parent / "x.parquet")), progress=False)


def _features(place: Path) -> Any:
    (index,) = (place / "cache").glob("*/index.json")
    return {name: digest for name, digest in hashes(index.parent).items() if name != "lock"}


# Predicting


def _prepare_predicting(shared: Path) -> None:
    (shared / "data").mkdir()
    config = settings("sitar", data=made_data.table(shared / "data").model_dump(), model=TINY_MODEL)
    run(config, shared / "model")
    asking.save_images(shared / "new", 700, size=24)


def _predict(place: Path) -> None:
    place.mkdir(exist_ok=True)
    with own_cache(place):
        sitar(
            "predict", place.parent / "model", place.parent / "new", "--out", place / "out.csv", "--device", "cpu"
        )  # fmt: skip


def _predicted(place: Path) -> Any:
    left = [path.name for path in (place / "cache").iterdir()]
    return (place / "out.csv").read_text(), left


# Asking

ANSWERS = 60


def _prepare_asking(shared: Path) -> None:
    data = asking.made_folder(shared / "data")
    asking.train(shared / "a", data)
    asking.train(shared / "b", data, seed=1)
    asking.save_images(shared / "new", 100, size=asking.SIZE)


def _ask(place: Path) -> None:
    """A person answers by the name of the image, whenever they are asked."""
    from sitar.analysis.answers import AnswersFile
    from sitar.analysis.ask.pool import read_pool
    from sitar.analysis.ask.session import Session

    file = AnswersFile(place / "answers.csv")
    pool = read_pool([place.parent / "a", place.parent / "b"], place.parent / "new", file.path, "cpu", progress=False)
    with Session.opened(pool, file) as session:
        while len(session.lines) < ANSWERS:
            assert session.question is not None
            image = session.question.image
            session.answer(image, int(pool.names[image].removesuffix(".png")) % 2)


def _asked(place: Path) -> Any:
    with (place / "answers.csv").open(newline="") as file:
        rows = [{**row, "at": None, "check": None} for row in csv.DictReader(file)]
    assert len(rows) == ANSWERS, "an answer was lost, or kept twice"
    return rows


# What is made from runs


def _prepare_models(shared: Path) -> None:
    """Two runs, new images, and answers about some of them."""
    _prepare_asking(shared)
    rows = [f"{i:05}.png,{('cat', 'dog')[i % 2]}" for i in range(20)]
    (shared / "answers.csv").write_text("\n".join(["image,answer", *rows, ""]))


def _export(place: Path) -> None:
    place.mkdir(exist_ok=True)
    sitar("export", place.parent / "a", "--out", place / "model.onnx", "--force")


def _exported(place: Path) -> Any:
    return hashes(place)


def _report(place: Path) -> None:
    place.mkdir(exist_ok=True)
    sitar("report", place.parent / "a", place.parent / "b", "--out", place / "report.html")
    sitar("card", place.parent / "a", "--out", place / "README.md", "--force")


def _reported(place: Path) -> Any:
    return hashes(place)


def _choose(place: Path) -> None:
    answers = place / "answers.csv"
    place.mkdir(exist_ok=True)
    shutil.copyfile(place.parent / "answers.csv", answers)
    sitar(*_choosing(place))


def _choosing(place: Path) -> list[object]:
    models = [place.parent / "a", place.parent / "b"]
    return ["choose", *models, "--images", place.parent / "new", "--answers", place / "answers.csv", "--device", "cpu"]


def _chosen(place: Path) -> Any:
    kept = {name: array.tolist() for name, array in read_npz(place / ".answers.csv.predictions.npz").items()}
    return json.loads(sitar(*_choosing(place), "--json").stdout), kept


def _refit(place: Path) -> None:
    if RunFolder(place / "run").is_done:  # it was finished, and refused only the last sync
        return
    words = ["--answers", place.parent / "answers.csv", "--images", place.parent / "new", "--device", "cpu", "--quiet"]
    sitar("refit", place.parent / "a", *words, "--out", place / "run")


def _refitted(place: Path) -> Any:
    return _run(place / "run")


# Sweeping and reproducing

SHORT = ["data.train_size=200", "data.eval_size=100", "data.image_size=14", "model.channels=[4]", "model.hidden=8"]
SHORT += ["train.epochs=10", "train.batch_size=16", "train.checkpoint_seconds=0"]
SET = [word for setting in SHORT for word in ("--set", setting)]


def _prepare_sweep(shared: Path) -> None:
    with toys.entered():
        write_settings(toy("sitar", train={"epochs": 10}), shared / "settings.yaml")


def _sweep(place: Path) -> None:
    words = ["--over", "method.alpha=0,0.5", "--seeds", "0-1", "--workers", "2", "--device", "cpu"]
    with toys.entered(), forked_workers():
        sitar("sweep", place.parent / "settings.yaml", *words, "--out", place / "sweep")


def _swept(place: Path) -> Any:
    record = SweepFolder(place / "sweep").record()
    for point in record["points"]:
        del point["seconds"]
    runs = {path.parent.name + path.name: _run(path) for path in (place / "sweep").glob("*/seed*")}
    assert len(runs) == 4
    return record, runs


TABLE = """\
title: A made-up table
splits: {ID: id_test, OOD: ood_test}
explain: true
epoch: The last epoch is shown.
seeds: [0, 1]
columns: {low: [data.rho=0.5]}
rows:
  a: {preset: color_mnist/erm}
paper: {X: [[70, 71.5]]}
"""


def _reproduce(place: Path) -> None:
    runner = script("reproduce/run.py")
    home = place / "reproduce"
    (home / "records").mkdir(parents=True, exist_ok=True)
    (home / "t.yaml").write_text(TABLE, encoding="utf-8")
    runner.records.HERE = home
    words = ["t", "--out", str(place / "runs"), "--device", "cpu", "--workers", "2", "--missing", *SET]
    try:
        with forked_workers():
            runner.main(words)
    except OSError as error:
        raise RuntimeError("a full disk is a traceback") from error


def _reproduced(place: Path) -> Any:
    record = json.loads((place / "reproduce" / "records" / "t.json").read_text())
    for one in record["runs"]:
        one["seconds"] = 0
    runs = {path.name: _run(path) for path in (place / "runs" / "t").iterdir()}
    assert len(record["runs"]) == len(runs) == 2
    return record, runs, (place / "docs" / "results" / "t.md").read_text()


def _nothing(shared: Path) -> None:
    pass


WORKS = {
    work.name: work
    for work in (
        Work("train", _prepare_training, _train, _trained),
        Work("decode", _prepare_images, _decode, _cached),
        Work("shards", _prepare_shards, _decode_shards, _cached),
        Work("features", _prepare_features, _read_features, _features),
        Work("predict", _prepare_predicting, _predict, _predicted),
        Work("ask", _prepare_asking, _ask, _asked),
        Work("export", _prepare_models, _export, _exported),
        Work("report", _prepare_models, _report, _reported),
        Work("choose", _prepare_models, _choose, _chosen),
        Work("refit", _prepare_models, _refit, _refitted),
        Work("sweep", _prepare_sweep, _sweep, _swept),
        Work("reproduce", _nothing, _reproduce, _reproduced),
    )
}
