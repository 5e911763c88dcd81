"""ColorMNIST against the paper's description, and MNIST's files."""

from __future__ import annotations

import dataclasses
import functools
import gzip
import hashlib
import re
import shutil
from importlib import resources
from pathlib import Path

import numpy as np
import pytest
import torch

from sitar.data import Data, EvalSplit, Task, TrainBatch, TrainSplit, load_data
from sitar.data.benchmarks.color_mnist import ColorMNISTConfig
from sitar.data.benchmarks.mnist_files import FILES, MNIST, load_mnist
from sitar.data.types import to_float
from sitar.errors import DataError
from sitar.presets import load_config

EMBEDDED = Path(str(resources.files("sitar.data.benchmarks").joinpath("mnist")))
SPLITS = ("val", "val_ood", "id_test", "ood_test")
NAMES = ("label=0,color=0", "label=0,color=1", "label=1,color=0", "label=1,color=1")
FIRST = "train-images-idx3-ubyte"


@pytest.fixture(scope="module")
def mnist() -> MNIST:
    return load_mnist()


@pytest.fixture(scope="module")
def paper():
    """The paper's data with 5,000 training samples unless told otherwise, loaded once for each setting."""

    @functools.cache
    def load(**settings) -> Data:
        return load_data(ColorMNISTConfig(**{"train_size": 5000, **settings}))

    return load


@pytest.fixture(scope="module")
def full(paper) -> Data:
    return paper(train_size=50_000)


def red(x: torch.Tensor) -> torch.Tensor:
    """1 where the digit is in the red channel, from the pixels alone."""
    return (x[:, 0].flatten(1).amax(1) > 0).long()


def near(share: float, expected: float, n: int) -> None:
    """A share of n draws within four standard errors, exactly when it is certain."""
    assert abs(share - expected) <= 4 * (expected * (1 - expected) / n) ** 0.5


def agreement(x: torch.Tensor, y: torch.Tensor) -> float:
    return (red(x) == y).double().mean().item()


def digits_of(images: np.ndarray, mnist: MNIST) -> np.ndarray:
    """Each image's digit, found by its pixels among MNIST's training images."""
    known = {image.tobytes(): digit for image, digit in zip(mnist.train_images, mnist.train_digits, strict=True)}
    return np.array([known[image.tobytes()] for image in images])


def test_sizes(full):
    assert full.train.x.shape == (50_000, 3, 28, 28)
    assert full.train.x.dtype == torch.uint8
    assert full.train.y.dtype == torch.int64
    assert set(full.evaluation) == set(SPLITS)
    for split in full.evaluation.values():
        assert split.x.shape == (10_000, 3, 28, 28)
        assert len(split) == len(split.y) == len(split.group) == 10_000
    counts = full.task.class_counts
    assert full.task == Task((3, 28, 28), 2, 50_000, counts)
    assert counts == tuple((full.train.y == c).sum().item() for c in (0, 1))


def test_train_and_val_are_mnists_training_images_once_each(full, mnist):
    grey = torch.cat([full.train.x, full.evaluation["val"].x]).amax(1).numpy()
    found, expected = (sorted(image.tobytes() for image in images) for images in (grey, mnist.train_images))
    assert found == expected
    assert not np.array_equal(full.train.x[:100].amax(1).numpy(), mnist.train_images[:100])


def test_tests_are_mnists_test_images(full, mnist):
    for name in ("id_test", "ood_test"):
        assert np.array_equal(full.evaluation[name].x.amax(1).numpy(), mnist.test_images)


@pytest.mark.parametrize(("inside", "outside"), [("val", "val_ood"), ("id_test", "ood_test")])
def test_inside_and_outside_differ_in_colour_only(paper, inside, outside):
    a, b = paper().evaluation[inside], paper().evaluation[outside]
    assert torch.equal(a.x.amax(1), b.x.amax(1))
    assert torch.equal(a.y, b.y)
    assert not torch.equal(a.x, b.x)


@pytest.mark.parametrize("rho", [0.0, 0.5, 0.9, 1.0])
def test_colour_agrees_with_the_label(paper, rho):
    data = paper(rho=rho)
    near(agreement(data.train.x, data.train.y), rho, 5000)
    for name, expected in zip(SPLITS, (rho, 1 - rho) * 2, strict=True):
        split = data.evaluation[name]
        near(agreement(split.x, split.y), expected, 10_000)


def test_colour_agrees_in_the_whole_training_split(full):
    near(agreement(full.train.x, full.train.y), 0.9, 50_000)


def test_label_noise(full, mnist):
    wrong = digits_of(full.train.x.amax(1).numpy(), mnist) >= 5
    near((full.train.y.numpy() != wrong).mean(), 0.25, 50_000)
    wrong = digits_of(full.evaluation["val"].x.amax(1).numpy(), mnist) >= 5
    near((full.evaluation["val"].y.numpy() != wrong).mean(), 0.25, 10_000)
    near((full.evaluation["id_test"].y.numpy() != (mnist.test_digits >= 5)).mean(), 0.25, 10_000)


def test_label_noise_does_not_depend_on_the_digit_or_the_colour(full, mnist):
    split = full.evaluation["id_test"]
    flipped = split.y.numpy() != (mnist.test_digits >= 5)
    for digit in range(10):
        near(flipped[mnist.test_digits == digit].mean(), 0.25, (mnist.test_digits == digit).sum())
    disagrees = (red(split.x) != split.y).numpy()
    near(flipped[disagrees].mean(), 0.25, disagrees.sum())


def test_splits_have_draws_of_their_own(full, mnist):
    """Were a stream of random numbers used twice, the same places would be flipped."""
    val = full.evaluation["val"]
    in_train = full.train.y.numpy()[:10_000] != (digits_of(full.train.x[:10_000].amax(1).numpy(), mnist) >= 5)
    in_val = val.y.numpy() != (digits_of(val.x.amax(1).numpy(), mnist) >= 5)
    in_test = full.evaluation["id_test"].y.numpy() != (mnist.test_digits >= 5)
    for a, b in ((in_train, in_val), (in_train, in_test), (in_val, in_test)):
        near((a & b).mean(), 0.25**2, 10_000)


def test_no_label_noise(paper, mnist):
    y = paper(label_noise=0.0).evaluation["id_test"].y
    assert np.array_equal(y.numpy(), mnist.test_digits >= 5)


def test_classes_are_named_by_their_digits(paper):
    assert paper().classes == ("digits 0-4", "digits 5-9")


def test_values_of_the_attribute_are_named_by_the_channel(paper):
    split = paper().evaluation["ood_test"]
    color = split.group - 2 * split.y
    for value, name in enumerate(paper().attributes["color"]):
        lit = split.x[color == value].amax((0, 2, 3)) > 0
        assert lit.nonzero().flatten().tolist() == [("red", "green").index(name)]


@pytest.mark.parametrize("rho", [0.9, 1.0])
def test_digit_is_red_or_green_on_black(paper, rho):
    data = paper(rho=rho)
    for split in (data.train, *data.evaluation.values()):
        lit = split.x.flatten(2).amax(2) > 0
        assert not lit[:, 2].any()
        assert (lit[:, 0] ^ lit[:, 1]).all()
    assert (data.train.x[:, :, 0, 0] == 0).all()


@pytest.mark.parametrize("name", SPLITS)
def test_groups_are_label_and_colour(paper, name):
    split = paper().evaluation[name]
    assert split.group_names == NAMES
    assert torch.equal(split.group, 2 * split.y + red(split.x))
    assert set(split.group.tolist()) == {0, 1, 2, 3}


def test_group_share_is_of_the_training_split(full):
    counts = torch.bincount(2 * full.train.y + red(full.train.x), minlength=4)
    for split in full.evaluation.values():
        np.testing.assert_allclose(split.group_share, (counts / 50_000).numpy(), rtol=1e-6)
        assert sum(split.group_share) == pytest.approx(1)


def test_training_knows_no_group():
    assert [field.name for field in dataclasses.fields(TrainSplit)] == ["x", "y"]
    assert [field.name for field in dataclasses.fields(TrainBatch)] == ["x", "y", "index"]
    assert "group" in {field.name for field in dataclasses.fields(EvalSplit)}


def same(a: Data, b: Data) -> bool:
    return torch.equal(a.train.x, b.train.x) and all(
        torch.equal(getattr(a.evaluation[name], key), getattr(b.evaluation[name], key))
        for name in a.evaluation
        for key in ("x", "y", "group")
    )


def test_data_seed_decides(paper):
    again = load_data(ColorMNISTConfig(train_size=5000))
    assert same(paper(), again)
    assert torch.equal(paper().train.y, again.train.y)
    assert not torch.equal(paper().train.x, paper(seed=1).train.x)
    assert not torch.equal(paper().evaluation["id_test"].y, paper(seed=1).evaluation["id_test"].y)


def test_run_seed_does_not_matter(paper):
    torch.manual_seed(99)
    state = torch.get_rng_state()
    data = load_data(load_config("color_mnist/sitar", ["data.train_size=5000"], seed=5).data)
    assert same(data, paper())
    assert torch.equal(torch.get_rng_state(), state)


def test_fewer_training_samples(paper, full):
    assert len(paper().train) == 5000
    assert torch.equal(paper().train.x.amax(1), full.train.x[:5000].amax(1))
    assert torch.equal(paper().train.y, full.train.y[:5000])
    for name in SPLITS:
        assert torch.equal(paper().evaluation[name].x, full.evaluation[name].x)


def test_half_size_is_the_rounded_mean_of_four_pixels(paper):
    large, small = paper().train.x[:200].numpy(), paper(image_size=14).train.x[:200].numpy()
    assert small.shape == (200, 3, 14, 14)
    for row in range(14):
        for column in range(14):
            block = large[:, :, 2 * row : 2 * row + 2, 2 * column : 2 * column + 2].astype(float)
            assert np.array_equal(small[:, :, row, column], np.floor(block.mean((2, 3)) + 0.5))


def test_pixels_become_floats_between_0_and_1():
    assert to_float(torch.tensor([0, 51, 255], dtype=torch.uint8)).tolist() == pytest.approx([0, 0.2, 1])
    assert to_float(torch.tensor([2.0, 300.0], dtype=torch.float64)).tolist() == [2, 300]


def test_nothing_to_learn_from():
    with pytest.raises(DataError, match="training split is empty"):
        load_data(ColorMNISTConfig(train_size=0))


def test_one_class_to_learn_from():
    with pytest.raises(DataError, match=r"All 1 training samples are of one class \('digits"):
        load_data(ColorMNISTConfig(train_size=1))


def test_checked_returns_usable_data(tiny_data):
    assert tiny_data.checked() is tiny_data
    train = TrainSplit(tiny_data.train.x, torch.ones(16, dtype=torch.int64))
    with pytest.raises(DataError, match=r"All 16 .*\('odd'\)"):
        dataclasses.replace(tiny_data, train=train).checked()


def notice() -> dict[str, str]:
    return {file: md5 for md5, file in re.findall(r"([0-9a-f]{32})  (\S+)", (EMBEDDED / "NOTICE").read_text())}


def md5(path: Path) -> str:
    return hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()


def test_embedded_files_are_those_of_the_notice():
    assert set(notice()) == {f"{name}.gz" for name in FILES}
    assert notice() == {name: md5(EMBEDDED / name) for name in notice()}


@pytest.mark.data
def test_embedded_files_are_the_originals(test_data):
    assert notice() == {name: md5(test_data / "mnist" / name) for name in notice()}


@pytest.mark.data
def test_own_copy_of_the_originals(test_data, paper):
    assert same(load_data(ColorMNISTConfig(train_size=5000, root=str(test_data / "mnist"))), paper())


def test_digits(mnist):
    """LeCun's counts."""
    assert mnist.train_images.shape == (60_000, 28, 28)
    assert mnist.test_images.shape == (10_000, 28, 28)
    assert np.bincount(mnist.train_digits).tolist() == [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert np.bincount(mnist.test_digits).tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    assert mnist.train_digits[:5].tolist() == [5, 0, 4, 1, 9]


@pytest.fixture
def copy(tmp_path) -> Path:
    """A folder with the four packed files, to be spoilt."""
    for name in FILES:
        shutil.copy(EMBEDDED / f"{name}.gz", tmp_path)
    return tmp_path


def unpack(folder: Path, name: str) -> Path:
    packed = folder / f"{name}.gz"
    (folder / name).write_bytes(gzip.decompress(packed.read_bytes()))
    packed.unlink()
    return folder / name


@pytest.mark.parametrize("place", [".", "MNIST/raw", "raw"])
@pytest.mark.parametrize("plain", [False, True])
def test_own_copy(tmp_path, mnist, place, plain):
    folder = tmp_path / place
    folder.mkdir(parents=True, exist_ok=True)
    for name in FILES:
        shutil.copy(EMBEDDED / f"{name}.gz", folder)
        if plain:
            unpack(folder, name)
    found = load_mnist(str(tmp_path))
    for field in dataclasses.fields(MNIST):
        assert np.array_equal(getattr(found, field.name), getattr(mnist, field.name))


def test_own_copy_in_the_home_folder(copy, monkeypatch):
    monkeypatch.setenv("HOME", str(copy.parent))
    assert len(load_mnist(f"~/{copy.name}").test_digits) == 10_000


def refused(folder: Path, file: str, reason: str) -> None:
    with pytest.raises(DataError, match=reason) as caught:
        load_data(ColorMNISTConfig(root=str(folder), train_size=10))
    assert file in str(caught.value)
    assert "data.root" in str(caught.value)


@pytest.mark.parametrize("place", ["start", "middle", "checksum"])
def test_damaged_gzip(copy, place):
    file = copy / f"{FIRST}.gz"
    content = bytearray(file.read_bytes())
    at = {"start": 0, "middle": 3000, "checksum": len(content) - 6}[place]
    content[at : at + 3] = bytes(byte ^ 0xFF for byte in content[at : at + 3])
    file.write_bytes(content)
    refused(copy, file.name, "damaged")


@pytest.mark.parametrize("size", [0, 5, 4000])
def test_truncated_gzip(copy, size):
    file = copy / f"{FIRST}.gz"
    file.write_bytes(file.read_bytes()[:size])
    refused(copy, file.name, "damaged|is not MNIST's")


@pytest.mark.parametrize("size", [0, 3, 4000])
def test_truncated_plain_file(copy, size):
    file = unpack(copy, FIRST)
    file.write_bytes(file.read_bytes()[:size])
    refused(copy, FIRST, "is not MNIST's train-images-idx3-ubyte: sha256")


def test_labels_of_the_test_for_those_of_the_training(copy):
    a, b = copy / "train-labels-idx1-ubyte.gz", copy / "t10k-labels-idx1-ubyte.gz"
    a.rename(copy / "aside")
    b.rename(a)
    (copy / "aside").rename(b)
    refused(copy, a.name, "is not MNIST's train-labels-idx1-ubyte")


def test_one_pixel_changed(copy):
    file = unpack(copy, FIRST)
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    refused(copy, FIRST, "is not MNIST's")


@pytest.mark.parametrize("name", [FIRST, "t10k-labels-idx1-ubyte"])
def test_missing_file(copy, name):
    (copy / f"{name}.gz").unlink()
    refused(copy, name, "is missing in")


def test_no_files(tmp_path):
    for root in (tmp_path, tmp_path / "nowhere"):
        refused(root, str(root), "No MNIST files in")
    file = tmp_path / "file"
    file.write_text("")
    refused(file, str(file), "No MNIST files in")


def test_a_smaller_training_set_is_the_start_of_the_whole(full):
    part = load_data(ColorMNISTConfig(train_size=700)).train
    assert torch.equal(part.x, full.train.x[:700])
    assert torch.equal(part.y, full.train.y[:700])


def test_an_oracle_trains_where_the_colour_tells_nothing_and_is_judged_as_all_are(paper):
    """`train_rho` changes the colours of train and val alone: the same digits, labels and tests."""
    plain, oracle = paper(rho=0.9), paper(rho=0.9, train_rho=0.5)
    near(agreement(oracle.train.x, oracle.train.y), 0.5, 5000)
    near(agreement(oracle.evaluation["val"].x, oracle.evaluation["val"].y), 0.5, 10_000)
    assert torch.equal(oracle.train.y, plain.train.y)
    assert torch.equal(oracle.train.x.amax(1), plain.train.x.amax(1))
    for name in ("val_ood", "id_test", "ood_test"):
        assert torch.equal(oracle.evaluation[name].x, plain.evaluation[name].x)
