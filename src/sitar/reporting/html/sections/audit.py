"""Show what audits have found: each cue that tells the label, with its power, a sentence and images at its ends."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sitar.errors import RunError
from sitar.reporting.comparison import ComparedRun, Comparison
from sitar.reporting.html.embed import contact_sheet

MOST_SIDE = 48  # pixels of a picture
MOST_WEAK = 8  # cues that tell a little, which are listed


def make(comparison: Comparison, sharing: int) -> dict[str, Any] | None:
    audits = [audit for run in comparison.runs if (audit := run_audit(run))]
    return {"audits": audits} if audits else None


def run_audit(run: ComparedRun) -> dict[str, Any] | None:
    """Return what a template shows of one audit. None: there was none, or it is damaged."""
    audit = run.audit
    if audit is None:
        return None
    try:
        look = audit["first_look"]
        arrays = run.folder.audit_arrays()
        return {
            "label": run.label,
            "first": None if look is None else _first_look(look, arrays),
            "axes": [_axis(audit, picture, arrays) for picture in audit["pictures"]],
            "words": str(audit["verdict"]["words"]),
            "notes": [str(note) for note in audit["notes"]],
        }
    except (
        RunError,
        KeyError,
        TypeError,
        ValueError,
        IndexError,
        AttributeError,
        StopIteration,
    ):  # somebody else wrote it, or it is damaged
        return None


def _first_look(look: Mapping[str, Any], arrays: Mapping[str, NDArray[np.uint8]]) -> dict[str, Any]:
    pictures = {picture["cue"]: picture for picture in look["pictures"]}
    told = [cue for cue in look["cues"] if cue["strength"] == "tells"]
    weak = [cue for cue in look["cues"] if cue["strength"] == "a little"][:MOST_WEAK]
    return {
        "words": str(look["verdict"]["words"]),
        "n": int(look["n"]),
        "chance": float(look["chance"]),
        "bar": float(look["rule"]["bar"]),
        "told": [_cue(cue, pictures.get(cue["name"]), arrays) for cue in told],
        "weak": [{"name": cue["name"], "accuracy": float(cue["accuracy"])} for cue in weak],
        "asked": [str(twin["question"]) for twin in look["same_as_label"]],
        "count": len(look["cues"]),
    }


def _cue(
    cue: Mapping[str, Any], picture: Mapping[str, Any] | None, arrays: Mapping[str, NDArray[np.uint8]]
) -> dict[str, Any]:
    low, high = map(float, cue["interval"])
    shown = None
    if picture is not None and picture["array"] in arrays:
        shown = _ends(arrays[picture["array"]], picture["classes"], picture["ends"], picture["counts"])
    return {
        "name": cue["name"],
        "kind": cue["kind"],
        "accuracy": float(cue["accuracy"]),
        "low": low,
        "high": high,
        "words": cue["words"],
        "cannot_tell": cue["cannot_tell"],
        "question": cue["question"],
        "counts": cue["counts"],
        "ends": shown,
    }


def _axis(
    audit: Mapping[str, Any], picture: Mapping[str, Any], arrays: Mapping[str, NDArray[np.uint8]]
) -> dict[str, Any]:
    """Return the power of an axis, its traversal, and the images at its ends."""
    number = picture["axis"]
    axis = next(axis for axis in audit["axes"] if axis["axis"] == number)
    low, high = map(float, axis["intervals"]["accuracy"])
    moved = arrays.get(f"axis{number}/traversal")
    return {
        "name": f"axis {number}",
        "accuracy": float(axis["accuracy"]),
        "low": low,
        "high": high,
        "stands_out": number in audit["verdict"]["axes"],
        "traversal": None if moved is None else contact_sheet(_small(moved)[:3]).uri,
        "ends": _ends(arrays[f"axis{number}/extremes"], picture["classes"], ["lowest", "highest"], None),
    }


def _ends(
    images: NDArray[np.uint8], classes: list[str], ends: list[str], counts: list[list[int]] | None
) -> list[dict[str, Any]]:
    """Return, for each end of a cue, a row of pictures for each class. A row without images has none."""
    images = _small(images)
    rows = []
    for end, name in enumerate(ends):
        strips = []
        for place, label in enumerate(classes):
            count = images.shape[2] if counts is None else int(counts[place][end])
            uri = contact_sheet(images[place, end, :count][None]).uri if count else None
            strips.append({"label": label, "uri": uri, "count": count})
        rows.append({"name": name, "strips": strips})
    return rows


def _small(images: NDArray[np.uint8]) -> NDArray[np.uint8]:
    step = -(-max(images.shape[-2:]) // MOST_SIDE)
    return images[..., ::step, ::step]
