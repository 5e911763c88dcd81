"""Name what runs are compared with: the control of a method, which is the same model without noise, and plain training.

Reports compare runs with both. They need no torch, so this stands apart from the methods. A test compares this
table with the methods.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Control:
    """The control of a method is a run in which `strength` is 0."""

    strength: str  # the setting that is 0 in the control
    settings: tuple[str, ...]  # in which the control may differ: those of the noise


BASELINE = "erm"  # plain training: the method that reports compare all others with
CONTROLS = {
    "sitar": Control(
        "alpha",
        ("alpha", "lambda", "noise", "noise_distribution", "objective", "score_floor", "nuisances", "gate"),
    ),
}
