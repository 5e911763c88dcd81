"""Write the tutorials as notebooks: `python website/notebooks.py`. A test says when this was forgotten.

A block that runs becomes a cell, bash blocks with %%bash. A block that is marked `no-run` stays text. Nothing is
executed: CI runs the same code from the page.
"""

from __future__ import annotations

import json
import posixpath
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOKS = ROOT / "examples/notebooks"
PAGES = sorted(page for page in (ROOT / "docs/tutorials").glob("*.md") if page.name != "index.md")
PAGES += [page for page in (ROOT / "docs/loops.md", ROOT / "docs/estimator.md") if page.exists()]

BLOCK = re.compile(r"^```(\w+)\n(.*?)^```\n", re.DOTALL | re.MULTILINE)
NO_RUN = re.compile(r"<!-- *no-run:[^>]*-->\s*\Z")
COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
LINK = re.compile(r"\]\((?!https?://|#)([^)]+)\)")
RUN = {"python": "", "bash": "%%bash\n"}


def notebook(page: Path) -> str:
    """Return the notebook of a page."""
    cells = [_cell("code", "# The tutorial runs in the root of a clone.\n%cd ../..")]
    text, end = page.read_text(encoding="utf-8"), 0
    shown = ""  # since the last cell
    for match in BLOCK.finditer(text):
        shown += text[end : match.start()]
        end = match.end()
        if match[1] in RUN and not NO_RUN.search(shown):
            cells += [_prose(shown, page), _cell("code", RUN[match[1]] + match[2].strip())]
            shown = ""
        else:
            shown += match[0]
    cells.append(_prose(shown + text[end:], page))
    for number, cell in enumerate(cells):
        cell["id"] = f"cell-{number}"
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    about = {"kernelspec": kernel, "language_info": {"name": "python"}}
    made = {"cells": [cell for cell in cells if cell["source"]], "metadata": about, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(made, indent=1, ensure_ascii=False) + "\n"


def path(page: Path) -> Path:
    """Return where the notebook of a page lies."""
    return NOTEBOOKS / f"{page.stem}.ipynb"


def _prose(text: str, page: Path) -> dict[str, object]:
    """Take out comments, and lead links from the folder of the notebooks to where they led from the page."""
    here = page.parent.relative_to(ROOT).as_posix()
    there = NOTEBOOKS.relative_to(ROOT).as_posix()

    def link(match: re.Match[str]) -> str:
        return f"]({posixpath.relpath(posixpath.join(here, match[1]), there)})"

    return _cell("markdown", re.sub(r"\n{3,}", "\n\n", LINK.sub(link, COMMENT.sub("", text))).strip())


def _cell(kind: str, source: str) -> dict[str, object]:
    cell: dict[str, object] = {"cell_type": kind, "metadata": {}, "source": source.splitlines(keepends=True)}
    return cell if kind == "markdown" else {**cell, "execution_count": None, "outputs": []}


if __name__ == "__main__":
    NOTEBOOKS.mkdir(exist_ok=True)
    for page in PAGES:
        path(page).write_text(notebook(page), encoding="utf-8")
