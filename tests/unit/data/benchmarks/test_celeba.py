"""The splits of CelebA in which label and shortcut exchange their roles."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError

from sitar.data.benchmarks.celeba import CelebA, CelebAConfig
from sitar.data.sample_table import SampleTable

BLOND, ATTRACTIVE, SMILING = ("Blond_Hair", "Male"), ("Attractive", "Smiling"), ("Smiling", "Wearing_Lipstick")
PAIRS = pytest.mark.parametrize("pair", [BLOND, ATTRACTIVE, SMILING], ids="/".join)


def exchange(folder: Path, label: str, attribute: str, oracle: bool = False) -> SampleTable:
    partition = "exchange_oracle" if oracle else "exchange"
    root = str(folder / "celeba")
    return CelebA.samples(
        CelebAConfig(root=root, label=label, attribute=attribute, partition=partition, majority_only=not oracle)
    )


def sizes(table: SampleTable, split: str) -> list[int]:
    return list(table.counts()[split].values())


@pytest.mark.data
@PAIRS
def test_both_roles_have_the_same_images_under_the_same_numbers(pair: tuple[str, str], test_data: Path) -> None:
    one, other = exchange(test_data, *pair), exchange(test_data, *reversed(pair))
    assert one.attribute is not None
    assert other.attribute is not None
    assert one.majority == other.majority == {(0, 0), (1, 1)}
    for mine, yours in ((one.files, other.files), (one.split, other.split)):
        assert np.array_equal(mine, yours)
    assert np.array_equal(one.label, other.attribute)
    assert np.array_equal(one.attribute, other.label)
    assert one.classes == other.attribute_values
    assert {*one.classes} == {f"not {pair[0]}", pair[0]}
    train = one.split == "train"
    assert np.array_equal(one.label[train], other.label[train])


@pytest.mark.data
def test_a_name_still_says_what_an_image_shows(test_data: Path) -> None:
    """Blond_Hair is followed by not Male, so one of the two is counted the other way round."""
    usual = CelebA.samples(CelebAConfig(root=str(test_data / "celeba"), partition="first_10k"))
    for label, attribute in (BLOND, BLOND[::-1]):
        table = exchange(test_data, label, attribute)
        assert table.attribute is not None
        shown = {
            label: np.array(table.classes)[table.label],
            attribute: np.array(table.attribute_values)[table.attribute],
        }
        assert np.array_equal(shown["Blond_Hair"] == "Blond_Hair", usual.label == 1)
        assert np.array_equal(shown["Male"] == "Male", usual.attribute == 1)


@pytest.mark.data
@PAIRS
def test_nothing_in_training_contradicts_the_shortcut_and_the_rest_is_shared_out(
    pair: tuple[str, str], test_data: Path
) -> None:
    table = exchange(test_data, *pair)
    follows, place = table.in_majority(), np.array([int(file[:6]) for file in table.files]) % 20
    assert len(table) == 10_000
    assert follows[np.isin(table.split, ["train", "val"])].all()
    for split, places in {
        "test": range(5),
        "val": range(5, 7),
        "val_ood": range(7, 10),
        "train": range(10, 20),
    }.items():
        assert np.array_equal(table.split[follows] == split, np.isin(place[follows], places))
    assert np.array_equal(table.split[~follows] == "test", place[~follows] < 10)


@pytest.mark.data
@PAIRS
def test_the_oracle_has_the_same_test_and_as_many_images_of_every_group(pair: tuple[str, str], test_data: Path) -> None:
    table, oracle = exchange(test_data, *pair), exchange(test_data, *pair, oracle=True)
    assert np.array_equal(table.split == "test", oracle.split == "test")
    assert np.array_equal(table.files, oracle.files), "one cache of images serves both"
    number = sum(sizes(table, "train"))
    assert sum(sizes(oracle, "train")) == number // 4 * 4
    assert min(sizes(oracle, "val")) > 0
    if pair == BLOND:  # there are 81 blond men, of whom 44 may train
        assert sizes(oracle, "train")[2] == 44
    else:
        assert sizes(oracle, "train") == [number // 4] * 4


def test_settings_that_contradict_the_partition_are_refused() -> None:
    with pytest.raises(ValidationError, match="exchange needs majority_only"):
        CelebAConfig(partition="exchange")
    with pytest.raises(ValidationError, match="set neither majority_only nor rho"):
        CelebAConfig(partition="exchange_oracle", majority_only=True)
    with pytest.raises(ValidationError, match="set neither majority_only nor rho"):
        CelebAConfig(partition="exchange_oracle", rho=0.9)
