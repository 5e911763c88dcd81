from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sitar.cli.imports import Import
from sitar.cli.output import Json, print_csv, print_json, print_table, say, standard_output
from sitar.errors import ConfigError, RunError
from sitar.registry import metrics, unknown
from sitar.reporting.comparison import Row, group_runs, usable_runs
from sitar.reporting.tables.table import HEADLINE, KNOWLEDGE, Table
from sitar.splits import TEST_SPLITS

if TYPE_CHECKING:
    from sitar.reporting.against import Verdict


def command(
    runs: Annotated[list[Path], typer.Argument(help="Folders of finished runs; seeds of one setting share a row.")],
    metric: Annotated[
        list[str] | None,
        typer.Option(
            help=f"Repeatable: a metric of result.json, such as auroc; default: {', '.join([*HEADLINE, *KNOWLEDGE])}."
        ),
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(metavar="ROW", help="Compare all others with this row, such as ERM: intervals, tests and words."),
    ] = None,
    predictions: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=FILE",
            help="Repeatable: predictions of your own code for the test samples of these runs, as a .csv or .parquet "
            "table. Several files of one NAME are its seeds 0, 1, ...; or write NAME@SEED=FILE.",
        ),
    ] = None,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV: a line for each row, split and metric.")] = False,
    as_latex: Annotated[bool, typer.Option("--latex", help="Print LaTeX tables, which need booktabs.")] = False,
    as_json: Json = False,
    import_: Import = None,
) -> None:
    """Compare runs in one table, with the mean and the deviation over seeds, and with a reference if you name one."""
    from sitar.reporting.tables.runs import records, shown_in

    if as_csv + as_latex + as_json > 1:
        raise ConfigError("Give one of --csv, --latex and --json: each is another form of the same tables.")
    names = metric or [*HEADLINE, *KNOWLEDGE]
    for name in names:
        if name not in metrics():
            raise unknown("metric", name, metrics())
    read, left_out = usable_runs(runs, "compare")
    for path, reason in left_out:
        say(f"Left out: {path}: {reason}", err=True)
    if predictions:
        from sitar.evaluation.imported_predictions import import_predictions

        read = [*read, *import_predictions(predictions, read[0])]
    rows = group_runs(read)
    verdicts, reference = _against(rows, against, names)
    if as_json:
        print_json(_json(rows, names, verdicts))
    elif as_csv:
        if not (found := records(rows, names, verdicts)):
            raise RunError(f"No run has one of {', '.join(names)} on a test split, so there is nothing to print.")
        print_csv(found)
    else:
        tables = _tables(rows, metric, bold=as_latex)
        if reference is not None:
            from sitar.reporting.tables.differences import differences_table

            tables["tab:differences"] = differences_table(verdicts, reference, shown_in(rows, names))
        _print(tables, as_latex)


def _against(rows: Sequence[Row], name: str | None, names: Sequence[str]) -> tuple[list[Verdict], Row | None]:
    if name is None:
        return [], None
    from sitar.reporting.against import against, find_row
    from sitar.reporting.tables.runs import shown_in

    reference = find_row(rows, name)
    if len(rows) == 1:
        raise ConfigError(f"There is no other row to compare with {reference.label}: give runs of another method too.")
    verdicts = against(rows, reference, shown_in(rows, names))
    if not verdicts:
        raise RunError(
            f"Nothing can be compared with {reference.label}: no other row has one of {', '.join(names)} on a test "
            "split, or the runs have not stored what it is computed from."
        )
    return verdicts, reference


def _tables(rows: Sequence[Row], metric: Sequence[str] | None, *, bold: bool) -> dict[str, Table]:
    """Return the tables of a comparison, by the label that each has in LaTeX."""
    from sitar.reporting.tables.runs import compare_table, knowledge_table, with_best_in_bold

    shown = {"tab:comparison": (compare_table(rows, metric or HEADLINE), metric or HEADLINE)}
    if metric is None and (known := knowledge_table(rows)):
        shown["tab:knowledge"] = (known, KNOWLEDGE)
    return {label: with_best_in_bold(table, rows, names) if bold else table for label, (table, names) in shown.items()}


def _print(tables: dict[str, Table], as_latex: bool) -> None:
    from sitar.reporting.tables.latex import latex

    for label, table in tables.items():
        if as_latex:
            print(latex(table, label) + "\n", file=standard_output())
        else:
            print_table(table)


def _json(rows: Sequence[Row], names: Sequence[str], verdicts: Sequence[Verdict]) -> list[dict[str, Any]]:
    from sitar.reporting.tables.differences import verdict_record

    splits = [s for s in TEST_SPLITS if any(s in result["splits"] for row in rows for result in row.results)]
    found = []
    for row in rows:
        about: dict[str, Any] = {
            "runs": row.label,
            "seeds": row.seeds,
            **row.given,
            "splits": {split: {name: row.summary(split, name) for name in names} for split in splits},
        }
        for verdict in verdicts:
            if verdict.row is row:
                about["splits"][verdict.split][verdict.metric]["against"] = verdict_record(verdict)
        found.append(about)
    return found
