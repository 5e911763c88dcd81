"""Over how many latent axes is the shortcut score v spread? `python reproduce/dispersion.py` writes the page.

The scores stand in the records of the tables, so nothing is run. The page is docs/results/dispersion.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from sitar.files import write_atomic

HERE = Path(__file__).parent
PAGE = HERE.parent / "docs" / "results" / "dispersion.md"
PAPER = "sitar (axis noise, the paper's)"
PARTS = [("sweep_beta", PAPER), ("color_mnist", PAPER), ("color_mnist", "control (no noise)")]  # record and row
TEXT = """\
# Over how many axes is the shortcut score spread?

The paper says that for a small beta the [score v](../glossary.md#shortcut-score) is dispersed over many latent
[axes](../glossary.md#axis), and that from beta = 1 on it has a sharp peak on one axis. It also says that v is more
uniform where there is no [shortcut](../glossary.md#shortcut). This page measures both. The latent has ten axes.

- *Suspect axes* is the participation ratio (sum of v^2)^2 / (sum of v^4). It is 1 if one axis has all of v. It is 10 if
  all ten axes have the same v.
- *Share of the top axis* is the largest v^2 over the sum of v^2.
- *Largest v* says whether there is anything to spread. A small v on every axis is dispersed too.

The scores are those of the last epoch. A cell is the mean ± the standard deviation over the seeds.

The claim would be wrong if the number of suspect axes did not fall while beta grows. It would also be wrong if there
were as few suspect axes without a shortcut (rho = 0.5) as with one.

`python reproduce/dispersion.py` makes this page from the records of the tables.
"""


def suspect_axes(scores: Sequence[float]) -> float:
    """Return the participation ratio: over how many axes v is spread, between 1 and their number. All zero has none."""
    fourth = sum(v**4 for v in scores)
    return sum(v**2 for v in scores) ** 2 / fourth if fourth > 0 else 0.0


def top_share(scores: Sequence[float]) -> float:
    """Return the share of the top axis in the sum of v^2. All zero has none."""
    total = sum(v**2 for v in scores)
    return max(v**2 for v in scores) / total if total > 0 else 0.0


def by_column(runs: Iterable[dict[str, Any]], row: str) -> dict[str, list[list[float]]]:
    """Collect the scores of a row of a record: for each column a list of scores for each seed."""
    columns: dict[str, list[list[float]]] = {}
    for run in runs:
        if run["row"] == row and "shortcut_score" in run:
            columns.setdefault(run["column"], []).append(run["shortcut_score"])
    return columns


def cell(values: Sequence[float], digits: int) -> str:
    spread = f" ± {stdev(values):.{digits}f}" if len(values) > 1 else ""
    return f"{mean(values):.{digits}f}{spread}"


def table(runs: Iterable[dict[str, Any]], row: str) -> list[str]:
    """Write one row of a record as Markdown, a line for each column."""
    lines = ["| | seeds | suspect axes | share of the top axis | largest v |", "|---|---|---|---|---|"]
    for column, scores in by_column(runs, row).items():
        axes, share = [suspect_axes(s) for s in scores], [top_share(s) for s in scores]
        top = [max(s) for s in scores]
        lines.append(f"| {column} | {len(scores)} | {cell(axes, 1)} | {cell(share, 2)} | {cell(top, 2)} |")
    return lines


def render() -> str:
    """Write the page, from the records alone."""
    import records  # here, because records.py imports this file

    parts = [TEXT]
    for name, row in PARTS:
        record = records.load_record(name)
        earlier = records.outdated(row, records.load_table(name), record)
        mark = f" {records.EARLIER}" if earlier else ""
        parts += [f"## {row}, from `{name}`{mark}", "", *table(record["runs"], row), ""]
        if earlier:
            parts += [f"{records.EARLIER} These runs were made when {' and '.join(earlier)} had another value.", ""]
    return "\n".join(parts)


if __name__ == "__main__":
    write_atomic(PAGE, render().encode())
