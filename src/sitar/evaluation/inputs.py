"""Read new inputs the way a run's data stores them, so that its model can be asked about them (data/inputs.py)."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from sitar.data import inputs
from sitar.data.inputs import Form, Inputs, Source, Window
from sitar.evaluation.trained_model import TrainedModel
from sitar.progress import Watch, unwatched

__all__ = ["Inputs", "Source", "Window", "input_windows", "read_inputs"]

Place = str | os.PathLike[str]


def read_inputs(
    source: Source,
    model: TrainedModel,
    *,
    root: Place | None = None,
    path_column: str | None = None,
    watch: Watch = unwatched,
) -> Inputs:
    """Read new inputs for `model`, all of them."""
    return inputs.read_inputs(source, _form(model), root=root, path_column=path_column, watch=watch)


def input_windows(
    source: Source,
    model: TrainedModel,
    window: int,
    *,
    root: Place | None = None,
    path_column: str | None = None,
    keep: Sequence[str] = (),
) -> tuple[int, Iterator[Window]]:
    """Return how many inputs there are for `model`, and read them in windows, with columns of their table to `keep`."""
    return inputs.input_windows(source, _form(model), window, root=root, path_column=path_column, keep=keep)


def _form(model: TrainedModel) -> Form:
    return Form(model.config.data, model.task.shape, model.feature_columns)
