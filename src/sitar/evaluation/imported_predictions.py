"""Read predictions that other code has made for the test samples of a run, so that they stand beside it as a run.

The file is a table with a row for each sample of a split, in any order, as `sitar predict` writes it:

name or index   the file of the sample as the data set names it, or its place in the split, counted from 0. Images
                stand in the order of their names there. Names need the data, and say of which split a sample is.
prediction      the predicted class, by name or by number
p_CLASS         the probability of each class, by name or by number; with these, `prediction` may be left out
label           the true class: optional, and checked
split           beside an index, of which split the sample is; without it, of the split that decides
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from sitar.config import section_config
from sitar.data.tables import TableFile, open_table
from sitar.errors import ConfigError, DataError
from sitar.evaluation.metrics import METRICS, Predictions, split_metrics
from sitar.files import user_path
from sitar.registry import DATASETS
from sitar.run_folder import RESULT_VERSION, Arrays, Result, Run, RunFolder
from sitar.splits import EVALUATION_SPLITS, deciding_split

logger = logging.getLogger(__name__)
OPTION = re.compile(r"(?P<name>[^=@]+)(?:@(?P<seed>\d+))?=(?P<file>.+)")
EVERYWHERE = ""
Names = Callable[[], Mapping[str, Sequence[str]]]
WHOLE = re.compile(r"^(-?\d+)\.0+$")  # as pandas writes whole numbers in a column that has an empty cell
EMPTY = ("", "nan")
MOST_SUM_OFF = 0.01  # by which the probabilities of a sample may miss 1, as they were rounded


@dataclass(frozen=True)
class ImportedRun(Run):
    """An imported run has predictions that other code has made. Its folder is the file that they were read from."""

    arrays: Arrays
    of: Run  # the run with the same test samples

    @property
    def is_imported(self) -> bool:
        return True

    @cached_property
    def _predictions(self) -> Arrays:
        return self.arrays

    @cached_property
    def environment(self) -> dict[str, Any]:
        return {"data_checksum": self.of.data_checksum}


def import_predictions(options: Sequence[str], run: Run) -> list[ImportedRun]:
    """Read `NAME=FILE` or `NAME@SEED=FILE` for the test samples of a run. Files of one name are seeds 0, 1, ..."""
    names = cache(lambda: _names(run, _known(run)))  # read where a table has names, and once for all of them
    imported: list[ImportedRun] = []
    for option in options:
        found = OPTION.fullmatch(option)
        if found is None:
            raise ConfigError(f"--predictions {option!r} is not written NAME=FILE or NAME@SEED=FILE.")
        name, file = found["name"].strip(), user_path(found["file"])
        taken = [one.seed for one in imported if one.config["preset"] == name]
        seed = int(found["seed"]) if found["seed"] else len(taken)
        if seed in taken:
            raise ConfigError(
                f"--predictions gives two files for seed {seed} of {name!r}. Write NAME@SEED=FILE for all."
            )
        imported.append(_import(name, seed, file, run, names))
    return imported


def _import(name: str, seed: int, file: Path, run: Run, names_of_run: Names) -> ImportedRun:
    if not file.is_file():
        raise DataError(f"There is no file {str(file)!r} with the predictions of {name!r}.")
    table = open_table(file)
    arrays: Arrays = {}
    splits: dict[str, Any] = {}
    for split, order in _orders(table, run, names_of_run).items():
        stored = run.predictions(split)
        scores, ranks = _scores(table, order, run.classes)
        _check_labels(table, order, stored["y"], split, run.classes)
        group = stored.get("group")
        names = list(run.result["splits"][split].get("groups", {})) if group is not None else []
        share = stored["group_share"].tolist() if "group_share" in stored else None
        majority = frozenset((int(label), int(value)) for label, value in stored.get("majority", ()))
        metrics = split_metrics(Predictions(scores, stored["y"], group, names, share, majority))
        lacking = [metric.name for metric in METRICS.values() if metric.needs_probabilities and not ranks]
        splits[split] = {**metrics, **dict.fromkeys(lacking)}
        arrays |= {f"{split}/{key}": array for key, array in {**stored, "logits": scores}.items()}
    config = {"preset": name, "seed": seed, "data": run.config.get("data", {})}
    result = {
        "version": RESULT_VERSION, "dataset": run.result["dataset"], "preset": name, "seed": seed,
        "selection": "imported", "seconds": 0.0, "classes": run.classes, "splits": splits,
    }  # fmt: skip
    return ImportedRun(RunFolder(file), config, cast(Result, result), arrays, run)


def _known(run: Run) -> list[str]:
    """Return the splits of which a run has stored predictions."""
    return [split for split in EVALUATION_SPLITS if len(run.labels(split))]


def _orders(table: TableFile, run: Run, names: Names) -> dict[str, NDArray[np.int64]]:
    """Return the row of each sample, by split. Every sample of a split must be there once."""
    known = _known(run)
    deciding = deciding_split(known)
    if deciding is None:
        raise DataError(f"The run {str(run.folder.path)!r} has stored no predictions, so there is nothing to match.")
    if "name" in table.names:
        return _by_name(table, names(), known, deciding)
    if "index" not in table.names:
        raise DataError(f"{table.title} has neither a column 'name' nor 'index', which say whose each prediction is.")
    if "label" not in table.names:
        logger.warning(
            "%s has neither names nor labels, so nothing shows whether its order is that of the run. A column `label` "
            "with the true classes would be checked.", table.title
        )  # fmt: skip
    words = [word.strip() for word in table.words("index")]
    of = [word.strip() for word in table.words("split")] if "split" in table.names else [deciding] * len(words)
    if wrong := sorted(set(of) - set(known)):
        raise DataError(f"{table.title} has the split {wrong[0]!r}, and the run has {', '.join(known)}.")
    orders = {}
    for split in (split for split in known if split in of):
        expected = [str(place) for place in range(len(run.labels(split)))]
        rows = {row: word for row, word in enumerate(words) if of[row] == split}
        orders[split] = _order(table, rows, expected, split)
    return orders


def _by_name(
    table: TableFile, names: Mapping[str, Sequence[str]], known: Sequence[str], deciding: str
) -> dict[str, NDArray[np.int64]]:
    """Find the splits of which the table names every sample. Rows of other samples of the data are not used."""
    rows = dict(enumerate(table.words("name")))
    given, of_data = set(rows.values()), set(names[EVERYWHERE])
    orders = {}
    for split in [split for split in known if given.issuperset(names[split])] or [deciding]:
        elsewhere = of_data.difference(names[split])
        mine = {row: word for row, word in rows.items() if word not in elsewhere}
        orders[split] = _order(table, mine, names[split], split)
    return orders


def _order(table: TableFile, rows: Mapping[int, str], expected: Sequence[str], split: str) -> NDArray[np.int64]:
    """Return the row of each expected sample. Refuse a table that lacks one, has one twice, or has others."""
    if twice := [word for word, times in Counter(rows.values()).items() if times > 1]:
        raise DataError(f"{table.title} has {twice[0]!r} more than once. Predict each sample of {split} once.")
    places = {word: row for row, word in rows.items()}
    missing, others = [word for word in expected if word not in places], sorted(places.keys() - set(expected))
    if missing or others:
        raise DataError(
            f"{table.title} does not have the samples of {split}: {len(missing):,} of {len(expected):,} are missing"
            f"{_such_as(missing)}, and {len(others):,} are not of it{_such_as(others)}. If the file is of another "
            "split, say so in a column 'split'."
        )
    return np.array([places[word] for word in expected])


def _names(run: Run, splits: Sequence[str]) -> dict[str, list[str]]:
    """Return the files of the samples of splits, and of all, as the data set names them. The data must be there."""
    config: Any = section_config("data", run.config["data"])
    dataset = DATASETS.get(config.name)
    samples = dataset.samples(config)  # first: it fetches nothing, and says what is missing
    with _without_remarks("sitar.data"):  # which `samples` has made
        prepared = dataset.prepare(config)  # from the cache, in the order of the evaluation
    samples = samples if prepared is None else prepared.usable
    names = {EVERYWHERE: [str(name) for name in samples.files]}
    for split in splits:
        places = samples.splits().get(split, np.zeros(0, np.int64))
        names[split] = [str(name) for name in samples.files[places]]
        if not np.array_equal(samples.label[places], run.labels(split)):
            raise DataError(
                f"{split} has other samples where the data lies now than the run {str(run.folder.path)!r} was tested "
                "on, so names do not say which is which. Use a column 'index'."
            )
    return names


@contextmanager
def _without_remarks(name: str) -> Iterator[None]:
    """Keep a logger from what is no error during a `with` block."""
    said = logging.getLogger(name)
    level = said.level
    said.setLevel(max(logging.ERROR, said.getEffectiveLevel()))
    try:
        yield
    finally:
        said.setLevel(level)


def _scores(table: TableFile, order: NDArray[np.int64], classes: Sequence[str]) -> tuple[NDArray[np.float32], bool]:
    """Return logits (sample, class), and whether they rank samples: one predicted class alone does not."""
    columns = _probability_columns(table, classes)
    if columns is None:
        table.check_columns(["prediction"])
        return np.eye(len(classes), dtype=np.float32)[_classes(table, "prediction", order, classes)], False
    table.check_columns(columns)
    probability = np.stack([np.asarray(table.numbers(column), np.float64)[order] for column in columns], axis=1)
    if (
        not np.isfinite(probability).all()
        or (probability < 0).any()
        or (abs(probability.sum(1) - 1) > MOST_SUM_OFF).any()
    ):
        raise DataError(
            f"{table.title} has rows whose {', '.join(columns[:3])} are no probabilities: numbers from 0 on that "
            "add up to 1."
        )
    scores = np.log(np.maximum(probability, np.finfo(np.float32).tiny)).astype(np.float32)
    if "prediction" in table.names:
        given, sample = _classes(table, "prediction", order, classes), np.arange(len(scores))
        differ = scores[sample, given] < scores.max(1)
        if differ.any():
            raise DataError(
                f"{table.title} has {differ.sum():,} rows whose prediction is not their most probable class. Leave one "
                "of the two out, so that it is clear what is compared."
            )
        tied = scores.argmax(1) != given  # of equal probabilities, as after rounding, the prediction says which it is
        scores[tied, given[tied]] = np.nextafter(scores[tied, given[tied]], np.float32(np.inf))
    return scores, True


def _probability_columns(table: TableFile, classes: Sequence[str]) -> list[str] | None:
    """Return the columns of the probabilities, which have the names of the classes or their numbers, or None.

    A column that looks like one and is of no class is refused if it may have been meant, and else warned of.
    """
    by_name, by_number = ([f"p_{word}" for word in words] for words in (classes, range(len(classes))))
    found = next((columns for columns in (by_name, by_number) if set(columns) & set(table.names)), None)
    strange = [name for name in table.names if name.startswith("p_") and name not in (found or ())]
    if strange:
        message = (
            f"{table.title} has the column {strange[0]!r}, which is of no class. Probabilities stand in the columns "
            f"{', '.join(by_name[:3])}, or {', '.join(by_number[:3])}."
        )
        if found is None and "prediction" not in table.names:
            raise DataError(message)
        logger.warning("%s It is not used.", message)
    return found


def _classes(table: TableFile, column: str, order: NDArray[np.int64], classes: Sequence[str]) -> NDArray[np.int64]:
    """Return the numbers of classes that are written as their names or as numbers, counted from 0."""
    codes = {name: place for place, name in enumerate(classes)}
    words = [word if (word := cell.strip()) in codes else WHOLE.sub(r"\1", word) for cell in table.words(column)]
    empty = [row for row in order.tolist() if words[row] not in codes and words[row].lower() in EMPTY]
    if empty:
        key = "name" if "name" in table.names else "index"
        where = table.words(key)[empty[0]]
        raise DataError(
            f"{table.title} has {len(empty):,} rows whose {column} is empty, such as that of {key} {where!r}. "
            "Fill every cell of it."
        )
    if not any(word in codes for word in words):
        codes = {str(place): place for place in range(len(classes))}
    if wrong := [words[row] for row in order if words[row] not in codes]:
        raise DataError(
            f"{table.title} has {len(wrong):,} rows whose {column} is no class, such as {wrong[0]!r}. The classes are "
            f"{', '.join(classes)}, or their numbers from 0 on."
        )
    return np.array([codes[words[row]] for row in order])


def _check_labels(
    table: TableFile, order: NDArray[np.int64], y: NDArray[np.int64], split: str, classes: Sequence[str]
) -> None:
    if "label" not in table.names:
        return
    differ = int((_classes(table, "label", order, classes) != y).sum())
    if differ:
        raise DataError(
            f"{table.title} has another label than the run for {differ:,} of {len(y):,} samples of {split}. Its "
            "samples are others, or in another order."
        )


def _such_as(words: Sequence[str]) -> str:
    return f", such as {words[0]!r}" if words else ""
