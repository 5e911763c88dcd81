"""Named criteria that choose an epoch. A criterion reads the metrics of `val` and nothing else; higher is better."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sitar.config import Selection
from sitar.data.types import Data
from sitar.errors import ConfigError

METRIC: dict[Selection, str] = {
    "val_average": "average",
    "val_class_balanced": "class_balanced",
    "val_worst_group": "worst_group",
}


def check_selection(selection: Selection, data: Data) -> None:
    """Refuse a criterion that `data` cannot answer, with the reason."""
    if selection == "last":
        return
    val = data.evaluation.get("val")
    if val is None or not len(val):
        raise ConfigError(f"train.selection {selection!r} reads a val split, and this data has none. Use 'last'.")
    if selection == "val_worst_group":
        allowed = "Use 'last', 'val_average' or 'val_class_balanced'."
        if val.group is None:
            raise ConfigError(f"train.selection 'val_worst_group' needs groups, and val has none. {allowed}")
        present = set(val.group.unique().tolist())
        absent = [name for i, name in enumerate(val.group_names) if i not in present]
        if absent:
            raise ConfigError(
                f"train.selection 'val_worst_group' cannot be judged: {', '.join(absent)} has no sample in val, so the "
                f"worst group there is not the worst group. {allowed}"
            )


def criterion(selection: Selection, val_metrics: Mapping[str, Any]) -> float:
    """The value by which `selection` compares epochs."""
    return float(val_metrics[METRIC[selection]])
