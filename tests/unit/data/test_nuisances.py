"""What a user may name as a nuisance, and what is refused with a sentence that says what to do."""

from __future__ import annotations

import csv
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from sitar.config import section_config
from sitar.data import load_data
from sitar.data.concepts import LEAST_EXAMPLES, read_concept
from sitar.data.nuisances import BANK, read_bank, read_nuisances
from sitar.data.types import Nuisances
from sitar.errors import ConfigError, DataError

N = 120


@pytest.fixture
def scans(tmp_path: Path) -> Path:
    """A table of images with columns: a site that follows the label mostly, one that is it, a date, and others."""
    random = np.random.default_rng(0)
    rows = []
    for i in range(N):
        label = i % 2
        site = label if i % 10 else 1 - label
        pixels = random.integers(0, 60, (8, 8 + 2 * site, 3), dtype=np.uint8) + np.uint8(90 * site)
        Image.fromarray(pixels).save(tmp_path / f"{i}.png")
        rows.append(
            {"path": f"{i}.png", "label": "ab"[label], "split": "train" if i < 100 else "val", "site": f"s{site}",
             "hospital": f"h{label}", "ward": f"w{label}{i // 2 % 2}", "dose": str(label * 1000 + i / 7), "always": "x",
             "date": f"2024-0{1 + i % 9}-{1 + i % 28:02d}", "patient": f"p{i}"}
        )  # fmt: skip
    with (tmp_path / "scans.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return tmp_path


def config(root: Path, **rest: object) -> Any:
    settings = {"name": "table", "root": str(root), "image_size": 8, "split_column": "split", **rest}
    return section_config("data", settings)


def told(root: Path, *names: str, **rest: object) -> Nuisances:
    data = config(root, **rest)
    return read_nuisances(names, data, load_data(data, progress=False))


def test_a_column_of_words_has_a_number_for_each_word_and_no_class_means(scans: Path) -> None:
    found, train = told(scans, "site"), load_data(config(scans), progress=False).train
    assert found.values.shape == (100, 2)
    for label in (0, 1):
        assert found.values[train.y == label].mean(0).abs().max() < 1e-6
    torch.testing.assert_close(found.values.std(0, correction=0), torch.ones(2))
    words = train.x[:].float().mean((1, 2, 3))  # site s1 is bright
    assert np.corrcoef(found.values[:, 1], words)[0, 1] > 0.3


def test_numbers_and_dates_are_numbers(scans: Path) -> None:
    assert told(scans, "date").values.shape == (100, 1)


def test_properties_come_from_pixels_and_files(scans: Path) -> None:
    found = told(scans, "brightness", "mean_colour", "blur", "image_size")
    x = load_data(config(scans), progress=False).train.x[:].double() / 255
    light = (x * torch.tensor([0.299, 0.587, 0.114]).view(3, 1, 1)).sum(1).mean((1, 2))
    torch.testing.assert_close(
        found.values[:, 0].double(), (light - light.mean()) / light.std(correction=0), rtol=1e-5, atol=1e-5
    )
    assert [(each.name, each.kind, each.size) for each in found.about] == [
        ("brightness", "property", 1),
        ("mean_colour", "property", 3),
        ("blur", "property", 1),
        ("image_size", "property", 3),
    ]
    assert found.values.shape[1] == 1 + 3 + 1 + 2  # all images are 8 pixels high: what is the same for all is left out


def test_the_attribute_of_the_groups_is_marked(scans: Path) -> None:
    with_it, without = told(scans, "site", attribute_column="site"), told(scans, "site")
    assert [each.is_the_attribute for each in (*with_it.about, *without.about)] == [True, False]
    assert (with_it.has_the_attribute, without.has_the_attribute) == (True, False)


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("hospital", "hospital equals the label in the training data.*sitar ask"),
        ("ward", "ward equals the label"),  # four wards, of which each has one class
        ("dose", "dose equals the label"),  # a number that a threshold turns into the label
        ("always", "'always' has one value for all training samples, 'x'.*Leave it out"),
        ("patient", "another value for nearly every training sample"),
        ("top_left_cornr", "no column, property, or existing file.*Did you mean"),
        ("nothing", "Columns of this data: site, .*Properties of its images: .*brightness"),
    ],
)
def test_what_cannot_be_a_nuisance_is_named_and_refused(scans: Path, name: str, error: str) -> None:
    with pytest.raises((DataError, ConfigError), match=f"(?s){error}"):
        told(scans, name)


def test_what_the_data_is_split_by_is_a_column_too(scans: Path) -> None:
    with pytest.raises(DataError, match="'patient' has another value for nearly every training sample"):
        told(scans, "patient", split_by="patient")
    assert told(scans, "site", split_by="date").about[0].kind == "column"


def test_the_page_and_the_error_list_the_same_properties(scans: Path) -> None:
    """Of photographs, and of images with other channels, whose colours have no name."""
    offered: set[str] = set()
    for channels, mode in ((3, "RGB"), (4, "RGBA")):
        for file in scans.glob("*.png"):
            Image.new(mode, (8, 8)).save(file)
        with pytest.raises(ConfigError) as refused:
            told(scans, "nothing", channels=channels)
        offered |= set(str(refused.value).partition("Properties of its images: ")[2].partition(".")[0].split(", "))
    page = (Path(__file__).parents[3] / "docs/nuisances.md").read_text(encoding="utf-8")
    rows = [line.split("|") for line in page.splitlines() if line.startswith("|")]
    written = {name for row in rows if row[3].strip() in ("its pixels", "the file, before it is resized")
               for name in re.findall(r"`(\w+)`", row[1])}  # fmt: skip
    assert offered == written


def test_a_property_with_one_value_is_refused(scans: Path) -> None:
    for file in scans.glob("*.png"):
        Image.new("RGB", (8, 8), (9, 9, 9)).save(file)
    with pytest.raises(DataError, match="'brightness' has one value"):
        told(scans, "brightness")


def test_a_property_that_tells_the_label_for_certain_is_warned_of(
    scans: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for i in range(N):
        Image.new("RGB", (8, 8), (100 * (i % 2) + i % 7,) * 3).save(scans / f"{i}.png")
    told(scans, "brightness")
    assert "brightness tells the label for certain" in caplog.text


def test_an_unknown_value_of_a_number_is_its_mean(scans: Path) -> None:
    text = (scans / "scans.csv").read_text().splitlines()
    (scans / "scans.csv").write_text("\n".join([text[0], text[1].replace("2024-01-01", ""), *text[2:]]) + "\n")
    assert torch.isfinite(told(scans, "date").values).all()


def concept(folder: Path, n: int = LEAST_EXAMPLES, size: int = 20) -> str:
    for side, value in (("with", 200), ("without", 20)):
        (folder / side).mkdir(parents=True, exist_ok=True)
        for i in range(n):
            Image.new("RGB", (size, size), (value, i, 0)).save(folder / side / f"{i}.png")
    return str(folder)


def test_a_concept_is_decoded_as_the_training_images_are(scans: Path, tmp_path: Path) -> None:
    name = concept(tmp_path / "tag", 25)
    found = told(scans, "site", name)
    split = found
    assert split.examples.shape == (50, 3, 8, 8)
    assert split.examples.dtype == torch.uint8
    assert split.contrasts.shape == (1, 50)
    difference = torch.einsum("qm,mchw->qc", split.contrasts, split.examples.float()) / 64
    torch.testing.assert_close(difference, torch.tensor([[180.0, 0.0, 0.0]]), atol=0.01, rtol=0)
    assert [(each.kind, each.size) for each in found.about] == [("column", 2), ("concept", 50)]


def test_two_concepts_have_a_row_each(scans: Path, tmp_path: Path) -> None:
    split = told(scans, concept(tmp_path / "one", 20), concept(tmp_path / "two", 30))
    assert (split.contrasts != 0).sum(1).tolist() == [40, 60]
    assert not ((split.contrasts != 0).all(0)).any()
    torch.testing.assert_close(split.contrasts.clamp_min(0).sum(1), torch.ones(2))
    assert split.values.shape == (100, 0)


def test_a_concept_of_five_images_is_refused(scans: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"has 5 examples with it. At least 20 on each side"):
        told(scans, concept(tmp_path / "few", 5))


def class_folders(scans: Path, folder: Path, with_it: Callable[[int], bool], numbers: range = range(100)) -> str:
    """A concept of samples of the data under other names. Their label is "ab"[number % 2]."""
    for side in ("with", "without"):
        (folder / side).mkdir(parents=True)
    for i in numbers:
        shutil.copy(scans / f"{i}.png", folder / ("with" if with_it(i) else "without") / f"example_{i}.png")
    return str(folder)


def test_a_concept_that_is_the_label_is_named_and_refused(scans: Path, tmp_path: Path) -> None:
    name = class_folders(scans, tmp_path / "tag", lambda i: i % 2 == 1)
    found = "Examples with it are samples of 'b' \\(100%\\), and those without it of 'a' \\(100%\\)"
    with pytest.raises(DataError, match=f"tag' equals the label in this data: no class is on both sides. {found}.*ask"):
        told(scans, name)


def test_it_is_the_label_too_if_half_of_each_side_is_of_val_or_from_elsewhere(scans: Path, tmp_path: Path) -> None:
    name = class_folders(scans, tmp_path / "tag", lambda i: i % 2 == 0, range(60, 120))  # 20 are in val
    for side in ("with", "without"):
        for i in range(30):
            Image.new("RGB", (8, 8), (i, 255, 0)).save(tmp_path / "tag" / side / f"new_{i}.png")
    with pytest.raises(DataError, match="equals the label"):
        told(scans, name)
    Image.new("RGB", (8, 8), (99, 255, 0)).save(tmp_path / "tag" / "with" / "new_99.png")
    assert told(scans, name).examples.shape[0] == 121  # too little is known of it


def test_a_concept_that_is_the_label_in_part_is_warned_of(
    scans: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    told(scans, class_folders(scans, tmp_path / "site", lambda i: i % 2 == (i % 10 > 0)))  # the site of most samples
    assert "site' is the label in part" in caplog.text
    assert "with it are samples of 'a' (17%), 'b' (83%), and those without it of 'a' (100%)." in caplog.text
    caplog.clear()
    told(scans, class_folders(scans, tmp_path / "other", lambda i: i < 50))
    assert "in part" not in caplog.text


def test_a_sample_with_two_classes_says_nothing_of_a_concept(scans: Path, tmp_path: Path) -> None:
    shutil.copy(scans / "0.png", scans / "1.png")  # 1 has the other label
    with pytest.raises(DataError, match="equals the label"):
        told(scans, class_folders(scans, tmp_path / "tag", lambda i: i % 2 == 1))


def test_features_that_are_the_label_are_refused_as_a_concept(tmp_path: Path) -> None:
    data = features_config(tmp_path)
    loaded = load_data(data, progress=False)
    x, y = loaded.train.x[:].numpy(), loaded.train.y.numpy()
    elsewhere = np.random.default_rng(1).normal(size=(5, 4)).astype(np.float32)
    np.savez(tmp_path / "c.npz", **{"with": np.concatenate([x[y == 0], elsewhere]), "without": x[y == 1]})
    with pytest.raises(DataError, match="equals the label"):
        read_nuisances([str(tmp_path / "c.npz")], data, loaded)


@pytest.mark.parametrize("others", [0, 1])
def test_a_concept_with_the_same_examples_on_both_sides_is_refused(scans: Path, tmp_path: Path, others: int) -> None:
    name = concept(tmp_path / "tag")
    shutil.rmtree(tmp_path / "tag" / "without")
    shutil.copytree(tmp_path / "tag" / "with", tmp_path / "tag" / "without")
    for file in sorted((tmp_path / "tag" / "without").iterdir())[:others]:
        Image.new("RGB", (16, 16), "white").save(file)
    with pytest.raises(DataError, match="same examples with it and without it, or most of them"):
        told(scans, name)


def test_a_folder_without_sides_is_refused(scans: Path, tmp_path: Path) -> None:
    (tmp_path / "odd" / "with").mkdir(parents=True)
    with pytest.raises(DataError, match="no folder 'without': a concept is a folder with"):
        told(scans, str(tmp_path / "odd"))


def features_config(tmp_path: Path) -> Any:
    random = np.random.default_rng(0)
    x = random.normal(size=(60, 4)).astype(np.float32)
    np.savez(tmp_path / "data.npz", x=x, y=np.arange(60) % 2)
    return section_config("data", {"name": "npz", "file": str(tmp_path / "data.npz")})


def sides(features: int) -> dict[str, Any]:
    return {"with": np.ones((20, features)), "without": np.zeros((22, features))}


def test_a_concept_of_features_is_an_npz_file_or_a_table(tmp_path: Path) -> None:
    data, x = features_config(tmp_path), torch.zeros(3, 4)
    np.savez(tmp_path / "c.npz", **sides(4))
    found = read_concept(str(tmp_path / "c.npz"), data, x)
    assert found.x.shape == (42, 4)
    assert int(found.has.sum()) == 20
    with (tmp_path / "c.csv").open("w") as file:
        file.write("concept,f1,f2,f3,f4\n" + "".join(f"{'yes' if i % 2 else 'no'},{i},0,0,0\n" for i in range(44)))
    table: Any = section_config("data", {"name": "features", "file": "unused.csv", "feature_columns": "f*"})
    found = read_concept(str(tmp_path / "c.csv"), table, x)
    assert found.x[:, 0].tolist() == list(range(44))
    assert found.has.tolist() == [False, True] * 22
    turned = read_concept(str(tmp_path / "c.csv"), table, x, ["f4", "f3", "f2", "f1"])
    assert torch.equal(turned.x, found.x.flip(1)), "columns of the training data, by their names"


def test_features_of_another_shape_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "c.npz", **sides(3))
    with pytest.raises(DataError, match=r"have the shape \(3,\), and the training inputs \(4,\).*same network"):
        read_concept(str(tmp_path / "c.npz"), features_config(tmp_path), torch.zeros(3, 4))


def test_a_bank_is_all_properties_that_vary(scans: Path) -> None:
    """It has the numbers of a user who names them, and leaves out what an image has not or always has."""
    data = load_data(config(scans), progress=False)
    bank = read_bank(config(scans), data)
    assert [nuisance.name for nuisance in bank.about] == list(BANK)
    torch.testing.assert_close(bank.values, told(scans, *BANK).values)
    assert bank.names_told == []
    gray = config(scans, channels=1)
    names = [nuisance.name for nuisance in read_bank(gray, load_data(gray, progress=False)).about]
    assert names == [name for name in BANK if name != "mean_colour"]
    for i in range(N):  # of one colour and size
        Image.fromarray(np.full((8, 8, 3), i // 2, dtype=np.uint8)).save(scans / f"{i}.png")
    names = [nuisance.name for nuisance in read_bank(config(scans), load_data(config(scans), progress=False)).about]
    assert names == ["mean_colour", "brightness", "border", "background"]


def test_a_bank_of_images_that_are_all_alike_is_empty(scans: Path) -> None:
    for i in range(N):
        Image.fromarray(np.zeros((8, 8, 3), dtype=np.uint8)).save(scans / f"{i}.png")
    bank = read_bank(config(scans), load_data(config(scans), progress=False))
    assert bank.about == ()
    assert bank.values.shape == (100, 0)


def test_pixels_of_features_are_not_there(tmp_path: Path) -> None:
    data = features_config(tmp_path)
    with pytest.raises(ConfigError, match="holds features: no pixels to measure"):
        read_nuisances(["brightness"], data, load_data(data, progress=False))


def test_sides_of_a_concept_with_other_numbers_of_features_are_refused(tmp_path: Path) -> None:
    data = features_config(tmp_path)
    np.savez(tmp_path / "c.npz", **{"with": np.zeros((20, 4)), "without": np.zeros((20, 3))})
    with pytest.raises(DataError, match="4 features in 'with' and 3 in 'without'"):
        read_concept(str(tmp_path / "c.npz"), data, torch.zeros(3, 4))


def test_examples_of_the_test_split_are_refused(tmp_path: Path) -> None:
    data = features_config(tmp_path)
    loaded = load_data(data, progress=False)
    test = loaded.evaluation["test"].x[:1].numpy()
    np.savez(tmp_path / "c.npz", **{**sides(4), "with": np.concatenate([test, np.ones((20, 4))]).astype(np.float32)})
    with pytest.raises(DataError, match="1 of its 43 examples are in the split 'test'"):
        read_nuisances([str(tmp_path / "c.npz")], data, loaded)


def test_the_same_examples_on_other_sides_are_another_concept(tmp_path: Path) -> None:
    data = features_config(tmp_path)
    loaded, rows, found = load_data(data, progress=False), np.random.default_rng(1).normal(size=(60, 4)), []
    for cut in (30, 20):
        np.savez(tmp_path / f"{cut}.npz", **{"with": rows[:cut], "without": rows[cut:]})
        (about,) = read_nuisances([str(tmp_path / f"{cut}.npz")], data, loaded).about
        found.append(about.checksum)
    assert found[0] != found[1]


def test_a_damaged_cache_is_not_taken_for_a_concept(
    scans: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SITAR_CACHE", str(tmp_path / "cache"))
    name = concept(tmp_path / "tag")
    told(scans, name)
    (images,) = [file for file in (tmp_path / "cache").rglob("images.npy") if "concept" in str(file)]
    content = bytearray(images.read_bytes())
    content[-100:] = bytes(value ^ 1 for value in content[-100:])
    images.write_bytes(bytes(content))
    with pytest.raises(DataError, match="is damaged"):
        told(scans, name)
