"""What `sitar explain`, `sitar audit` and `sitar theory` leave in a run folder, as types.

Needs no torch: a report is made of these. A part of an explanation has a title, a schema and, where it needs them,
arrays in an .npz file of its name. A part that does not fit its schema is left out, so that it costs a report nothing
else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, ValidationError, model_validator

EXPLAIN_VERSION = 2  # of artifacts/explain.json
AUDIT_VERSION = 1  # of artifacts/audit/audit.json
RENAMED_PARTS = {"through": "shared_axes", "wrong": "mistakes"}  # version 1 of explain.json: version 2


class PartSchema(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore")


class AxisSensitivity(PartSchema):
    """How much a classifier reacts to each axis, and how strongly the axis tracks the label (v)."""

    axes: list[int]
    values: list[FiniteFloat]
    v: list[FiniteFloat]

    @model_validator(mode="after")
    def _one_of_each(self) -> Self:
        if not len(self.axes) == len(self.values) == len(self.v):
            raise ValueError("axes, values and v are of different lengths")
        return self


class SharedAxes(AxisSensitivity):
    """The same along the axes of one VAE, whose run is named."""

    run: str
    n: int


class TraversalStart(PartSchema):
    label: int


class Traversals(PartSchema):
    """Which axes were moved, from which latents, to which values."""

    axes: list[int]
    values: list[list[FiniteFloat]]
    starts: list[TraversalStart]


class GradCAM(PartSchema):
    """The mean share of a map's mass in a box."""

    split: str
    n: int
    mass_in_box: FiniteFloat | None
    box: Annotated[list[FiniteFloat], Field(min_length=4, max_length=4)] | None


class Mistakes(PartSchema):
    """Misclassified images are arrays only."""


@dataclass(frozen=True)
class Part:
    """A part of an explanation, as a reader of run folders must know it."""

    title: str  # what a report calls it
    schema: type[PartSchema]
    has_arrays: bool = False


PARTS = {  # in the order of explain.json
    "traversals": Part("sliders that traverse latent axes", Traversals, has_arrays=True),
    "sensitivity": Part("which of its own axes a classifier uses", AxisSensitivity),
    "shared_axes": Part("which axes of one VAE all classifiers use", SharedAxes),
    "gradcam": Part("Grad-CAM", GradCAM, has_arrays=True),
    "mistakes": Part("images that one model gets wrong and another right", Mistakes, has_arrays=True),
}


def array_parts() -> list[str]:
    """Return the names of the parts that have arrays."""
    return [name for name, part in PARTS.items() if part.has_arrays]


def upgrade_explanation(explanation: Mapping[str, Any]) -> dict[str, Any]:
    """Bring an explanation of version 1 to the names of version 2."""
    if explanation.get("version") != 1:
        return dict(explanation)
    renamed = {RENAMED_PARTS.get(key, key): value for key, value in explanation.items()}
    reasons = explanation.get("reasons")
    if isinstance(reasons, Mapping):
        renamed["reasons"] = {RENAMED_PARTS.get(key, key): reason for key, reason in reasons.items()}
    return {**renamed, "version": EXPLAIN_VERSION}


def sound_parts(explanation: Mapping[str, Any]) -> dict[str, Any]:
    """Return an explanation without the parts that do not fit their schema."""
    reasons = explanation.get("reasons")
    kept = {name: explanation.get(name) if _fits(explanation.get(name), part) else None for name, part in PARTS.items()}
    return {**explanation, **kept, "reasons": reasons if isinstance(reasons, dict) else {}}


def _fits(content: Any, part: Part) -> bool:
    try:
        part.schema.model_validate(content)
    except ValidationError:
        return False
    return True
