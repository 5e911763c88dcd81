"""What is said of an axis and the attribute: never more than the data can tell."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from sitar.analysis.audit.attribute import _conflicts, attribute_in_words


def said(own: float, label: float, conflicts: tuple[int, int] = (50, 50)) -> str:
    scores: dict[str, Any] = {"name": "hospital", "split": "val", "n": 400, "conflicts": list(conflicts)}
    return attribute_in_words({**scores, "attribute_auc": [own], "label_auc": [label]}, 0)


@pytest.mark.parametrize(
    ("own", "label", "words"),
    [(0.95, 0.6, "it is rather hospital than the label."), (0.6, 0.95, "it is rather the label than hospital."),
     (1.0, 1.0, "it follows both alike"), (0.82, 0.8, "it follows both alike")],
)  # fmt: skip
def test_which_of_the_two_an_axis_is(own: float, label: float, words: str) -> None:
    assert words in said(own, label)


def test_where_no_sample_contradicts_neither_is_named() -> None:
    words = said(1.0, 1.0, (0, 3))
    assert "rather" not in words
    assert "Cannot tell label and hospital apart in this data: 3 of 400 samples of val contradict." in words
    assert "sitar ask" in words


def test_conflicts_are_samples_whose_attribute_points_to_another_class() -> None:
    y = torch.tensor([0] * 50 + [1] * 50)
    attribute = torch.tensor([0] * 45 + [1] * 5 + [1] * 48 + [0] * 2)
    assert _conflicts(y, attribute) == [5, 2]
    assert _conflicts(y, 1 - attribute) == [5, 2]
