"""Sites: what a site's style does, who is from where, and that the unseen sites stay unseen."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image, ImageFilter

from sitar.config import section_config
from sitar.data import Data, load_data
from sitar.data.benchmarks.mnist_files import load_mnist
from sitar.data.benchmarks.site_style import SiteStyle
from sitar.data.benchmarks.sites import SITES, SPLITS, Sites, SitesConfig, draw_digits
from sitar.data.sample_table import SampleTable, names
from sitar.errors import ConfigError, DataError

ROOT = Path(__file__).parents[4]
PAGE = ROOT / "docs" / "sites.md"
IDENTITY = ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))
SMALL = SitesConfig(train_size=300, eval_size=120)
UNSEEN = {"D", "E"}


@pytest.fixture(scope="module")
def small() -> Data:
    return load_data(SMALL)


def photo(size: int = 24) -> np.ndarray:
    """Smooth colours, as JPEG likes them."""
    at = np.linspace(0, 1, size)
    pixels = np.stack([np.outer(at, at), np.outer(1 - at, at), np.outer(at**2, 1 - at)])
    return (40 + 170 * pixels).astype(np.uint8)


def test_a_style_that_does_nothing() -> None:
    image = photo()
    taken = SiteStyle(IDENTITY, gamma=1.0, blur=0.0, quality=100).apply(image)
    assert taken.shape == image.shape
    assert taken.dtype == np.uint8
    assert np.abs(taken.astype(int) - image).mean() < 2  # the chroma of a JPEG is coarse at any quality


def test_colour_is_the_matrix_and_then_the_power() -> None:
    """On images of one colour, which blur and JPEG leave alone."""
    matrix = ((0.5, 0.2, 0.1), (0.0, 0.9, 0.3), (0.4, 0.4, 0.4))
    for colour in ((0.9, 0.1, 0.3), (0.2, 0.5, 0.6), (1.0, 1.0, 1.0)):
        image = np.empty((3, 16, 16), dtype=np.uint8)
        image[:] = np.round(255 * np.array(colour))[:, None, None]
        expected = np.clip(np.array(matrix) @ (image[:, 0, 0] / 255), 0, 1) ** 1.7
        taken = SiteStyle(matrix, gamma=1.7, blur=3.0, quality=95).apply(image) / 255
        assert np.abs(taken - expected[:, None, None]).max() < 0.02


@pytest.mark.parametrize("size", [28, 64])
def test_blur_is_a_share_of_the_height(size: int) -> None:
    image = np.zeros((3, size, size), dtype=np.uint8)
    image[:, :, size // 2 :] = 255
    taken = SiteStyle(IDENTITY, gamma=1.0, blur=4.0, quality=100).apply(image)
    picture = Image.fromarray(image.transpose(1, 2, 0)).filter(ImageFilter.GaussianBlur(0.04 * size))
    assert np.abs(taken.astype(int) - np.asarray(picture).transpose(2, 0, 1)).mean() < 2
    assert ((taken > 20) & (taken < 235)).any()


def test_low_quality_loses_detail() -> None:
    image = np.random.default_rng(0).integers(0, 256, (3, 32, 32)).astype(np.uint8)
    lost = [
        np.abs(SiteStyle(IDENTITY, 1.0, 0.0, quality).apply(image).astype(int) - image).mean()
        for quality in (95, 60, 20)
    ]
    assert lost == sorted(lost)
    assert lost[0] < lost[-1] - 5


def test_styles_are_deterministic_and_differ() -> None:
    image = photo()
    taken = [style.apply(image) for style in SITES.values()]
    for style, once in zip(SITES.values(), taken, strict=True):
        np.testing.assert_array_equal(style.apply(image), once)
    for i, a in enumerate(taken):
        for b in taken[:i]:
            assert np.abs(a.astype(int) - b).mean() > 4


def test_unseen_sites_resemble_the_ones_that_tell_a_class() -> None:
    """Otherwise a model that relies on the style would be at a loss, and not wrong."""
    colour = {name: style.apply(photo()).mean((1, 2)) for name, style in SITES.items()}
    for unseen, alike, other in (("D", "A", "B"), ("E", "B", "A")):
        near, far = (np.linalg.norm(colour[unseen] - colour[name]) for name in (alike, other))
        assert near < 0.6 * far


def test_the_page_lists_every_style() -> None:
    page = PAGE.read_text(encoding="utf-8")
    for name, style in SITES.items():
        rows = "; ".join(", ".join(f"{value:.2f}" for value in row) for row in style.matrix)
        line = f"| {name} | {rows} | {style.gamma:g} | {style.blur:g} | {style.quality} |"
        assert line in re.sub(r" +", " ", page), line


@pytest.mark.parametrize("rho", [0.98, 0.5, 1.0, 0.0])
def test_the_share_of_every_site_is_exact(rho: float) -> None:
    samples = Sites.samples(SMALL.model_copy(update={"rho": rho}))
    for split in SPLITS:
        told = 0.5 if split == "val_ood" else rho
        for label in (0, 1):
            mine = samples.attribute[(samples.split == split) & (samples.label == label)]
            found = np.bincount(mine, minlength=5)
            of_a = told if label == 1 else 1 - told
            shares = [0, 0, 0, 1 / 2, 1 / 2] if split == "ood_test" else [2 / 3 * of_a, 2 / 3 * (1 - of_a), 1 / 3, 0, 0]
            assert np.abs(found - np.array(shares) * len(mine)).max() <= 1
            assert (found[np.array(shares) == 0] == 0).all()


def test_unseen_sites_are_in_the_ood_test_alone() -> None:
    samples = Sites.samples(SMALL)
    for split in SPLITS:
        seen = {samples.attribute_values[site] for site in samples.attribute[samples.split == split]}
        assert seen == (UNSEEN if split == "ood_test" else {"A", "B", "C"})


def test_no_image_is_in_two_splits() -> None:
    samples = Sites.samples(SitesConfig())
    assert len(set(samples.files.tolist())) == len(samples)
    assert {split: int((samples.split == split).sum()) for split in SPLITS} == {
        "train": 5_000, "val": 5_000, "val_ood": 5_000, "id_test": 5_000, "ood_test": 5_000
    }  # fmt: skip
    tests = np.char.startswith(samples.files, "t10k/")
    assert (tests == np.isin(samples.split, ["id_test", "ood_test"])).all()


def test_smaller_splits_are_the_beginning_of_larger_ones() -> None:
    large, few = Sites.samples(SitesConfig()), Sites.samples(SMALL)
    for split in SPLITS:
        first = few.files[few.split == split]
        assert (large.files[large.split == split][: len(first)] == first).all()


def test_labels_are_the_digits() -> None:
    samples, mnist = Sites.samples(SMALL), load_mnist()
    digits = {"train": mnist.train_digits, "t10k": mnist.test_digits}
    parts = [file.split("/") for file in samples.files.tolist()]
    assert samples.label.tolist() == [int(digits[part][int(place)] >= 5) for part, place in parts]


def test_groups_and_environments(small: Data) -> None:
    groups = small.train_groups
    assert groups is not None
    site, y = groups.environment, small.train.y
    assert set(site.tolist()) == {0, 1, 2}
    assert torch.equal(groups.group, 5 * y + site)
    ood = small.evaluation["ood_test"]
    assert ood.group_names[8] == "label=1,site=3"
    assert set(ood.group.tolist()) == {3, 4, 8, 9}
    assert torch.equal(ood.group // 5, ood.y)
    assert sum(ood.group_share) == pytest.approx(1)
    assert [ood.group_share[group] for group in (3, 4, 8, 9)] == [0, 0, 0, 0]


def test_images_carry_the_style_of_their_site(small: Data) -> None:
    samples = Sites.samples(SMALL)
    drawn, styles = draw_digits(samples, load_mnist(), SMALL), list(SITES.values())
    for split, x in (("train", small.train.x), ("ood_test", small.evaluation["ood_test"].x)):
        places = np.flatnonzero(samples.split == split)
        for row in (0, 7, len(places) - 1):
            expected = styles[samples.attribute[places[row]]].apply(drawn[places[row]])
            np.testing.assert_array_equal(x[row].numpy(), expected)


def test_the_same_settings_make_the_same_data(small: Data) -> None:
    again, other = load_data(SMALL), load_data(SMALL.model_copy(update={"seed": 1}))
    assert torch.equal(again.train.x, small.train.x)
    assert torch.equal(again.evaluation["ood_test"].x, small.evaluation["ood_test"].x)
    assert not torch.equal(other.train.y, small.train.y)


def test_paper_and_ink_say_nothing_of_the_label() -> None:
    """Before a style, the mean colours of the classes are the same but for chance and the amount of ink."""
    config = SitesConfig(train_size=3000, eval_size=1)
    samples = Sites.samples(config)
    corner = draw_digits(samples, load_mnist(), config)[:, :, :3, :3].mean((2, 3))  # paper alone
    by_class = [corner[samples.label == label] for label in (0, 1)]
    difference = by_class[0].mean(0) - by_class[1].mean(0)
    error = corner.std(0) * np.sqrt(1 / len(by_class[0]) + 1 / len(by_class[1]))
    assert (np.abs(difference) < 4 * error).all()
    assert (corner.std(0) > 10).all()


def test_digits_of_another_size() -> None:
    data = load_data(SMALL.model_copy(update={"image_size": 16, "train_size": 40, "eval_size": 20}))
    assert data.task.shape == (3, 16, 16)


def test_environments_without_a_majority_are_the_values_of_the_attribute() -> None:
    attribute, label = np.array([0, 1, 2, 1]), np.array([0, 1, 0, 1])
    samples = SampleTable(
        names(["a", "b", "c", "d"]), label, names(["train"] * 4), ("x", "y"), attribute, "site", tuple("ABC")
    )
    assert samples.environment.tolist() == [0, 1, 2, 1]
    groups = samples.to_data(torch.zeros(4, 3, 4, 4, dtype=torch.uint8), "").train_groups
    assert groups is not None
    assert groups.environment.tolist() == [0, 1, 2, 1]


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"rho": 1.2}, "data.rho = 1.2 is not allowed"),
        ({"source": "camelyon"}, "'mnist' or 'celeba'"),
        ({"source": "celeba", "train_size": 50}, "count digits"),
        ({"crop_pct": 0.9}, "crop_pct is for photographs"),
        ({"majority_only": True}, "there are five sites"),
    ],
)
def test_settings_that_make_no_sense(settings: dict, says: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(says)):
        section_config("data", {"name": "sites", **settings})


def test_faces_without_a_folder_say_what_to_bring() -> None:
    with pytest.raises(DataError, match=r"CelebA needs data\.root"):
        load_data(SitesConfig(source="celeba"))


@pytest.mark.data
def test_faces(test_data: Path) -> None:
    """CelebA's first 10,000, by the number in the file name."""
    samples = Sites.samples(SitesConfig(source="celeba", root=str(test_data / "celeba"), image_size=64))
    assert {split: int((samples.split == split).sum()) for split in SPLITS} == {
        "train": 6500, "val": 500, "val_ood": 500, "id_test": 1000, "ood_test": 1500
    }  # fmt: skip
    assert samples.split[[19, 20, 21, 24, 25, 6]].tolist() == [
        "id_test",
        "id_test",
        "ood_test",
        "val",
        "val_ood",
        "train",
    ]
    assert samples.classes == ("not Smiling", "Smiling")
    assert 0.45 < samples.label.mean() < 0.55
    train = samples.split == "train"
    from_a_or_b = train & (samples.attribute < 2)
    told = (samples.label == 1) == (samples.attribute == 0)
    assert told[from_a_or_b].mean() == pytest.approx(0.98, abs=0.001)


def test_an_oracle_trains_where_the_site_tells_nothing_and_is_judged_as_all_are() -> None:
    """`train_rho` deals out the sites of train and val anew, and no others."""
    plain, oracle = (Sites.samples(SMALL.model_copy(update={"train_rho": rho})) for rho in (None, 0.5))
    assert plain.attribute is not None
    assert oracle.attribute is not None
    assert (plain.label == oracle.label).all()
    for split in SPLITS:
        same = (plain.attribute == oracle.attribute)[plain.split == split].all()
        assert same == (split not in ("train", "val"))
    for label in (0, 1):
        of = oracle.attribute[(oracle.split == "train") & (oracle.label == label)]
        shares = np.bincount(of, minlength=len(SITES))[:3] / len(of)
        assert np.abs(shares - 1 / 3).max() < 0.01
