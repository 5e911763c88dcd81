"""Draw the figure of `sitar theory`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from matplotlib.figure import Figure

from sitar.reporting.figures.style import BLUE, GREY, ORANGE
from sitar.reporting.tables.theory import unsettled_order


def theory_figure(theory: Mapping[str, Any]) -> Figure:
    """Draw Theorem 1 on a trained classifier: predicted and exact objective, order of the remainder, size of terms."""
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
