"""Datasets of images: splits from the real metadata, severity, decoding, and the cache."""

from __future__ import annotations

import io
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import sitar.images.cache
from helpers import made_data
from sitar.data import load_data
from sitar.data.benchmarks.bar import BAR, BARConfig
from sitar.data.benchmarks.celeba import CelebA, CelebAConfig
from sitar.data.benchmarks.waterbirds import Waterbirds, WaterbirdsConfig
from sitar.data.own_data.folder import FolderConfig
from sitar.data.published_counts import compare_counts
from sitar.data.rows import Rows
from sitar.data.sample_table import SampleTable, larger_diagonal, names
from sitar.data.severity import majority_only, thin_out
from sitar.errors import ConfigError, DataError
from sitar.images.bit_depth import BadImageError
from sitar.images.cache import cached_images
from sitar.images.decode import decode
from sitar.images.decoder_pool import Decoded, DecoderPool
from sitar.images.files import Files, read_text
from sitar.testing.datasets import assert_same_data


def png(pixels: np.ndarray, mode: str | None = None, **options: object) -> bytes:
    buffer = io.BytesIO()
    image = Image.fromarray(pixels)
    (image if mode is None else image.convert(mode)).save(buffer, "PNG", **options)  # type: ignore[arg-type]
    return buffer.getvalue()


def photo(seed: int, size: tuple[int, int] = (20, 30)) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (*size, 3), dtype=np.uint8)


BLOND = {
    "train": [0, 66874, 22880, 0],
    "val": [0, 8276, 2874, 0],
    "test": [9767, 7535, 2480, 180],
}
ATTRACTIVE = {
    "train": [0, 31956, 37479, 0],
    "val": [0, 3780, 4510, 0],
    "test": [5668, 4396, 4307, 5591],
}


def table(samples: SampleTable) -> dict[str, list[int]]:
    return {split: list(groups.values()) for split, groups in samples.counts().items()}


@pytest.mark.data
@pytest.mark.parametrize(
    ("label", "attribute", "paper"), [("Blond_Hair", "Male", BLOND), ("Attractive", "Smiling", ATTRACTIVE)]
)
def test_celeba_has_the_papers_counts(label: str, attribute: str, paper: dict[str, list[int]], test_data: Path) -> None:
    config = CelebAConfig(root=str(test_data / "celeba"), label=label, attribute=attribute, majority_only=True)
    samples = CelebA.samples(config)
    assert table(samples) == paper
    assert samples.counts() == CelebA.published(config)


@pytest.mark.data
@pytest.mark.parametrize(("label", "attribute"), [("Blond_Hair", "Male"), ("Attractive", "Smiling"), ("Bald", "Male")])
def test_celeba_with_all_groups_has_its_counts(label: str, attribute: str, test_data: Path) -> None:
    config = CelebAConfig(root=str(test_data / "celeba"), label=label, attribute=attribute)
    samples, published = CelebA.samples(config), CelebA.published(config)
    assert compare_counts(samples, published).agrees is True
    assert (samples.counts() == published) == (label != "Bald")  # of other attributes only the totals are known
    assert compare_counts(samples.take(samples.files != "000017.jpg"), published).agrees is False
    for other in ({"rho": 0.9}, {"partition": "first_10k"}):
        assert CelebA.published(config.model_copy(update=other)) is None


@pytest.mark.data
def test_celeba_first_10k_has_our_counts(test_data: Path) -> None:
    strict = CelebAConfig(root=str(test_data / "celeba"), partition="first_10k", majority_only=True)
    expected = {"train": [0, 2670, 921, 0], "val": [0, 420, 130, 0], "test": [4412, 1046, 320, 81]}
    assert table(CelebA.samples(strict)) == expected
    other = strict.model_copy(update={"label": "Attractive", "attribute": "Smiling"})
    expected = {"train": [0, 1327, 1488, 0], "val": [0, 193, 223, 0], "test": [2879, 486, 588, 2816]}
    assert table(CelebA.samples(other)) == expected
    standard = table(CelebA.samples(strict.model_copy(update={"majority_only": False})))
    assert {split: sum(sizes) for split, sizes in standard.items()} == {"train": 6500, "val": 1000, "test": 2500}


@pytest.mark.data
def test_waterbirds_has_the_papers_counts(test_data: Path) -> None:
    root = str(test_data / "waterbirds")
    standard, strict = WaterbirdsConfig(root=root), WaterbirdsConfig(root=root, majority_only=True)
    test = [2255, 2255, 642, 642]
    assert table(Waterbirds.samples(standard)) == {
        "train": [3498, 184, 56, 1057], "val": [467, 466, 133, 133], "test": test,
    }  # fmt: skip
    assert table(Waterbirds.samples(strict)) == {"train": [3498, 0, 0, 1057], "val": [467, 0, 0, 133], "test": test}
    for config in (standard, strict):
        assert Waterbirds.samples(config).counts() == Waterbirds.published(config)


@pytest.mark.data
def test_bar_has_its_counts(test_data: Path) -> None:
    samples = BAR.samples(BARConfig(root=str(test_data / "bar")))
    counts = samples.counts()
    train = {action: counts["train"][action] + counts["val"][action] for action in samples.classes}
    assert list(train.values()) == [326, 520, 163, 279, 336, 317]
    assert list(counts["test"].values()) == [105, 159, 42, 131, 132, 85]
    assert list(counts["val"].values()) == [round(n / 10) for n in train.values()]
    assert compare_counts(samples, BAR.published(BARConfig())).agrees is True
    again, other = (BAR.samples(BARConfig(root=str(test_data / "bar"), seed=seed)) for seed in (0, 1))
    assert (again.split == samples.split).all()
    assert not (other.split == samples.split).all()


@pytest.mark.usefixtures("cache")
def test_bar_from_made_up_files(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    root = tmp_path / "bar"
    for split in ("train", "test"):
        (root / split).mkdir(parents=True)
        for i in range(30):
            (root / split / f"{('climbing', 'pole vaulting')[i % 2]}_{i}.png").write_bytes(png(photo(i)))
    data = load_data(BARConfig(root=str(root), image_size=16))
    half = [record.getMessage() for record in caplog.records if "published" in record.getMessage()]
    assert (len(data.train), len(data.evaluation["val"]), len(data.evaluation["test"])) == (26, 4, 30)
    assert data.task.class_counts == (13, 0, 0, 13, 0, 0)
    assert data.train_groups is None
    (line,) = half
    assert "BAR has other counts than published. In total: train + val 30 (published 1,941), test 30 (" in line
    assert line.endswith(f"`sitar data check bar --root {root}` shows every group.")
    (root / "train" / "swimming_1.png").write_bytes(png(photo(1)))
    with pytest.raises(DataError, match=r"1 file is of no class of BAR, such as 'train/swimming_1\.png'"):
        BAR.samples(BARConfig(root=str(root)))
    with pytest.raises(DataError, match=r"no files of BAR.*sitar data prepare bar"):
        BAR.samples(BARConfig(root=str(tmp_path / "cache")))


@pytest.mark.data
def test_real_faces_are_decoded_as_pillow_decodes_them(
    test_data: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first faces, through the archive, the cache and the splits, are Pillow's pixels."""
    root = test_data / "celeba"
    monkeypatch.setattr("sitar.data.benchmarks.celeba.FIRST_10K", 40)
    config = CelebAConfig(root=str(root), partition="first_10k", image_size=32)
    data = load_data(config)
    samples = CelebA.samples(config)
    order = samples.files.argsort()
    train = [file for file, split in zip(samples.files[order], samples.split[order], strict=True) if split == "train"]
    assert len(data.train) == len(train) == 26
    with zipfile.ZipFile(root / "img_first10k.zip") as archive:
        for i, file in enumerate(train):
            with Image.open(io.BytesIO(archive.read(file))) as image:
                expected = np.asarray(image.resize((32, 32), Image.Resampling.BILINEAR)).transpose(2, 0, 1)
            np.testing.assert_array_equal(data.train.x[i].numpy(), expected)
    assert data.train_groups is not None
    assert data.task.shape == (3, 32, 32)


@pytest.mark.data
def test_an_attribute_that_does_not_exist_is_named(test_data: Path) -> None:
    with pytest.raises(ConfigError, match="Did you mean 'Blond_Hair'"):
        CelebA.samples(CelebAConfig(root=str(test_data / "celeba"), label="Blond_hair"))


def test_counts_beside_published_ones() -> None:
    samples = made_samples(12)
    total = {"train": {"total": 4}, "val": {"total": 4}, "test": {"total": 4}}
    assert compare_counts(samples, None).agrees is None
    assert compare_counts(samples, total).agrees is True
    assert compare_counts(samples, {"train + val": {"total": 8}, "test": samples.counts()["test"]}).agrees is True
    assert compare_counts(samples, {"train + val": {"total": 7}, "test": {"total": 4}}).agrees is False
    assert compare_counts(samples, {"train": {"total": 4}, "test": {"total": 4}}).agrees is False  # where is val from?
    lacking = compare_counts(samples.take(samples.split != "test"), total)
    assert lacking.agrees is False
    assert lacking.counts["test"]["total"] == 0
    assert lacking.totals() == "train 4 (published 4), val 4 (published 4), test 0 (published 4)"
    swapped = {
        split: dict(zip(groups, [*groups.values()][::-1], strict=True)) for split, groups in samples.counts().items()
    }
    assert compare_counts(samples, swapped).agrees is False  # the same totals


def made_samples(n: int = 1200) -> SampleTable:
    random = np.random.default_rng(0)
    label = random.integers(0, 2, n)
    attribute = np.where(random.random(n) < 0.8, label, 1 - label)
    split = names(["train", "val", "test"] * (n // 3))
    files = names([f"{i}.png" for i in range(n)])
    values = ("no", "yes")
    return SampleTable(files, label, split, ("a", "b"), attribute, "hat", values, larger_diagonal(label, attribute))


def test_the_larger_diagonal() -> None:
    assert made_samples().majority == {(0, 0), (1, 1)}
    assert larger_diagonal(np.array([0, 0, 1]), np.array([1, 1, 0])) == {(0, 1), (1, 0)}


def test_majority_only_leaves_the_test_alone() -> None:
    samples = made_samples()
    strict = majority_only(samples)
    follows = strict.label == strict.attribute
    assert follows[strict.split != "test"].all()
    assert (strict.split == "test").sum() == (samples.split == "test").sum()
    before = samples.counts()["train"]
    assert strict.counts()["train"] == {
        "label=0,hat=0": before["label=0,hat=0"], "label=0,hat=1": 0,
        "label=1,hat=0": 0, "label=1,hat=1": before["label=1,hat=1"],
    }  # fmt: skip


@pytest.mark.parametrize("rho", [0.0, 0.3, 0.5, 0.9, 0.95, 1.0])
def test_resampling_gives_the_wanted_severity(rho: float) -> None:
    samples = made_samples()
    thin = thin_out(samples, rho)
    for split in ("train", "val"):
        for label in (0, 1):
            here = (thin.split == split) & (thin.label == label)
            follows = (thin.label == thin.attribute)[here]
            assert here.sum() > 0
            assert follows.mean() == pytest.approx(rho, abs=1 / here.sum())
            whole = (samples.split == split) & (samples.label == label)
            with_it = (whole & (samples.label == samples.attribute)).sum()
            assert (
                follows.sum() == with_it or (~follows).sum() == whole.sum() - with_it
            )  # no more is left out than needed
    assert (thin.split == "test").sum() == (samples.split == "test").sum()
    assert set(thin.files) <= set(samples.files)
    assert (thin_out(samples, rho).files == thin.files).all()
    if rho not in (0.0, 1.0):
        assert not np.array_equal(thin_out(samples, rho, seed=1).files, thin.files)


@pytest.mark.parametrize("function", [majority_only, lambda samples: thin_out(samples, 0.9)])
def test_severity_needs_two_classes_and_an_attribute(function: Callable[[SampleTable], SampleTable]) -> None:
    files, label, split = names(["a", "b"]), np.array([0, 1]), names(["train", "train"])
    with pytest.raises(ConfigError, match="no attribute"):
        function(SampleTable(files, label, split, ("a", "b")))
    three = SampleTable(files, label, split, ("a", "b", "c"), label, "hat", ("no", "yes"))
    with pytest.raises(ConfigError, match="3 classes and 2 attribute values"):
        function(three)


def test_settings_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(ValueError, match="set one of the two"):
        WaterbirdsConfig(majority_only=True, rho=0.9)
    with pytest.raises(ValueError, match="differs from the label"):
        CelebAConfig(label="Male")


def rotated(pixels: np.ndarray) -> bytes:
    exif = Image.Exif()
    exif[0x0112] = 6  # a camera held on its side
    return png(pixels, exif=exif)


def test_every_kind_of_image_becomes_rgb() -> None:
    rgb = photo(0)
    gray = rgb[..., 0]
    size = (20, 30)
    np.testing.assert_array_equal(decode(png(rgb), size), rgb.transpose(2, 0, 1))
    np.testing.assert_array_equal(decode(png(gray), size), np.stack([gray] * 3))
    np.testing.assert_array_equal(decode(png(gray.astype(np.uint16) * 257), size), np.stack([gray] * 3))
    alpha = np.dstack([rgb, np.where(np.arange(30) < 15, 0, 255).astype(np.uint8)[None].repeat(20, 0)])
    np.testing.assert_array_equal(decode(png(alpha), size), np.where(np.arange(30) < 15, 0, rgb.transpose(2, 0, 1)))
    assert decode(png(rgb, "P"), size).shape == (3, 20, 30)
    np.testing.assert_array_equal(decode(rotated(rgb), (30, 20)), np.rot90(rgb, -1).transpose(2, 0, 1))
    buffer = io.BytesIO()
    Image.fromarray(rgb).convert("CMYK").save(buffer, "TIFF")
    np.testing.assert_allclose(decode(buffer.getvalue(), size), rgb.transpose(2, 0, 1), atol=2)
    assert decode(png(rgb), (8, 9)).shape == (3, 8, 9)


@pytest.mark.parametrize(
    ("height", "width", "scaled"),
    [(60, 40, (48, 32)), (40, 60, (32, 48)), (50, 50, (32, 32)), (7, 15, (32, 68)), (101, 33, (97, 32))],
)
def test_a_crop_keeps_the_aspect_ratio(height: int, width: int, scaled: tuple[int, int]) -> None:
    """28 / 0.875 = 32 pixels for the shorter side; the longer one rounded down, the crop in the middle."""
    pixels = photo(3, (height, width))
    whole = np.asarray(Image.fromarray(pixels).resize((scaled[1], scaled[0]), Image.Resampling.BILINEAR))
    top, left = (round((side - 28) / 2) for side in scaled)
    expected = whole[top : top + 28, left : left + 28].transpose(2, 0, 1)
    np.testing.assert_array_equal(decode(png(pixels), (28, 28), crop_pct=0.875), expected)


def test_a_crop_of_everything_is_the_central_square() -> None:
    pixels = photo(4, (20, 30))
    np.testing.assert_array_equal(decode(png(pixels), (20, 20), crop_pct=1.0), pixels[:, 5:25].transpose(2, 0, 1))


def test_a_line_is_not_blown_up_by_a_crop() -> None:
    with pytest.raises(BadImageError, match="20000x1 is too long and thin"):
        decode(png(photo(5, (1, 20_000))), (224, 224), crop_pct=0.875)
    assert decode(png(photo(5, (1, 20_000))), (224, 224)).shape == (3, 224, 224)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "empty"),
        (b"no image at all", "no image, or of a kind that is not known"),
        (png(photo(1, (80, 80)))[:600], "OSError|Error"),
    ],
)
def test_what_is_no_image_is_said(data: bytes, reason: str) -> None:
    with pytest.raises(BadImageError, match=reason):
        decode(data, (8, 8))


def test_an_image_bomb_is_not_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sitar.images.decode.MAX_PIXELS", 500)
    with pytest.raises(BadImageError, match="30x20 pixels"):
        decode(png(photo(0)), (8, 8))


@pytest.fixture
def folder(tmp_path: Path, cache: Path) -> Path:
    root = tmp_path / "images"
    root.mkdir()
    for i in range(12):
        (root / f"{i:02}.png").write_bytes(png(photo(i)))
    return root


def listing(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_the_cache_holds_what_decoding_gives(folder: Path) -> None:
    names_ = listing(folder)
    cached = cached_images("made", names_, Files([folder]), (16, 16))
    for name, pixels in zip(names_, cached.images, strict=True):
        np.testing.assert_array_equal(pixels, decode((folder / name).read_bytes(), (16, 16)))
    assert cached.good.all()


def test_later_runs_never_decode(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = cached_images("made", listing(folder), Files([folder]), (16, 16))
    monkeypatch.setattr(sitar.images.cache, "DecoderPool", None)
    again = cached_images("made", listing(folder), Files([folder]), (16, 16))
    np.testing.assert_array_equal(again.images, first.images)
    assert again.checksum == first.checksum


def test_a_changed_file_another_size_or_another_list_makes_another_cache(folder: Path, tmp_path: Path) -> None:
    first = cached_images("made", listing(folder), Files([folder]), (16, 16))
    cached_images("made", listing(folder), Files([folder]), (8, 8))
    cached_images("made", listing(folder)[:5], Files([folder]), (16, 16))
    (folder / "03.png").write_bytes(png(photo(99)))
    changed = cached_images("made", listing(folder), Files([folder]), (16, 16))
    np.testing.assert_array_equal(changed.images[3], decode((folder / "03.png").read_bytes(), (16, 16)))
    assert changed.checksum != first.checksum
    assert len(list((tmp_path / "cache").iterdir())) == 4


def test_crops_have_caches_of_their_own(folder: Path, tmp_path: Path) -> None:
    stretched = cached_images("made", listing(folder), Files([folder]), (16, 16))
    cropped = cached_images("made", listing(folder), Files([folder]), (16, 16), crop_pct=0.5)
    assert len(list((tmp_path / "cache").iterdir())) == 2
    for i, name in enumerate(listing(folder)):
        pixels = (folder / name).read_bytes()
        np.testing.assert_array_equal(stretched.images[i], decode(pixels, (16, 16)))
        np.testing.assert_array_equal(cropped.images[i], decode(pixels, (16, 16), crop_pct=0.5))


@pytest.mark.usefixtures("cache")
def test_the_crop_is_a_setting(tmp_path: Path) -> None:
    for i in range(20):
        (tmp_path / "data" / "ab"[i % 2]).mkdir(parents=True, exist_ok=True)
        (tmp_path / "data" / "ab"[i % 2] / f"{i}.png").write_bytes(png(photo(i)))
    data = load_data(FolderConfig(root=str(tmp_path / "data"), image_size=20, crop_pct=1.0, val_share=0, test_share=0))
    np.testing.assert_array_equal(data.train.x[0].numpy(), photo(0)[:, 5:25].transpose(2, 0, 1))
    for wrong in (0.0, 1.5):
        with pytest.raises(ValueError, match="crop_pct"):
            FolderConfig(crop_pct=wrong)


def test_bad_files_are_named_and_counted(folder: Path) -> None:
    (folder / "03.png").write_bytes(b"")
    (folder / "07.png").write_bytes(b"something else")
    asked = [*listing(folder), "gone.png"]
    with pytest.raises(DataError, match=r"3 of 13 images.*03\.png: the file is empty.*data\.on_bad=skip"):
        cached_images("made", asked, Files([folder]), (16, 16))
    cached = cached_images("made", asked, Files([folder]), (16, 16), on_bad="skip")
    assert set(cached.bad) == {"03.png", "07.png", "gone.png"}
    assert cached.bad["gone.png"] == "there is no such file"
    assert cached.good.tolist() == [name not in cached.bad for name in asked]


def test_a_killed_preparation_continues(tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stopped after each report of a worker in turn; what was reported is not decoded again."""
    monkeypatch.setattr(sitar.images.cache, "CHECKPOINT_SECONDS", 0.0)
    for i in range(12, 150):
        (folder / f"{i:03}.png").write_bytes(png(photo(i, (6, 5))))
    whole = cached_images("whole", listing(folder), Files([folder]), (8, 8))
    real = DecoderPool.decode
    asked: list[int] = []

    def counted(*arguments: Any) -> Iterator[Decoded]:
        asked.append(sum(map(len, arguments[-1])))
        yield from real(*arguments)

    def kill(done: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(DecoderPool, "decode", counted)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            cached_images("cut", listing(folder), Files([folder]), (8, 8), watch=kill)
    again = cached_images("cut", listing(folder), Files([folder]), (8, 8))
    assert asked == [150, 86, 22]
    np.testing.assert_array_equal(again.images, whole.images)
    assert again.checksum == whole.checksum


def test_archives_and_folders_hold_the_same(folder: Path, tmp_path: Path) -> None:
    archive = tmp_path / "images.zip"
    with zipfile.ZipFile(archive, "w") as file:
        for name in listing(folder):
            file.write(folder / name, name)
    a = cached_images("made", listing(folder), Files([folder]), (16, 16))
    b = cached_images("made", listing(folder), Files([], [archive]), (16, 16))
    np.testing.assert_array_equal(a.images, b.images)


@pytest.mark.parametrize("form", ["plain", "gz", "zip", "folder"])
def test_text_is_found_in_every_form(form: str, tmp_path: Path) -> None:
    import gzip

    if form == "plain":
        (tmp_path / "list.txt").write_text("hello")
    elif form == "gz":
        (tmp_path / "list.txt.gz").write_bytes(gzip.compress(b"hello"))
    elif form == "zip":
        with zipfile.ZipFile(tmp_path / "list.zip", "w") as file:
            file.writestr("list.txt", "hello")
    else:
        (tmp_path / "inner").mkdir()
        (tmp_path / "inner" / "list.txt").write_text("hello")
    assert read_text(tmp_path, "list.txt") == "hello"


def test_missing_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no files of CelebA.*list_attr_celeba\.txt.*by hand"):
        CelebA.samples(CelebAConfig(root=str(tmp_path)))
    with pytest.raises(DataError, match=r"needs data\.root.*metadata\.csv"):
        Waterbirds.samples(WaterbirdsConfig())
    with pytest.raises(DataError, match="is not a folder"):
        Waterbirds.samples(WaterbirdsConfig(root=str(tmp_path / "nowhere")))
    (tmp_path / "metadata.csv").write_text("img_filename,y\na.jpg,0\n")
    with pytest.raises(DataError, match="has no column 'split', 'place'"):
        Waterbirds.samples(WaterbirdsConfig(root=str(tmp_path)))


def test_a_cut_list_is_refused(tmp_path: Path) -> None:
    (tmp_path / "list_attr_celeba.txt").write_text("1\nMale Blond_Hair\n000001.jpg 1 -1\n")
    with pytest.raises(DataError, match="checksum"):
        CelebA.samples(CelebAConfig(root=str(tmp_path)))


@pytest.mark.usefixtures("cache")
def test_waterbirds_from_made_up_files(tmp_path: Path) -> None:
    """The whole way, from the real layout to splits and groups."""
    root = tmp_path / "waterbird_complete95_forest2water2"
    rows = ["img_id,img_filename,y,split,place,place_filename"]
    for i in range(24):
        (root / f"{i % 3:03}.Bird").mkdir(parents=True, exist_ok=True)
        (root / f"{i % 3:03}.Bird" / f"bird_{i}.png").write_bytes(png(photo(i)))
        rows.append(f"{i},{i % 3:03}.Bird/bird_{i}.png,{i % 2},{i // 8},{i // 2 % 2},x.jpg")
    (root / "metadata.csv").write_text("\n".join(rows))
    data = load_data(WaterbirdsConfig(root=str(tmp_path), image_size=16))
    assert set(data.evaluation) == {"val", "test"}
    assert len(data.train) == 8
    assert data.train.x.shape == (8, 3, 16, 16)
    files = sorted((f"{i % 3:03}.Bird/bird_{i}.png", i) for i in range(8))
    for row, (file, i) in enumerate(files):
        np.testing.assert_array_equal(data.train.x[row].numpy(), decode((root / file).read_bytes(), (16, 16)))
        assert data.train.y[row] == i % 2
        assert data.train_groups is not None
        assert data.train_groups.group[row] == 2 * (i % 2) + i // 2 % 2
        assert data.train_groups.environment[row] == (i % 2 != i // 2 % 2)
    assert data.evaluation["test"].group_names[1] == "label=0,place=1"
    assert data.evaluation["test"].group_share == (0.25,) * 4


def test_a_worker_that_dies_is_said(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(DataError, match="has died"):
        cached_images("made", listing(folder), Files([folder]), (16, 16))


def test_a_split_that_lies_together_is_not_copied() -> None:
    """Its images stay in the mapped file; others are copied, and every split has its own samples."""
    inputs = torch.arange(12, dtype=torch.uint8).reshape(12, 1, 1, 1)
    split = names(["val", "train", "train", "train", "test", "val", "test", "test", "test", "test", "test", "test"])
    data = SampleTable(names([str(i) for i in range(12)]), np.arange(12) % 2, split, ("a", "b")).to_data(inputs, "")
    assert data.train.x.flatten().tolist() == [1, 2, 3]
    assert np.shares_memory(data.train.x.numpy(), inputs.numpy())
    for name, rows in (("val", [0, 5]), ("test", [4, *range(6, 12)])):
        assert data.evaluation[name].x.flatten().tolist() == rows
        assert not np.shares_memory(data.evaluation[name].x.numpy(), inputs.numpy())
    taken = SampleTable(
        names(["a", "b"]), np.arange(2), names(["train", "train"]), ("a", "b"), pools={"unseen": ("far", "farther")}
    )
    assert list(taken.splits()) == ["train"]  # a pool without samples is no split
    assert taken.to_data(inputs, "", np.array([7, 8])).train.x.flatten().tolist() == [7, 8]


def test_many_images_stay_in_the_mapped_file(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A random split has its images all over the file. None is copied before a batch asks for it."""
    config = made_data.folder(tmp_path / "data")
    held = load_data(config)
    monkeypatch.setattr("sitar.data.rows.HELD", 0)
    mapped = load_data(config)
    assert_same_data(held, mapped)
    for split in (mapped.train, *mapped.evaluation.values()):
        assert isinstance(split.x, Rows)
        assert isinstance(split.x.array.base, np.memmap)
        assert not split.x.array.flags.writeable
    index = torch.tensor([3, 0, 3])
    assert torch.equal(mapped.train.batch(index).x, held.train.batch(index).x)
