"""Here are the types of what `sitar explain`, `sitar audit` and `sitar theory` leave in a run folder.

Reports are made of these, and this module needs no torch. A part of an explanation has a title, a schema and, where it
needs them, arrays in an .npz file of its name. A part that does not fit its schema is left out of a report, which then
shows the rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, ValidationError, model_validator

EXPLAIN_VERSION = 2  # of artifacts/explain.json
AUDIT_VERSION = 2  # of artifacts/audit/audit.json
RENAMED_PARTS = {"through": "shared_axes", "wrong": "mistakes"}  # version 1 of explain.json: version 2


class PartSchema(BaseModel):
    """A schema says which values a part has, and what its arrays must agree with."""

    model_config = ConfigDict(strict=True, extra="ignore")

    def sizes(self) -> dict[str, int]:
        """Return the sizes that dimensions of the arrays must have."""
        return {}

    def prefixes(self) -> list[str]:
        """Return the prefixes of the names of the arrays. There is one set of arrays for each prefix."""
        return [""]


class AxisSensitivity(PartSchema):
    """The sensitivity is how much a classifier reacts to each axis. `v` is how strongly the axis tracks the label."""

    axes: list[int]
    values: list[FiniteFloat]
    v: list[FiniteFloat]

    @model_validator(mode="after")
    def _one_of_each(self) -> Self:
        if not len(self.axes) == len(self.values) == len(self.v):
            raise ValueError("axes, values and v are of different lengths")
        return self


class SharedAxes(AxisSensitivity):
    """Shared axes are those of one VAE, whose run is named. The sensitivity is measured along them."""

    run: str
    n: int


class TraversalStart(PartSchema):
    label: int


class Traversals(PartSchema):
    """Traversals say which axes were moved, from which latents, to which values."""

    axes: Annotated[list[int], Field(min_length=1)]
    values: list[list[FiniteFloat]]
    starts: Annotated[list[TraversalStart], Field(min_length=1)]

    @model_validator(mode="after")
    def _values_of_each_axis(self) -> Self:
        if len(self.axes) != len(self.values):
            raise ValueError("axes and values are of different lengths")
        return self

    def sizes(self) -> dict[str, int]:
        return {"start": len(self.starts), "axis": len(self.axes)}


class GradCAM(PartSchema):
    """Grad-CAM says which share of a map's mass lies in a box, on average."""

    split: str
    n: int
    mass_in_box: FiniteFloat | None
    box: Annotated[list[FiniteFloat], Field(min_length=4, max_length=4)] | None


class Mistakes(PartSchema):
    """Mistakes say of which splits misclassified images are kept."""

    splits: list[str]

    def prefixes(self) -> list[str]:
        return [f"{split}/" for split in self.splits]


@dataclass(frozen=True)
class Part:
    """A part is one section of an explanation, as a reader of run folders must know it.

    `arrays` names the dimensions of each array. Dimensions of the same name have the same size.
    """

    title: str  # what a report calls it
    schema: type[PartSchema]
    arrays: Mapping[str, str] = field(default_factory=dict)

    @property
    def has_arrays(self) -> bool:
        return bool(self.arrays)


PARTS = {  # in the order of explain.json
    "traversals": Part(
        "traversals of latent axes",
        Traversals,
        {"images": "start axis step channel height width", "probabilities": "start axis step class"},
    ),
    "sensitivity": Part("which of its own axes a classifier uses", AxisSensitivity),
    "shared_axes": Part("which axes of one VAE all classifiers use", SharedAxes),
    "gradcam": Part(
        "Grad-CAM",
        GradCAM,
        {
            "images": "image channel height width",
            "maps": "image height width",
            "labels": "image",
            "predicted": "image",
            "index": "image",
        },
    ),
    "mistakes": Part(
        "images that one model gets wrong and another right",
        Mistakes,
        {"index": "image", "images": "image channel height width"},
    ),
}


def array_parts() -> list[str]:
    """Return the names of the parts that have arrays."""
    return [name for name, part in PARTS.items() if part.has_arrays]


def arrays_fit(part: Part, values: Mapping[str, Any], arrays: Mapping[str, Any]) -> bool:
    """Return whether the arrays of a part are all there, with dimensions that agree with each other and its values."""
    content = part.schema.model_validate(values)
    for prefix in content.prefixes():
        sizes = content.sizes()
        for name, dimensions in part.arrays.items():
            array, names = arrays.get(prefix + name), dimensions.split()
            if array is None or array.ndim != len(names):
                return False
            if any(sizes.setdefault(name, size) != size for name, size in zip(names, array.shape, strict=True)):
                return False
    return True


def upgrade_explanation(explanation: Mapping[str, Any]) -> dict[str, Any]:
    """Bring an explanation of version 1 to the names of version 2."""
    if explanation.get("version") != 1:
        return dict(explanation)
    renamed = {RENAMED_PARTS.get(key, key): value for key, value in explanation.items()}
    reasons = explanation.get("reasons")
    if isinstance(reasons, Mapping):
        renamed["reasons"] = {RENAMED_PARTS.get(key, key): reason for key, reason in reasons.items()}
    return {**renamed, "version": EXPLAIN_VERSION}


def upgrade_audit(audit: Mapping[str, Any]) -> dict[str, Any]:
    """Bring an audit of version 1, which had no first look, to version 2."""
    return {"first_look": None, **audit, "version": AUDIT_VERSION}


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
