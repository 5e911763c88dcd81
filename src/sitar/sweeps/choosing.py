"""Choose a point of a sweep by a metric of `val`, as the mean over seeds. Groups and `val_ood` must be asked for."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sitar.config import LAST, RunConfig
from sitar.errors import ConfigError
from sitar.evaluation.metrics import METRICS
from sitar.evaluation.selection import selection_metric
from sitar.registry import unknown
from sitar.splits import TEST_SPLITS, TRAIN, VAL, VAL_OOD

DEFAULT, BALANCED = f"{VAL}_average", f"{VAL}_class_balanced"


@dataclass(frozen=True)
class Rule:
    """A rule names a metric of `val`. One that reads groups or `val_ood` was asked for by name, and tables mark it."""

    metric: str
    reads_groups: bool = False
    split: str = VAL

    @property
    def name(self) -> str:
        return f"{self.split}_{self.metric}"


def free_rules() -> list[str]:
    """Name the rules that need no groups."""
    return [f"{VAL}_{metric.name}" for metric in METRICS.values() if not metric.needs_groups]


def make_rule(select: str | None, config: RunConfig) -> Rule:
    """Return the rule that a user asks for. By default it is that of the runs' own epochs.

    Where they keep the last epoch, or choose by groups, it is the average on `val`: over classes if the runs weight
    them. A rule that reads groups or `val_ood` must be asked for by name.
    """
    if select is None:
        own = config.train.selection
        free = own != LAST and not selection_metric(own).needs_groups
        weighted = getattr(config.method, "class_weight", None) is not None
        select = own if free else BALANCED if weighted else DEFAULT
    split, name = _read(select)
    return Rule(name, METRICS[name].needs_groups, split)


def check_epochs(rule: Rule, configs: Iterable[RunConfig]) -> None:
    """Refuse runs whose own epoch is chosen with the help of groups, unless the sweep itself may read groups."""
    for config in configs:
        own = config.train.selection
        if own != LAST and selection_metric(own).needs_groups and not rule.reads_groups:
            raise ConfigError(
                f"train.selection={own} chooses the epoch of each run by groups, so that this sweep would be tuned "
                f"with group labels. Use --set train.selection={VAL}_{rule.metric}, or say that it may: --select {own}."
            )


def _read(select: str) -> tuple[str, str]:
    """Return split and metric of a rule such as val_average. Splits that judge, or that training sees, are refused."""
    for split in (TRAIN, *TEST_SPLITS):
        if select == split or select.startswith(f"{split}_"):
            raise ConfigError(
                f"--select {select!r} reads {split}, and a setting that is chosen there cannot be judged there. A rule "
                f"reads {VAL}, such as {DEFAULT}."
            )
    split = VAL_OOD if select.startswith(f"{VAL_OOD}_") else VAL
    name = select.removeprefix(f"{split}_")
    if name not in METRICS or name == select:
        named = "Those that read groups must be named: val_worst_group, val_core_auc. So must those that read val_ood."
        raise unknown("rule", select, free_rules(), named)
    if METRICS[name].ideal is not None:
        raise ConfigError(f"--select {select!r}: the best {METRICS[name].title} says nothing about the label.")
    return split, name
