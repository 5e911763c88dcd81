"""Rules choose an epoch: the last one, or the best one by a metric of `val`. A rule reads no other split."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from sitar.config import LAST, selections
from sitar.data.types import Data, EvalSplit
from sitar.errors import ConfigError
from sitar.evaluation.metrics import METRICS, Metric, Predictions
from sitar.splits import VAL


def check_selection(selection: str, data: Data) -> None:
    """Refuse a rule that cannot be applied to `data`, and say why."""
    if selection == LAST:
        return
    val = data.evaluation.get(VAL)
    if val is None or not len(val):
        raise ConfigError(f"train.selection {selection!r} reads a val split, and this data has none. Use {LAST!r}.")
    if reason := _unfit(selection_metric(selection), val):
        fit = [repr(name) for name in selections() if name == LAST or not _unfit(selection_metric(name), val)]
        raise ConfigError(f"train.selection {selection!r} {reason}. Use {', '.join(fit[:-1])} or {fit[-1]}.")


def _unfit(metric: Metric, val: EvalSplit) -> str:
    """Say why an epoch cannot be chosen by a metric of this split. The string is empty if it can."""
    if not metric.needs_groups:
        return ""
    if val.group is None:
        return "needs groups, and val has none"
    present = set(val.group.unique().tolist())
    absent = [name for i, name in enumerate(val.group_names) if i not in present]
    if absent and metric.absent_group is not None:
        return f"cannot be judged: {', '.join(absent)} has no sample in val, so {metric.absent_group}"
    return ""


def selection_metric(selection: str) -> Metric:
    """Return the metric by which a rule, other than the last epoch, compares epochs."""
    return METRICS[selection.removeprefix(f"{VAL}_")]


def watched_metrics(predictions: Predictions) -> dict[str, float | None]:
    """Return the metrics by which an epoch may be chosen, for the log of an epoch."""
    return {metric.name: metric.of(predictions) for metric in METRICS.values() if metric.selects}


def criterion(selection: str, val_metrics: Mapping[str, Any]) -> float:
    """Return the number by which a rule compares epochs: higher is better.

    An epoch whose metric cannot be said, such as an AUC of outputs that are not finite, is worse than any other.
    """
    metric = selection_metric(selection)
    value = val_metrics[metric.name]
    if value is None:
        return -math.inf
    return float(value) if metric.higher_is_better else -float(value)
