"""The site is built from the pages without a warning, and loads nothing from elsewhere. Notebooks are tutorials."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace

import nbformat
import pytest

from helpers.scripts import ROOT, script
from helpers.site import build

NOTEBOOKS = script("website/notebooks.py")


@pytest.mark.parametrize("page", NOTEBOOKS.PAGES, ids=lambda page: page.stem)
def test_a_notebook_is_what_its_page_makes(page: Path) -> None:
    there = NOTEBOOKS.path(page).read_text(encoding="utf-8")
    assert there == NOTEBOOKS.notebook(page), "write it anew: python website/notebooks.py"


def test_a_notebook_has_a_cell_for_each_block_that_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NOTEBOOKS, "ROOT", tmp_path)
    monkeypatch.setattr(NOTEBOOKS, "NOTEBOOKS", tmp_path / "examples/notebooks")
    page = tmp_path / "docs/tutorials/page.md"
    page.parent.mkdir(parents=True)
    page.write_text(
        "# Title\n\nSee [there](../data.md#part).<!-- not measured: x -->\n\n```bash\nsitar doctor\n```\n\n"
        "<!-- no-run: it needs a GPU -->\n\n```bash\nmake\n```\n\n<!-- data: scans -->\n\n```python\nx = 1\n```\n"
    )
    made = nbformat.reads(NOTEBOOKS.notebook(page), 4)
    nbformat.validate(made)
    code = [cell.source for cell in made.cells if cell.cell_type == "code"]
    text = "\n".join(cell.source for cell in made.cells if cell.cell_type == "markdown")
    assert code[1:] == ["%%bash\nsitar doctor", "x = 1"]
    assert "```bash\nmake\n```" in text
    assert "(../../docs/data.md#part)" in text
    assert "<!--" not in text


def test_every_page_is_in_the_navigation() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2]
    named = re.findall(r"^ *- (?:.*: )?(\S+\.md)$", navigation, flags=re.MULTILINE)
    pages = {page.relative_to(ROOT / "docs").as_posix() for page in ROOT.glob("docs/**/*.md")}
    assert pages <= set(named), "add a line to nav in mkdocs.yml"
    assert len(named) == len(set(named))


@pytest.mark.ci  # the group `docs` is installed there
def test_links_lead_to_the_same_file_on_the_site() -> None:
    hooks = script("website/hooks.py")

    def written(markdown: str, uri: str) -> str:
        return hooks.on_page_markdown(markdown, SimpleNamespace(file=SimpleNamespace(src_uri=uri)), None, None)

    outside = "[a](../examples/sitar-mixup) [b](../CONTRIBUTING.md#test) [c](data.md) [d](https://x.org/y) [e](#part)"
    assert written(outside, "extending.md") == (
        "[a](repository/examples/sitar-mixup/README.md) [b](repository/CONTRIBUTING.md#test) [c](data.md) "
        "[d](https://x.org/y) [e](#part)"
    )
    assert written("[a](docs/data.md)", "repository/CONTRIBUTING.md") == "[a](../data.md)"
    code = "```text\n<!-- kept --> [x](../y)\n```\n"
    assert written(f"{code}<!-- dropped -->", "methods/README.md") == code


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("site"))


@pytest.mark.ci
def test_every_page_is_on_the_site_and_loads_nothing_from_elsewhere(site: Path) -> None:
    for page in ROOT.glob("docs/**/*.md"):
        name = "index.html" if page.name == "README.md" else f"{page.stem}.html"
        html = (site / page.parent.relative_to(ROOT / "docs") / name).read_text(encoding="utf-8")
        loaded = re.findall(r'<(?:script|link|img|iframe)\b[^>]*(?:src|href)="((?:https?:)?//[^"]+)"', html)
        assert not loaded, f"{page.name} loads {loaded}"
        assert ":::" not in html, f"{page.name}: a name of the reference was not found"
    assert "sitar data prepare" in (site / "reference/commands.html").read_text(encoding="utf-8")


@pytest.mark.ci
def test_the_reference_says_what_the_docstrings_say(site: Path) -> None:
    html = (site / "reference/python.html").read_text(encoding="utf-8")
    assert "Load the model of a finished run folder." in html
    assert 'id="sitar.evaluation.trained_model.TrainedModel.predict_proba"' in html
