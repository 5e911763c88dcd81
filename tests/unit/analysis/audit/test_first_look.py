"""The first look at generated data: it finds what was planted, on every seed, and nothing where nothing was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from sitar.analysis.audit import first_look as looking
from sitar.analysis.audit.first_look import first_look
from sitar.data import load_data
from sitar.data.types import Data, TrainSplit
from sitar.errors import DataError
from sitar.presets import load_config

SEEDS = range(10)
IN_MEMORY = load_config("color_mnist/vae").data  # a data set that has neither files nor a table


def shapes(seed: int, n: int = 300, size: int = 20) -> tuple[np.ndarray, np.ndarray]:
    """Lying and standing bars at random places, in noise: only the direction says which is which."""
    random = np.random.default_rng(seed)
    x, y = random.integers(40, 120, (n, 3, size, size)), np.arange(n) % 2
    for image, label, (row, column) in zip(x, y, random.integers(4, size - 9, (n, 2)), strict=True):
        image[:, row : row + (1, 5)[label], column : column + (5, 1)[label]] += 80
    return x.astype(np.uint8), y


def follows(y: np.ndarray, seed: int, rho: float = 0.9) -> np.ndarray:
    """Something that agrees with the label in a share of the samples."""
    return np.where(np.random.default_rng(1000 + seed).random(len(y)) < rho, y, 1 - y).astype(bool)


def look_at(x: np.ndarray, y: np.ndarray, classes: tuple[str, ...] = ("lying", "standing")) -> dict[str, Any]:
    split = TrainSplit(torch.from_numpy(x), torch.from_numpy(y))
    return first_look(IN_MEMORY, Data(split, {}, classes, "made"))[0]


def telling(look: dict[str, Any]) -> list[str]:
    return [cue["name"] for cue in look["cues"] if cue["strength"] == "tells"]


@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_is_found_where_nothing_was_planted(seed: int) -> None:
    look = look_at(*shapes(seed))
    assert telling(look) == []
    assert look["verdict"]["kind"] == "nothing"
    assert look["verdict"]["words"].startswith("No simple cue tells the label")
    assert look["pictures"] == []


@pytest.mark.parametrize("seed", SEEDS)
def test_a_mark_in_a_corner_and_a_colour_are_found(seed: int) -> None:
    x, y = shapes(seed)
    red = follows(y, 100 + seed)
    x[red, 0] += 15
    x[~red, 1] += 15
    x[follows(y, seed), :, -2:, :2] = 255
    look = look_at(x, y)
    assert {"bottom left corner", "mean colour"} <= set(telling(look))
    best = next(cue for cue in look["cues"] if cue["name"] == "bottom left corner")
    assert best["accuracy"] == pytest.approx(0.9, abs=0.06)
    assert "tells the label: it alone gets" in best["words"]
    assert "chance is 50 %" in best["words"]


def test_a_corner_without_a_mark_is_not_named() -> None:
    x, y = shapes(0)
    x[follows(y, 0), :, -2:, :2] = 255
    found = telling(look_at(x, y))
    assert found[0] == "bottom left corner"  # not the contrast, which the mark changes too
    assert not {"top right corner", "top left corner", "right edge", "top edge"} & set(found)


@pytest.mark.parametrize("seed", range(2))
def test_brightness_is_found(seed: int) -> None:
    x, y = shapes(seed)
    x[follows(y, seed)] += 12
    assert "brightness" in telling(look_at(x, y))


def test_blur_is_found() -> None:
    x, y = shapes(0)
    soft = follows(y, 0)
    x[soft] = (x[soft] // 2 + np.roll(x[soft], 1, axis=3) // 2).astype(np.uint8)
    assert "sharpness" in telling(look_at(x, y))


def test_the_same_look_again_is_the_same() -> None:
    assert look_at(*shapes(0)) == look_at(*shapes(0))


def test_labels_at_random_are_told_by_nothing() -> None:
    x, y = shapes(3)
    look = look_at(x, np.random.default_rng(0).permutation(y))
    assert {cue["strength"] for cue in look["cues"]} == {"nothing"}
    assert "none of" in look["verdict"]["words"]


def test_what_no_sample_contradicts_cannot_be_told_apart() -> None:
    x, y = shapes(0)
    x[y == 1, :, -2:, :2] = 255
    look = look_at(x, y)
    cue = next(cue for cue in look["cues"] if cue["name"] == "bottom left corner")
    assert look["verdict"]["kind"] == "cannot tell"
    assert (
        "Cannot tell label and bottom left corner apart in this data: 0 of 300 training samples contradict."
        in (look["verdict"]["words"])
    )
    assert "sitar ask" in cue["question"]
    assert "shortcut" not in look["verdict"]["words"]


def test_many_classes_and_gray_images() -> None:
    x, _ = shapes(0, 600)
    y = np.arange(600) % 8
    x = (x[:, :1] // 2 + 12 * y[:, None, None, None]).astype(np.uint8)
    look = look_at(x, y, tuple("abcdefgh"))
    assert look["chance"] == 1 / 8
    assert "brightness" in telling(look)
    assert "mean colour" not in [cue["name"] for cue in look["cues"]]
    assert len(look["pictures"][0]["classes"]) == looking.SHOWN_CLASSES


def test_features_are_looked_at_one_by_one() -> None:
    random = np.random.default_rng(0)
    y = np.arange(300) % 2
    x = random.normal(size=(300, 6)).astype(np.float32)
    x[:, 4] += 4 * y
    look = look_at(x, y)
    assert telling(look)[0] == "feature 4"
    assert look["pictures"] == []


@pytest.mark.parametrize("rare", [5, 19])
def test_few_samples_are_no_ground_for_a_verdict(rare: int) -> None:
    x, y = shapes(0, 200)
    keep = np.concatenate([np.flatnonzero(y == 0), np.flatnonzero(y == 1)[:rare]])
    look = look_at(x[keep], y[keep])
    assert look["verdict"]["kind"] == "too few"
    assert f"class 'standing' has {rare} training samples" in look["verdict"]["words"]
    assert look["cues"] == []


def test_a_misspelt_class_is_left_out_and_the_others_are_looked_at() -> None:
    """With a class of one sample, the look is that of the data without it, and says so."""
    x, y = shapes(0)
    x[follows(y, 0), :, -2:, :2] = 255
    slip = np.concatenate([y, [0]])
    classes = ("standin", "lying", "standing")  # the slip stands before the others
    look = look_at(np.concatenate([x, x[:1]]), np.where(np.arange(301) == 300, 0, slip + 1), classes)
    clean = look_at(x, y)
    said = " Classes with fewer than 20 training samples are left out of this look: 'standin' (1)."
    assert look["verdict"].pop("words") == clean["verdict"].pop("words") + said
    assert look == clean
    assert (look["of"], look["chance"], look["classes"]) == (300, 0.5, {"lying": 150, "standing": 150})


def test_only_so_many_samples_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(looking, "MOST_SAMPLES", 150)
    look = look_at(*shapes(0))
    assert (look["n"], look["of"]) == (150, 300)


def test_pictures_are_those_at_the_ends() -> None:
    x, y = shapes(0)
    x[follows(y, 0), :, -2:, :2] = 255
    split = TrainSplit(torch.from_numpy(x), torch.from_numpy(y))
    look, arrays = first_look(IN_MEMORY, Data(split, {}, ("lying", "standing"), "made"))
    picture = next(p for p in look["pictures"] if p["cue"] == "bottom left corner")
    images = arrays[picture["array"]]
    assert images.shape == (2, 2, 6, 3, 20, 20)
    assert picture["counts"] == [[6, 6], [6, 6]]
    assert images[:, 1, :, :, -2:, :2].min() == 255  # marked, whatever the class
    assert images[:, 0, :, :, -2:, :2].max() < 255


# Your own data, with a table


def write_table(folder: Path, seed: int = 0, n: int = 240) -> dict[str, list[str]]:
    """A folder with images and a table, which has columns of every kind."""
    x, y = shapes(seed, n)
    random = np.random.default_rng(seed)
    hospital = np.where(follows(y, seed, 0.95), "south", "north")
    columns = {
        "path": [f"images/{i}.png" for i in range(n)],
        "label": [("lying", "standing")[label] for label in y],
        "hospital": hospital.tolist(),
        "age": [f"{age:.1f}" for age in random.normal(50 + 20 * y, 5)],
        "taken": [f"2024-{month:02d}-{1 + i % 28:02d}" for i, month in enumerate(1 + 5 * y + random.integers(0, 5, n))],
        "weather": random.choice(["sun", "rain"], n).tolist(),
        "patient": [f"p{i}" for i in range(n)],
        "device": ["scanner"] * n,
        "class_id": [str(label) for label in y],
        "ward": [("A", "B")[label] for label in y],
        "empty": [""] * n,
    }
    (folder / "images").mkdir(parents=True)
    for name, pixels in zip(columns["path"], x, strict=True):
        Image.fromarray(pixels.transpose(1, 2, 0)).save(folder / name)
    lines = [",".join(columns), *map(",".join, zip(*columns.values(), strict=True))]
    (folder / "samples.csv").write_text("\n".join(lines) + "\n")
    return columns


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("SITAR_CACHE", str(tmp_path / "cache"))
    write_table(tmp_path / "data")
    return load_config("table/vae", [f"data.root={tmp_path / 'data'}", "data.image_size=20"]).data


def test_every_column_is_held_against_the_label(table: Any) -> None:
    look, arrays = first_look(table, load_data(table))
    assert {"hospital", "age", "taken"} <= set(telling(look))
    cues = {cue["name"]: cue for cue in look["cues"]}
    assert cues["weather"]["strength"] == "nothing"
    assert cues["hospital"]["kind"] == "column"
    counts = cues["hospital"]["counts"]
    assert sum(sum(row.values()) for row in counts.values()) == look["n"]
    assert counts["south"]["standing"] > 10 * counts["south"]["lying"]
    assert cues["age"]["counts"] is None
    picture = next(picture for picture in look["pictures"] if picture["cue"] == "hospital")
    assert picture["ends"] == ["hospital = north", "hospital = south"]
    few = counts["south"]["lying"]
    assert picture["counts"][0] == [6, min(6, few)]  # of lying ones in the south there are few
    assert arrays[picture["array"]][0, 1, few:].max() == 0


def test_columns_that_say_nothing_are_left_out_with_the_reason(table: Any) -> None:
    look, _ = first_look(table, load_data(table))
    assert look["left_out"] == {
        "patient": "has values of fewer than 10 samples each, as a name or a number has",
        "device": "has one value for all samples",
        "empty": "has one value for all samples",
        "class_id": "is the label under another name",
    }
    assert not {"label", "path", *look["left_out"]} & {cue["name"] for cue in look["cues"]}


def test_what_the_data_is_split_by_is_no_cue_unless_it_is_the_attribute(table: Any) -> None:
    """A patient with many images has one label, so the patient would tell it."""
    by = table.model_copy(update={"split_by": "weather", "test_share": 0.0})
    look, _ = first_look(by, load_data(by))
    assert look["left_out"]["weather"] == "is what the data is split by"
    both = by.model_copy(update={"attribute_column": "weather"})
    assert first_look(both, load_data(both))[0]["left_out"]["weather"] == "has one value for all samples"


def test_a_column_that_follows_the_label_one_to_one_is_named(table: Any) -> None:
    """Nothing in the data says whether it is the label: both readings are given."""
    look, _ = first_look(table, load_data(table))
    (twin,) = look["same_as_label"]
    assert twin["name"] == "ward"
    assert "Either it is the label under another name" in twin["words"]
    assert f"label and ward apart in this data: 0 of {look['n']} training samples contradict." in twin["words"]
    assert "of class 'lying' with ward = B, or of class 'standing' with ward = A" in twin["question"]
    assert look["verdict"]["kind"] == "cannot tell"
    assert "ward" not in {cue["name"] for cue in look["cues"]}


def test_an_attribute_is_not_taken_for_the_label() -> None:
    """It was named as something else than the label, so only one reading is left."""
    config = load_config("color_mnist/vae", ["data.rho=1.0", "data.train_size=300", "data.image_size=14"]).data
    (twin,) = first_look(config, load_data(config))[0]["same_as_label"]
    assert twin["words"].startswith(
        "Color follows the label one to one. Cannot tell label and color apart in this data"
    )
    assert "another name" not in twin["words"]


def test_the_question_names_the_images_that_are_missing(table: Any) -> None:
    look, _ = first_look(table, load_data(table))
    hospital = next(cue for cue in look["cues"] if cue["name"] == "hospital")
    assert not hospital["apart"]
    assert sum(hospital["conflicts"].values()) < 20
    assert "of class 'lying' with hospital = south" in hospital["question"]
    assert "of class 'standing' with hospital = north" in hospital["question"]


def test_columns_beside_features_are_held_against_the_label(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    y = np.arange(300) % 2
    site = np.where(follows(y, 0), "south", "north")
    rows = [
        f"{a:.3f},{b:.3f},{label},{place}"
        for a, b, label, place in zip(*random.normal(size=(2, 300)), y, site, strict=True)
    ]
    (tmp_path / "features.csv").write_text("\n".join(["f1,f2,label,site", *rows]) + "\n")
    config = load_config("features/vae", [f"data.file={tmp_path / 'features.csv'}", "data.feature_columns=f*"]).data
    look, _ = first_look(config, load_data(config))
    assert telling(look) == ["site"]
    assert {"feature 0", "feature 1", "principal component 1"} <= {cue["name"] for cue in look["cues"]}
    counts = next(cue for cue in look["cues"] if cue["name"] == "site")["counts"]
    assert sum(sum(row.values()) for row in counts.values()) == len(load_data(config).train)


def test_files_of_another_size_or_kind_are_a_cue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SITAR_CACHE", str(tmp_path / "cache"))
    x, y = shapes(0, 200)
    for i, (pixels, label) in enumerate(zip(x, y, strict=True)):
        large = (label == 1) ^ (i % 20 == 0)
        image = Image.fromarray(pixels.transpose(1, 2, 0)).resize((48, 36) if large else (20, 20))
        file = tmp_path / "data" / ("lying", "standing")[label] / f"{i}.{'jpg' if large else 'png'}"
        file.parent.mkdir(parents=True, exist_ok=True)
        image.save(file)
    config = load_config("folder/vae", [f"data.root={tmp_path / 'data'}", "data.image_size=20"]).data
    look, _ = first_look(config, load_data(config))
    assert {"size of the original", "file size", "file type"} <= set(telling(look))
    assert "folder" not in {cue["name"] for cue in look["cues"]}  # it is the class


def test_one_class_and_unreadable_images_are_refused_and_bad_ones_can_be_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SITAR_CACHE", str(tmp_path / "cache"))
    write_table(tmp_path / "data")
    (tmp_path / "data/images/7.png").write_bytes(b"no image")
    settings = [f"data.root={tmp_path / 'data'}", "data.image_size=20"]
    with pytest.raises(DataError, match="1 of 240 images cannot be used"):
        load_data(load_config("table/vae", settings).data)
    config = load_config("table/vae", [*settings, "data.on_bad=skip"]).data
    data = load_data(config)
    look, _ = first_look(config, data)  # its rows are still those of its images
    assert look["n"] == len(data.train)
    assert "hospital" in telling(look)
    one = load_config("table/vae", [*settings, "data.label_column=device"]).data
    with pytest.raises(DataError, match="of one class"):
        load_data(one)
