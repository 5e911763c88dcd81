"""Draw an audit from what it has left in a run folder: all axes at a glance, and a contact sheet of each."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from sitar.reporting.figures.style import BLUE, GREY, ORANGE, to_png
from sitar.reporting.figures.tiles import fractions, short, tiles
from sitar.run_folder import RunFolder

TILE = 0.62  # inches of an image on a contact sheet
LABELS = 1.5  # inches to its left, for what a row is


def draw_audit(folder: RunFolder) -> list[Path]:
    """Write the figure of all axes, and the contact sheet of each axis that has pictures, into the run folder."""
    audit = folder.audit()
    figures: dict[str, bytes] = {}
    arrays = folder.audit_arrays()
    if (look := audit["first_look"]) and look["cues"]:
        figures["first_look.png"] = to_png(first_look_figure(look))
        for place, picture in enumerate(look["pictures"]):
            figures[f"cue{place}.png"] = to_png(cue_contact_sheet(look, picture, arrays[picture["array"]]))
    if audit["axes"]:
        figures["axes.png"] = to_png(axes_figure(audit))
        for picture in audit["pictures"]:
            figures[f"axis{picture['axis']}.png"] = to_png(axis_contact_sheet(audit, picture, arrays))
    return folder.write_audit_figures(figures)


def axes_figure(audit: Mapping[str, Any]) -> Figure:
    """Draw what each axis alone predicts, the best first, with its range, chance, and the bar for a cheap cue."""
    axes, suspects = audit["axes"][:30], set(audit["verdict"]["axes"])
    chance = audit["chance"]
    figure = Figure(figsize=(max(4.5, 1.6 + 0.42 * len(axes)), 3.6), layout="constrained")
    plot = figure.subplots()
    places = range(len(axes))
    for place, axis in zip(places, axes, strict=True):
        color = ORANGE if axis["axis"] in suspects else BLUE if axis["used"] else GREY
        plot.plot([place, place], axis["intervals"]["accuracy"], color=color, linewidth=2)
        plot.plot([place], [axis["accuracy"]], "o", color=color)
    for level, name in ((chance, "chance"), (chance + audit["rule"]["lift"] * (1 - chance), "a cheap cue")):
        plot.axhline(level, color=GREY, linewidth=1, linestyle="--", zorder=0)
        plot.text(1.0, level, f" {name}", color=GREY, fontsize=8, va="center", transform=plot.get_yaxis_transform())
    plot.set_xticks(places, [str(axis["axis"]) for axis in axes])
    plot.set(ylim=(max(0, chance - 0.1), 1.02), xlim=(-0.6, len(axes) - 0.4), xlabel="latent axis",
             ylabel="accuracy from this axis alone")  # fmt: skip
    plot.set_title("What one axis alone tells of the label", fontsize=11)
    plot.spines[["top", "right"]].set_visible(False)
    return figure


def first_look_figure(look: Mapping[str, Any]) -> Figure:
    """Draw how well the best cues alone tell the label, with their ranges, chance, and the bar that counts."""
    cues = look["cues"][:15]
    figure = Figure(figsize=(6.4, 1.2 + 0.28 * len(cues)), layout="constrained")
    plot = figure.subplots()
    for place, cue in enumerate(cues):
        color = {"tells": ORANGE, "a little": BLUE}.get(cue["strength"], GREY)
        plot.plot(cue["interval"], [place, place], color=color, linewidth=2)
        plot.plot([cue["accuracy"]], [place], "o", color=color)
    for level, name in ((look["chance"], "chance"), (look["rule"]["bar"], "tells the label")):
        plot.axvline(level, color=GREY, linewidth=1, linestyle="--", zorder=0)
        plot.text(level, 1.0, f"{name} ", color=GREY, fontsize=8, ha="center", va="bottom",
                  transform=plot.get_xaxis_transform())  # fmt: skip
    plot.set_yticks(range(len(cues)), [short(cue["name"], 28) for cue in cues], fontsize=9)
    plot.set(
        xlim=(max(0, look["chance"] - 0.1), 1.02), ylim=(len(cues) - 0.4, -0.6), xlabel="accuracy from this cue alone"
    )
    plot.spines[["top", "right"]].set_visible(False)
    return figure


def cue_contact_sheet(look: Mapping[str, Any], picture: Mapping[str, Any], images: NDArray[np.uint8]) -> Figure:
    """Draw the real images at both ends of a cue, a row a class."""
    score = next(cue for cue in look["cues"] if cue["name"] == picture["cue"])
    rows = [short(word) for word in picture["classes"]]
    height = TILE * len(images) + 0.4
    figure = Figure(figsize=(max(LABELS + TILE * images.shape[2] + 0.2, 6.2), 2 * height + 0.45))
    head = f"{short(picture['cue'], 40)}: alone {score['accuracy']:.2f} (chance {look['chance']:.2f})"
    figure.text(0.15 / figure.get_figwidth(), 1 - 0.22 / figure.get_figheight(), head, fontsize=11, va="center")
    for end, name in enumerate(picture["ends"]):
        top = 0.35 + end * height + 0.3
        plot = figure.add_axes(fractions((LABELS, top, TILE * images.shape[2], TILE * len(images)), figure))
        tiles(plot, images[:, end], rows, [])
        for i, counts in enumerate(picture["counts"]):
            if not counts[end]:
                plot.text(0.2, i + 0.5, "no such image", fontsize=8, va="center", color="white")
        plot.set_title(f"Images: {short(name, 50)}", fontsize=9, loc="left", pad=4)
    return figure


def axis_contact_sheet(
    audit: Mapping[str, Any], picture: Mapping[str, Any], arrays: Mapping[str, NDArray[np.uint8]]
) -> Figure:
    """Draw a traversal of one axis above the real images at its ends."""
    number = picture["axis"]
    score = next(axis for axis in audit["axes"] if axis["axis"] == number)
    ends = arrays[f"axis{number}/extremes"]
    panels = []
    if picture["values"] is not None:
        moved = arrays[f"axis{number}/traversal"]
        rows = ["mean", *(f"sample {i}" for i in range(1, len(moved)))]
        marks = [f"{value:.1f}" for value in picture["values"]]
        panels.append(("Decoded: this axis moves, all others stay", moved, rows, marks))
    for end, name in enumerate(("lowest", "highest")):
        rows = [short(word) for word in picture["classes"]]
        panels.append((f"Real images with the {name} values, by class", ends[:, end], rows, []))

    heights = [TILE * len(images) + (0.6 if marks else 0.4) for _, images, _, marks in panels]
    width = LABELS + TILE * max(images.shape[1] for _, images, _, _ in panels) + 0.2
    low, high = score["intervals"]["accuracy"]
    head = f"Axis {number}: predicts the label with {score['accuracy']:.2f} [{low:.2f}, {high:.2f}]"
    figure = Figure(figsize=(max(width, 6.2), sum(heights) + 0.45))
    figure.text(0.15 / figure.get_figwidth(), 1 - 0.22 / figure.get_figheight(), head, fontsize=11, va="center")
    top = 0.35
    for (title, images, rows, marks), height in zip(panels, heights, strict=True):
        size = (LABELS, top + 0.3, TILE * images.shape[1], TILE * len(images))
        plot = figure.add_axes(fractions(size, figure))
        tiles(plot, images, rows, marks)
        plot.set_title(title, fontsize=9, loc="left", pad=4)
        top += height
    return figure
