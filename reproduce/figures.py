"""Draw a figure of the paper into docs/figures: `python reproduce/figures.py NAME`, or `all` that have a record.

There are two kinds of figures:

- A figure with numbers is described in the table that holds its runs (`figure`, see reporting/figures/sweeps.py). It is
  drawn from the record of that table. `--runs DIR` draws it from the finished run folders below DIR instead.
- A picture is drawn from what `sitar explain RUN` leaves in run folders: `traversals RUN...` and `gradcam RUN...`.

Each call also writes docs/figures.md.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

import records
import run
from matplotlib.figure import Figure

from sitar.errors import SitarError
from sitar.files import write_atomic
from sitar.reporting.figures.gradcam_figure import gradcam_figure, read_gradcam
from sitar.reporting.figures.panels import panels_figure
from sitar.reporting.figures.style import save
from sitar.reporting.figures.sweeps import sweep_panels
from sitar.reporting.figures.traversal_figure import read_traversals, traversal_figure
from sitar.run_folder import RunFolder

DOCS = records.HERE.parent / "docs"
INTRODUCTION = """\
`python reproduce/figures.py NAME` draws a figure and writes this page. Lines are means over seeds. Small marks are
single seeds. Bands go from the lowest seed to the highest. The numbers come from `reproduce/records`."""


class Picture(NamedTuple):
    """Describes a figure of images, which is drawn from runs that `sitar explain` has explained."""

    title: str
    shows: str
    missing: str


PICTURES = {
    "traversals": Picture(
        title="What moves along each latent axis, and how closely does it track the label?",
        shows="Each row is a [traversal](glossary.md#traversal): one axis of a beta-VAE goes from its lowest to its "
        "highest value while all others stay fixed. The bar is the [shortcut score](glossary.md#shortcut-score) v. The "
        "paper finds colour (ColorMNIST) and gender (CelebA) on the axis with the highest bar. Ours have one seed each "
        "and were made on a CPU. CelebA is the first 10,000 images with all groups (data.partition=first_10k, "
        "data.majority_only=false). There the first axis is not gender ([the audit](audit.md)).",
        missing="Not drawn yet: RUN are runs of `color_mnist/vae` and `celeba/vae`, after `sitar explain RUN` of each.",
    ),
    "gradcam": Picture(
        title="Where does a classifier of hair colour look?",
        shows="[Grad-CAM](glossary.md#grad-cam-map) on CelebA (Blond/Gender), with the share of the map's mass inside "
        "the box of the face. The paper says that ERM looks at the face, which reveals gender, and that SITAR looks at "
        "the hair. In our runs ERM has more of its mass on the face than expected by chance. SITAR has as much as "
        "expected by chance, and so has the control without noise ([the shares](results/gradcam.md), three seeds).",
        missing="Not shown here, because CelebA's terms do not allow its images to be published. "
        "`python reproduce/run.py gradcam` makes the runs and explains them. RUN are their folders, that of ERM first.",
    ),
}


def figures() -> dict[str, str]:
    """List the figures with numbers, each with the table that it is drawn from."""
    return {about["name"]: name for name in records.table_names() if (about := run.load_table(name).get("figure"))}


def draw(name: str, runs: Path | None = None) -> Figure:
    """Draw a figure with numbers, from the record of its table or from run folders."""
    source = figures()[name]
    table = run.load_table(source)
    about = table["figure"]
    record = run.load_record(source) if runs is None else finished(table, runs)
    names = about.get("rows") or {row: row for row in table["rows"]}
    rows = {shown: run.runs_of(row, table, record) for row, shown in names.items()}
    if not any(rows.values()):
        sys.exit(
            f"No run of {source} is finished in {runs}. `python reproduce/run.py {source} --out DIR` makes them in "
            f"DIR/{source}."
        )
    return panels_figure(sweep_panels(about, table["columns"], rows, levels(about)))


def finished(table: dict[str, Any], runs: Path) -> dict[str, Any]:
    """Describe the finished runs as a record would hold them, and print how many runs are not finished."""
    todo = run.jobs(table)
    done = [job for job in todo if RunFolder(runs / job["folder"]).is_done]
    if len(done) < len(todo):
        print(f"{len(todo) - len(done)} of {len(todo)} runs in {runs} are not finished and left out.")
    return {"runs": [run.describe(job, runs / job["folder"]) for job in done]}


def levels(about: dict[str, Any]) -> dict[str, dict[str, float]]:
    """Find the levels with which the lines of each split are compared."""
    found: dict[str, dict[str, float]] = {split: {} for split in about["splits"].values()}
    for name, level in about.get("levels", {}).items():
        if isinstance(level, dict):
            table, row, column = level["mean"]
            runs = [r for r in records.record_so_far(table)["runs"] if (r["row"], r["column"]) == (row, column)]
            if runs:  # else the level was not run yet
                found[level["split"]][name] = mean(run.value_of(r, level["split"]) for r in runs)
        else:
            for some in found.values():
                some[name] = level
    return found


def page() -> str:
    """Write docs/figures.md: every figure with its command, or what is missing to draw it."""
    lines = ["# Figures", "", INTRODUCTION, ""]
    for name, source in figures().items():
        table = run.load_table(source)
        about = table["figure"]
        shows = about["shows"] + _earlier(source, about.get("rows"))
        lines += _section(name, about["title"], shows, f"figures/{name}.svg", _missing(source, table))
    for name, picture in PICTURES.items():
        shows = picture.shows + (_earlier(name) if name in records.table_names() else "")
        lines += _section(f"{name} RUN...", picture.title, shows, f"figures/{name}.png", picture.missing)
    return "\n".join(lines)


def _earlier(source: str, names: dict[str, str] | None = None) -> str:
    """Say which lines are those of runs whose preset has changed since."""
    table, record = records.load_table(source), records.record_so_far(source)
    rows = names or {row: row for row in table["rows"]}
    earlier = [shown for row, shown in rows.items() if records.outdated(row, table, record)]
    said = f"made with [earlier settings](glossary.md#earlier-settings): {', '.join(earlier)}."
    return f" {records.EARLIER} Runs that were {said}" if earlier else ""


def _section(command: str, title: str, shows: str, image: str, missing: str) -> list[str]:
    there = f"![{title}]({image})" if (DOCS / image).exists() else missing
    why = "<!-- no-run: it draws the picture below, and tests/smoke/test_figures.py runs it -->"
    code = ["```bash", f"python reproduce/figures.py {command}", "```"]
    return [f"## {title}", "", shows, "", why, "", *code, "", there, ""]


def _missing(source: str, table: dict[str, Any]) -> str:
    others = sorted({what["from"][0] for what in table["rows"].values() if "from" in what})
    first = f" after that of {' and '.join(others)}" if others else ""
    runs = f"{len(run.jobs(table))} runs, on a GPU"
    return f"The record of its runs is missing: `python reproduce/run.py {source}` makes it{first} ({runs})."


def main(words: list[str] | None = None) -> None:
    known = [*figures(), *PICTURES]
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("name", choices=[*known, "all"], metavar="NAME", help=", ".join([*known, "all"]))
    parser.add_argument("folders", nargs="*", type=Path, metavar="RUN", help="run folders, for pictures")
    parser.add_argument("--runs", type=Path, help="draw from the run folders of the table below here, not its record")
    parser.add_argument("--start", type=int, help="traversals: which of the starts (default: the first sample)")
    parser.add_argument("--out", type=Path, help="file to write, .svg or .png (default: in docs/figures, and its page)")
    options = parser.parse_args(words)
    try:
        if options.name == "all":
            for name, source in figures().items():
                if run.record_path(source).exists():
                    write(draw(name), DOCS / "figures" / f"{name}.svg")
        else:
            picture = options.name in PICTURES
            if options.folders and not picture:
                parser.error(f"{options.name} is drawn from its record; for run folders give --runs DIR")
            if picture and not options.folders:
                parser.error(f"{options.name} needs run folders: `sitar explain RUN` of each, then give them here")
            drawn = draw_picture(options.name, options.folders, options.start) if picture else None
            out = options.out or DOCS / "figures" / f"{options.name}.{'png' if picture else 'svg'}"
            write(drawn or draw(options.name, options.runs), out)
    except SitarError as error:
        sys.exit(str(error))
    if options.out is None:
        write_atomic(DOCS / "figures.md", page().encode())


def draw_picture(name: str, folders: list[Path], start: int | None) -> Figure:
    if name == "traversals":
        return traversal_figure([read_traversals(RunFolder(folder), start) for folder in folders])
    return gradcam_figure([read_gradcam(RunFolder(folder)) for folder in folders])


def write(figure: Figure, path: Path) -> None:
    save(figure, path)
    print(f"Wrote {path}")


if __name__ == "__main__":
    main()
