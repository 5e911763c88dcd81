"""Predict new inputs into a table: a row for each, in their order, written window by window.

A row has the name of the input, the predicted class and a probability for each class. The row of an input that cannot
be read has the reason in `error`, and so has one whose scores are not finite. No row is left out.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, TextIO

import numpy as np
import torch

from sitar.data.types import in_batches
from sitar.errors import ConfigError, DataError
from sitar.evaluation.inputs import Window
from sitar.evaluation.metrics import softmax
from sitar.evaluation.trained_model import TrainedModel
from sitar.writing import replaced

CSV, PARQUET = ".csv", ".parquet"
NOT_FINITE = "the scores of the model are not finite numbers"
Row = dict[str, Any]
WriteRows = Callable[[list[Row]], None]


@dataclass(frozen=True)
class Predictor:
    """A predictor turns inputs into rows. With a `threshold` the second of two classes needs that probability.

    With `axes` a row also has the latent that the model predicts from. Columns to `keep` are copied from the inputs.
    """

    model: TrainedModel
    threshold: float | None = None
    axes: bool = False
    keep: Sequence[str] = ()

    def __post_init__(self) -> None:
        classes = self.model.classes
        if self.threshold is not None and len(classes) != 2:
            raise ConfigError(f"A threshold is for two classes, and this model has {len(classes)}.")
        if self.threshold is not None and not 0 <= self.threshold <= 1:
            raise ConfigError(f"A threshold is a probability from 0 to 1, and not {self.threshold:g}.")
        if self.axes and self.model.method.bottleneck() is None:
            raise ConfigError(f"The method {self.model.config.method.name!r} has no latent, so it has no axes.")

        if twice := sorted(set(self.keep).intersection(self._made())):
            raise ConfigError(
                f"The predictions have a column {twice[0]!r} of their own, so that of the inputs cannot be kept."
            )

    @property
    def columns(self) -> list[str]:
        name, *made = self._made()
        return [name, *self.keep, *made]

    def _made(self) -> list[str]:
        names = [f"p_{name}" for name in self.model.classes]
        return ["name", "prediction", *names, *self._axis_names(), "error"]

    def rows(self, window: Window) -> list[Row]:
        """Predict a window. Return a row for each of its inputs, in their order."""
        values: Iterator[tuple[str, list[float]]] = iter(self._values(window) if len(window.x) else ())
        names = self._made()[2:-1]
        rows = []
        for place, name in enumerate(window.names):
            row: Row = {"name": name, **{column: window.kept[column][place] for column in self.keep}}
            rows.append(row)
            if name in window.unreadable:
                row["error"] = window.unreadable[name]
                continue
            prediction, numbers = next(values)
            if np.isfinite(numbers).all():
                row |= {"prediction": prediction, **dict(zip(names, numbers, strict=True))}
            else:
                row["error"] = NOT_FINITE
        return rows

    def _values(self, window: Window) -> list[tuple[str, list[float]]]:
        probability = softmax(self.model.logits(window.x))
        if self.threshold is None:
            predicted = probability.argmax(1)
        else:
            predicted = (probability[:, 1] >= self.threshold).astype(int)
        numbers = np.concatenate([probability, self._latents(window)], 1) if self.axes else probability
        return [(self.model.classes[i], row.tolist()) for i, row in zip(predicted, numbers, strict=True)]

    def _latents(self, window: Window) -> np.ndarray:
        bottleneck = self.model.method.bottleneck()
        assert bottleneck is not None
        x = torch.as_tensor(window.x)
        x = x if self.model.encoder is None else self.model.encoder(x)
        batch = self.model.method.evaluation_batch
        return in_batches(bottleneck.latent, x, self.model.device, batch).float().cpu().numpy()

    def _axis_names(self) -> list[str]:
        if not self.axes:
            return []
        head = self.model.method.bottleneck()
        assert head is not None
        shape = self.model.task.shape if self.model.encoder is None else (self.model.encoder.network.out_features,)
        with torch.no_grad():
            axes = head.latent(torch.zeros(1, *shape, device=self.model.device)).shape[1]
        return [f"z{axis}" for axis in range(axes)]


def write_predictions(
    predictor: Predictor,
    windows: Iterable[Window],
    out: Path | TextIO,
    watch: Callable[[int], None] = lambda _: None,
) -> tuple[int, dict[str, str]]:
    """Write the table. Return how many inputs were predicted, and which could not be read, with the reasons.

    A file appears when it is whole. If none of the inputs can be read, there is none.
    """
    done, unreadable = 0, {}
    with _open_table(out, predictor.columns, predictor.keep) as write:
        for window in windows:
            rows = predictor.rows(window)
            write(rows)
            done += len(rows)
            unreadable |= {row["name"]: row["error"] for row in rows if "error" in row}
            watch(done)
        if done == len(unreadable):
            name, reason = next(iter(unreadable.items()))
            what = "predicted" if reason == NOT_FINITE else "read"
            raise DataError(f"None of the {done:,} inputs can be {what}, such as {name}: {reason}.")
    return done - len(unreadable), unreadable


@contextmanager
def _open_table(out: Path | TextIO, columns: Sequence[str], words: Sequence[str]) -> Iterator[WriteRows]:
    if not isinstance(out, Path):
        yield _csv_writer(out, columns)
        return
    kinds = {CSV: _csv_file, PARQUET: partial(_parquet_file, words=words)}
    if out.suffix.lower() not in kinds:
        raise ConfigError(f"{str(out)!r} is no kind of table that is written: end its name in {CSV} or {PARQUET}.")
    if not out.parent.is_dir():
        raise ConfigError(f"There is no folder {str(out.parent)!r} to write {out.name!r} into.")
    with replaced(out) as file, kinds[out.suffix.lower()](file, columns) as write:
        yield write


def _csv_writer(file: TextIO, columns: Sequence[str]) -> WriteRows:
    writer = csv.DictWriter(file, columns, lineterminator="\n")
    writer.writeheader()
    return writer.writerows


@contextmanager
def _csv_file(file: BinaryIO, columns: Sequence[str]) -> Iterator[WriteRows]:
    text = io.TextIOWrapper(file, encoding="utf-8", errors="surrogateescape", newline="")
    try:
        write = _csv_writer(text, [_encodable(name, "surrogateescape") for name in columns])
        yield lambda rows: write([_encodable_row(row, "surrogateescape") for row in rows])
    finally:
        text.detach()  # writes what is left, and leaves the file open


@contextmanager
def _parquet_file(file: BinaryIO, columns: Sequence[str], words: Sequence[str]) -> Iterator[WriteRows]:
    from sitar.images.parquet import MISSING

    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise DataError(MISSING.format(error)) from error
    text = {"name", "prediction", "error", *words}
    kinds = [(_encodable(name), pa.string() if name in text else pa.float64()) for name in columns]
    schema = pa.schema(kinds)
    with pq.ParquetWriter(file, schema) as writer:
        yield lambda rows: writer.write_table(pa.Table.from_pylist([_encodable_row(row) for row in rows], schema))


def _encodable_row(row: Row, errors: str = "strict") -> Row:
    return {_encodable(key, errors): _encodable(value, errors) for key, value in row.items()}


def _encodable(value: Any, errors: str = "strict") -> Any:
    """Return a value as it is, or a text that is no valid UTF-8 with the letters at fault written out, as \\ud800."""
    if not isinstance(value, str):
        return value
    try:
        value.encode("utf-8", errors)
    except UnicodeEncodeError:
        return value.encode("utf-8", "backslashreplace").decode()
    return value
