"""Say how runs that were made now differ from those of the record, in each value that the table shows.

A value agrees if the page would print the same digits for it. Nothing is written.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from records import EARLIER, SAID, changed, load_table, record_so_far, value_of

from sitar.cli.output import print_table
from sitar.reporting.tables.table import Table

COLUMNS = ["row", "column", "seed", "split", "record", "now", "difference"]


class Difference(NamedTuple):
    """One value of one run, in the record and now."""

    row: str
    column: str
    seed: int
    split: str
    recorded: float | None  # None: the record does not have this run
    now: float
    is_earlier: bool  # the run of the record was made before its preset changed

    @property
    def size(self) -> float:
        return 0.0 if self.recorded is None else abs(self.now - self.recorded)

    @property
    def agrees(self) -> bool:
        return self.recorded is not None and _printed(self.recorded) == _printed(self.now)

    def cells(self) -> list[str]:
        cells = [self.row, self.column, str(self.seed), self.split]
        if self.recorded is None:
            return [*cells, "–", _printed(self.now), "–"]
        mark = f" {EARLIER}" if self.is_earlier else ""
        return [*cells, _printed(self.recorded) + mark, _printed(self.now), f"{self.now - self.recorded:+.2f}"]


def show(made: dict[str, list[dict[str, Any]]]) -> None:
    """Print every value of these runs of tables beside that of the record, and how many agree."""
    found: list[Difference] = []
    for name, runs in made.items():
        of_table = list(differences(name, runs))
        note = f"{EARLIER} made before its preset changed." if any(one.is_earlier for one in of_table) else ""
        print_table(Table(f"{name}: the record and now", COLUMNS, [one.cells() for one in of_table], note))
        found += of_table
    print(summary(found))


def differences(name: str, made: Sequence[dict[str, Any]]) -> Iterator[Difference]:
    """Yield the values of runs of a table, in the order of the table."""
    table, record = load_table(name), record_so_far(name)
    recorded = {_key(run): run for run in record["runs"]}
    rows, columns = list(table["rows"]), list(table["columns"])
    for run in sorted(made, key=lambda run: (rows.index(run["row"]), columns.index(run["column"]), run["seed"])):
        before = recorded.get(_key(run))
        is_earlier = before is not None and bool(changed(before, record.get("settings", {})))
        for label, split in table["splits"].items():
            value = None if before is None else value_of(before, split)
            yield Difference(run["row"], run["column"], run["seed"], label, value, value_of(run, split), is_earlier)


def summary(found: Sequence[Difference]) -> str:
    """Say how many values agree, and where the largest difference is."""
    known = [one for one in found if one.recorded is not None]
    missing = f" {len(found) - len(known)} values have none in the record." if len(known) < len(found) else ""
    if not known:
        return f"No value was compared.{missing}"
    worst = max(known, key=lambda one: one.size)
    where = f" ({worst.row}, {worst.column}, seed {worst.seed}, {worst.split})" if worst.size else ""
    return (
        f"{sum(one.agrees for one in known)} of {len(known)} values agree with the record to the printed digit. "
        f"The largest difference is {worst.size:.2f}{where}.{missing}"
    )


def _printed(value: float) -> str:
    return f"{value:.1f}"


def _key(run: dict[str, Any]) -> str:
    return str([run[key] for key in SAID])
