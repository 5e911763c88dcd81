"""What `sitar.functional` and `sitar.nn` offer is documented: each name has a docstring and stands on its page."""

from __future__ import annotations

import doctest
import importlib
import inspect
import pkgutil
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import sitar.functional
import sitar.nn

ROOT = Path(__file__).resolve().parents[2]
PAGES = {"functional": sitar.functional, "loops": sitar.nn}
NAMES = [(page, name) for page, room in PAGES.items() for name in room.__all__]
FILES = [
    importlib.import_module(f"{room.__name__}.{file.name}")
    for room in PAGES.values()
    for file in pkgutil.iter_modules(room.__path__)
]


@pytest.mark.parametrize(("page", "name"), NAMES)
def test_a_public_name_is_documented(page: str, name: str) -> None:
    thing = getattr(PAGES[page], name)
    if inspect.isclass(thing) or inspect.isfunction(thing):
        assert (thing.__doc__ or "").strip(), f"{name} has no docstring"
        assert not (thing.__doc__ or "").startswith(f"{name}("), f"{name} has the docstring that Python makes up"
    text = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
    assert re.search(rf"^\| `{name}` \| \S", text, re.M), f"docs/{page}.md has no row for {name}"


@pytest.mark.parametrize("page", PAGES)
def test_a_page_lists_nothing_that_is_not_public(page: str) -> None:
    text = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
    tables = re.findall(r"^\| name \|.*\n\|-.*\n((?:\|.*\n)+)", text, re.M)
    listed = {name for table in tables for name in re.findall(r"^\| `(\w+)` \|", table, re.M)}
    assert listed == set(PAGES[page].__all__)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.__name__)
def test_the_examples_in_docstrings_are_right(file: ModuleType) -> None:
    assert doctest.testmod(file).failed == 0


def test_the_main_functions_have_examples() -> None:
    tested = {
        test.name.rpartition(".")[2] for file in FILES for test in doctest.DocTestFinder().find(file) if test.examples
    }
    assert tested >= {"TargetedNoise", "TargetedBottleneck", "consistency_loss", "label_moments", "shortcut_score"}


def test_both_are_reached_from_the_package_which_needs_no_torch_for_it() -> None:
    code = "import sys, sitar; assert 'torch' not in sys.modules; sitar.nn.TargetedNoise; sitar.functional.expand"
    subprocess.run([sys.executable, "-c", code], check=True)
