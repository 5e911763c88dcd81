"""Draw the figure of `sitar demo`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from matplotlib.figure import Figure

from sitar.reporting.figures.style import BLUE, GREY, ORANGE, SUSPICIOUS
from sitar.run_folder import RunFolder


def demo_figure(runs: Mapping[str, RunFolder]) -> Figure:
    """Draw the accuracy of each run in and out of distribution, and v of the last: how each axis tracks the label."""
    figure = Figure(figsize=(10, 4), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=[3, 2])
    results: dict[str, Any] = {label: folder.result()["splits"] for label, folder in runs.items()}
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
    return figure
