"""Sections share what they know of latent axes: shares of a sensitivity, and the VAE on which runs were measured."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sitar.reporting.comparison import Comparison
from sitar.run_folder import RunFolder


def shares(values: Sequence[float]) -> list[float]:
    """Return each axis's share of the sensitivity of all axes."""
    total = sum(values) or 1.0
    return [value / total for value in values]


def highest(values: Sequence[float], most: int) -> list[int]:
    """Return the places of the highest values, at most so many."""
    return sorted(range(len(values)), key=lambda place: -values[place])[:most]


def reference_vaes(comparison: Comparison) -> set[tuple[float, ...]]:
    """Return what tells the VAEs apart on whose axes runs were measured: their v, as a path has several spellings."""
    return {tuple(shared["v"]) for run in comparison.runs if (shared := run.part("shared_axes"))}


def reference_folder(comparison: Comparison) -> RunFolder | None:
    """Return the run on whose axes others were measured, if it is still where it was."""
    parts = [run.part("shared_axes") for run in comparison.runs]
    folders = (RunFolder(Path(shared["run"])) for shared in parts if shared)
    return next((folder for folder in folders if folder.is_done), None)
