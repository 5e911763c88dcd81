"""Write the tables of a record of benchmarks/compare.py into a page: `python benchmarks/page.py RECORD.json PAGE.md`.

They stand between two comments that name the record. Every number has a comment that names its value, so that
`python reproduce/run.py --check` compares them.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

COLUMNS = {
    "milliseconds": "ms a step",
    "processor_milliseconds": "processor ms",
    "samples_per_second": "samples a second",
    "times_slower": "times slower",
}
CONTESTS = ("images", "images of 64x64", "images from the cache", "features")
START = {
    "seconds_to_import": "until a new process has imported sitar",
    "seconds_to_first_step": "from there until the first step of `PRESET` is done",
}
LIMIT = {
    "megabytes": "MB that a step with torch's layers reads and writes",
    "megaflops": "million operations of a step",
    "gigabytes_per_second": "GB a second, a large copy",
    "gigaflops_per_second": "billion operations a second, a large product of matrices",
    "milliseconds_of_bytes": "ms for the bytes alone",
    "milliseconds_of_operations": "ms for the operations alone",
    "times_the_limit": "times the larger of the two, a step of sitar",
}


def tables(name: str, record: dict[str, Any]) -> Iterator[str]:
    """Make the lines of all tables of a record."""

    def value(number: float, path: str) -> str:
        return f"{number:,}<!-- {name}: {path} -->"

    for title in (title for title in CONTESTS if title in record):
        yield from ("", f"| {title} | {' | '.join(COLUMNS.values())} |", "|---" * (1 + len(COLUMNS)) + "|")
        for rival, row in record[title].items():
            yield f"| {rival} | " + " | ".join(value(row[key], f"{title}.{rival}.{key}") for key in COLUMNS) + " |"
    small = {"start": ("start | seconds", START), "limit": ("the limit |", LIMIT)}
    for title, (heading, meanings) in small.items():
        if title in record:
            yield from ("", f"| {heading} |", "|---|---|")
            for key, meaning in meanings.items():
                cell = value(record[title][key], f"{title}.{key}")
                yield f"| {meaning.replace('PRESET', record['preset'])} | {cell} |"
    if "costs" in record:
        yield from ("", "| cost | size | ms | times the row before |", "|---|---|---|---|")
    for title, rows in record.get("costs", {}).items():
        for row in rows:
            path = f"costs.{title}[value={row['value']}]"
            times = value(row["times"], f"{path}.times") if "times" in row else ""
            milliseconds = value(row["milliseconds"], f"{path}.milliseconds")
            yield f"| {title if not times else ''} | {row['value']:,} | {milliseconds} | {times} |"
    for title, rows in record.get("operators", {}).items():
        yield from ("", f"| operator, layers of {title} | ms | calls | MB |", "|---|---|---|---|")
        for row in rows:
            path = f"operators.{title}[operator={row['operator']}]"
            numbers = [value(row[key], f"{path}.{key}") for key in ("milliseconds", "calls", "megabytes")]
            yield f"| `{row['operator']}` | {' | '.join(numbers)} |"
    yield from made(record, value)


def made(record: dict[str, Any], value: Callable[[float, str], str]) -> Iterator[str]:
    """Say on which machine a record was made, how busy it was, and who was left out."""
    yield from (
        "",
        f"Made on {record['cores']} cores ({record['device']}), at this load of the machine, before and after:",
    )
    if "load_before" in record:  # an early record: all that is not named below
        yield f"- all else: {value(record['load_before'], 'load_before')}, {value(record['load_after'], 'load_after')}"
    for part, how in record.get("made", {}).items():
        load = [value(how[key], f"made.{part}.{key}") for key in ("load_before", "load_after")]
        yield f"- {part}: {load[0]}, {load[1]}"
    if "left_out" in record:
        yield from ("", f"Left out, because it is not installed: {', '.join(record['left_out'])}.")


def main() -> None:
    record, page = Path(sys.argv[1]), Path(sys.argv[2])
    lines = "\n".join(tables(record.name, json.loads(record.read_text())))
    begin, end = f"<!-- tables of {record.stem}: begin -->", f"<!-- tables of {record.stem}: end -->"
    text = page.read_text()
    if begin not in text:
        raise SystemExit(f"{page} has no place for the tables: write {begin} and {end} where they shall stand.")
    between = re.compile(re.escape(begin) + ".*?" + re.escape(end), re.DOTALL)
    page.write_text(between.sub(lambda _: f"{begin}\n{lines}\n\n{end}", text))


if __name__ == "__main__":
    main()
