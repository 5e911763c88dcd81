"""Which split decides, and that every name of a split stands in one place."""

from __future__ import annotations

import pytest

from sitar.splits import DECIDING_SPLITS, EVALUATION_SPLITS, TEST_SPLITS, deciding_split


@pytest.mark.parametrize(
    ("names", "decides"),
    [
        (("train", "val", "val_ood", "id_test", "ood_test"), "ood_test"),
        (("val", "test", "ood_test"), "ood_test"),
        (("val", "test", "id_test"), "test"),
        (("id_test", "val"), "id_test"),
        (("train", "val_ood", "val"), "val"),
        (("train", "val_ood"), None),
        ((), None),
    ],
)
def test_the_deciding_split(names: tuple[str, ...], decides: str | None) -> None:
    assert deciding_split(names) == decides


def test_the_lists_agree() -> None:
    assert set(TEST_SPLITS) == {name for name in EVALUATION_SPLITS if name.endswith("test")}
    assert set(DECIDING_SPLITS) == {*TEST_SPLITS, "val"}
