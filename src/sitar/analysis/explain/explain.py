"""What does a trained model use, where does it look, and what does it get wrong? All of it for finished runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Any

import numpy as np

from sitar.analysis.explain.reference_vae import ReferenceVAEs
from sitar.analysis.explain.subject import Subject
from sitar.analysis.samples import HELD_OUT, check_same_data
from sitar.data.base import Box
from sitar.errors import SitarError
from sitar.evaluation.trained_model import TrainedModel
from sitar.findings import EXPLAIN_VERSION, PARTS
from sitar.run_folder import RunFolder

Arrays = dict[str, np.ndarray]
Explanation = dict[str, Any]


def explain_runs(
    folders: Sequence[RunFolder], axes: RunFolder | None = None, box: Box | None = None, device: str = "auto"
) -> Iterator[Explanation]:
    """Explain finished runs, one after the other. Each explanation is written into the run folder and yielded.

    `axes` is the run whose VAE all are measured with, `box` where the mass of Grad-CAM maps is counted.
    """
    for folder in folders:
        folder.result()  # refuses a run that is not finished, before the first is computed
    references, first = ReferenceVAEs(folders, axes, device), None
    for folder in folders:
        model = TrainedModel(folder, device, beside=first)
        first = references.beside = first or model
        check_same_data(model)
        explanation, arrays = explain_model(Subject(model, references, box))
        folder.write_explanation(explanation, arrays)
        yield explanation


def explain_model(subject: Subject) -> tuple[Explanation, dict[str, Arrays]]:
    """Make all parts: return the explanation as plain values, and the arrays of each part that has some."""
    config = subject.model.config
    parts: Explanation = dict.fromkeys(PARTS)
    arrays: dict[str, Arrays] = {}
    reasons: dict[str, str] = {}
    for name, part in PARTS.items():
        try:
            parts[name], made = import_module(f"sitar.analysis.explain.{name}").make(subject)
        except SitarError as reason:
            reasons[name] = str(reason)
        else:
            arrays |= {name: made} if part.has_arrays else {}
    run = {"version": EXPLAIN_VERSION, "preset": config.preset, "seed": config.seed, "split_of_axes": HELD_OUT}
    return {**run, **parts, "reasons": reasons}, arrays
