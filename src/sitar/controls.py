"""Name the settings of a method that are its noise, and its control: the same model without noise.

Reports compare runs with their control. They need no torch, so this stands apart from the methods. A test compares this
table with the methods.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Control:
    """The control of a method is a run in which `strength` is 0."""

    strength: str  # the setting that is 0 in the control
    settings: tuple[str, ...]  # in which the control may differ: those of the noise


CONTROLS = {
    "sitar": Control("alpha", ("alpha", "lambda", "noise", "noise_distribution", "objective")),
}
