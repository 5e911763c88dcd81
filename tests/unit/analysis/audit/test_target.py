"""What `sitar audit WHAT` takes WHAT for."""

from __future__ import annotations

from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

from sitar.analysis.audit.target import find_target
from sitar.errors import ConfigError
from sitar.presets import load_config
from sitar.run_folder import RunFolder


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def data_of(target: object) -> dict:
    assert isinstance(target, tuple)
    return load_config(*target).to_dict()["data"]


def test_a_preset_or_the_name_of_a_dataset(here: Path) -> None:
    assert find_target("color_mnist/sitar", ["data.rho=0.5"]) == ("color_mnist/sitar", ["data.rho=0.5"])
    assert find_target("color_mnist") == ("color_mnist/vae", [])
    assert data_of(find_target("celeba", root="faces"))["root"] == "faces"


def test_a_folder_is_images_by_class(here: Path) -> None:
    (here / "10").mkdir()
    data = data_of(find_target("10", ["data.image_size=32"]))
    assert (data["name"], data["root"], data["image_size"]) == ("folder", "10", 32)
    with pytest.raises(ConfigError, match="leave --root out"):
        find_target("10", root="elsewhere")


def test_a_parquet_file_among_folders_of_images_is_not_the_data(here: Path) -> None:
    for name in ("cat", "dog", "backup"):
        (here / "animals" / name).mkdir(parents=True)
    image = pyarrow.array([b"an image"], pyarrow.binary())
    pyarrow.parquet.write_table(pyarrow.table({"image": image, "label": ["cat"]}), here / "animals/backup/x.parquet")
    assert data_of(find_target("animals"))["name"] == "table", "there is nothing else"
    (here / "animals" / "cat" / "1.png").touch()
    assert data_of(find_target("animals"))["name"] == "folder"


def test_a_folder_called_as_a_dataset_is_data(here: Path) -> None:
    (here / "color_mnist").mkdir()
    assert data_of(find_target("color_mnist"))["root"] == "color_mnist"


def test_tables_hold_images_or_features(here: Path) -> None:
    (here / "t.csv").write_text("path,label\na.png,0\n")
    data = data_of(find_target("t.csv"))
    assert (data["name"], data["root"], data["table"]) == ("table", ".", "t.csv")
    data = data_of(find_target("t.csv", root="images"))
    assert (data["root"], data["table"]) == ("images", str(here / "t.csv"))
    (here / "scans").mkdir()
    (here / "scans" / "t.csv").write_text("path,label\na.png,0\n")
    data = data_of(find_target("scans/t.csv"))
    assert (data["root"], data["table"]) == ("scans", "t.csv")
    (here / "strange.csv").write_text("pth,label\na.png,0\n")
    assert data_of(find_target("strange.csv", root="images"))["name"] == "table"  # images were said to be there
    (here / "f.csv").write_text("f1,file,label\n0.5,a.png,0\n")
    data = data_of(find_target("f.csv", ["data.feature_columns=f1"]))
    assert (data["name"], data["file"]) == ("features", "f.csv")
    data = data_of(find_target("f.csv", ["data.path_column=file"]))
    assert (data["name"], data["path_column"]) == ("table", "file")


def test_a_folder_with_a_table_is_read_by_the_table(here: Path) -> None:
    (here / "scans" / "images").mkdir(parents=True)
    (here / "scans" / "samples.csv").write_text("path,label\nimages/a.png,0\n")
    data = data_of(find_target("scans"))
    assert (data["name"], data["root"], data["table"]) == ("table", "scans", "samples.csv")
    (here / "scans" / "notes.csv").write_text("who,when\nme,today\n")  # it lists no images, so it is not meant
    assert data_of(find_target("scans"))["table"] == "samples.csv"


def test_of_several_tables_one_must_be_named(here: Path) -> None:
    (here / "scans").mkdir()
    for name in ("old.csv", "new.csv"):
        (here / "scans" / name).write_text("path,label\na.png,0\n")
    with pytest.raises(ConfigError, match=r"2 tables with a column 'path': new.csv, old.csv. Name one with --table"):
        find_target("scans")
    assert data_of(find_target("scans", table="old.csv"))["table"] == "old.csv"
    with pytest.raises(ConfigError, match="Leave --table out"):
        find_target("color_mnist", table="old.csv")


def test_a_table_without_a_column_of_paths(here: Path) -> None:
    """Beside folders of classes it is not meant; alone it must be: its columns are named."""
    (here / "scans" / "images").mkdir(parents=True)
    (here / "scans" / "samples.csv").write_text("file,diagnosis\nimages/a.png,0\n")
    with pytest.raises(
        ConfigError,
        match=r"no folder for each class.* has file, diagnosis. Name the column with --set data.path",
    ):
        find_target("scans")
    data = data_of(find_target("scans", ["data.path_column=file", "data.label_column=diagnosis"]))
    assert (data["name"], data["path_column"]) == ("table", "file")
    (here / "scans" / "more").mkdir()
    assert data_of(find_target("scans"))["name"] == "folder"


def test_parquet_files_with_images_are_read_as_such(here: Path) -> None:
    for place in (here / "hub" / "data", here / "parts"):
        place.mkdir(parents=True)
        for number in range(2):
            columns = {"image": [{"bytes": b"1", "path": None}], "label": [number]}
            pyarrow.parquet.write_table(pyarrow.table(columns), place / f"{number}.parquet")
    for name in ("hub", "parts"):
        data = data_of(find_target(name))
        assert (data["name"], data["root"], data["table"]) == ("table", name, None)
    data = data_of(find_target("parts/1.parquet"))
    assert (data["name"], data["root"], data["table"]) == ("table", "parts", "1.parquet")
    pyarrow.parquet.write_table(pyarrow.table({"f1": [0.5], "label": [0]}), here / "f.parquet")
    assert data_of(find_target("f.parquet", ["data.feature_columns=f1"]))["name"] == "features"


def test_tables_of_features_in_a_folder_or_of_a_pattern_are_one(here: Path) -> None:
    for folder in ("parts", "deep/test", "deep/train"):
        (here / folder).mkdir(parents=True)
        for number in range(2):
            columns = {"embedding": [[0.5, 1.0]], "f1": [0.5], "label": [number]}
            pyarrow.parquet.write_table(pyarrow.table(columns), here / folder / f"{number}.parquet")
    for given in ("parts", "parts/*.parquet", "deep"):
        data = data_of(find_target(given))
        assert (data["name"], data["file"]) == ("features", given)
    data = data_of(find_target("parts", ["data.feature_columns=f*"]))
    assert (data["name"], data["feature_columns"]) == ("features", "f*")
    with pytest.raises(ConfigError, match=r": 0\.parquet has embedding, f1, label\. Name .*data\.feature_columns\.$"):
        find_target("parts", ["data.feature_columns=g*"])


def test_a_pattern_may_name_images(here: Path) -> None:
    (here / "parts").mkdir()
    columns = {"image": [{"bytes": b"1", "path": None}], "label": [0]}
    pyarrow.parquet.write_table(pyarrow.table(columns), here / "parts" / "0.parquet")
    data = data_of(find_target("parts/*.parquet"))
    assert (data["name"], data["table"]) == ("table", "parts/*.parquet")


def test_arrays_and_settings_files(here: Path) -> None:
    (here / "x.npz").write_bytes(b"")
    assert data_of(find_target("x.npz"))["file"] == "x.npz"
    (here / "mine.yaml").write_text("{}")
    assert find_target("mine.yaml") == ("mine.yaml", [])


def test_a_run_keeps_its_settings(here: Path) -> None:
    (here / "run").mkdir()
    (here / "run" / "config.yaml").write_text("{}")
    assert find_target("run") == RunFolder(Path("run"))
    for options in ({"overrides": ["train.epochs=1"]}, {"root": "x"}):
        with pytest.raises(ConfigError, match="settings are fixed"):
            find_target("run", **options)


@pytest.mark.parametrize(
    ("what", "message"),
    [("colour_mnist/vae", "Did you mean 'color_mnist/vae'"), ("./nothing", "There is no file or folder"),
     ("notes.txt", "cannot be audited: give a folder")],
)  # fmt: skip
def test_what_is_neither_is_refused(here: Path, what: str, message: str) -> None:
    (here / "notes.txt").write_text("mine")
    with pytest.raises(ConfigError, match=message):
        find_target(what)
