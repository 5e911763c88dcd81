"""Docstrings are sentences: rules that catch the fragments we had, for readers whose first language is not English."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "sitar"
OPENINGS = {
    "Of": "say what it is, such as `Return the versions of ...`",
    "As": "say what is done, such as `Return the same as ...`",
    "By": "say what is done, such as `Order the axes by ...`",
    "With": "say what has it, such as `The model is trained with ...`",
    "Without": "say what lacks it, such as `Return the settings without ...`",
    "The same": "name it: a reader may see this docstring alone",
    "See": "say what it is before you refer to another place",
}
QUESTIONS = ("What", "Which", "Who", "How", "Whether", "Why")
ARTICLES = ("A", "An", "The")
Documented = ast.Module | ast.ClassDef | ast.FunctionDef


def documented(tree: ast.Module) -> Iterator[tuple[Documented, str]]:
    for node in ast.walk(tree):
        if isinstance(node, Documented) and (text := ast.get_docstring(node)):
            yield node, text


def first_sentence(text: str) -> str:
    """Return the first sentence of a docstring, which ends within its first paragraph."""
    paragraph = " ".join(text.partition("\n\n")[0].split())
    return re.split(r"(?<=[.?])\s+(?=[A-Z`])(?<!\bal\. )(?<!\bEq\. )", paragraph)[0]


def faults(node: Documented, text: str) -> list[str]:
    """Say why a docstring is no sentence. The list is empty if it is one."""
    sentence = first_sentence(text)
    word = re.split(r"[\s,:]", sentence)[0]
    is_function = isinstance(node, ast.FunctionDef) and not node.name.startswith("check_")  # a check states a promise
    opening = next((opening for opening in OPENINGS if re.match(rf"{opening}\b", sentence)), None)
    rules = {
        "begin with a capital letter": re.match(r"[A-Z`]", sentence),
        "end the first sentence, within the first paragraph": sentence.endswith((".", "?", ":", ")")),
        f"{opening!r} opens a fragment: {OPENINGS.get(opening or '')}": opening is None,
        f"{word!r} opens a question: end it with `?`, or write `Return whether ...`, `Say how ...`": (
            word not in QUESTIONS or sentence.endswith("?")
        ),
        "a heading and a colon are no sentence: use a verb": not re.match(r"[\w-]+( [\w-]+)?: ", sentence),
        "a function does something: begin with a verb, such as `Return`": not (is_function and word in ARTICLES),
        "one word is no sentence": len(sentence.split()) > 1,
    }
    return [rule for rule, holds in rules.items() if not holds]


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda path: path.relative_to(SOURCE).as_posix())
def test_docstrings_are_sentences(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    broken = [
        f"{getattr(node, 'name', 'module')}: {rule}\n    {text.splitlines()[0]}"
        for node, text in documented(tree)
        for rule in faults(node, text)
    ]
    assert not broken, "\n".join(broken)


FUNCTION = next(node for node in ast.walk(ast.parse("def f(): ...")) if isinstance(node, ast.FunctionDef))
FRAGMENTS = (
    "Of images with an attribute of two values.",
    "As torchvision's RandomResizedCrop.",
    "With features in the place of images.",
    "The same in expectation over the noise.",
    "What the last layer sees.",
    "How many features a network makes.",
    "Whether each sample is classified correctly.",
    "Progress: a bar with the time left on a terminal.",
    "Total correlation: how far the axes are from independent.",
    "A copy of nested containers.",
    "The model of a finished run folder.",
    "exp(-gamma p(y)), scaled to sum 1.",
    "Return the model of a finished run",
)
SENTENCES = (
    "Return the model of a finished run folder.",
    "What does the model use? Its axes say it.",
    "`train` is imported when it is first used.",
    "Check this installation: versions, devices and data.",
    "Return the mean loss (Levy et al., 2020).\n\nIt is the mean of a share.",
)


@pytest.mark.parametrize("text", FRAGMENTS)
def test_fragments_are_caught(text: str) -> None:
    assert faults(FUNCTION, text)


@pytest.mark.parametrize("text", SENTENCES)
def test_sentences_are_not(text: str) -> None:
    assert not faults(FUNCTION, text)
