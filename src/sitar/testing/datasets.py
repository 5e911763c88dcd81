"""These checks say what every data set promises. A package that adds a data set can run them on it.

A check is a function of a `DatasetCase`. It asserts, and its docstring says what the data set should do.
"""

from __future__ import annotations

import functools
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from sitar.config import NamedConfig, section_config
from sitar.data import load_data
from sitar.data.base import Dataset
from sitar.data.published_counts import compare_counts
from sitar.data.rows import Stored
from sitar.data.sample_table import SampleTable
from sitar.data.types import Data, TrainSplit
from sitar.errors import DataError
from sitar.registry import DATASETS
from sitar.splits import EVALUATION_SPLITS, TRAIN
from sitar.testing.contract import Check


class DatasetCase:
    """A case is a registered data set with settings that make it small. If it needs files, the settings name them."""

    def __init__(self, name: str, settings: Mapping[str, Any] | None = None) -> None:
        self.name = name
        self.settings = dict(settings or {})

    @property
    def dataset(self) -> type[Dataset]:
        """Return the class."""
        return DATASETS.get(self.name)

    def config(self, **changed: Any) -> NamedConfig:
        """Return the settings, some of them changed."""
        return section_config("data", {"name": self.name, **self.settings, **changed})  # type: ignore[return-value]

    @functools.cached_property
    def data(self) -> Data:
        """Return the data, loaded once."""
        return load_data(self.config(), progress=False)

    @functools.cached_property
    def samples(self) -> SampleTable:
        """Return the sample table, read once."""
        return self.dataset.samples(self.config())


def check_is_a_dataset(case: DatasetCase) -> None:
    """The class derives from `sitar.data.Dataset`, and its settings have its registered name as the default `name`."""
    assert issubclass(case.dataset, Dataset), f"{case.dataset.__name__} does not derive from sitar.data.Dataset"
    field = case.dataset.Config.model_fields.get("name")
    assert field is not None, "Config has no setting `name`"
    assert field.default == case.name, f"the default of Config.name is {field.default!r}"


def check_describes_itself(case: DatasetCase) -> None:
    """The title, the layout of the files and the licence are said in words, for `sitar data list` and for errors."""
    for attribute in ("title", "layout", "licence"):
        assert str(vars_of(case.dataset).get(attribute, "")).strip(), f"`{attribute}` is missing or empty"
    setting = case.dataset.setting
    known = setting is None or setting in case.dataset.Config.model_fields
    assert known, f"there is no setting data.{setting}, where the files lie: make `setting` None if there are none"
    assert setting or not case.dataset.needs_files, "it needs files, and no setting says where they lie"


def check_loads(case: DatasetCase) -> None:
    """The data loads: every split has as many labels as inputs, all of one shape, and labels that are classes."""
    train, shape = case.data.train, case.data.train.x.shape[1:]
    kinds = (torch.uint8, torch.float32, torch.float16)
    assert train.x.dtype in kinds, f"inputs are {train.x.dtype}: give uint8 images, float32, or features as float16"
    assert len(shape) in (1, 3), f"inputs have the shape {tuple(shape)}: give (features,) or (channel, height, width)"
    for name, split in {TRAIN: train, **case.data.evaluation}.items():
        assert len(split.x) == len(split.y) > 0, f"{name} has {len(split.x)} inputs and {len(split.y)} labels"
        assert split.x.shape[1:] == shape, f"inputs of {name} have the shape {tuple(split.x.shape[1:])}, not {shape}"
        assert split.x.dtype == train.x.dtype, f"inputs of {name} are {split.x.dtype}, those of train {train.x.dtype}"
        assert split.y.dtype == torch.int64, f"labels of {name} are {split.y.dtype}, not int64"
        assert set(split.y.tolist()) <= set(range(len(case.data.classes))), f"{name} has labels that are no class"


def check_splits_have_known_names(case: DatasetCase) -> None:
    """Splits have the names that the rest of the library knows, and there is one to evaluate on beside `train`."""
    assert case.data.evaluation, "there is no split to evaluate on"
    unknown = sorted(case.data.evaluation.keys() - set(EVALUATION_SPLITS))
    assert not unknown, f"splits are called {unknown}; known are {list(EVALUATION_SPLITS)}"


def check_groups_are_label_and_attribute(case: DatasetCase) -> None:
    """A group is a cell of label and attribute, numbered label by label, in every split; its name says both numbers."""
    if case.data.train_groups is None:
        assert all(split.group is None for split in case.data.evaluation.values()), "only some splits have groups"
        return
    ((attribute, values),) = case.data.attributes.items()
    cells = [(label, value) for label in range(len(case.data.classes)) for value in range(len(values))]
    names = tuple(f"label={label},{attribute}={value}" for label, value in cells)
    shares = torch.bincount(case.data.train_groups.group, minlength=len(names)) / len(case.data.train)
    for name, split in case.data.evaluation.items():
        assert split.group is not None, f"{name} has no groups, and training has"
        assert split.group_names == names, f"groups of {name} are called {split.group_names}, not {names}"
        assert torch.equal(split.group // len(values), split.y), f"a group of {name} does not go with its label"
        assert split.group_share is not None, f"{name} does not know the share of each group in training"
        torch.testing.assert_close(torch.tensor(split.group_share), shares, msg=f"group_share of {name} is not train's")


def check_training_has_no_groups(case: DatasetCase) -> None:
    """The training split has inputs and labels alone. Groups lie apart, for methods that declare `needs_groups`."""
    assert type(case.data.train) is TrainSplit, f"train is a {type(case.data.train).__name__}, not a TrainSplit"
    assert [field.name for field in fields(case.data.train)] == ["x", "y"], "train holds more than x and y"
    if case.data.train_groups is None:
        return
    with_groups = case.data.with_groups().train
    y, group = with_groups.y, case.data.train_groups.group
    ((_, values),) = case.data.attributes.items()
    assert torch.equal(group // len(values), y), "a group of train does not go with its label"
    assert len(case.data.train_groups.environment) == len(y), "not every training sample has an environment"


def check_sample_table_counts_what_is_loaded(case: DatasetCase) -> None:
    """`samples`, which opens no image, counts as many samples of each group in each split as `load` loads."""
    names = case.samples.group_names or case.samples.classes
    assert case.samples.classes == case.data.classes, "the table and the data have other classes"
    groups = None if case.data.train_groups is None else case.data.train_groups.group
    cells: dict[str, Tensor] = {TRAIN: case.data.train.y if groups is None else groups}
    cells |= {name: split.y if split.group is None else split.group for name, split in case.data.evaluation.items()}
    loaded = {
        split: dict(zip(names, torch.bincount(cell, minlength=len(names)).tolist(), strict=True))
        for split, cell in cells.items()
    }
    assert case.samples.counts() == loaded, f"the table counts {case.samples.counts()}, the data holds {loaded}"


def check_published_counts_can_be_compared(case: DatasetCase) -> None:
    """Published counts, where there are any, are of splits and groups that the sample table has."""
    published = case.dataset.published(case.config())
    comparison = compare_counts(case.samples, published)
    assert (comparison.agrees is None) == (published is None)
    for split, groups in (published or {}).items():
        unknown = groups.keys() - comparison.counts[split].keys()
        assert not unknown, f"published counts of {split} name groups that there are not: {sorted(unknown)}"


def check_same_settings_give_the_same_data(case: DatasetCase) -> None:
    """Equal settings give the same samples in the same order, and nobody's random numbers are touched."""
    before = torch.get_rng_state()
    again = load_data(case.config(), progress=False)
    assert torch.equal(torch.get_rng_state(), before), "loading draws from torch's global random numbers"
    assert_same_data(case.data, again)


def check_moved_files_are_the_same_data(case: DatasetCase) -> None:
    """Files that were moved to another place are the same data, with the same checksum."""
    setting = case.dataset.setting
    place = None if setting is None else case.settings.get(setting)
    if setting is None or place is None:
        return
    with tempfile.TemporaryDirectory() as folder:
        moved = Path(folder) / "moved" / Path(place).name
        if Path(place).is_dir():
            shutil.copytree(place, moved)
        else:
            moved.parent.mkdir()
            shutil.copy(place, moved)
        assert_same_data(case.data, load_data(case.config(**{setting: str(moved)}), progress=False))


def check_missing_files_are_named(case: DatasetCase) -> None:
    """Files that are missing raise a DataError, which names the setting that says where they should lie."""
    setting = case.dataset.setting
    if setting is None:
        return
    if case.dataset.needs_files:
        _assert_refused(case, f"data.{setting}", **{setting: None})
    _assert_refused(case, "", **{setting: str(Path(tempfile.gettempdir()) / "nowhere" / "at" / "all")})


def check_images_can_be_prepared(case: DatasetCase) -> None:
    """`prepare` decodes the image of every sample, or reads its features, or says that there is no cache (None)."""
    prepared = case.dataset.prepare(case.config())
    if prepared is not None:
        assert len(prepared.samples) == len(case.samples), "prepare has other samples than the table"
    if prepared is not None and prepared.images is not None:
        assert len(prepared.images.images) == len(case.samples), "not every sample has a decoded image"


def check_box_lies_in_the_image(case: DatasetCase) -> None:
    """The box of interest, where there is one, has its left and top before its right and bottom, all from 0 to 1."""
    box = case.dataset.box_of_interest(case.config())
    if box is not None:
        left, top, right, bottom = box
        assert 0 <= left < right <= 1, f"left and right are {left} and {right}"
        assert 0 <= top < bottom <= 1, f"top and bottom are {top} and {bottom}"


COMPARED = 4096  # samples that are compared at a time
DATASET_CHECKS = (
    check_is_a_dataset,
    check_describes_itself,
    check_loads,
    check_splits_have_known_names,
    check_groups_are_label_and_attribute,
    check_training_has_no_groups,
    check_sample_table_counts_what_is_loaded,
    check_published_counts_can_be_compared,
    check_same_settings_give_the_same_data,
    check_moved_files_are_the_same_data,
    check_missing_files_are_named,
    check_images_can_be_prepared,
    check_box_lies_in_the_image,
)


def dataset_checks(name: str, **settings: Any) -> list[Check]:
    """Return the checks of a registered data set, each a function without arguments that pytest can name.

    `settings` are those of the `data` section. They should make the data small, and say where its files lie.
    """
    return case_checks(DatasetCase(name, settings))


def case_checks(case: DatasetCase) -> list[Check]:
    """Return the checks of one case."""
    return [Check(f"dataset {case.name!r}", function, (case,)) for function in DATASET_CHECKS]


def check_dataset(name: str, **settings: Any) -> None:
    """Run all checks of a registered data set. The first that fails raises a `ContractError`."""
    for check in dataset_checks(name, **settings):
        check()


def assert_same_data(a: Data, b: Data) -> None:
    """Compare two data sets in memory, bit for bit."""
    assert a.checksum == b.checksum, f"the checksum is {b.checksum}, and it was {a.checksum}"
    assert (a.classes, a.attributes) == (b.classes, b.attributes), "classes or attributes differ"
    assert list(a.evaluation) == list(b.evaluation), f"splits are {list(b.evaluation)}, and were {list(a.evaluation)}"
    for name, (one, two) in _tensors(a, b).items():
        assert one is two or (one is not None and two is not None and _equal(one, two)), f"{name} differs"


def _equal(one: Stored, two: Stored) -> bool:
    pairs = zip(one.split(COMPARED), two.split(COMPARED), strict=True)
    return one.shape == two.shape and one.dtype == two.dtype and all(torch.equal(a, b) for a, b in pairs)


def _tensors(a: Data, b: Data) -> dict[str, tuple[Stored | None, Stored | None]]:
    pairs: dict[str, tuple[Stored | None, Stored | None]] = {
        "train.x": (a.train.x, b.train.x),
        "train.y": (a.train.y, b.train.y),
    }
    if a.train_groups is not None and b.train_groups is not None:
        pairs["train_groups.group"] = a.train_groups.group, b.train_groups.group
        pairs["train_groups.environment"] = a.train_groups.environment, b.train_groups.environment
    for name in a.evaluation:
        one, two = a.evaluation[name], b.evaluation[name]
        pairs |= {f"{name}.x": (one.x, two.x), f"{name}.y": (one.y, two.y), f"{name}.group": (one.group, two.group)}
    return pairs


def _assert_refused(case: DatasetCase, names: str, **changed: Any) -> None:
    message = None
    try:
        case.dataset.load(case.config(**changed))
    except DataError as error:
        message = str(error)
    assert message is not None, f"data is loaded with {changed}"
    assert names in message, f"the error does not name {names!r}: {message}"


def vars_of(dataset: type[Dataset]) -> dict[str, Any]:
    """Return the attributes of a class and of those that it derives from."""
    return {name: value for cls in reversed(dataset.__mro__) for name, value in vars(cls).items()}
