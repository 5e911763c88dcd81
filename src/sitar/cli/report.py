from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from sitar.cli.output import Json, print_json, say


def command(
    runs: Annotated[list[Path], typer.Argument(help="Run folders; those that cannot be used are named in the report.")],
    out: Annotated[Path, typer.Option(help="The file to write.")] = Path("report.html"),
    title: Annotated[str, typer.Option(help="Heading of the page.")] = "",
    with_paths: Annotated[
        bool, typer.Option("--with-paths", help="Show full paths, which may tell names of users.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Write a report of runs as one HTML file. It opens without a network, so you can send it to others."""
    from sitar.reporting.html.report import write_report

    started = time.perf_counter()
    left_out: list[dict[str, str]] = []
    write_report(runs, out, title, lambda run, reason: left_out.append({"run": run, "reason": reason}), with_paths)
    size = out.stat().st_size
    if as_json:
        print_json({"report": str(out), "bytes": size, "left_out": left_out})
        return
    for one in left_out:
        say(f"Left out: {one['run']}: {one['reason']}")
    say(f"Report: {out}   {size / 1e6:.1f} MB   Time: {time.perf_counter() - started:.1f} s")
