"""Write the report: one HTML file about runs, which opens without a network and needs no torch to be made."""

from __future__ import annotations

import functools
import logging
import re
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from sitar.errors import ConfigError, RunError, SitarError
from sitar.files import write_atomic
from sitar.privacy import shareable
from sitar.reporting.comparison import Comparison, compare_runs
from sitar.reporting.html.sections import SECTIONS
from sitar.reporting.tables.table import percent

logger = logging.getLogger(__name__)


def write_report(
    paths: Sequence[Path],
    out: Path,
    title: str = "",
    on_left_out: Callable[[str, str], None] = lambda path, reason: None,
    with_paths: bool = False,
) -> Path:
    """Write a report of the runs in `paths`. What cannot be used is named in it, and `on_left_out` is told.

    Without `with_paths` it tells no folder of this machine, since reports are sent on.
    """
    if out.suffix.lower() not in (".html", ".htm"):
        raise ConfigError(f"--out {str(out)!r} is no page: give a file that ends in .html.")
    comparisons, parts, left_out = _compare(paths, with_paths)
    names = [comparison.dataset for comparison in comparisons]
    page = (
        templates()
        .get_template("report.html")
        .render(
            title=title or f"sitar report: {', '.join(dict.fromkeys(names))}",
            left_out=left_out if with_paths else shareable(left_out),
            parts=parts,
            titles=SECTIONS,
        )
    )
    out.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(out, page.encode(errors="replace"))  # a path may hold bytes that are no text
    for path, reason in left_out:
        on_left_out(path, reason)
    return out


Parts = list[tuple[Comparison, dict[str, dict[str, Any]]]]


def _compare(paths: Sequence[Path], with_paths: bool) -> tuple[list[Comparison], Parts, list[tuple[str, str]]]:
    """Compare the runs, and make the sections. A run of which no section can be made is left out."""

    def made(paths: Sequence[Path]) -> tuple[list[Comparison], Parts, list[tuple[str, str]]]:
        comparisons, left_out = compare_runs(paths, with_paths=with_paths)
        parts = [(comparison, make_sections(comparison, len(comparisons))) for comparison in comparisons]
        return comparisons, parts, left_out

    try:
        return made(paths)
    except SitarError:
        raise
    except Exception as error:  # a run that is damaged in a way that its files do not show; which one?
        damaged: list[tuple[str, str]] = []
        for path in paths:
            try:
                made([path])
            except SitarError:
                pass  # it is left out among the others, too
            except Exception as reason:
                damaged.append((str(path), f"It is damaged: {type(reason).__name__}: {reason}."))
                logger.debug("%s", path, exc_info=True)
        rest = [path for path in paths if str(path) not in dict(damaged)]
        if not damaged or not rest:
            raise RunError(
                "No report can be made of these runs: "
                + " ".join(reason for _, reason in damaged or [("", str(error))])
            ) from error
        comparisons, parts, left_out = made(rest)
        return comparisons, parts, left_out + damaged


def make_sections(comparison: Comparison, sharing: int = 1) -> dict[str, dict[str, Any]]:
    """Return what the templates show of one comparison: by section, those that have something to show."""
    modules = {name: import_module(f"sitar.reporting.html.sections.{name}") for name in SECTIONS}
    made = {name: module.make(comparison, sharing) for name, module in modules.items()}
    return {name: values for name, values in made.items() if values is not None}


@functools.cache
def templates() -> Environment:
    """Return the templates, with the filters that they use. They are compiled once a process."""
    environment = Environment(
        loader=PackageLoader("sitar.reporting.html"), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    environment.filters |= {"percent": percent, "breakable": _breakable}
    return environment


def _breakable(text: str) -> Markup:
    """Let a name go on in the next line behind a mark, and not within a word."""
    return Markup(re.sub(r"([_=/]|\.(?!\d))", r"\1<wbr>", str(escape(text))))
