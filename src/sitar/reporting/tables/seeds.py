"""Make the table of several seeds of one setting: a row for each, and their mean."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import mean, stdev
from typing import Any

from sitar import given
from sitar.registry import metrics
from sitar.reporting.groups import notes_on_groups
from sitar.reporting.tables.table import HEADLINE, Table, percent
from sitar.splits import TEST_SPLITS, VAL


def seeds_table(title: str, results: Mapping[int, Mapping[str, Any] | None]) -> Table:
    """Show val and the headline of the test splits, a row for each seed. A seed that has failed is None: dashes."""
    done = [result for result in results.values() if result is not None]
    shown = [
        (split, metric)
        for split in (VAL, *TEST_SPLITS)
        for metric in (HEADLINE[:1] if split == VAL else HEADLINE)
        if any(_value(result, split, metric) is not None for result in done)
    ]
    rows = [
        [str(seed), *(percent(_value(result, *what)) for what in shown), _epoch(result)]
        for seed, result in results.items()
    ]
    if len(done) > 1:
        rows.append(["mean", *(_spread([_value(result, *what) for result in done]) for what in shown), ""])
    columns = ["seed", *(f"{split} {metrics()[metric].short}" for split, metric in shown), "epoch"]
    notes = ["Percent; the mean is given with the standard deviation over seeds."]
    if len(done) < len(results):
        notes.append(f"{len(results) - len(done)} of {len(results)} seeds have failed.")
    notes += notes_on_groups(done[:1], [split for split, metric in shown if metric == "worst_group"]) + given.notes(
        done
    )
    return Table(given.marked(title, done[0]) if done else title, columns, rows, " ".join(notes))


def _value(result: Mapping[str, Any] | None, split: str, metric: str) -> float | None:
    return None if result is None else result["splits"].get(split, {}).get(metric)


def _epoch(result: Mapping[str, Any] | None) -> str:
    chosen = None if result is None else result.get("selected_epoch")
    return "failed" if result is None else "–" if chosen is None else str(chosen)


def _spread(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    if not known:
        return "–"
    return f"{percent(mean(known))} ± {percent(stdev(known))}" if len(known) > 1 else percent(known[0])
