"""What a page shows of a run's pictures: walks along latent axes, what it gets wrong, and where it looks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from sitar.reporting.comparison import ComparedRun as Run
from sitar.reporting.comparison import Comparison
from sitar.reporting.html.embed import framed, heated, rgb, sheet

MOST_WRONG = 48  # images of each run that it gets wrong and another does not
MOST_PIXELS = 20_000_000  # of all traversals together, so that the file stays small: fewer starts, then fewer axes
MOST_SIDE = 128  # pixels of a picture of Grad-CAM
SHOWN_PROBABILITIES = 4  # classes beside a picture that walks along an axis


def part(run: Run, name: str) -> dict[str, Any] | None:
    """A part of what `sitar explain` has left; None where there is none."""
    return run.part(name)


def wrong(comparison: Comparison) -> dict[str, Any] | None:
    """Thumbnails with what every run said of them: the page shows those that one gets wrong and another right."""
    split = comparison.main_split
    runs = [run for run in comparison.runs if len(run.labels(split))]
    right = {place: run.is_right(split) for place, run in enumerate(runs)}
    chosen: dict[int, np.ndarray] = {}
    for place, run in enumerate(runs):
        arrays = run.part_arrays("mistakes") if part(run, "mistakes") else {}
        found = zip(arrays.get(f"{split}/index", ()), arrays.get(f"{split}/images", ()), strict=True)
        some = [
            (int(index), image) for index, image in found
            if len(runs) == 1 or any(right[other][index] for other in right if other != place)
        ]  # fmt: skip
        chosen |= dict(some[:MOST_WRONG])
    if not chosen:
        return None
    order = sorted(chosen)
    columns = min(16, len(order))
    blank = np.zeros_like(chosen[order[0]])
    tiles = [chosen[index] for index in order] + [blank] * (-len(order) % columns)
    picture = sheet(np.stack(tiles).reshape(-1, columns, *blank.shape))
    said = [run.logits(split).argmax(1) for run in runs]
    items = [
        {
            "index": index,
            "label": int(runs[0].labels(split)[index]),
            "said": [int(answers[index]) for answers in said],
        }
        for index in order
    ]
    labels = [run.label for run in runs]
    return {"sheet": asdict(picture), "items": items, "runs": labels, "classes": comparison.classes, "split": split}


def walks(comparison: Comparison, many: int) -> list[dict[str, Any]]:
    """Pictures and probabilities along every axis, a sheet for each start."""
    runs = [run for run in comparison.runs if part(run, "traversals")]
    found = []
    for run in runs:
        about, arrays = part(run, "traversals") or {}, run.part_arrays("traversals")
        images = arrays.get("images")
        if images is None:
            continue
        starts, axes = _affordable(images.shape, MOST_PIXELS // (len(runs) * many))
        known = part(run, "sensitivity") or {"axes": [], "v": [], "values": []}
        v = dict(zip(known["axes"], known["v"], strict=True))
        share = dict(zip(known["axes"], shares(known["values"]), strict=True))
        order = sorted(range(len(about["axes"])), key=lambda place: -v.get(about["axes"][place], 0.0))[:axes]
        probabilities = arrays.get("probabilities")
        found.append(
            {
                "label": run.label,
                "classes": run.classes,
                "axes": [
                    {
                        "axis": (axis := about["axes"][place]), "v": v.get(axis), "share": share.get(axis),
                        "values": [round(value, 2) for value in about["values"][place]],
                    }
                    for place in order
                ],
                "starts": [
                    {
                        "name": _start(about["starts"][s]["label"], run.classes),
                        "sheet": asdict(sheet(images[s, order])),
                        "probabilities": None if probabilities is None else _most_probable(probabilities[s, order]),
                    }
                    for s in range(starts)
                ],
                "left": len(about["axes"]) - axes,
            }
        )  # fmt: skip
    return found


def _affordable(shape: tuple[int, ...], pixels: int) -> tuple[int, int]:
    """How many starts and axes there is room for."""
    starts, axes, steps, _, height, width = shape
    strips = max(1, pixels // (steps * height * width))  # walks along one axis from one start
    return max(1, min(starts, strips // axes)), min(axes, strips)


def _start(label: int, classes: Sequence[str]) -> str:
    return "the mean of all" if label < 0 else f"a sample of {classes[label]}"


def _most_probable(probabilities: np.ndarray) -> list[dict[str, Any]]:
    """For each axis the classes that are most probable somewhere along it, and their probabilities."""
    found = []
    for along in probabilities:
        classes = np.sort(np.argsort(-along.max(0), kind="stable")[:SHOWN_PROBABILITIES])
        found.append({"classes": classes.tolist(), "values": np.nan_to_num(along[:, classes]).round(3).tolist()})
    return found


def cam(run: Run) -> dict[str, Any] | None:
    about, arrays = part(run, "gradcam"), run.part_arrays("gradcam")
    if not about or "images" not in arrays:
        return None
    step = -(-max(arrays["images"].shape[2:]) // MOST_SIDE)
    box = about.get("box")
    pairs = []
    for image, heat in zip(arrays["images"], arrays["maps"], strict=True):
        plain, hot = (some[:, ::step, ::step] for some in (rgb(image).transpose(2, 0, 1), heated(image, heat)))
        pairs.append(np.stack([plain, hot if box is None else framed(hot, box)]))
    pictures = [
        {"uri": sheet(pair[None]).uri, "label": run.classes[int(label)], "said": run.classes[int(said)]}
        for pair, label, said in zip(pairs, arrays["labels"], arrays["predicted"], strict=True)
    ]
    area = None if box is None else (box[2] - box[0]) * (box[3] - box[1])
    return {"label": run.label, "pictures": pictures, "area": area, **about}


def shares(values: Sequence[float]) -> list[float]:
    total = sum(values) or 1.0
    return [value / total for value in values]
