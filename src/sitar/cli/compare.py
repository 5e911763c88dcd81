from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sitar.cli.output import Json, print_json, print_table
from sitar.registry import unknown
from sitar.reporting.comparison import group_runs, read_runs
from sitar.reporting.tables.runs import compare_table
from sitar.splits import TEST_SPLITS

METRICS = ["average", "worst_group", "adjusted_average", "class_balanced", "calibration_error", "auroc", "auprc", "f1"]


def command(
    runs: Annotated[list[Path], typer.Argument(help="Folders of finished runs; seeds of one setting share a row.")],
    metric: Annotated[list[str] | None, typer.Option(help=f"Repeatable: {', '.join(METRICS)}.")] = None,
    as_json: Json = False,
) -> None:
    """Compare runs in one table, mean and deviation over seeds."""
    metrics = metric or METRICS[:2]
    for name in metrics:
        if name not in METRICS:
            raise unknown("metric", name, METRICS)
    rows = group_runs(read_runs(runs))
    if not as_json:
        print_table(compare_table(rows, metrics))
        return
    splits = [s for s in TEST_SPLITS if any(s in result["splits"] for row in rows for result in row.results)]
    print_json(
        [
            {
                "runs": row.label,
                "seeds": row.seeds,
                "needs_groups": row.needs_groups,
                "splits": {split: {name: row.summary(split, name) for name in metrics} for split in splits},
            }
            for row in rows
        ]
    )
