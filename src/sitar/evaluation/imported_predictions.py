"""Read predictions that other code has made for the test samples of a run, so that they stand beside it as a run.

The file is a table with a row for each sample of a split, in any order, as `sitar predict` writes it:

name or index   the file of the sample as the data set names it, or its place in the split, counted from 0
prediction      the predicted class, by name or by number
p_CLASS         the probability of each class; with these, `prediction` may be left out
label           the true class: optional, and checked
split           optional: of which split the sample is, if the file has several
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from sitar.config import section_config
from sitar.data.tables import TableFile, open_table
from sitar.errors import ConfigError, DataError
from sitar.evaluation.metrics import METRICS, Predictions, split_metrics
from sitar.registry import DATASETS
from sitar.run_folder import RESULT_VERSION, Arrays, Result, Run, RunFolder
from sitar.splits import EVALUATION_SPLITS, deciding_split

logger = logging.getLogger(__name__)
OPTION = re.compile(r"(?P<name>[^=@]+)(?:@(?P<seed>\d+))?=(?P<file>.+)")
MOST_SUM_OFF = 0.01  # by which the probabilities of a sample may miss 1, as they were rounded


@dataclass(frozen=True)
class ImportedRun(Run):
    """An imported run has predictions that other code has made. Its folder is the file that they were read from."""

    arrays: Arrays
    of: Run  # the run with the same test samples

    @cached_property
    def _predictions(self) -> Arrays:
        return self.arrays

    @cached_property
    def environment(self) -> dict[str, Any]:
        return {"data_checksum": self.of.data_checksum}


def import_predictions(options: Sequence[str], run: Run) -> list[ImportedRun]:
    """Read `NAME=FILE` or `NAME@SEED=FILE` for the test samples of a run. Files of one name are seeds 0, 1, ..."""
    imported: list[ImportedRun] = []
    for option in options:
        found = OPTION.fullmatch(option)
        if found is None:
            raise ConfigError(f"--predictions {option!r} is not written NAME=FILE or NAME@SEED=FILE.")
        name, file = found["name"].strip(), Path(found["file"]).expanduser()
        taken = [one.seed for one in imported if one.config["preset"] == name]
        seed = int(found["seed"]) if found["seed"] else len(taken)
        if seed in taken:
            raise ConfigError(
                f"--predictions gives two files for seed {seed} of {name!r}. Write NAME@SEED=FILE for all."
            )
        imported.append(_import(name, seed, file, run))
    return imported


def _import(name: str, seed: int, file: Path, run: Run) -> ImportedRun:
    if not file.is_file():
        raise DataError(f"There is no file {str(file)!r} with the predictions of {name!r}.")
    table = open_table(file)
    arrays: Arrays = {}
    splits: dict[str, Any] = {}
    for split, rows in _splits(table, run).items():
        stored = run.predictions(split)
        if "y" not in stored:
            raise DataError(
                f"The run {str(run.folder.path)!r} has stored nothing of {split}, so {table.title} has no match."
            )
        order = rows[_order(table, rows, split, len(stored["y"]), run)]
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


def _splits(table: TableFile, run: Run) -> dict[str, NDArray[np.int64]]:
    """Return the rows of each split. Without a column `split` all are of the split that decides."""
    known = [split for split in EVALUATION_SPLITS if split in run.result["splits"]]
    if "split" not in table.names:
        deciding = deciding_split(known)
        if deciding is None:
            raise DataError(f"The run {str(run.folder.path)!r} has no test split.")
        count = len(table.words(table.names[0]))
        return {deciding: np.arange(count)}
    words = np.array([word.strip() for word in table.words("split")])
    if wrong := sorted(set(words.tolist()) - set(known)):
        raise DataError(f"{table.title} has the split {wrong[0]!r}, and the run has {', '.join(known)}.")
    return {split: np.flatnonzero(words == split) for split in known if (words == split).any()}


def _order(table: TableFile, rows: NDArray[np.int64], split: str, count: int, run: Run) -> NDArray[np.int64]:
    """Return the place in `rows` of each sample of the split. Every sample must be there once."""
    if "name" in table.names:
        expected = _names(run, split, count)
        words = table.words("name")
    elif "index" in table.names:
        expected = [str(place) for place in range(count)]
        words = [word.strip() for word in table.words("index")]
        if "label" not in table.names:
            logger.warning(
                "%s has neither names nor labels, so nothing shows whether its order is that of %s. A column `label` "
                "with the true classes would be checked.", table.title, split
            )  # fmt: skip
    else:
        raise DataError(f"{table.title} has neither a column 'name' nor 'index', which say whose each prediction is.")
    given = [words[row] for row in rows]
    places = {word: place for place, word in enumerate(given)}
    if twice := [word for word, times in Counter(given).items() if times > 1]:
        raise DataError(f"{table.title} has {twice[0]!r} more than once. Predict each sample of {split} once.")
    missing = [word for word in expected if word not in places]
    others = set(given).difference(expected)
    if missing or others:
        raise DataError(
            f"{table.title} does not have the samples of {split}: {len(missing):,} of {count:,} are missing"
            f"{_such_as(missing)}, and {len(others):,} are not of it{_such_as(sorted(others))}. If the file is of "
            "another split, say so in a column 'split'."
        )
    return np.array([places[word] for word in expected])


def _names(run: Run, split: str, count: int) -> list[str]:
    """Return the files of the samples of a split, as the data set of the run names them. The data must be there."""
    config: Any = section_config("data", run.config["data"])
    table = DATASETS.get(config.name).samples(config)
    names = [str(name) for name in table.files[table.splits().get(split, np.zeros(0, np.int64))]]
    if len(names) != count:
        raise DataError(
            f"{split} has {len(names):,} samples where the data lies now, and the run {str(run.folder.path)!r} was "
            f"tested on {count:,}, so names do not say which is which. Use a column 'index'."
        )
    return names


def _scores(table: TableFile, order: NDArray[np.int64], classes: Sequence[str]) -> tuple[NDArray[np.float32], bool]:
    """Return logits (sample, class), and whether they rank samples: one predicted class alone does not."""
    columns = [f"p_{name}" for name in classes]
    there = [column for column in columns if column in table.names]
    if not there:
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
        differ = _classes(table, "prediction", order, classes) != scores.argmax(1)
        if differ.any():
            raise DataError(
                f"{table.title} has {differ.sum():,} rows whose prediction is not their most probable class. Leave one "
                "of the two out, so that it is clear what is compared."
            )
    return scores, True


def _classes(table: TableFile, column: str, order: NDArray[np.int64], classes: Sequence[str]) -> NDArray[np.int64]:
    """Return the numbers of classes that are written as their names or as numbers, counted from 0."""
    words = [word.strip() for word in table.words(column)]
    codes = {name: place for place, name in enumerate(classes)}
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
