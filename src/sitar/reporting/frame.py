"""Put the results of runs into one pandas frame: a row for each run, split and metric."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from sitar.errors import ConfigError, RunError
from sitar.files import user_path
from sitar.given import KEYS, given_to
from sitar.run_folder import Run, RunFolder
from sitar.wording import are, counted

if TYPE_CHECKING:
    from pandas import DataFrame

logger = logging.getLogger(__name__)
Place = str | os.PathLike[str] | RunFolder | Run
COLUMNS = (
    "run", "preset", "dataset", "method", *KEYS, "seed",
    "split", "metric", "group", "n", "value", "low", "high",
)  # fmt: skip
ACCURACY = "accuracy"  # the metric of a row of one group


def frame(runs: Place | Iterable[Place]) -> DataFrame:
    """Return the results of finished runs, tidy: one value in each row (needs the extra pandas).

    `runs` is a run folder, a folder with run folders at any depth below it, or several of these. Rows with a `group`
    have the accuracy of that group. The other rows are metrics of the whole split. Values are fractions; those that do
    not exist are NaN. `low` and `high` are the 95 % interval, where there is one.
    """
    try:
        import pandas
    except ImportError as error:
        raise ConfigError('sitar.frame needs pandas: pip install "sitar[pandas]".') from error
    given = [runs] if isinstance(runs, str | os.PathLike | RunFolder | Run) else list(runs)
    rows = [row for place in given for run in _runs(place) for row in _rows(run)]
    table = pandas.DataFrame(rows, columns=list(COLUMNS))
    return table.astype({"n": "int64", "seed": "int64", "value": "float64", "low": "float64", "high": "float64"})


def _runs(place: Place) -> Iterator[Run]:
    """Yield the run of a folder, or the finished runs below it."""
    if isinstance(place, Run):
        yield place
        return
    folder = place if isinstance(place, RunFolder) else RunFolder(user_path(place))
    if folder.is_started:
        yield Run.read(folder)
        return
    if not folder.path.is_dir():
        raise RunError(f"There is no folder {str(folder.path)!r}.")
    below = [RunFolder(file.parent) for file in sorted(folder.path.rglob(folder.config_file.name))]
    done = [one for one in below if one.is_done]
    if not done:
        raise RunError(f"There is no finished run in {str(folder.path)!r}, nor in the folders below it.")
    if len(done) < len(below):
        n = len(below) - len(done)
        logger.warning("%s in %r %s not finished: left out.", counted(n, "run"), str(folder.path), are(n))
    yield from (Run.read(one) for one in done)


def _rows(run: Run) -> Iterator[dict[str, Any]]:
    result = run.result
    about = {name: result.get(name) for name in ("preset", "dataset", "method", "seed")} | given_to(result)
    about["run"] = str(run.folder.path)
    for split, metrics in result["splits"].items():
        of_split = {**about, "split": split, "n": metrics["n"]}
        intervals = metrics.get("intervals") or {}
        for metric, value in metrics.items():
            if metric not in ("n", "groups", "intervals") and (value is None or isinstance(value, int | float)):
                low, high = intervals.get(metric) or (None, None)
                yield {**of_split, "metric": metric, "value": value, "low": low, "high": high}
        for group, found in (metrics.get("groups") or {}).items():
            yield {**of_split, "metric": ACCURACY, "group": group, "n": found["n"], "value": found["accuracy"]}
