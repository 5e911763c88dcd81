"""A data set that breaks its contract fails the check that says so."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch

from sitar.config import NamedConfig
from sitar.data import Data, Dataset, EvalSplit
from sitar.data.base import Box
from sitar.data.sample_table import SampleTable
from sitar.data.types import GroupSplit
from sitar.errors import DataError
from sitar.progress import Watch, unwatched
from sitar.registry import DATASETS
from sitar.testing import ContractError
from sitar.testing.datasets import check_dataset


class GoodConfig(NamedConfig):
    name: Literal["good"] = "good"
    root: str | None = None


class Good(Dataset):
    """Twelve numbers of a file, in two splits and four groups."""

    Config = GoodConfig
    title, layout, licence = "Good", "numbers.txt", "yours"

    @classmethod
    def samples(cls, config: Any) -> SampleTable:
        n = np.arange(12)
        split = np.where(n < 8, "train", "test")
        majority = frozenset({(0, 0), (1, 1)})
        return SampleTable(n, n % 2, split, ("even", "odd"), n // 2 % 2, "half", ("first", "second"), majority)

    @classmethod
    def load(cls, config: Any, watch: Watch = unwatched) -> Data:
        if config.root is None:
            raise DataError("Good needs data.root.")
        path = Path(config.root, "numbers.txt")
        if not path.is_file():
            raise DataError(f"There is no {str(path)!r}.")
        x = torch.tensor([float(word) for word in path.read_text().split()])[:, None]
        return cls.samples(config).to_data(x, "numbers")


def test_a_good_dataset_passes(tmp_path: Path) -> None:
    check(Good, tmp_path)


class NoBase:
    Config, title, layout, licence, setting, needs_files = GoodConfig, "A", "b", "c", "root", True


class OtherNameConfig(GoodConfig):
    name: Literal["other"] = "other"


class OtherName(Good):
    Config = OtherNameConfig


class NoLicence(Good):
    licence = " "


class NoSuchSetting(Good):
    setting = "folder"


class Changed(Good):
    """Loads what Good does, and spoils it."""

    @classmethod
    def load(cls, config: Any, watch: Watch = unwatched) -> Data:
        return cls.spoil(super().load(config), config)

    @classmethod
    def spoil(cls, data: Data, config: Any) -> Data:
        raise NotImplementedError


class Doubles(Changed):
    @classmethod
    def spoil(cls, data: Data, config: Any) -> Data:
        return replace(data, train=replace(data.train, x=data.train.x.double()))


class HoldsOut(Changed):
    @classmethod
    def spoil(cls, data: Data, config: Any) -> Data:
        return replace(data, evaluation={"holdout": data.evaluation["test"]})


class OtherGroups(Changed):
    @classmethod
    def spoil(cls, data: Data, config: Any) -> Data:
        test = data.evaluation["test"]
        assert test.group is not None
        return replace(data, evaluation={"test": replace(test, group=3 - test.group)})


class Leaks(Changed):
    @classmethod
    def spoil(cls, data: Data, config: Any) -> Data:
        assert data.train_groups is not None
        return replace(data, train=GroupSplit(data.train.x, data.train.y, **vars(data.train_groups)))


class LosesSamples(Changed):
    @classmethod
    def spoil(cls, data: Data, config: Any) -> Data:
        test = data.evaluation["test"]
        assert test.group is not None
        kept = EvalSplit(test.x[1:], test.y[1:], test.group[1:], test.group_names, test.group_share)
        return replace(data, evaluation={"test": kept})


class PublishesOthers(Good):
    @classmethod
    def published(cls, config: Any) -> dict[str, dict[str, int]]:
        return {"train": {"label=7,half=0": 3}}


class Draws(Changed):
    @classmethod
    def spoil(cls, data: Data, config: Any) -> Data:
        torch.rand(1)
        return data


class Counts(Changed):
    calls = 0

    @classmethod
    def spoil(cls, data: Data, config: Any) -> Data:
        cls.calls += 1
        return replace(data, checksum=str(cls.calls))


class KnowsThePlace(Changed):
    @classmethod
    def spoil(cls, data: Data, config: Any) -> Data:
        return replace(data, checksum=str(config.root))


class SaysNothing(Good):
    @classmethod
    def load(cls, config: Any, watch: Watch = unwatched) -> Data:
        if config.root is None:
            raise DataError("Something is missing.")
        return super().load(config)


class OutsideTheImage(Good):
    @classmethod
    def box_of_interest(cls, config: Any) -> Box:
        return (0.5, 0.0, 0.2, 1.0)


@pytest.mark.parametrize(
    ("broken", "name", "says"),
    [
        (NoBase, "is_a_dataset", "must derive from sitar.data.base.Dataset"),
        (OtherName, "is_a_dataset", "the default of Config.name is 'other'"),
        (NoLicence, "describes_itself", "`licence` is missing or empty"),
        (NoSuchSetting, "describes_itself", "there is no setting data.folder"),
        (Doubles, "loads", "inputs are torch.float64"),
        (HoldsOut, "splits_have_known_names", "splits are called ['holdout']; known are ['val', "),
        (OtherGroups, "groups_are_label_and_attribute", "a group of test does not go with its label"),
        (Leaks, "training_has_no_groups", "train is a GroupSplit"),
        (LosesSamples, "sample_table_counts_what_is_loaded", "the table counts"),
        (PublishesOthers, "published_counts_can_be_compared", "['label=7,half=0']"),
        (Draws, "same_settings_give_the_same_data", "torch's global random numbers"),
        (Counts, "same_settings_give_the_same_data", "the checksum is 2, and it was 1"),
        (KnowsThePlace, "moved_files_are_the_same_data", "and it was"),
        (SaysNothing, "missing_files_are_named", "does not name 'data.root': Something is missing."),
        (OutsideTheImage, "box_lies_in_the_image", "left and right are 0.5 and 0.2"),
    ],
)
def test_a_broken_dataset_fails_its_check(broken: type, name: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(ContractError) as caught:
        check(broken, tmp_path)
    message = str(caught.value)
    assert message.startswith(f"The dataset 'good' fails the check '{name}'.\nExpected: ")
    assert says in message


def check(dataset: type, folder: Path) -> None:
    (folder / "numbers.txt").write_text(" ".join(map(str, range(12))))
    with DATASETS.holding({"good": dataset}):
        check_dataset("good", root=str(folder))
