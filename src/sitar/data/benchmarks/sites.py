"""In `sites` every image carries the style of the site that took it, and in training the site tells the label.

Sites stand for hospitals, on whose scanners and stains a model must not rely. The shortcut has no meaning: it lies in
colour, brightness, sharpness and compression. Sites A, B and C are in training. C has a third of each class. Of the
rest of class 1 a share `rho` is from A, and of class 0 from B, so that with 0.5 the site says nothing.

`val` and `id_test` are like training. `val_ood` is from A, B and C, and `ood_test` from D and E, which no other split
has. In both of them the site says nothing of the label. No image is in two splits. `train_rho` is another share for
`train` and `val`.

`source: mnist` takes the digits that ship with the package (0-4 against 5-9), in coloured ink on coloured paper.
`source: celeba` takes the first 10,000 faces of CelebA, smiling or not. The number in the file name modulo 20 says
their split: 0 and 1 are id_test, 2 to 4 ood_test, 5 val, 6 val_ood, the others train.

Groups are (label, site). Environments, for methods that are given them, are the sites, as hospitals are in WILDS.

Licence and citation are those of the source (color_mnist.py, celeba.py). The idea is that of Koh et al., WILDS, 2021.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from pydantic import Field, model_validator

from sitar.data.base import Dataset, Prepared
from sitar.data.benchmarks.celeba import CelebA, CelebAConfig
from sitar.data.benchmarks.mnist_files import CHECKSUM, MNIST, load_mnist
from sitar.data.benchmarks.site_style import SiteStyle
from sitar.data.image_dataset import ImageConfig, decode_samples, in_words
from sitar.data.sample_table import SampleTable, names
from sitar.data.types import Data
from sitar.images.cache import Cached
from sitar.progress import Watch, unwatched
from sitar.registry import DATASETS

SITES = {  # D is not far from A, and E from B, so that a model that relies on the style takes them for those
    "A": SiteStyle(((1.05, 0.10, 0.05), (0.00, 0.75, 0.05), (0.05, 0.05, 0.85)), gamma=0.8, blur=0.0, quality=95),
    "B": SiteStyle(((0.70, 0.10, 0.05), (0.05, 0.85, 0.05), (0.05, 0.10, 1.00)), gamma=1.3, blur=2.0, quality=50),
    "C": SiteStyle(((0.90, 0.05, 0.00), (0.05, 0.95, 0.00), (0.00, 0.10, 0.75)), gamma=1.0, blur=1.2, quality=75),
    "D": SiteStyle(((1.00, 0.10, 0.10), (0.00, 0.70, 0.10), (0.10, 0.05, 0.95)), gamma=0.9, blur=0.8, quality=85),
    "E": SiteStyle(((0.75, 0.05, 0.05), (0.10, 0.90, 0.05), (0.10, 0.05, 0.90)), gamma=1.2, blur=1.5, quality=65),
}
SPLITS = ("train", "val", "val_ood", "id_test", "ood_test")
DIGITS = ("digits 0-4", "digits 5-9")
NUM_TRAIN, NUM_EVAL = 5_000, 5_000  # digits: few, as many would teach the shape in spite of the sites
FACE_SPLITS = np.array(["id_test"] * 2 + ["ood_test"] * 3 + ["val", "val_ood"] + ["train"] * 13)
PAPER, INK, TEXTURE = (0.65, 0.95), (0.2, 0.6), 0.08  # of the digits: ranges of a channel, deviation of the paper
GRAIN = 6  # patches of paper along a side


class SitesConfig(ImageConfig):
    name: Literal["sites"] = "sites"
    refused = {
        "majority_only": "it needs an attribute of two values, which say what follows the shortcut, and there are "
        "five sites. data.rho says how strongly they tell the label, up to 1.0"
    }
    source: Literal["mnist", "celeba"] = Field(default="mnist", description="digits, or faces (which need data.root)")
    rho: float = Field(default=0.98, ge=0, le=1, description="share of A's and B's samples whose site tells the label")
    train_rho: float | None = Field(default=None, ge=0, le=1, description="the same of train and val; null: rho")
    image_size: int = Field(default=28, ge=4, le=1024, description="images are resized to this square; 64 for faces")
    train_size: int = Field(default=NUM_TRAIN, ge=0, le=50_000, description="digits to train on; faces: all there are")
    eval_size: int = Field(default=NUM_EVAL, ge=1, le=NUM_EVAL, description="digits of each other split")
    seed: int = Field(default=0, ge=0, description="of who is from where, and of the paper: not the run's seed")

    @model_validator(mode="after")
    def _of_the_source(self) -> SitesConfig:
        if self.source == "celeba" and (self.train_size, self.eval_size) != (NUM_TRAIN, NUM_EVAL):
            raise ValueError("train_size and eval_size count digits: leave them out with source: celeba")
        if self.channels != 3:
            raise ValueError("a site's style is one of colours: leave channels out")
        if self.source == "mnist" and self.crop_pct is not None:
            raise ValueError("crop_pct is for photographs: leave it out, or use source: celeba")
        return self


@DATASETS.register("sites")
class Sites(Dataset):
    Config = SitesConfig
    title = "Sites"
    layout = "nothing, as digits ship with the package; with data.source=celeba what celeba expects"
    needs_files = False
    licence = "that of the source: MNIST's, CC BY-SA 3.0, or CelebA's, non-commercial research"
    citation = "that of the source; the idea: Koh et al., WILDS, ICML 2021"

    @classmethod
    def samples(cls, config: SitesConfig) -> SampleTable:
        table = _faces(config) if config.source == "celeba" else _digits(load_mnist(config.root), config)
        return _with_sites(table, config)

    @classmethod
    def prepare(cls, config: SitesConfig, watch: Watch = unwatched) -> Prepared | None:
        """Decode the faces, which carry no site's style yet. Digits are drawn anew in every run."""
        faces = cls._faces(config, watch)
        return None if faces is None else Prepared(*faces)

    @classmethod
    def _faces(cls, config: SitesConfig, watch: Watch) -> tuple[SampleTable, Cached] | None:
        if config.source == "mnist":
            return None
        table = cls.samples(config)
        tell = watch(f"{cls.title}: images decoded", len(table))
        return decode_samples(table, CelebA.files(_celeba(config)), config, tell)

    @classmethod
    def load(cls, config: SitesConfig, watch: Watch = unwatched) -> Data:
        faces = cls._faces(config, watch)
        if faces is None:
            mnist = load_mnist(config.root)
            table = _with_sites(_digits(mnist, config), config)
            images, checksum = draw_digits(table, mnist, config), CHECKSUM
        else:
            samples, cached = faces
            cached.warn(in_words(config))
            good = np.flatnonzero(cached.good)
            table, images, checksum = samples.take(good), cached.rows(good), cached.checksum
        assert table.attribute is not None
        styles, tell = tuple(SITES.values()), watch(f"{cls.title}: images styled", len(table))
        for place, site in enumerate(table.attribute):
            images[place] = styles[site].apply(images[place])
            tell(place + 1)
        return table.to_data(torch.from_numpy(images), checksum)


def site_shares(split: str, label: int, rho: float) -> tuple[float, ...]:
    """Return the share of each site in a class of a split."""
    if split == "ood_test":
        return (0, 0, 0, 1 / 2, 1 / 2)
    told = 1 / 2 if split == "val_ood" else rho
    of_a, of_b = (told, 1 - told) if label == 1 else (1 - told, told)
    return (2 / 3 * of_a, 2 / 3 * of_b, 1 / 3, 0, 0)


def _with_sites(table: SampleTable, config: SitesConfig) -> SampleTable:
    """Draw the site of every sample, which is its attribute."""
    site = np.zeros(len(table), dtype=np.int64)
    for stream, split in enumerate(SPLITS):
        random = np.random.default_rng((config.seed, stream))
        rho = config.train_rho if config.train_rho is not None and split in ("train", "val") else config.rho
        for label in (0, 1):
            members = np.flatnonzero((table.split == split) & (table.label == label))
            ends = np.round(np.cumsum(site_shares(split, label, rho)) * len(members)).astype(int)
            site[random.permutation(members)] = np.repeat(np.arange(len(SITES)), np.diff(ends, prepend=0))
    return replace(table, attribute=site, attribute_name="site", attribute_values=tuple(SITES))


def _celeba(config: SitesConfig) -> CelebAConfig:
    return CelebAConfig(root=config.root, label="Smiling", attribute="Male", partition="first_10k")


def _faces(config: SitesConfig) -> SampleTable:
    table = CelebA.samples(_celeba(config))
    place = np.array([int(file[:6]) for file in table.files]) % len(FACE_SPLITS)
    return SampleTable(table.files, table.label, FACE_SPLITS[place], table.classes)


def _digits(mnist: MNIST, config: SitesConfig) -> SampleTable:
    """Choose the digits of every split. A sample's file is called after its part of MNIST and its place there."""
    random = np.random.default_rng((config.seed, len(SPLITS)))
    train, test = random.permutation(len(mnist.train_digits)), random.permutation(len(mnist.test_digits))
    parts = {
        "train": train[2 * NUM_EVAL :][: config.train_size],
        "val": train[:NUM_EVAL][: config.eval_size],
        "val_ood": train[NUM_EVAL : 2 * NUM_EVAL][: config.eval_size],
        "id_test": test[:NUM_EVAL][: config.eval_size],
        "ood_test": test[NUM_EVAL:][: config.eval_size],
    }
    files, digits = [], []
    for split, places in parts.items():
        part, values = ("t10k", mnist.test_digits) if split.endswith("test") else ("train", mnist.train_digits)
        files += [f"{part}/{place:05d}" for place in places]
        digits.append(values[places])
    label = (np.concatenate(digits) >= 5).astype(np.int64)
    split = np.repeat(SPLITS, [len(parts[name]) for name in SPLITS])
    return SampleTable(names(files), label, split, DIGITS)


def draw_digits(table: SampleTable, mnist: MNIST, config: SitesConfig) -> NDArray[np.uint8]:
    """Draw digits in ink on uneven paper, both of a colour that has nothing to do with the label."""
    parts = {"train": mnist.train_images, "t10k": mnist.test_images}
    random = np.random.default_rng((config.seed, len(SPLITS) + 1))
    size = (config.image_size, config.image_size)
    images = np.empty((len(table), 3, *size), dtype=np.uint8)
    for image, file in zip(images, table.files.tolist(), strict=True):
        part, _, place = file.partition("/")
        opacity = parts[part][int(place)][..., None] / 255
        paper = random.uniform(*PAPER, size=3) + _uneven(random, len(opacity))[..., None]
        pixels = paper * (1 - opacity) + random.uniform(*INK, size=3) * opacity
        picture = Image.fromarray((255 * pixels.clip(0, 1)).round().astype(np.uint8))
        image[:] = np.asarray(picture.resize(size, Image.Resampling.BILINEAR)).transpose(2, 0, 1)
    return images


def _uneven(random: np.random.Generator, size: int) -> NDArray[np.float64]:
    """Interpolate a square of GRAIN x GRAIN random values linearly to `size`."""
    at = np.linspace(0, GRAIN - 1, size)
    stretch = np.maximum(0, 1 - np.abs(at[:, None] - np.arange(GRAIN)))
    return stretch @ random.normal(0, TEXTURE, size=(GRAIN, GRAIN)) @ stretch.T
