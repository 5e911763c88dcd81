"""Write the page of a table from its record, and the values into its notes.

A cell that was not run yet says so, and a cell with fewer seeds than the table asks for says how many it has. A table
with `no_images: true` and without a record shows the paper's rows and says that there are no images here.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import mean, stdev
from typing import Any

from records import (
    EARLIER,
    MARKS,
    NO_IMAGES,
    NOT_RUN,
    load_table,
    outdated,
    record_path,
    record_so_far,
    runs_of,
    value_of,
)
from values import fill

from sitar import given
from sitar.registry import metrics
from sitar.reporting.tables.table import CHANCE, chance, percent

LEGEND = f"{MARKS} runs made before their preset changed ([earlier settings](../glossary.md#earlier-settings))."
ABBREVIATIONS = {
    "ID": "[ID](../glossary.md#id-and-ood) means in distribution.",
    "OOD": "[OOD](../glossary.md#id-and-ood) means out of distribution.",
}


def render(name: str) -> str:
    """Write the page of a table as Markdown, from its record alone."""
    table, record = load_table(name), record_so_far(name)
    if table.get("transposed"):
        return _transposed(name, table, record)
    head = [f"{column}, {label}" for column in table["columns"] for label in table["splits"]]
    header = [f"| | {' | '.join(head)} |", "|---|" + "---|" * len(head)]
    lines, lowest = [], []
    empty = NO_IMAGES if table.get("no_images") and not record["runs"] else NOT_RUN
    for row, what in table["rows"].items():
        runs = runs_of(row, table, record)
        wanted = len(what.get("seeds", table["seeds"]))
        samples = [
            [value_of(run, split) for run in runs if run["column"] == column]
            for column in table["columns"]
            for split in table["splits"].values()
        ]
        label = given.marked(row, runs[0] if runs else {})
        label = f"{label} {EARLIER}" if outdated(row, table, record) else label
        lines.append(f"| {label} | {' | '.join(_cell(values, wanted, empty) for values in samples)} |")
        lowest.append(f"| {label} | {' | '.join(f'{min(v):.1f}' if v else empty for v in samples)} |")
    if "classes" in table:
        cells = [_chance(split, table) for split in table["splits"].values()] * len(table["columns"])
        lines.append(f"| {CHANCE} | {' | '.join(cells)} |")
    for row, values in table["paper"].items():
        lines.append(f"| *paper, {row}* | " + " | ".join(f"*{value}*" for pair in values for value in pair) + " |")
    below = ["The next table shows the lowest value over the seeds.", "", *header, *lowest, ""]
    return "\n".join(
        [
            f"# {table['title']}",
            "",
            *_other_counts(table, record),
            *_introduction(table),
            "",
            *_source(name, table, record),
            "",
            *header,
            *lines,
            "",
            *(below if any(runs_of(row, table, record) for row in table["rows"]) else []),
            *_seed_by_seed(table, record),
            *_bootstrap(table, record),
            *_notes(table, record),
        ]
    )


def _transposed(name: str, table: dict[str, Any], record: dict[str, Any]) -> str:
    """Write the page of a table with many columns: one table for each split, with a line for each column."""
    rows = {row: runs_of(row, table, record) for row in table["rows"]}
    left_out = table.get("left_out", [])
    counted = [column for column in table["columns"] if column not in left_out]
    parts, heads = [], [f"{row} {EARLIER}" if outdated(row, table, record) else row for row in rows]
    for label, split in table["splits"].items():
        parts += [f"## {label}", "", f"| | {' | '.join(heads)} | {CHANCE} |", "|---|" + "---|" * (len(rows) + 1)]
        for column in table["columns"]:
            cells = [
                _cell([value_of(run, split) for run in runs if run["column"] == column], len(table["seeds"]), NOT_RUN)
                for runs in rows.values()
            ]
            mark = " (for tuning)" if column in left_out else ""
            parts.append(f"| {column}{mark} | {' | '.join(cells)} | {_chance(split, table)} |")
        means = [_cell(mean_over(counted, runs, split), len(table["seeds"]), NOT_RUN) for runs in rows.values()]
        parts += [f"| **mean** | {' | '.join(means)} | {_chance(split, table)} |", ""]
    apart = f", without the {len(left_out)} that are for tuning" if left_out else ""
    return "\n".join(
        [
            f"# {table['title']}",
            "",
            *_other_counts(table, record),
            *_introduction(table),
            f"The last line is the mean over the {len(counted)} tasks{apart}. Its ± is over the seeds.",
            "",
            *_source(name, table, record),
            "",
            *parts,
            *_notes(table, record),
        ]
    )


def mean_over(columns: list[str], runs: list[dict[str, Any]], split: str) -> list[float]:
    """Return the mean over columns, for each seed that has all of them."""
    of_seed: dict[int, dict[str, float]] = {}
    for run in runs:
        if run["column"] in columns:
            of_seed.setdefault(run["seed"], {})[run["column"]] = value_of(run, split)
    return [mean(found.values()) for _, found in sorted(of_seed.items()) if len(found) == len(columns)]


def _chance(split: str, table: dict[str, Any]) -> str:
    """Write what a head has that knows nothing, in the words of a column: SPLIT[.METRIC][@SELECTION]."""
    metric = split.partition("@")[0].partition(".")[2] or "average"
    return percent(chance(metric, table["classes"])) if metric in metrics() else "–"


def _introduction(table: dict[str, Any]) -> list[str]:
    """Say what a cell is, and in what the columns differ."""
    seeds = ", ".join(map(str, table["seeds"]))
    given = {row: what.get("seeds", table["seeds"]) for row, what in table["rows"].items()}
    others = "".join(f' "{row}" has {_seeds(own)}.' for row, own in given.items() if own != table["seeds"])
    swept = dict.fromkeys(s.partition("=")[0] for settings in table["columns"].values() for s in settings)
    swept = [key for key in swept if key.startswith("method.")]
    settings = f"The columns differ in {', '.join(swept)}." if swept else "All columns have the same method settings."
    words = "".join(f" {meaning}" for label, meaning in ABBREVIATIONS.items() if label in table["splits"])
    return [
        f"Each cell is the mean ± the standard deviation over the seeds {seeds}.{others} {table['epoch']}",
        f"{settings}{words}",
    ]


def _other_counts(table: dict[str, Any], record: dict[str, Any]) -> list[str]:
    """Warn of rows whose files are not as many as was published: half a copy, or another one."""
    rows: dict[str, list[str]] = {}  # with these counts
    for row in table["rows"]:
        found = [run.get("published_counts") for run in runs_of(row, table, record)]
        for totals in dict.fromkeys(counts["totals"] for counts in found if counts and not counts["agree"]):
            rows.setdefault(totals, []).append(row)
    lines = []
    for totals, quoted in rows.items():
        lines.append(
            f"**The images of these rows are not those that were published:** {_quoted(quoted)}. Their counts differ. "
            f"In total: {totals}. Do not compare these rows with the paper's."
        )
        lines.append("")
    return lines


def _notes(table: dict[str, Any], record: dict[str, Any]) -> list[str]:
    """Write the notes with their values. A mark on a value of another table is explained."""
    text = fill(table.get("notes", "")).rstrip()
    explained = any(outdated(row, table, record) for row in table["rows"])
    legend = [LEGEND, ""] if EARLIER in text and not explained else []
    return [text, "", *legend] if text else []


def _seeds(given: list[int]) -> str:
    return f"the seed {given[0]}" if len(given) == 1 else f"the seeds {', '.join(map(str, given))}"


def _source(name: str, table: dict[str, Any], record: dict[str, Any]) -> list[str]:
    """Say where the numbers come from, and what a reader must know about single rows."""
    command = f"python reproduce/run.py {name}"
    if not record["runs"] and table.get("no_images"):
        return [
            "The images of this table were not available here, so our cells are empty. This command fills them:",
            "",
            "<!-- no-run: it needs the images and a GPU -->",
            "",
            "```bash",
            f"{command} --set data.root=DIR",
            "```",
        ]
    rows = {row: runs_of(row, table, record) for row in table["rows"]}
    made = [run["environment"] for run in record["runs"]]
    where = dict.fromkeys(
        f"{e['device']}, torch {e['versions']['torch']}, commit {str(e['commit'])[:12]}" for e in made
    )
    notes = [f"The runs were made with: {'; '.join(where)}." if where else "No run of this table was made yet."]
    notes += given.notes([run for runs in rows.values() for run in runs])
    if "classes" in table:
        notes.append(
            f'"{CHANCE}" is a fair coin over the {table["classes"]} classes, in expectation '
            "([chance](../glossary.md#chance))."
        )
    fitted = [row for row, runs in rows.items() if any("selections" not in run for run in runs)]
    if fitted and any("@" in split for split in table["splits"].values()):
        notes.append(f"No epoch is chosen in these rows, so all columns show the end of the run: {_quoted(fitted)}.")
    if others := sorted({what["from"][0] for what in table["rows"].values() if "from" in what}):
        links = ", ".join(f"[{other}]({other}.md)" for other in others)
        borrowed = _quoted([row for row, what in table["rows"].items() if "from" in what])
        notes.append(f"These rows come from the record of {links}: {borrowed}.")
    earlier = {row: keys for row in table["rows"] if (keys := outdated(row, table, record))}
    notes += [
        f"{EARLIER} These rows were made when {_listed(list(keys))} had another value: "
        f"{_quoted([row for row in earlier if earlier[row] == keys])}."
        for keys in dict.fromkeys(earlier.values())
    ]
    return [
        f"`{command}` makes this page from `{record_path(name).relative_to(record_path(name).parents[2])}`.",
        " ".join(notes),
    ]


def _cell(values: list[float], wanted: int, empty: str) -> str:
    if not values:
        return empty
    text = f"{mean(values):.1f} ± {stdev(values):.1f}" if len(values) > 1 else f"{values[0]:.1f}"
    few = f" ({len(values)} seed{'s' if len(values) > 1 else ''})" if len(values) < wanted else ""
    return text + few


def _listed(names: list[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def _quoted(rows: list[str]) -> str:
    """Quote the names of rows, because some of them hold a comma."""
    return ", ".join(f'"{row}"' for row in rows)


def _by_seed(
    table: dict[str, Any], rows: dict[str, list[dict[str, Any]]], cell: Callable[[dict[str, Any]], str]
) -> list[str]:
    """Write a table with one line for each seed."""
    lines = [f"| | seed | {' | '.join(table['columns'])} |", "|---|---|" + "---|" * len(table["columns"])]
    for row, runs in rows.items():
        for seed in sorted({run["seed"] for run in runs}):
            found = {run["column"]: cell(run) for run in runs if run["seed"] == seed}
            lines.append(f"| {row} | {seed} | {' | '.join(found.get(c, NOT_RUN) for c in table['columns'])} |")
    return [*lines, ""]


def _seed_by_seed(table: dict[str, Any], record: dict[str, Any]) -> list[str]:
    """Show the last column of the table for each seed, with the two largest shortcut scores of the seed."""
    scored = {row: [run for run in runs_of(row, table, record) if "shortcut_score" in run] for row in table["rows"]}
    if not any(scored.values()):
        return []
    label, split = list(table["splits"].items())[-1]

    def cell(run: dict[str, Any]) -> str:
        first, second = sorted(run["shortcut_score"], reverse=True)[:2]
        return f"{value_of(run, split):.1f} ({first:.2f}, {second:.2f})"

    return [
        f'The next table shows the column "{label}" for every seed. The brackets hold the two largest',
        "[shortcut scores](../glossary.md#shortcut-score) of the last epoch. Two high scores mean that training has",
        "spread the [shortcut](../glossary.md#shortcut) over two [axes](../glossary.md#axis).",
        "",
        *_by_seed(table, scored, cell),
    ]


def _bootstrap(table: dict[str, Any], record: dict[str, Any]) -> list[str]:
    """Show the bootstrap interval of each seed, for the metric that `intervals` names."""
    if "intervals" not in table or not any(runs_of(row, table, record) for row in table["rows"]):
        return []
    split, metric = table["intervals"].split(".")

    def cell(run: dict[str, Any]) -> str:
        low, high = run["splits"][split]["intervals"][metric]
        return f"{100 * run['splits'][split][metric]:.1f} [{100 * low:.1f}, {100 * high:.1f}]"

    return [
        f"The next table shows the {metric.replace('_', ' ')} of the split `{split}` for every seed.",
        "Each value is taken in the epoch that the run selects. The brackets hold the 95 % bootstrap interval.",
        "",
        *_by_seed(table, {row: runs_of(row, table, record) for row in table["rows"]}, cell),
    ]
