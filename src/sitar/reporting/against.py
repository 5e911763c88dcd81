"""Say of rows of runs whether they are better than a reference, or cannot be told apart from it.

Both rows have predicted the same test samples, and are compared on the seeds that both have. A seed of predictions that
other code has made belongs to no seed of ours, so all seeds of such a row are compared with all of the other. Tables,
reports and the bold numbers of a LaTeX table all come from here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sitar.errors import RunError
from sitar.evaluation.metrics import METRICS, Metric, Predictions, core_auc, shortcut_auc
from sitar.registry import unknown
from sitar.reporting.comparison import Row
from sitar.reporting.paired import (
    Combine,
    Difference,
    Unpaired,
    accuracy_difference,
    auc_difference,
    classical_tests,
    holm,
    metric_difference,
)
from sitar.run_folder import Run

LEVEL = 0.05
ONE_SEED = "With one seed an interval is about other test samples, and says nothing about other seeds."
OVER_BOTH = (
    "Intervals of differences are over other seeds and other test samples. They have 95 %, or more where several rows "
    "are compared with one (Holm)."
)
AUCS = {"core_auc": core_auc, "shortcut_auc": shortcut_auc}


@dataclass(frozen=True)
class Verdict:
    """A verdict says what a row is against a reference, in one metric on one split, at the level of its family."""

    row: Row
    reference: Row
    split: str
    metric: str
    seeds: list[int]  # those that both have; of rows whose seeds are not paired, those of the row that has fewer
    difference: Difference  # positive: the row is better, whatever the metric
    level: float  # of the interval, which excludes 0 if and only if the two are told apart
    p: float  # corrected for the number of rows

    @property
    def interval(self) -> tuple[float, float]:
        """Return the interval, which ends where a difference does: of fractions, or of distances from an ideal."""
        low, high = self.difference.interval(self.level)
        ideal = METRICS[self.metric].ideal
        largest = 1.0 if ideal is None else max(ideal, 1 - ideal)
        return max(-largest, low), min(largest, high)

    @property
    def pairs_seeds(self) -> bool:
        return not isinstance(self.difference, Unpaired)

    @property
    def told_apart(self) -> bool:
        low, high = self.interval
        return low > 0 or high < 0

    @property
    def words(self) -> str:
        low, high = self.interval
        if not self.told_apart:
            return f"cannot be told apart ({points(low)} to {points(high)})"
        if low > 0:
            return f"better by {points(self.difference.value)} points ({points(low)} to {points(high)})"
        return f"worse by {points(-self.difference.value)} points ({points(-high)} to {points(-low)})"

    @property
    def sentence(self) -> str:
        """Say the same with the names of both rows."""
        mine, theirs = self.row.label, self.reference.label
        if not self.told_apart:
            return f"{mine} and {theirs} {self.words}"
        how, by, rest = self.words.partition(" by ")
        return f"{mine} is {how} than {theirs}{by}{rest}"

    @cached_property
    def tests(self) -> dict[str, float]:
        """Return p-values of well-known tests, not corrected."""
        return classical_tests(self.difference)


def points(difference: float) -> str:
    """Write a difference of fractions in points of percent."""
    return f"{100 * difference:.1f}".replace("-0.0", "0.0")


def find_row(rows: Sequence[Row], name: str) -> Row:
    """Return the row of this name: its label, its preset, the end of that, or its method. Capitals do not matter.

    Several rows may have one preset, where `method.name` put another method into it. Then the method decides.
    """
    wanted = name.lower()
    kinds: tuple[Callable[[Row], str], ...] = (
        lambda row: row.label,
        lambda row: str(row.runs[0].config.get("preset") or ""),
        lambda row: str(row.runs[0].config.get("preset") or "").rpartition("/")[2],
        lambda row: str(row.results[0].get("method", "")),
    )
    for kind in kinds:
        found = [row for row in rows if kind(row).lower() == wanted]
        by_method = [row for row in found if kinds[-1](row).lower() == wanted.rpartition("/")[2]]
        for rows_left in (found, by_method):
            if len(rows_left) == 1:
                return rows_left[0]
        if found:
            raise RunError(
                f"{name!r} is the name of {len(found)} rows: {'; '.join(row.label for row in found)}. Write one of "
                "these labels, in quotes."
            )
    raise unknown("row", name, [row.label for row in rows], "Give its runs too.")


def judge(
    pairs: Iterable[tuple[Row, Row]],
    split: str,
    metric: str,
    on_refused: Callable[[RunError], None] | None = None,
) -> list[Verdict]:
    """Compare each row with its reference. The pairs are one family: p-values and intervals are corrected for it.

    Pairs of which a run lacks the metric, or has not stored what it is computed from, are left out. So are pairs that
    cannot be compared, if `on_refused` is there to be told why.
    """
    family = []
    for row, reference in pairs:
        try:
            found = difference(row, reference, split, metric)
        except RunError as error:
            if on_refused is None:
                raise
            on_refused(error)
            continue
        if found is not None:
            family.append((row, reference, found))
    corrected, levels = holm([found.p for _, _, found in family], LEVEL)
    return [
        Verdict(row, reference, split, metric, _shared_seeds(row, reference), found, 1 - level, p)
        for (row, reference, found), level, p in zip(family, levels, corrected, strict=True)
    ]


def against(rows: Sequence[Row], reference: Row, shown: Iterable[tuple[str, str]]) -> list[Verdict]:
    """Compare all other rows with one, on every split and metric that both have."""
    pairs = [(row, reference) for row in rows if row is not reference]
    return [verdict for split, metric in shown for verdict in judge(pairs, split, metric)]


def difference(row: Row, reference: Row, split: str, metric: str) -> Difference | None:
    """Return how much better a row is than a reference, in a metric on a split, over the seeds that both have.

    It is None where a run lacks the metric, or has not stored what it is computed from.
    """
    seeds, paired = _shared_seeds(row, reference), _seeds_are_paired(row, reference)
    first, second = ([run for run in one.runs if run.seed in seeds or not paired] for one in (row, reference))
    runs = [*first, *second]
    if any(run.result["splits"].get(split, {}).get(metric) is None for run in runs):
        return None
    predicted = [_predictions(run, split) for run in runs]
    for run, theirs in zip(runs, predicted, strict=True):
        _check_same(runs[0], run, predicted[0], theirs, split)
    mine, theirs = predicted[: len(first)], predicted[len(first) :]
    if paired or len(runs) == 2:
        return _difference(mine, theirs, METRICS[metric])
    pairs = [(one, other) for one in mine for other in theirs]
    found = _difference([one for one, _ in pairs], [other for _, other in pairs], METRICS[metric])
    return None if found is None else Unpaired(found.each, found.centre, found.covariance, first=len(mine))


def _difference(mine: list[Predictions], theirs: list[Predictions], metric: Metric) -> Difference | None:
    first = mine[0]
    if metric.needs_groups and any(p.group is None for p in (*mine, *theirs)):
        return None
    if metric.name in (known := _strata(first)):
        stratum, combine = known[metric.name]
        right, reference = (np.stack([p.correct for p in side], axis=1) for side in (mine, theirs))
        return accuracy_difference(right, reference, stratum, combine)
    if metric.name in AUCS:
        aucs = [auc for p in (*mine, *theirs) if (auc := AUCS[metric.name](p)) is not None]
        if len(aucs) < 2 * len(mine):
            return None
        values = np.array([goodness(metric, auc.value) for auc in aucs])
        influences = np.stack([_slope(metric, auc.value) * auc.influence for auc in aucs], axis=1)
        sides = *np.split(values, 2), *np.split(influences, 2, axis=1)
        return auc_difference(*sides, unseen=aucs[0].unseen)

    if not all(np.isfinite(p.logits).all() for p in (*mine, *theirs)):
        return None

    def value(method: int, seed: int, index: NDArray[np.int64]) -> float | None:
        p = (mine, theirs)[method][seed]
        group = None if p.group is None else p.group[index]
        found = metric.of(Predictions(p.logits[index], p.y[index], group, p.group_names, p.group_share, p.majority))
        return None if found is None else goodness(metric, found)

    return metric_difference(value, len(mine), first.y if first.group is None else first.group)


def _strata(p: Predictions) -> dict[str, tuple[NDArray[np.int64], Combine]]:
    """Return the metrics that are made of the accuracies of strata: the stratum of each sample, and what makes them."""
    known: dict[str, tuple[NDArray[np.int64], Combine]] = {
        "average": (np.zeros_like(p.y), lambda accuracies: accuracies.mean(-2)),
        "class_balanced": (p.y, lambda accuracies: accuracies.mean(-2)),
    }
    if p.group is not None:
        known["worst_group"] = (p.group, lambda accuracies: accuracies.min(-2))
        if p.group_share is not None and all(np.isin(np.flatnonzero(p.group_share), p.group)):
            share = np.array(p.group_share)[np.unique(p.group)]
            known["adjusted_average"] = (
                p.group,
                lambda accuracies: np.einsum("g,...gm->...m", share / share.sum(), accuracies),
            )
    return known


def goodness(metric: Metric, value: float) -> float:
    """Return a value that is higher for better predictions."""
    if metric.ideal is not None:
        return -abs(value - metric.ideal)
    return value if metric.higher_is_better else -value


def _slope(metric: Metric, value: float) -> float:
    """Return by how much the goodness grows with the value."""
    rises = value <= metric.ideal if metric.ideal is not None else metric.higher_is_better
    return 1.0 if rises else -1.0


def _seeds_are_paired(row: Row, reference: Row) -> bool:
    """Return whether a seed means the same for both rows. Other code does not share our random numbers."""
    return not any(run.is_imported for run in (*row.runs, *reference.runs))


def _shared_seeds(row: Row, reference: Row) -> list[int]:
    for one in (row, reference):
        if len(set(one.seeds)) < len(one.seeds):
            folders = ", ".join(repr(str(run.folder.path)) for run in one.runs)
            raise RunError(
                f"{one.label} has a seed twice ({_listed(one.seeds)}): {folders}. Give one run of each seed."
            )
    if not _seeds_are_paired(row, reference):
        return min(row.seeds, reference.seeds, key=len)
    seeds = [seed for seed in row.seeds if seed in reference.seeds]
    if not seeds:
        raise RunError(
            f"{row.label} (seeds {_listed(row.seeds)}) and {reference.label} (seeds {_listed(reference.seeds)}) share "
            "no seed, and are compared on the seeds that both have. Train one of them with a seed of the other."
        )
    return seeds


def _listed(seeds: Iterable[int]) -> str:
    return ", ".join(map(str, seeds))


def _predictions(run: Run, split: str) -> Predictions:
    """Read what a run has predicted for a split, with all that metrics know."""
    stored = run.predictions(split)
    groups = run.result["splits"].get(split, {}).get("groups", {})
    try:
        logits, y, group = stored["logits"], stored["y"], stored.get("group")
        share, majority = stored.get("group_share"), stored.get("majority", ())
        sound = logits.ndim == 2 and logits.shape[1] > 1 and y.shape == logits.shape[:1] and len(y) > 0
        sound = sound and _is(y, np.integer) and _is(logits, np.floating)
        if sound and group is not None:
            sound = group.shape == y.shape and _is(group, np.integer) and 0 <= group.min() <= group.max() < len(groups)
            sound = sound and len(groups) % logits.shape[1] == 0
        if sound and share is not None:
            sound = share.shape == (len(groups),) and _is(share, np.floating)
        cells = frozenset((int(label), int(value)) for label, value in majority)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _nothing_stored(run, split) from error
    if not sound:
        raise _nothing_stored(run, split)
    return Predictions(logits, y, group, list(groups), None if share is None else share.tolist(), cells)


def _is(array: NDArray[Any], kind: type[np.generic]) -> bool:
    return np.issubdtype(array.dtype, kind)


def _nothing_stored(run: Run, split: str) -> RunError:
    return RunError(
        f"{str(run.folder.predictions_file)!r} is missing or damaged, or has nothing of {split}. Runs are compared "
        "sample by sample, so both must have stored what they predict. Train the run again."
    )


def _check_same(run: Run, other: Run, mine: Predictions, theirs: Predictions, split: str) -> None:
    """Refuse to compare runs that were tested on other samples."""
    checksums = run.data_checksum, other.data_checksum
    same: list[Any] = [
        np.array_equal(mine.y, theirs.y),
        mine.group is None or theirs.group is None or np.array_equal(mine.group, theirs.group),
        None in checksums or checksums[0] == checksums[1],
    ]
    if not all(same):
        why = "labels" if not same[0] else "groups" if not same[1] else "checksums of the data"
        raise RunError(
            f"{str(run.folder.path)!r} and {str(other.folder.path)!r} were not tested on the same samples: the {why} "
            f"of {split} differ. Methods are compared sample by sample, on the same data and the same settings of it."
        )
