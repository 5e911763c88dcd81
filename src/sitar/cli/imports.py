"""`--import FILE.py` adds the methods and datasets of a file of your own."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Annotated

import typer

from sitar.plugins import import_file, imported_files
from sitar.registry import DATASETS, METHODS

logger = logging.getLogger(__name__)


def import_files(files: list[Path] | None) -> list[Path] | None:
    """Import the files that a user names. Warn if one of them adds nothing."""
    for file in files or ():
        if str(file) in imported_files():
            continue
        before = _registered()
        import_file(file)
        if _registered() == before:
            logger.warning(
                "%s registers no method and no dataset: decorate its class with @METHODS.register(NAME) or "
                "@DATASETS.register(NAME) of sitar.registry.", file
            )  # fmt: skip
    return files


def _registered() -> list[str]:
    return [*METHODS.names(), *DATASETS.names()]


Import = Annotated[
    list[Path] | None,
    typer.Option(
        "--import",
        metavar="FILE.py",
        callback=import_files,
        help="Import a file of your own first, with the methods and datasets that it registers.",
    ),
]
