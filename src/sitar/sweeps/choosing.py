"""Choose a point of a sweep by a metric of `val`, as the mean over seeds: no groups are read, and no test split."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sitar.config import LAST, RunConfig
from sitar.errors import ConfigError
from sitar.evaluation.metrics import METRICS
from sitar.evaluation.selection import selection_metric
from sitar.registry import unknown
from sitar.splits import EVALUATION_SPLITS, TRAIN, VAL

DEFAULT, BALANCED = f"{VAL}_average", f"{VAL}_class_balanced"


@dataclass(frozen=True)
class Rule:
    """A rule names a metric of `val`. One that reads groups was asked for by name, and every table marks it."""

    metric: str
    reads_groups: bool = False

    @property
    def name(self) -> str:
        return f"{VAL}_{self.metric}"


def free_rules() -> list[str]:
    """Name the rules that need no groups."""
    return [f"{VAL}_{metric.name}" for metric in METRICS.values() if not metric.needs_groups]


def make_rule(select: str | None, config: RunConfig) -> Rule:
    """Return the rule that a user asks for. By default it is that of the runs' own epochs.

    Where they keep the last epoch, or choose by groups, it is the average on `val`: over classes if the runs weight
    them. A rule that reads groups must be asked for by name.
    """
    if select is None:
        own = config.train.selection
        free = own != LAST and not selection_metric(own).needs_groups
        weighted = getattr(config.method, "class_weight", None) is not None
        return Rule(_metric(own if free else BALANCED if weighted else DEFAULT))
    name = _metric(select)
    return Rule(name, METRICS[name].needs_groups)


def check_epochs(rule: Rule, configs: Iterable[RunConfig]) -> None:
    """Refuse runs whose own epoch is chosen with the help of groups, unless the sweep itself may read groups."""
    for config in configs:
        own = config.train.selection
        if own != LAST and selection_metric(own).needs_groups and not rule.reads_groups:
            raise ConfigError(
                f"train.selection={own} chooses the epoch of each run by groups, so that this sweep would be tuned "
                f"with group labels. Use --set train.selection={rule.name}, or say that it may: --select {own}."
            )


def _metric(select: str) -> str:
    """Return the metric of a rule such as val_average. Other splits than `val` are refused."""
    others = sorted((name for name in (TRAIN, *EVALUATION_SPLITS) if name != VAL), key=len, reverse=True)
    for split in others:
        if select == split or select.startswith(f"{split}_"):
            raise ConfigError(
                f"--select {select!r} reads {split}, and a setting that is chosen there cannot be judged there. A rule "
                f"reads {VAL}, such as {DEFAULT}."
            )
    name = select.removeprefix(f"{VAL}_")
    if name not in METRICS or name == select:
        raise unknown(
            "rule", select, free_rules(), "Those that read groups must be named: val_worst_group, val_core_auc."
        )
    if METRICS[name].ideal is not None:
        raise ConfigError(f"--select {select!r}: the best {METRICS[name].title} says nothing about the label.")
    return name
