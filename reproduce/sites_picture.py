"""Draw the picture of docs/sites.md: the same digits in the style of every site."""

from __future__ import annotations

from pathlib import Path

import matplotlib
import matplotlib.pyplot as plt
import numpy as np

from sitar.data.benchmarks.mnist_files import load_mnist
from sitar.data.benchmarks.sites import SITES, Sites, SitesConfig, draw_digits
from sitar.writing import replaced

TITLES = {
    "A": "A\nmostly 5-9",
    "B": "B\nmostly 0-4",
    "C": "C\nboth alike",
    "D": "D\nunseen",
    "E": "E\nunseen",
}
COLUMNS = 8
FOLDER = Path(__file__).parents[1] / "docs"


def main() -> None:
    matplotlib.use("Agg")
    config = SitesConfig(train_size=60, eval_size=1)
    table = Sites.samples(config)
    digits = [np.flatnonzero((table.label == label) & (table.split == "train"))[: COLUMNS // 2] for label in (0, 1)]
    images = draw_digits(table, load_mnist(), config)[np.concatenate(digits)]
    rows = {"as drawn": images} | {TITLES[name]: [style.apply(x) for x in images] for name, style in SITES.items()}
    figure, axes = plt.subplots(len(rows), COLUMNS, figsize=(COLUMNS * 0.85 + 1.1, len(rows) * 0.85))
    for line, (title, taken) in zip(axes, rows.items(), strict=True):
        for axis, image in zip(line, taken, strict=True):
            axis.imshow(image.transpose(1, 2, 0), interpolation="nearest")
            axis.set(xticks=[], yticks=[])
            axis.spines[:].set_visible(False)
        line[0].set_ylabel(title, rotation=0, ha="right", va="center", fontsize=9, labelpad=8)
    figure.subplots_adjust(left=0.14, right=0.995, top=0.995, bottom=0.005, wspace=0.06, hspace=0.06)
    with replaced(FOLDER / "sites.png") as out:
        figure.savefig(out, format="png", dpi=110, metadata={"Software": None})


if __name__ == "__main__":
    main()
