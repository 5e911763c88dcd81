"""Your own images: folders and tables, the splits that are made of them, and what is refused."""

from __future__ import annotations

import csv
import hashlib
import io
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

import sitar
from sitar.config import section_config
from sitar.data import load_data
from sitar.data.from_columns import filled
from sitar.data.own_data.folder import Folder, FolderConfig
from sitar.data.own_data.table import TableConfig, TableOfImages
from sitar.data.sample_table import SampleTable, names
from sitar.data.splitting import check_classes, check_leakage, random_split, split_words, with_val
from sitar.data.tables import Column
from sitar.errors import DataError
from sitar.presets import load_config
from sitar.registry import DATASETS

pytestmark = pytest.mark.usefixtures("cache")


def image(path: Path, seed: int, size: tuple[int, int] = (12, 10)) -> None:
    pixels = np.random.default_rng(seed).integers(0, 256, (*size, 3), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(buffer.getvalue())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Forty cats and twenty dogs of different sizes, some in folders within their class's."""
    root = tmp_path / "animals"
    for i in range(60):
        place = root / ("cat" if i < 40 else "dog") / ("more" if i % 7 == 0 else "")
        image(place / f"{i}.png", i, (10 + i % 3, 12))
    return root


def sides(samples: SampleTable) -> dict[str, dict[str, int]]:
    return dict(sorted(samples.counts().items()))


@pytest.mark.parametrize("data", [{"name": "table", "table": "mine.csv"}, {"name": "features", "file": "mine.csv"}])
def test_a_column_that_is_missing_comes_with_the_setting_that_names_it(data: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "mine.csv").write_text("File Name,Finding,f1\n" + "a.png,ill,0\n" * 9)
    place = {"root": str(tmp_path)} if data["name"] == "table" else {"file": str(tmp_path / data["file"])}
    config = section_config("data", {**data, **place, "split_by": "who"})
    path = "--set data.path_column=... and " * (data["name"] == "table")
    asked = rf"It has: File Name, Finding, f1\. Say which is meant with {path}--set data.label_column=... and --set "
    with pytest.raises(DataError, match=asked + "data.split_by=..."):
        DATASETS.get(data["name"]).samples(config)


def test_a_folder_a_class(folder: Path) -> None:
    samples = Folder.samples(FolderConfig(root=str(folder)))
    assert samples.classes == ("cat", "dog")
    assert sides(samples) == {
        "test": {"cat": 8, "dog": 4}, "train": {"cat": 28, "dog": 14}, "val": {"cat": 4, "dog": 2},
    }  # fmt: skip
    again = Folder.samples(FolderConfig(root=str(folder)))
    other = Folder.samples(FolderConfig(root=str(folder), seed=1))
    assert (samples.split == again.split).all()
    assert not (samples.split == other.split).all()
    data = load_data(FolderConfig(root=str(folder), image_size=16))
    assert data.train.x.shape == (42, 3, 16, 16)
    assert data.task.class_counts == (28, 14)
    assert data.train_groups is None


def test_a_folder_with_splits(tmp_path: Path) -> None:
    for split, n in (("Train", 20), ("test", 6)):
        for i in range(n):
            image(tmp_path / "data" / split / ("a", "b")[i % 2] / f"{i}.png", i)
    samples = Folder.samples(FolderConfig(root=str(tmp_path / "data")))
    assert sides(samples) == {"test": {"a": 3, "b": 3}, "train": {"a": 9, "b": 9}, "val": {"a": 1, "b": 1}}
    for i in range(4):
        image(tmp_path / "data" / "validation" / ("a", "b")[i % 2] / f"{i}.png", i)
    samples = Folder.samples(FolderConfig(root=str(tmp_path / "data")))
    assert sides(samples) == {"test": {"a": 3, "b": 3}, "train": {"a": 10, "b": 10}, "val": {"a": 2, "b": 2}}


def test_files_that_are_no_images_are_counted(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    before = Folder.samples(FolderConfig(root=str(folder)))
    assert caplog.text == ""
    for name in ("cat/1.heic", "cat/2.HEIC", "dog/notes.txt", "dog/scan", "cat/.1.png", ".trash/3.png"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(b"")
    after = Folder.samples(FolderConfig(root=str(folder)))
    assert (after.files == before.files).all()  # hidden files are none
    said = "4 files without the ending of an image are left out: .heic (2), .txt (1), no ending (1)."
    assert [record.getMessage() for record in caplog.records] == [said]


def test_links_are_followed_once(folder: Path, tmp_path: Path) -> None:
    """People link classes into place from another disk; a link back up would be followed forever."""
    linked = tmp_path / "linked"
    linked.mkdir()
    for name in ("cat", "dog"):
        (linked / name).symlink_to(folder / name)
    (folder / "cat" / "up").symlink_to(folder)
    assert (
        Folder.samples(FolderConfig(root=str(linked))).files == Folder.samples(FolderConfig(root=str(folder))).files
    ).all()
    data = load_data(FolderConfig(root=str(linked), image_size=8))
    assert len(data.train) == 42


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ([], "no images below it"),
        (["a/1.png", "a/2.png"], "one class"),
        (["a/1.png", "b/2.png", "3.png"], r"1 images lie in no folder of a class, such as '3\.png'"),
        ([f"{i}/x.png" for i in range(30)], "30 classes for 30 samples"),
    ],
)
def test_folders_that_are_refused(files: list[str], reason: str, tmp_path: Path) -> None:
    root = tmp_path / "data"
    root.mkdir()
    for i, file in enumerate(files):
        image(root / file, i)
    with pytest.raises(DataError, match=reason):
        Folder.samples(FolderConfig(root=str(root)))


def write(root: Path, rows: list[dict[str, Any]], name: str = "table.csv") -> Path:
    root.mkdir(parents=True, exist_ok=True)
    with (root / name).open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return root / name


def scans(n: int = 120) -> list[dict[str, Any]]:
    """Patients with one to four scans each; the scanner follows the finding mostly."""
    random = np.random.default_rng(3)
    rows = []
    while len(rows) < n:
        patient = len(rows)
        ill = int(random.random() < 0.4)
        for k in range(int(random.integers(1, 5))):
            scanner = "old" if (random.random() < 0.8) == bool(ill) else "new"
            rows.append({"path": f"scans/{patient}_{k}.png", "label": ("healthy", "ill")[ill], "scanner": scanner,
                         "patient_id": f"p{patient}"})  # fmt: skip
    return rows


def test_a_table_with_everything(tmp_path: Path) -> None:
    rows = scans()
    for i, row in enumerate(rows):
        image(tmp_path / row["path"], i)
    write(tmp_path, rows)
    config = TableConfig(root=str(tmp_path), attribute_column="scanner", split_by="patient_id", image_size=8)
    samples = TableOfImages.samples(config)
    assert samples.classes == ("healthy", "ill")
    assert samples.group_names[1] == "label=0,scanner=1"
    assert samples.legend() == "label 0: healthy, 1: ill; scanner 0: new, 1: old"
    assert samples.majority == {(0, 0), (1, 1)}  # healthy on the new scanner, ill on the old one
    by = np.array([row["patient_id"] for row in rows])
    check_leakage(samples.split, by, "patient_id")
    for split, share in (("train", 0.7), ("val", 0.1), ("test", 0.2)):
        assert (samples.split == split).mean() == pytest.approx(share, abs=0.05)
    data = load_data(config)
    assert data.train_groups is not None
    assert data.attributes == {"scanner": ("new", "old")}
    assert data.evaluation["test"].group_names == samples.group_names
    strict = TableOfImages.samples(config.model_copy(update={"majority_only": True}))
    assert strict.counts()["train"]["label=0,scanner=1"] == 0
    assert strict.counts()["test"] == samples.counts()["test"]


def test_a_patient_on_two_sides_is_refused(tmp_path: Path) -> None:
    rows = [{**row, "split": ("train", "test")[i % 2]} for i, row in enumerate(scans())]
    write(tmp_path, rows)
    config = TableConfig(root=str(tmp_path), split_column="split", split_by="patient_id")
    with pytest.raises(DataError, match=r"values of 'patient_id' are in more than one split, such as 'p\d+'"):
        TableOfImages.samples(config)
    samples = TableOfImages.samples(config.model_copy(update={"split_by": None}))  # allowed when nobody asks
    assert set(samples.split) == {"train", "val", "test"}


def test_a_given_split_gets_its_validation_by_patient(tmp_path: Path) -> None:
    rows = scans()
    patients = {row["patient_id"]: i for i, row in enumerate(rows)}
    for row in rows:
        row["split"] = "test" if patients[row["patient_id"]] % 4 == 0 else "Training"
    write(tmp_path, rows)
    samples = TableOfImages.samples(TableConfig(root=str(tmp_path), split_column="split", split_by="patient_id"))
    check_leakage(samples.split, np.array([row["patient_id"] for row in rows]), "patient_id")
    given = np.array([row["split"] for row in rows])
    assert ((samples.split == "test") == (given == "test")).all()
    assert 0.03 < (samples.split == "val").mean() < 0.2


GOOD = [{"path": f"{i}.png", "label": "ab"[i % 2], "split": "train"} for i in range(10)]


@pytest.mark.parametrize(
    ("rows", "options", "reason"),
    [
        ([{"file": "1.png", "label": "a"}], {}, r"no column 'path'.*It has: file, label"),
        ([{"path": "1.png", "labels": "a"}], {}, r"no column 'label'.*Did you mean 'labels'"),
        (GOOD, {"split_by": "patient"}, "no column 'patient'"),
        (
            [*GOOD, {"path": "x.png", "label": "", "split": "train"}],
            {},
            "1 of 11 samples have no value in 'label', the first is sample 11",
        ),
        ([*GOOD, {"path": "3.png", "label": "a", "split": "train"}], {}, "1 file is in the table more than once"),
        ([*GOOD, {"path": "../x.png", "label": "a", "split": "train"}], {}, r"1 paths lead out.*'\.\./x\.png'"),
        ([*GOOD, {"path": "/etc/x.png", "label": "a", "split": "train"}], {}, r"1 paths lead out"),
        ([*GOOD, {"path": "a/../3.png", "label": "a", "split": "train"}], {}, r"more than once, such as '3\.png'"),
        ([*GOOD, {"path": "a/../../x.png", "label": "a", "split": "train"}], {}, r"1 paths lead out"),
        ([{**row, "label": "a"} for row in GOOD], {}, "one class"),
        (
            [*GOOD, {"path": "x.png", "label": "A", "split": "test"}],
            {"split_column": "split"},
            "1 classes, such as 'A', have no training sample, only 1 in other splits",
        ),
        ([{**row, "label": str(i)} for i, row in enumerate(GOOD)], {}, "10 classes for 10 samples"),
        ([{**row, "split": "holdout"} for row in GOOD], {"split_column": "split"}, "name no split, such as 'holdout'"),
    ],
)
def test_tables_that_are_refused(
    rows: list[dict[str, Any]], options: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    write(tmp_path, rows)
    with pytest.raises(DataError, match=reason):
        TableOfImages.samples(TableConfig(root=str(tmp_path), **options))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no lines below its head"),
        ("path,label\n", "no lines below its head"),
        (
            "path,label\n1.png,a\n2.png\n3.png,b,c\n",
            "2 lines .* more or fewer cells than its head, which has 2.*line 3",
        ),
        ("path,label,label\n1.png,a,b\n", "more than one column 'label'"),
        ('path,label\n"1.png,a\n', "cannot be read: unexpected end of data"),
        ("path;label\n1.png;a\n", "no column 'path'.*It has: path;label"),
    ],
)
def test_csv_files_that_are_refused(text: str, reason: str, tmp_path: Path) -> None:
    (tmp_path / "table.csv").write_text(text)
    with pytest.raises(DataError, match=reason):
        TableOfImages.samples(TableConfig(root=str(tmp_path)))


def test_blanks_around_words_are_not_part_of_them(tmp_path: Path) -> None:
    rows = [{**row, "label": f" {row['label']}" if i % 3 else row["label"]} for i, row in enumerate(GOOD)]
    (write(tmp_path, rows)).write_text((tmp_path / "table.csv").read_text() + "\n")
    assert TableOfImages.samples(TableConfig(root=str(tmp_path))).classes == ("a", "b")


def test_numbers_as_labels_are_in_their_own_order(tmp_path: Path) -> None:
    write(tmp_path, [{"path": f"{i}.png", "label": i % 11} for i in range(44)])
    assert TableOfImages.samples(TableConfig(root=str(tmp_path))).classes == tuple(map(str, range(11)))


def test_which_table_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DataError, match=r"has 0 \.csv or \.parquet files"):
        TableOfImages.samples(TableConfig(root=str(tmp_path)))
    one, two = write(tmp_path, GOOD, "one.csv"), write(tmp_path, GOOD, "two.csv")
    with pytest.raises(DataError, match=r"has 2 \.csv or \.parquet files"):
        TableOfImages.samples(TableConfig(root=str(tmp_path)))
    assert len(TableOfImages.samples(TableConfig(root=str(tmp_path), table=str(two)))) == len(GOOD)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "scans").mkdir()
    half = GOOD[: len(GOOD) // 2]
    for below, here, n in [(None, half, half), (GOOD, half, GOOD), (GOOD, None, GOOD)]:
        for folder, rows in [(tmp_path / "scans", below), (tmp_path, here)]:
            write(folder, rows, "three.csv") if rows else (folder / "three.csv").unlink(missing_ok=True)
        assert len(TableOfImages.samples(TableConfig(root="scans", table="three.csv"))) == len(n)
    assert len(TableOfImages.samples(TableConfig(root="scans", table="scans/three.csv"))) == len(GOOD)
    with pytest.raises(DataError, match=r"no table 'four\.csv', neither below data\.root 'scans' nor below "):
        TableOfImages.samples(TableConfig(root="scans", table="four.csv"))
    one.write_bytes(b"\xff\xfe\x00\x81")
    with pytest.raises(DataError, match="cannot be read"):
        TableOfImages.samples(TableConfig(root=str(tmp_path), table=str(one)))


def test_a_parquet_table_says_the_same_as_a_csv(tmp_path: Path) -> None:
    rows = scans()
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    write(tmp_path / "csv", rows)
    (tmp_path / "parquet").mkdir()
    pq.write_table(pa.table(columns), tmp_path / "parquet" / "table.parquet")
    options = {"attribute_column": "scanner", "split_by": "patient_id"}
    a, b = (TableOfImages.samples(TableConfig(root=str(tmp_path / kind), **options)) for kind in ("csv", "parquet"))
    for name in ("files", "label", "split", "attribute"):
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name))
    assert a.classes == b.classes
    pq.write_table(pa.table(columns | {"label": [None, *columns["label"][1:]]}), tmp_path / "parquet" / "table.parquet")
    with pytest.raises(DataError, match="have no value in 'label', the first is sample 1 "):
        TableOfImages.samples(TableConfig(root=str(tmp_path / "parquet")))
    pq.write_table(pa.table({"path": [], "label": []}), tmp_path / "parquet" / "table.parquet")
    with pytest.raises(DataError, match="has no rows"):
        TableOfImages.samples(TableConfig(root=str(tmp_path / "parquet")))


def test_files_that_a_table_names_and_nobody_has(tmp_path: Path) -> None:
    for i in range(8):
        image(tmp_path / f"{i}.png", i)
    write(tmp_path, GOOD)
    with pytest.raises(DataError, match=r"2 of 10 images cannot be used \(8\.png: there is no such file"):
        load_data(TableConfig(root=str(tmp_path), image_size=8))
    data = load_data(TableConfig(root=str(tmp_path), image_size=8, on_bad="skip"))
    assert len(data.train) + sum(len(split) for split in data.evaluation.values()) == 8


def test_random_splits_have_their_shares() -> None:
    label = np.repeat([0, 1, 2], [500, 300, 40])
    split = random_split(label, None, 0.1, 0.2, seed=4)
    for c, n in enumerate((500, 300, 40)):
        here = split[label == c]
        assert [(here == name).sum() for name in ("train", "val", "test")] == [0.7 * n, 0.1 * n, 0.2 * n]
    by = names([f"site{i % 9}" for i in range(len(label))])
    by_site = random_split(label, by, 0.1, 0.2, seed=4)
    check_leakage(by_site, by, "site")
    assert set(by_site) == {"train", "val", "test"}


@pytest.mark.parametrize(("by", "digest"), [(None, "9ddc3d3f7d0183e6"), (np.arange(400) ** 2 % 61, "fd5cbd42ba3e9c44")])
def test_splits_without_an_attribute_are_those_of_runs_before(by: Any, digest: str) -> None:
    split = random_split(np.arange(400) * 7 % 3, by, 0.1, 0.2, seed=4)
    assert hashlib.blake2b("".join(split).encode(), digest_size=8).hexdigest() == digest


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("has_patients", [False, True])
def test_with_an_attribute_every_split_has_its_share_of_every_group(seed: int, has_patients: bool) -> None:
    """Some twenty of 660 samples contradict the shortcut. A split over all groups together may miss all of them."""
    random = np.random.default_rng(seed)
    patient = np.arange(660) // 2
    label, agrees = (random.integers(0, 2, 330)[patient], (random.random(330) < 0.97)[patient])
    hospital = np.where(agrees, label, 1 - label)
    split = random_split(label, patient if has_patients else None, 0.1, 0.2, seed, hospital)
    for group in range(4):
        here = split[2 * label + hospital == group]
        for name, share in (("train", 0.7), ("val", 0.1), ("test", 0.2)):
            assert abs((here == name).sum() - share * len(here)) <= (2 if has_patients else 1)
    if has_patients:
        check_leakage(split, names(patient.astype(str)), "patient")
    kept = np.where(split == "val", "train", split)
    val = with_val(label, kept, patient if has_patients else None, 0.125, seed, hospital) == "val"
    assert abs(val[label != hospital].sum() - val[label == hospital].sum() * (~agrees).sum() / agrees.sum()) <= 3


def test_a_group_that_no_split_can_measure_is_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def warned(rare: int, test_share: float = 0.2) -> str:
        caplog.clear()
        hospitals = [*["north"] * rare, *["south"] * 400]
        rows = [(f"{i}.png", "ill", hospital) for i, hospital in enumerate(hospitals)]
        rows += [(f"w{i}.png", "well", hospital) for i, hospital in enumerate(["north"] * 400 + ["south"] * 400)]
        (tmp_path / "t.csv").write_text("path,label,hospital\n" + "\n".join(map(",".join, rows)))
        config = TableConfig(root=str(tmp_path), attribute_column="hospital", test_share=test_share)
        TableOfImages.samples(config)
        return caplog.text

    said = warned(2)
    assert (
        "1 of 4 groups by hospital have fewer than 10 samples in val or test: 'ill' with 'north' (0 in val and 0 "
        in said
    )
    assert "its accuracy cannot be measured and it is never the worst group" in said
    assert "\n" not in said.strip()
    assert "'ill' with 'north' (9 in val and 18 in test)" in warned(90)
    assert "'ill' with 'north' (10 in val)" not in warned(100, test_share=0)
    assert warned(100) == ""


def test_words_for_splits() -> None:
    assert split_words(["Train", " valid", "dev", "TEST"], "here").tolist() == ["train", "val", "val", "test"]
    with pytest.raises(DataError, match=r"here holds 2 words that name no split, such as 'a'"):
        split_words(["train", "b", "a", "a"], "here")


def test_a_hundred_thousand_classes_by_mistake() -> None:
    with pytest.raises(DataError, match="100,000 classes"):
        check_classes([str(i) for i in range(100_000)], 1_000_000)
    with pytest.raises(ValueError, match="nothing to train on"):
        FolderConfig(val_share=0.5, test_share=0.5)


@pytest.mark.parametrize("preset", ["folder/sitar_best", "folder/erm", "folder/control"])
def test_a_folder_trains_with_nothing_else(preset: str, folder: Path, tmp_path: Path) -> None:
    overrides = [f"data.root={folder}", "data.image_size=16", "model.channels=[4]", "train.epochs=2"]
    run = sitar.train(preset, overrides=overrides, out=tmp_path / "run", device="cpu", progress=False)
    result = run.result()
    assert set(result["splits"]) == {"train", "val", "test"}
    assert result["selection"] == "last"
    model = sitar.load(run, device="cpu")
    assert model.classes == ("cat", "dog")


def test_a_table_trains_with_nothing_else(tmp_path: Path) -> None:
    root = tmp_path / "scans"
    rows = scans(60)
    for i, row in enumerate(rows):
        image(root / row["path"], i)
    write(root, rows)
    overrides = [f"data.root={root}", "data.image_size=16", "model.channels=[4]", "train.epochs=1"]
    run = sitar.train("table/sitar_best", overrides=overrides, out=tmp_path / "run", device="cpu", progress=False)
    assert run.result()["splits"]["test"]["n"] > 0


def test_a_class_of_a_few_samples_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    x, y = np.zeros((41, 3), np.float32), np.array(["ill", "well"] * 20 + ["Ill"])
    np.savez(tmp_path / "slip.npz", x=x, y=y)
    config = load_config("npz/erm", [f"data.file={tmp_path / 'slip.npz'}"])
    load_data(config.data)
    assert "1 of 3 classes have fewer than 5 samples: 'Ill' (1)." in caplog.text
    caplog.clear()
    np.savez(tmp_path / "slip.npz", x=x[:40], y=y[:40])
    load_data(config.data)
    assert caplog.text == ""


@pytest.mark.parametrize("word", ["", "NaN", "nan"])
def test_a_missing_label_is_no_class(word: str) -> None:
    with pytest.raises(DataError, match="1 of 3 samples have no value in 'label', the first is sample 2"):
        filled(Column("label", ["a", word, "b"]))
