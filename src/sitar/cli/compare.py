from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sitar.cli.output import Json, print_json, print_table
from sitar.registry import metrics, unknown
from sitar.reporting.comparison import group_runs, read_runs
from sitar.reporting.tables.runs import compare_table, knowledge_table
from sitar.reporting.tables.table import HEADLINE, KNOWLEDGE
from sitar.splits import TEST_SPLITS


def command(
    runs: Annotated[list[Path], typer.Argument(help="Folders of finished runs; seeds of one setting share a row.")],
    metric: Annotated[
        list[str] | None,
        typer.Option(
            help=f"Repeatable: a metric of result.json, such as auroc; default: {', '.join([*HEADLINE, *KNOWLEDGE])}."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Compare runs in one table, with the mean and the deviation over seeds."""
    names = metric or [*HEADLINE, *KNOWLEDGE]
    for name in names:
        if name not in metrics():
            raise unknown("metric", name, metrics())
    rows = group_runs(read_runs(runs))
    if not as_json:
        print_table(compare_table(rows, metric or HEADLINE))
        if metric is None and (known := knowledge_table(rows)):
            print_table(known)
        return
    splits = [s for s in TEST_SPLITS if any(s in result["splits"] for row in rows for result in row.results)]
    print_json(
        [
            {
                "runs": row.label,
                "seeds": row.seeds,
                "needs_groups": row.needs_groups,
                "answers": row.answers,
                "splits": {split: {name: row.summary(split, name) for name in names} for split in splits},
            }
            for row in rows
        ]
    )
