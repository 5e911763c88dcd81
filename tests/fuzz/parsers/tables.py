"""Tables and arrays of a user's own: .npz, .csv, .parquet, shards, tables of samples, and predictions of other code."""

from __future__ import annotations

import io
import json
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet

from fuzz.mutate import changed, wrong_csv, wrong_npz
from fuzz.parsers.commands import command
from fuzz.parsers.parser import Parser
from helpers.made_runs import make_run
from sitar.config import section_config
from sitar.data.shards import open_tables
from sitar.errors import DataError
from sitar.images.bit_depth import BadImageError
from sitar.registry import DATASETS

N = 24


def _load(settings: dict[str, Any]) -> None:
    """Read the samples and, where all of them lie in one file, the inputs."""
    config: Any = section_config("data", settings)
    dataset = DATASETS.get(config.name)
    dataset.samples(config).counts()
    if config.name in ("npz", "features"):
        dataset.load(config)


def _columns() -> dict[str, list[Any]]:
    random = np.random.default_rng(0)
    return {
        "path": [f"{i}.png" for i in range(N)],
        "label": ["cat", "dog"] * (N // 2),
        "split": ["train"] * (N // 2) + ["val"] * (N // 4) + ["test"] * (N // 4),
        "place": ["north", "south", "south", "north"] * (N // 4),
        "patient": [str(i // 2) for i in range(N)],
        "f0": random.normal(size=N).round(3).tolist(),
        "f1": random.normal(size=N).round(3).tolist(),
    }


def _csv(columns: dict[str, list[Any]]) -> bytes:
    lines = [",".join(columns), *(",".join(map(str, row)) for row in zip(*columns.values(), strict=True))]
    return ("\n".join(lines) + "\n").encode()


def _parquet(columns: dict[str, Any]) -> bytes:
    buffer = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table(columns), buffer, row_group_size=7)
    return buffer.getvalue()


def _values(column: Any) -> list[Any]:
    try:
        return column.to_pylist()
    except UnicodeDecodeError:  # made wrong before
        return [None] * len(column)


def _other_column(random: Random, values: list[Any]) -> Any:
    n = len(values)
    kinds = (
        lambda: pyarrow.array([None] * n),
        lambda: pyarrow.array([None] * n, pyarrow.string()),
        lambda: pyarrow.array([[1.0] * random.randrange(3) for _ in values]),
        lambda: pyarrow.array([{"a": 1}] * n),
        lambda: pyarrow.array([b"\xff\xfe"] * n),
        lambda: pyarrow.array([random.choice((0, 1, 2**40)) for _ in values], pyarrow.int64()),
        lambda: pyarrow.array([random.choice((0.5, float("nan"), float("inf"))) for _ in values]),
        lambda: pyarrow.array([True] * n),
        lambda: pyarrow.array([0] * n, pyarrow.timestamp("ns")),
        lambda: pyarrow.array(["x", *map(str, values[1:])]).dictionary_encode(),
        lambda: pyarrow.array([None, *map(str, values[1:])]).dictionary_encode(),
        lambda: pyarrow.array([1] * n, pyarrow.decimal128(9, 2)),
        lambda: pyarrow.array([[["a"]]] * n),
        lambda: pyarrow.array([1] * n, pyarrow.duration("s")),
        lambda: pyarrow.array(values),
        lambda: pyarrow.array([None, *values[1:]]),
        lambda: pyarrow.StringArray.from_buffers(
            n,
            pyarrow.py_buffer(np.arange(n + 1, dtype=np.int32)),
            pyarrow.py_buffer(b"\xff" * n),
        ),
    )
    return random.choice(kinds)()


def wrong_parquet(random: Random, content: bytes) -> bytes:
    """Return a Parquet file whose columns have other names, types, lengths of lists, or nulls."""
    table = pyarrow.parquet.read_table(io.BytesIO(content))
    columns: dict[str, Any] = {name: table.column(name) for name in table.column_names}
    for _ in range(random.choice((1, 1, 2, 4))):
        name = random.choice(sorted(columns) or ["label"])
        values = _values(columns.pop(name)) if name in columns else [None] * len(table)
        new = random.choice((name, name, name, name + "s", "", "label", "embedding"))
        if random.random() < 0.85:
            columns[new] = _other_column(random, values)
    if random.random() < 0.1:
        columns = {name: column[:0] for name, column in columns.items()}
    buffer = io.BytesIO()
    made = pyarrow.table(columns)
    pyarrow.parquet.write_table(
        made,
        buffer,
        row_group_size=random.choice((1, 7, 100)),
        compression=random.choice(("none", "snappy", "gzip", "zstd")),
    )
    return buffer.getvalue()


def npz(folder: Path) -> Parser:
    columns = _columns()
    random = np.random.default_rng(0)
    x = random.normal(size=(N, 3)).astype(np.float32)
    images = random.integers(0, 256, (N, 6, 5, 3), dtype=np.uint8)
    seeds = []
    for inputs in (x, images):
        for save in (np.savez, np.savez_compressed):
            buffer = io.BytesIO()
            save(
                buffer,
                x=inputs,
                y=np.array(columns["label"]),
                split=np.array(columns["split"]),
                place=np.array(columns["place"]),
            )
            seeds.append(buffer.getvalue())
    file = folder / "x.npz"

    def read(content: bytes) -> None:
        file.write_bytes(content)
        _load({"name": "npz", "file": str(file)})
        _load({"name": "npz", "file": str(file), "split_key": "split", "attribute_key": "place"})

    return Parser("npz", seeds, read, wrong_npz)


def _features(ending: str, folder: Path) -> Parser:
    columns = _columns()
    lists = {
        **{key: columns[key] for key in ("label", "split", "place")},
        "embedding": np.random.default_rng(0).normal(size=(N, 3)).tolist(),
    }
    file = folder / f"x.{ending}"

    def read(content: bytes) -> None:
        file.write_bytes(content)
        columns = {"feature_columns": "f*" if b"f0" in content[:2000] + content[-5000:] else "embedding"}
        _load({"name": "features", "file": str(file), **columns})
        _load({"name": "features", "file": str(file), **columns, "split_column": "split", "attribute_column": "place"})

    seeds = [_csv(columns)] if ending == "csv" else [_parquet(columns), _parquet(lists)]
    return Parser(f"features {ending}", seeds, read, wrong_csv if ending == "csv" else wrong_parquet)


features_csv, features_parquet = partial(_features, "csv"), partial(_features, "parquet")


def _table(ending: str, folder: Path) -> Parser:
    """A table of images: what it says of its samples. The images are not there."""
    columns = _columns()
    file = folder / f"x.{ending}"

    def read(content: bytes) -> None:
        file.write_bytes(content)
        _load({"name": "table", "table": str(file), "root": str(folder)})
        _load(
            {
                "name": "table",
                "table": str(file),
                "root": str(folder),
                "attribute_column": "place",
                "split_by": "patient",
            }
        )

    seed = _csv(columns) if ending == "csv" else _parquet(columns)
    return Parser(f"table {ending}", [seed], read, wrong_csv if ending == "csv" else wrong_parquet)


table_csv, table_parquet = partial(_table, "csv"), partial(_table, "parquet")


def shards(folder: Path) -> Parser:
    """The second of two files of one table."""
    columns = _columns()
    root = folder / "parts"
    root.mkdir()
    (root / "train-00000-of-00002.parquet").write_bytes(_parquet(columns))

    def read(content: bytes) -> None:
        (root / "train-00001-of-00002.parquet").write_bytes(content)
        table = open_tables(str(root))
        for name in table.names:
            table.kind(name)
            table.words(name)
        _load({"name": "features", "file": str(root), "feature_columns": "f*"})

    others = {name: values[::-1] for name, values in columns.items()}
    return Parser("shards", [_parquet(others)], read, wrong_parquet)


def _with_notes(content: bytes, notes: Any) -> bytes:
    buffer = io.BytesIO()
    table = pyarrow.parquet.read_table(io.BytesIO(content))
    said = json.dumps(notes)
    pyarrow.parquet.write_table(table.replace_schema_metadata({"huggingface": said}), buffer, row_group_size=7)
    return buffer.getvalue()


def image_shards(folder: Path) -> Parser:
    """The second of two files that hold images, with what `datasets` notes of their columns."""
    columns: dict[str, Any] = _columns()
    columns["label"] = [0, 1] * (N // 2)
    columns["image"] = [{"bytes": b"GIF89a" + bytes([i]), "path": f"{i}.gif"} for i in range(N)]
    notes = {"info": {"features": {"label": {"names": ["cat", "dog"], "_type": "ClassLabel"}}}}
    root = folder / "images"
    root.mkdir()
    (root / "a.parquet").write_bytes(_with_notes(_parquet(columns), notes))
    others = {name: values[::-1] for name, values in columns.items()}

    def read(content: bytes) -> None:
        (root / "b.parquet").unlink(missing_ok=True)  # it may be mapped
        (root / "b.parquet").write_bytes(content)
        settings = {"name": "table", "root": str(root), "attribute_column": "place", "split_by": "patient"}
        config: Any = section_config("data", settings)
        dataset: Any = DATASETS.get("table")
        samples, files = dataset.samples(config), dataset.files(config)
        dataset.metadata(config)
        bad = 0
        for name in samples.files.tolist():
            try:
                files.read(name)
            except (BadImageError, FileNotFoundError):
                bad += 1
        if bad:
            raise DataError(f"{bad} images cannot be read.")

    def wrong(random: Random, content: bytes) -> bytes:
        if random.random() < 0.5:
            return _with_notes(content, changed(random, notes))
        made = wrong_parquet(random, content)
        return _with_notes(made, notes) if random.random() < 0.5 else made

    return Parser("image shards", [_with_notes(_parquet(others), notes)], read, wrong)


def benchmark(folder: Path) -> Parser:
    """The sample table of a published data set, in its own layout."""
    from helpers.made_data import waterbirds_original

    config = waterbirds_original(folder)
    file = next(iter(sorted(folder.rglob("*.csv"))))

    def read(content: bytes) -> None:
        file.write_bytes(content)
        DATASETS.get("waterbirds").samples(config).counts()

    return Parser("benchmark table", [file.read_bytes()], read, wrong_csv)


def predictions(folder: Path) -> Parser:
    """Predictions of other code, for `sitar compare --predictions`."""
    make_run(folder / "a", "erm", samples=N, explained=False, epochs=1)
    rows = [f"{i},{'red' if i % 2 else 'green'},{0.7 if i % 2 else 0.2},{0.3 if i % 2 else 0.8}" for i in range(N)]
    seeds = [
        ("index,prediction,p_red,p_green\n" + "\n".join(rows) + "\n").encode(),
        ("index,prediction\n" + "\n".join(row[: row.index(",", 4)] for row in rows) + "\n").encode(),
    ]

    def read(content: bytes) -> None:
        (folder / "mine.csv").write_bytes(content)
        command(["compare", "a", "--predictions", "mine=mine.csv"], folder)

    return Parser("predictions", seeds, read, wrong_csv)


def concept(folder: Path) -> Parser:
    """An .npz file of features of a concept, which a method is told to ignore."""
    import torch

    from sitar.data.concepts import read_concept

    buffer = io.BytesIO()
    random = np.random.default_rng(0)
    np.savez(buffer, **{"with": random.normal(size=(20, 3)), "without": random.normal(size=(20, 3))})
    file = folder / "concept.npz"
    config: Any = section_config("data", {"name": "npz", "file": "x.npz"})

    def read(content: bytes) -> None:
        file.write_bytes(content)
        read_concept(str(file), config, torch.zeros(4, 3))

    return Parser("concept", [buffer.getvalue()], read, wrong_npz)
