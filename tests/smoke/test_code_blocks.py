"""Every code block of README and docs runs, or says why it does not. How: tests/helpers/code_blocks.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers import code_blocks, page_data
from sitar.data.benchmarks.color_mnist import ColorMNISTConfig

PAGES = {page: code_blocks.blocks(page) for page in code_blocks.pages()}
RUNNABLE = [page for page, found in PAGES.items() if any(block.is_run for block in found)]


@pytest.mark.parametrize("page", [page for page, found in PAGES.items() if found])
def test_a_block_runs_or_says_why_not(page: str) -> None:
    known = code_blocks.RUN | code_blocks.SHOWN
    for block in PAGES[page]:
        assert block.language in known, f"{block}: name the language of this block, one of {sorted(known)}"
        assert block.reason is None or len(block.reason.split()) >= 3, f"{block}: say why it is not run"
        assert block.reason is None or block.language in code_blocks.RUN, f"{block}: such a block is never run"
        assert set(block.data) <= set(page_data.MAKERS), f"{block}: data is one of {sorted(page_data.MAKERS)}"


@pytest.mark.ci
@pytest.mark.parametrize("page", RUNNABLE)
def test_the_blocks_of_a_page_run(page: str, tmp_path: Path) -> None:
    code_blocks.run(PAGES[page], tmp_path)


def made(text: str) -> list[code_blocks.Block]:
    return list(code_blocks.read(text))


def test_comments_count_for_the_next_block_only() -> None:
    text = (
        "<!-- no-run: it needs a GPU -->\n\n```bash\nmake\n```\n\n<!-- no-run: lost -->\ntext\n\n"
        "- item\n\n  <!-- data: scans animals -->\n  ```python\n  if 1:\n      pass\n  ```\n\n```text\nshown\n```\n"
    )
    first, second, third = made(text)
    assert (first.reason, first.is_run, first.line) == ("it needs a GPU", False, 3)
    assert (second.reason, second.data, second.is_run) == (None, ("scans", "animals"), True)
    assert second.code == "if 1:\n    pass\n"
    assert (third.data, third.is_run) == ((), False)


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("```python\n1 / 0\n```", "page:1: ZeroDivisionError"),
        ("```bash\nfalse | true\n```", "ended with status 1"),
        ("```bash\nsitar train nothing/of_that_name\n```", "page:1: AssertionError"),
        ("```bash\ntrue --out nothing.csv  # no file\n```", "left no 'nothing.csv'"),
        ("```bash\nsitar presets \\\n  --no-such-option\n```", "No such option"),
    ],
)
def test_a_block_that_fails_is_named(code: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=says):
        code_blocks.run(made(code), tmp_path)


def test_blocks_share_names_files_and_the_folder(tmp_path: Path) -> None:
    text = (
        "```python\nfrom pathlib import Path\nPath('file.txt').write_text('a')\nvalue = 3\n```\n"
        "```bash\ncat file.txt > copy.txt  # a comment\n```\n"
        "```python\nassert Path('copy.txt').read_text() == 'a' and value == 3\n```\n"
    )
    code_blocks.run(made(text), tmp_path)
    assert (tmp_path / "copy.txt").exists()


def test_training_is_short(tmp_path: Path) -> None:
    text = "<!-- data: embeddings -->\n```bash\nsitar train npz/erm --set data.file=embeddings.npz --out run\n```\n"
    code_blocks.run(made(text), tmp_path)
    assert len((tmp_path / "run/metrics.jsonl").read_text().splitlines()) == 1
    assert "epochs: 60" in (tmp_path / "run/config.yaml").read_text()


def test_drawn_data_is_small_only_while_a_page_runs(tmp_path: Path) -> None:
    default = ColorMNISTConfig().train_size
    code = "from sitar.data.benchmarks.color_mnist import ColorMNISTConfig\nassert ColorMNISTConfig().train_size < 1000"
    text = f"```python\n{code}\n```\n"
    code_blocks.run(made(text), tmp_path)
    assert ColorMNISTConfig().train_size == default > 1000
