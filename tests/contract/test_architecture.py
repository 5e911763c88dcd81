"""docs/architecture.md tells the truth: a line for every file, in its own words, and the files that a thing takes.

`python tests/contract/test_architecture.py` writes the lines anew.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "sitar"
PAGE = ROOT / "docs" / "architecture.md"
BEGIN, END = "<!-- a line a file: begin -->\n", "<!-- a line a file: end -->\n"


def first_line(path: Path) -> str:
    """Return what a file says of itself: the first line of its docstring, or of its command's."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    text = ast.get_docstring(tree)
    if text is None:
        commands = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "command"]
        text = ast.get_docstring(commands[0]) if commands else None
    return (text or "").partition("\n")[0]


def rooms() -> dict[str, list[Path]]:
    """Return the Python files of every folder, the folder's own first."""
    files: dict[str, list[Path]] = {}
    for path in sorted(SOURCE.rglob("*.py"), key=lambda path: (path.parent, path.name != "__init__.py", path.name)):
        files.setdefault(path.parent.relative_to(SOURCE).as_posix(), []).append(path)
    return files


def lines() -> str:
    text = []
    for room, files in rooms().items():
        text.append(f"\n### `{'sitar' if room == '.' else room}/`\n\n")
        if files[0].name == "__init__.py" and (about := first_line(files[0])):
            text.append(f"{about}\n\n")
        listed = [path for path in files if path.name not in ("__init__.py", "__main__.py")]
        if listed:
            text.append("| file | what it holds |\n|---|---|\n")
            text += [f"| `{path.name}` | {first_line(path).replace('|', chr(92) + '|')} |\n" for path in listed]
    return "".join(text)


def test_every_file_has_a_line_in_its_own_words() -> None:
    page = PAGE.read_text(encoding="utf-8")
    written = page[page.index(BEGIN) + len(BEGIN) : page.index(END)]
    refresh = "python tests/contract/test_architecture.py writes them anew"
    assert written.strip() == lines().strip(), f"docs/architecture.md has other lines than the files say: {refresh}"


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda path: path.relative_to(SOURCE).as_posix())
def test_every_file_says_what_it_holds(path: Path) -> None:
    about = first_line(path)
    assert about or path.name == "__main__.py", "a file begins with a sentence about what it holds"


def test_the_drawn_floors_are_those_that_are_kept() -> None:
    """import-linter reads the floors from pyproject.toml, and the page draws them."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    page = PAGE.read_text(encoding="utf-8")
    layers = [contract["layers"] for contract in contracts if contract["type"] == "layers"]
    assert len(layers) == 4
    for floors in layers:
        drawn = "\n".join(floor.replace("sitar.", "") for floor in floors)
        assert f"```text\n{drawn}\n```" in page, f"docs/architecture.md does not draw these floors:\n{drawn}"


def knowing(name: str, *folders: str) -> set[str]:
    """Return the files that know a thing by its name: those that write it as a word."""
    word = re.compile(rf"(?<![\w.-]){name}(?![\w-])")
    kinds = (".py", ".yaml", ".html", ".js")
    files = [path for folder in folders for path in (ROOT / folder).rglob("*") if path.suffix in kinds]
    return {path.relative_to(ROOT).as_posix() for path in files if word.search(path.read_text(encoding="utf-8"))}


def test_files_to_touch_are_as_few_as_the_page_counts() -> None:
    """Each thing is looked for by the name of one that is there. Presets and pages are counted as one file each."""
    home = "src/sitar"
    method = knowing("group_dro", home)
    assert {file for file in method if "/presets/" not in file} == {
        f"{home}/methods/group_dro.py",
        f"{home}/methods/__init__.py",
    }
    dataset = knowing("waterbirds", home)
    assert {file for file in dataset if "/presets/" not in file} == {
        f"{home}/data/benchmarks/waterbirds.py",
        f"{home}/data/__init__.py",
    }
    assert {file for file in knowing('"?swap"?', home) if "/presets/" not in file} == {f"{home}/functional/noise.py"}
    assert knowing("auprc", home) == {f"{home}/evaluation/metrics.py"}
    assert knowing("confusion", home) == {
        f"{home}/reporting/html/sections/confusion.py",
        f"{home}/reporting/html/sections/__init__.py",
        f"{home}/reporting/html/templates/sections/confusion.html",
    }
    assert knowing("theory", f"{home}/cli") == {f"{home}/cli/theory.py", f"{home}/cli/main.py"}
    rows = re.findall(r"^\| an? ([\w ]+?) \| (\d)", PAGE.read_text(encoding="utf-8"), re.M)
    counts = {"method": "4", "data set": "4", "kind of noise": "2", "section of the report": "3", "metric": "2"}
    assert dict(rows) == {**counts, "command": "3"}


if __name__ == "__main__":
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(page[: page.index(BEGIN) + len(BEGIN)] + lines() + "\n" + page[page.index(END) :], encoding="utf-8")
    sys.exit()
