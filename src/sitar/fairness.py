"""Hand labels, predictions and groups to fairlearn, which has many more metrics of groups than we do."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sitar.errors import ConfigError, RunError

if TYPE_CHECKING:
    import numpy as np
    from fairlearn.metrics import MetricFrame
    from numpy.typing import NDArray


def group_columns(
    group: NDArray[np.int64],
    names: Sequence[str],
    classes: Sequence[str] | None,
    attributes: Mapping[str, Sequence[str]] | None,
) -> dict[str, list[str]]:
    """Return, for each sample, what the name of its group says: {"label": [...], "site": [...]}.

    A group is called label=0,site=1. The numbers stand for the names of classes and the values of attributes.
    """
    values = {"label": classes, **(attributes or {})}
    columns: dict[str, list[str]] = {}
    parts = [[part.rpartition("=")[::2] for part in name.split(",", 1)] for name in names]
    for place, (column, _) in enumerate(parts[0]):
        known = values.get(column)
        words = [part[place][1] for part in parts]
        said = [known[int(word)] if known and word.isdigit() and int(word) < len(known) else word for word in words]
        columns[column] = [said[number] for number in group]
    return columns


def metric_frame(
    y: NDArray[np.int64],
    predicted: NDArray[np.int64],
    columns: Mapping[str, Sequence[str]],
    metrics: Mapping[str, Callable[..., Any]] | None,
    by: Sequence[str] | None,
) -> MetricFrame:
    """Return a MetricFrame whose groups are the values of the columns that `by` names, or of all of them."""
    try:
        import pandas
        from fairlearn.metrics import MetricFrame, count
    except ImportError as error:
        raise ConfigError('to_metricframe needs fairlearn: pip install "sitar[fairlearn]".') from error
    from sklearn.metrics import accuracy_score

    chosen = list(columns) if by is None else [by] if isinstance(by, str) else list(by)
    if not chosen or not set(chosen) <= set(columns):
        raise RunError(f"by={chosen} does not name what makes groups here: {', '.join(columns)}.")
    return MetricFrame(
        metrics=dict(metrics) if metrics is not None else {"accuracy": accuracy_score, "count": count},
        y_true=y,
        y_pred=predicted,
        sensitive_features=pandas.DataFrame({name: columns[name] for name in chosen}),
    )
