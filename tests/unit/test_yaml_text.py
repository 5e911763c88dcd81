"""YAML of a stranger is read within bounds, and runs nothing."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from sitar.yaml_text import DEEPEST, MOST_CHARACTERS, read_yaml, yaml_nodes

LAUGHS = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 10)
)
MERGES = "a0: &a0 {x: 1}\n" + "".join(f"a{i}: &a{i} {{<<: [{', '.join([f'*a{i - 1}'] * 10)}]}}\n" for i in range(1, 10))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (LAUGHS, "more than 100,000 values"),
        (MERGES, "`<<` is not read"),
        ("&a [*a]", "nested more than"),
        ("[" * 60 + "]" * 60, f"nested more than {DEEPEST}"),
        ("[" * 5000 + "]" * 5000, f"nested more than {DEEPEST}"),
        ("x" * (MOST_CHARACTERS + 1), "at most 1,000,000 are read"),
        ("!!python/object/apply:os.system [true]", "could not determine a constructor"),
        ("[1", "expected"),
        ("2024-99-99", "month must be"),
        ("x: !!int ''", "IndexError"),
        ("x: !!bool maybe", "KeyError"),
        ("x: !!timestamp never", "AttributeError"),
        ("- " * 3000 + "x", f"nested more than {DEEPEST}"),
    ],
    ids=[
        "laughs",
        "merges",
        "itself",
        "nested",
        "very nested",
        "long",
        "code",
        "cut",
        "no date",
        "no number",
        "no truth",
        "never",
        "nested blocks",
    ],
)
def test_what_is_no_settings_is_refused_with_the_reason(text: str, why: str) -> None:
    began = time.process_time()
    with pytest.raises(ValueError, match=why):
        read_yaml(text)
    assert time.process_time() - began < 2


def test_a_value_may_be_named_and_used_again() -> None:
    assert read_yaml("a: &x [1, 2]\nb: *x") == {"a": [1, 2], "b": [1, 2]}


def test_nodes_are_read_within_the_same_bounds() -> None:
    node = yaml_nodes("a: 1\nb: 2")
    assert node is not None
    assert [key.start_mark.line for key, _ in node.value] == [0, 1]
    with pytest.raises(ValueError, match="nested more than"):
        yaml_nodes("[" * 5000)


def test_the_reason_does_not_quote_the_text() -> None:
    """What is read may be another file, to which a link in a stranger's folder leads."""
    with pytest.raises(ValueError, match="in line 3") as error:
        read_yaml("a: 1\nTOKEN=hunter2 password: [x\n")
    assert "hunter2" not in str(error.value)


@pytest.mark.parametrize("number", ["1" + ":1" * 50_000, "1" * 100_000, "1." + "1" * 100_000])
def test_a_number_of_thousands_of_digits_is_refused(number: str) -> None:
    with pytest.raises(ValueError, match=r"a number has .* digits"):
        read_yaml(f"a: {number}")


@pytest.mark.parametrize(
    "text", ["{" + "a: b," * 100_000 + "}", "a: [" + "a," * 250_000 + "]"], ids=["one key", "list"]
)
@pytest.mark.parametrize("read", [read_yaml, yaml_nodes])
def test_values_are_counted_before_all_are_read(
    text: str, read: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A key that is repeated 100,000 times is one value, but took as long to read as all of them."""
    monkeypatch.setattr("sitar.yaml_text.MOST_VALUES", 10_000)
    began = time.process_time()
    with pytest.raises(ValueError, match="it stands for more than 10,000 values"):
        read(text)
    assert time.process_time() - began < 2


def test_the_names_of_many_columns_are_read() -> None:
    settings = {"data": {"feature_columns": [f"feature_{i:05}" for i in range(20_000)]}}
    assert read_yaml(yaml.safe_dump(settings)) == settings
