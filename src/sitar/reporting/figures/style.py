"""Figures, rebuilt from run folders."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.figure import Figure

from sitar.files import write_atomic
from sitar.reporting.tables import unsettled_order
from sitar.run_folder import RunFolder

BLUE, ORANGE, GREY, INK = "#3b6fb6", "#d9822b", "#6b717b", "#22262e"
SUSPICIOUS = 0.3  # a shortcut score above this is drawn as a suspect


def save(figure: Figure, path: Path) -> None:
    """Write a figure so that the same content gives the same bytes: no date, no random names."""
    path.parent.mkdir(parents=True, exist_ok=True)
    metadata = {"Date": None} if path.suffix == ".svg" else {"Software": None}
    with rc_context({"svg.hashsalt": "figure", "svg.fonttype": "path"}):
        figure.savefig(path, dpi=150, metadata=metadata)


def to_png(figure: Figure) -> bytes:
    """Return the figure as the content of a PNG file."""
    buffer = io.BytesIO()
    figure.savefig(buffer, dpi=150)
    return buffer.getvalue()


def demo_figure(runs: Mapping[str, RunFolder], path: Path) -> None:
    """Accuracy in and out of distribution of each run, and v of the last: how strongly each axis tracks the label."""
    figure = Figure(figsize=(10, 4), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=[3, 2])
    results = {label: folder.result()["splits"] for label, folder in runs.items()}
    width = 0.36
    for offset, split, name, color in (
        (-width / 2, "id_test", "colour as in training", BLUE),
        (width / 2, "ood_test", "colour reversed", ORANGE),
    ):
        values = [100 * splits[split]["average"] for splits in results.values()]
        bounds = [splits[split]["intervals"]["average"] for splits in results.values()]
        below = [value - 100 * low for value, (low, _) in zip(values, bounds, strict=True)]
        above = [100 * high - value for value, (_, high) in zip(values, bounds, strict=True)]
        places = [i + offset for i in range(len(values))]
        bars = left.bar(places, values, width, label=name, color=color, yerr=[below, above],
                        error_kw={"elinewidth": 1, "capsize": 2})  # fmt: skip
        left.bar_label(bars, fmt="%.0f", padding=3, fontsize=9, bbox={"color": "white", "pad": 0.5})
    left.axhline(75, color=GREY, linewidth=1, linestyle="--", zorder=0)
    left.text(len(results) - 0.5, 80, "75: best possible from shape alone", color=GREY, fontsize=8, ha="right")
    left.set_xticks(range(len(results)), list(results))
    left.set(ylim=(0, 104), ylabel="accuracy (%)", title="Does the model survive when the colour breaks?")
    left.legend(loc="lower center", bbox_to_anchor=(0.5, -0.24), ncols=2, frameon=False, fontsize=9)

    label, folder = list(runs.items())[-1]
    score = folder.metrics()[-1]["shortcut_score"]
    right.bar(range(len(score)), score, color=[ORANGE if value > SUSPICIOUS else BLUE for value in score])
    right.set_xticks(range(len(score)))
    right.set(ylim=(0, 1), xlabel="latent axis", ylabel="|correlation with the label|",
              title=f"What {label} found suspicious")  # fmt: skip
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
        axes.title.set_fontsize(11)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, to_png(figure))


def theory_figure(theory: Mapping[str, Any]) -> Figure:
    """Theorem 1 on a trained classifier: predicted and exact objective, the remainder's order, the terms' sizes."""
    figure = Figure(figsize=(13, 4), layout="constrained")
    left, middle, right = figure.subplots(1, 3, width_ratios=[4, 4, 3])
    alphas, own = theory["alphas"], theory["comparisons"][0]

    steps = [alphas[0] * (alphas[-1] / alphas[0]) ** (i / 200) for i in range(201)]
    growth = (theory["predicted"][-1] - theory["clean"]) / alphas[-1] ** 2
    predicted = [theory["clean"] + growth * alpha**2 for alpha in steps]
    left.plot(alphas, own["exact"], "o", color=ORANGE, label="exact", markersize=5)
    left.plot(steps, predicted, color=BLUE, label="predicted by Theorem 1")
    left.axhline(theory["clean"], color=GREY, linewidth=1, linestyle="--", label="without noise")
    left.set_xscale("log")
    left.set(xlabel="alpha", ylabel="objective of the classifier", title="What the noise costs")

    for comparison, color, power in zip(theory["comparisons"], (BLUE, ORANGE), (4, 3), strict=True):
        order = comparison["order"]
        slope = unsettled_order(comparison)
        fitted = (
            "" if order is None else f", order {order:.2f}" if slope is None else f", slope {slope:.2f} at the left"
        )
        label = f"{comparison['distribution']} noise{fitted}"
        middle.plot(alphas, comparison["remainder"], "o", color=color, label=label, markersize=5)
        points = zip(alphas, comparison["remainder"], strict=True)
        if order is not None:
            start, level = next((alpha, gap) for alpha, gap in points if gap > comparison["rounding"])
            guide = [level * (alpha / start) ** power for alpha in alphas]
            middle.plot(alphas, guide, color=color, linewidth=1, linestyle="--", label=f"slope {power}", zorder=0)
    middle.set_xscale("log")
    middle.set_yscale("log")
    middle.set(xlabel="alpha", ylabel="mean |exact - predicted|", title="What the theorem leaves out")

    place = alphas.index(theory["alpha"])
    names = [name.replace("_", "\n", 1).replace("_", " ") for name in theory["terms"]]
    bars = right.bar(names, [values[place] for values in theory["terms"].values()], color=BLUE, width=0.6)
    right.bar_label(bars, fmt="%.2g", padding=3, fontsize=9)
    right.axhline(0, color=GREY, linewidth=1)
    right.margins(y=0.15)
    right.set(ylabel="added to the objective", title=f"The terms at the run's alpha, {theory['alpha']:g}")
    right.tick_params(axis="x", labelsize=8)
    for axes in (left, middle, right):
        axes.spines[["top", "right"]].set_visible(False)
        axes.title.set_fontsize(11)
    for axes in (left, middle):
        axes.axvline(theory["alpha"], color=GREY, linewidth=1, linestyle=":", zorder=0, label="the run's alpha")
        axes.legend(frameon=False, fontsize=9)
    return figure
