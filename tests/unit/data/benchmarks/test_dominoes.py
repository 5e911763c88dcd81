"""Dominoes: which halves go together in which split, and which files are taken."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers import made_data
from sitar.config import section_config
from sitar.data import Data, load_data
from sitar.data.benchmarks import dominoes
from sitar.data.benchmarks.dominoes import PARTITIONS, Dominoes
from sitar.data.benchmarks.mnist_files import MNIST, load_mnist
from sitar.errors import ConfigError, DataError

TOGETHER = {"train", "val", "id_test"}


@pytest.fixture(scope="module")
def mnist() -> MNIST:
    return load_mnist()


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(dominoes, "FASHION", made_data.fashion_of_ours())
    made_data.dominoes(tmp_path)
    return tmp_path


def config(root: Path | None, **settings: Any) -> Any:
    return section_config("data", {"name": "dominoes", "root": None if root is None else str(root), **settings})


def attributes(data: Data) -> dict[str, np.ndarray]:
    groups = {"train": data.train_groups.group} | {name: split.group for name, split in data.evaluation.items()}
    return {name: group.numpy() % 2 for name, group in groups.items()}


def labels(data: Data) -> dict[str, np.ndarray]:
    return {"train": data.train.y.numpy()} | {name: split.y.numpy() for name, split in data.evaluation.items()}


@pytest.mark.parametrize("partition", PARTITIONS)
def test_halves_go_together_in_training_and_are_independent_elsewhere(partition: str, root: Path) -> None:
    data = load_data(config(root, partition=partition), progress=False)
    for name, y in labels(data).items():
        agree = (attributes(data)[name] == y).mean()
        assert agree == 1 if name in TOGETHER else 0.4 <= agree <= 0.6, name


@pytest.mark.parametrize("partition", PARTITIONS)
@pytest.mark.parametrize("label", ["clothing", "digit"])
def test_an_image_is_what_its_label_says(label: str, partition: str, root: Path, mnist: MNIST) -> None:
    data = load_data(config(root, partition=partition, label=label), progress=False)
    fashion = dominoes.FASHION.read(root)
    digits = {image.tobytes(): n for image, n in zip(mnist.images, mnist.digits, strict=True)}
    clothes = {image.tobytes(): int(n) for image, n in zip(fashion[0], fashion[1], strict=True)}
    clothes |= {image.tobytes(): int(n) for image, n in zip(fashion[2], fashion[3], strict=True)}
    images = {"train": data.train.x} | {name: split.x for name, split in data.evaluation.items()}
    for name, x in images.items():
        assert x.shape[1:] == (1, 56, 28)
        for image, y, other in zip(x.numpy()[:, 0], labels(data)[name], attributes(data)[name], strict=True):
            digit, item = digits[image[:28].tobytes()], clothes[image[28:].tobytes()]
            below, above = (y, other) if label == "clothing" else (other, y)
            assert (digit, item) == (above, PARTITIONS[partition].clothes[below])


def test_no_image_is_in_two_splits(root: Path) -> None:
    """The two tests have the same images, in other pairs."""
    data = load_data(config(root), progress=False)
    halves: dict[str, set[bytes]] = {}
    for name, x in {"train": data.train.x, "val": data.evaluation["val"].x, "val_ood": data.evaluation["val_ood"].x,
                    "ood_test": data.evaluation["ood_test"].x}.items():  # fmt: skip
        halves[name] = {image[28:].tobytes() for image in x.numpy()[:, 0]}
    names = list(halves)
    for i, name in enumerate(names):
        assert all(not halves[name] & halves[other] for other in names[i + 1 :])


@pytest.mark.parametrize("rate", [0.0, 0.25, 1.0])
def test_the_mix_rate_is_that_of_val_ood_alone(rate: float, root: Path) -> None:
    data = load_data(config(root, mix_rate=rate, rho=0.75), progress=False)
    agree = {name: (attributes(data)[name] == y).mean() for name, y in labels(data).items()}
    assert agree["val_ood"] == pytest.approx(1 - rate, abs=0.13)  # there are few images
    assert agree["train"] == pytest.approx(0.75, abs=0.06)
    assert agree["ood_test"] == pytest.approx(0.5, abs=0.01)


def test_another_seed_makes_other_pairs(root: Path) -> None:
    one, same, other = (load_data(config(root, seed=seed), progress=False) for seed in (0, 0, 1))
    assert np.array_equal(one.train.x, same.train.x)
    assert not np.array_equal(one.train.x, other.train.x)


def test_files_are_asked_for_and_verified(root: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"needs data\.root.*dataset-fashion-mnist"):
        load_data(config(None))
    with pytest.raises(DataError, match=r"No Fashion-MNIST files.*by hand"):
        load_data(config(tmp_path / "empty"))
    (root / "t10k-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(DataError, match=r"t10k-labels-idx1-ubyte.*missing"):
        load_data(config(root))
    made_data.write(root / "t10k-labels-idx1-ubyte", b"something else")
    with pytest.raises(DataError, match="is not Fashion-MNIST's t10k-labels"):
        load_data(config(root))


def test_mnists_own_files_are_not_taken_for_clothes(tmp_path: Path) -> None:
    from importlib import resources

    place = resources.files("sitar.data.benchmarks").joinpath("mnist")
    with pytest.raises(DataError, match="is not Fashion-MNIST's train-images"):
        load_data(config(Path(str(place))))


def test_majority_only_is_refused_with_the_reason() -> None:
    with pytest.raises(ConfigError, match=r"data.rho=1.0"):
        config(None, majority_only=True)


def test_the_table_names_the_halves(root: Path) -> None:
    table = Dominoes.samples(config(root, label="digit"))
    assert (table.classes, table.attribute_name, table.attribute_values) == (("0", "1"), "clothing", ("coat", "dress"))
