"""What does a trained model use, where does it look, and what does it get wrong? All of it for finished runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from sitar.analysis.explain.gradcam import Box, gradcam
from sitar.analysis.explain.mistakes import wrong
from sitar.analysis.explain.sensitivity import sensitivity
from sitar.analysis.explain.shared_axes import Rulers
from sitar.analysis.explain.traversals import traversals
from sitar.analysis.samples import HELD_OUT, check_same_data
from sitar.errors import SitarError
from sitar.evaluation.trained_model import TrainedModel
from sitar.findings import EXPLAIN_VERSION
from sitar.run_folder import RunFolder

Arrays = dict[str, np.ndarray]
Explanation = dict[str, Any]


def explain_runs(
    folders: Sequence[RunFolder], axes: RunFolder | None = None, box: Box | None = None, device: str = "auto"
) -> Iterator[Explanation]:
    """Explain finished runs, one after the other; what is found is written into the artifacts of each and yielded.

    `axes` is the run whose VAE all are measured with, `box` where Grad-CAM's mass is counted.
    """
    for folder in folders:
        folder.result()  # refuses a run that is not finished, before the first is computed
    rulers = Rulers(folders, axes, device)
    for folder in folders:
        yield explain_run(folder, rulers, box, device)


def explain_run(folder: RunFolder, rulers: Rulers, box: Box | None = None, device: str = "auto") -> Explanation:
    model = TrainedModel(folder, device)
    check_same_data(model)
    explanation, arrays = examine(model, rulers, box)
    folder.write_explanation(explanation, arrays)
    return explanation


def examine(model: TrainedModel, rulers: Rulers, box: Box | None = None) -> tuple[Explanation, dict[str, Arrays]]:
    """The explanation as plain values, and the arrays of each part that has some."""
    parts: dict[str, Callable[[], Any]] = {
        "traversals": lambda: traversals(model),
        "sensitivity": lambda: (sensitivity(model), {}),
        "shared_axes": lambda: (rulers.through(model), {}),
        "gradcam": lambda: gradcam(model, box),
        "mistakes": lambda: wrong(model),
    }
    about = {"version": EXPLAIN_VERSION, "preset": model.config.preset, "seed": model.config.seed}
    found: Explanation = {}
    arrays: dict[str, Arrays] = {}
    reasons: dict[str, str] = {}
    for name, part in parts.items():
        try:
            found[name], arrays[name] = part()
        except SitarError as reason:
            found[name], reasons[name] = None, str(reason)
    return {**about, "split_of_axes": HELD_OUT, **found, "reasons": reasons}, arrays
