"""The dataset on which methods are checked keeps the contract of datasets itself."""

from __future__ import annotations

import pytest

from sitar.registry import DATASETS
from sitar.testing import ContractError, check_dataset
from sitar.testing.toy import NAME, Toy, ToyConfig


@pytest.mark.parametrize("classes", [2, 4])
def test_the_toy_keeps_the_contract(classes: int) -> None:
    with DATASETS.holding({NAME: Toy}):
        check_dataset(NAME, classes=classes)


def test_no_method_learns_the_toy_without_mistakes() -> None:
    """The shortcut holds for four of five training samples, no class is empty, and some bars lie in a wrong place."""
    for classes in (2, 4):
        table = Toy.samples(ToyConfig(classes=classes))
        train = table.take(table.split == "train")
        assert 0.7 < train.in_majority().mean() < 0.9
        assert set(train.label.tolist()) == set(range(classes))
        assert (train.label == 0).mean() > 1.1 / classes


class NeedsFiles(Toy):
    needs_files = True


class OfNoSetting(Toy):
    setting = "folder"


@pytest.mark.parametrize(
    ("cls", "found"), [(NeedsFiles, "no setting says where"), (OfNoSetting, "make `setting` None")]
)
def test_a_setting_that_names_files_must_be_there(cls: type, found: str) -> None:
    with DATASETS.holding({NAME: cls}), pytest.raises(ContractError, match=f"(?s)'describes_itself'.*{found}"):
        check_dataset(NAME)
