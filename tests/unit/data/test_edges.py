"""What is easily missed when data is read: names, places and splits that look like something else."""

from __future__ import annotations

import json
import logging
import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from sitar.cli.data import app as data_commands
from sitar.config import section_config
from sitar.data import load_data
from sitar.data.splitting import random_split
from sitar.errors import ConfigError, DataError
from sitar.images.cache import cached_images
from sitar.images.download import Download, fetch
from sitar.images.files import Files
from sitar.presets import load_config
from sitar.registry import DATASETS

pytestmark = pytest.mark.usefixtures("cache")


def picture(path: Path, value: int = 100) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (4, 4), (value, value, value)).save(path)


def folder(root: Path, *classes: str, n: int = 6) -> Path:
    for name in classes:
        for i in range(n):
            picture(root / name / f"{i}.png", 10 * i)
    return root


def settings(name: str, **values: Any) -> Any:
    return section_config("data", {"name": name, **values})


def samples(name: str, **values: Any) -> Any:
    return DATASETS.get(name).samples(settings(name, **values))  # type: ignore[attr-defined]


def test_an_archive_with_a_folder_of_its_own(tmp_path: Path) -> None:
    picture(tmp_path / "000001.png")
    with zipfile.ZipFile(tmp_path / "packed.zip", "w") as archive:
        archive.mkdir("img_align_celeba")
        archive.write(tmp_path / "000001.png", "img_align_celeba/000001.png")
    files = Files([], [tmp_path / "packed.zip"])
    assert files.read("000001.png") == (tmp_path / "000001.png").read_bytes()
    assert files.stamp("000001.png") == files.stamp("img_align_celeba/000001.png") != ""
    assert files.names() == ["img_align_celeba/000001.png"]
    cached = cached_images("packed", ["000001.png"], files, (4, 4))
    assert cached.good.all()


@pytest.mark.parametrize("other", ["evaluate/cat", "figures/plots"])
def test_splits_beside_something_else_are_not_classes(other: str, tmp_path: Path) -> None:
    folder(tmp_path, "train/cat", "train/dog", "test/cat", "test/dog", other)
    with pytest.raises(DataError, match=f"beside them '{other.split('/', maxsplit=1)[0]}'"):
        samples("folder", root=str(tmp_path))


def test_a_class_may_be_called_train(tmp_path: Path) -> None:
    folder(tmp_path, "train", "bus")
    assert samples("folder", root=str(tmp_path)).classes == ("bus", "train")


@pytest.mark.parametrize("setting", [{"majority_only": True}, {"rho": 0.9}])
@pytest.mark.parametrize("name", ["folder", "bar"])
def test_severity_is_refused_where_there_is_no_attribute(name: str, setting: dict, tmp_path: Path) -> None:
    if name == "bar":
        for split in ("train", "test"):
            for i in range(10):
                picture(tmp_path / split / f"climbing_{i}.png")
                picture(tmp_path / split / f"diving_{i}.png")
    else:
        folder(tmp_path, "cat", "dog")
    with pytest.raises(ConfigError, match=r"needs two classes and an attribute of two values.*no attribute"):
        samples(name, root=str(tmp_path), **setting)


@pytest.mark.parametrize(
    ("name", "setting", "reason"),
    [
        ("camelyon17", "majority_only", "needs an attribute of two values, .*Camelyon17 has five hospitals"),
        ("camelyon17", "rho", "needs an attribute of two values, .*Camelyon17 has five hospitals"),
        ("sites", "majority_only", r"needs an attribute of two values, .*five sites\. data\.rho"),
        ("color_mnist", "majority_only", r"data\.rho=1\.0 is the strict regime"),
    ],
)
def test_severity_is_refused_with_the_reason(name: str, setting: str, reason: str, tmp_path: Path) -> None:
    """Wherever the key is given: in settings of your own, in a file, or on top of a preset."""
    value = 0.9 if setting == "rho" else True
    reason = rf"data\.{setting} is not allowed with data\.name={name}: .*{reason}"
    with pytest.raises(ConfigError, match=reason):
        settings(name, **{setting: value})
    with pytest.raises(ConfigError, match=reason):
        load_config(f"{name}/erm", [f"data.{setting}={value}"])
    (tmp_path / "mine.yaml").write_text(f"data: {{name: {name}, {setting}: {value}}}\nmethod: {{name: erm}}\n")
    with pytest.raises(ConfigError, match=reason):
        load_config(str(tmp_path / "mine.yaml"))


def table(root: Path, rows: list[tuple[str, ...]], head: str = "path,label,split,attribute") -> Path:
    for row in rows:
        picture(root / row[0])
    (root / "table.csv").write_text("\n".join([head, *(",".join(row) for row in rows)]))
    return root


def contradicting_test(root: Path) -> Path:
    """In training 9 of 10 agree; the test is larger and says the opposite."""
    rows = []
    for i in range(20):
        label = i % 2
        rows.append((f"a{i}.png", str(label), "train", str(label if i >= 2 else 1 - label)))
    rows += [(f"v{i}.png", str(i % 2), "val", str(i % 2)) for i in range(8)]
    rows += [(f"t{i}.png", str(i % 2), "test", str(1 - i % 2)) for i in range(60)]
    return table(root, rows)


COLUMNS = {"split_column": "split", "attribute_column": "attribute"}


def test_the_shortcut_is_what_training_says(tmp_path: Path) -> None:
    found = samples("table", root=str(contradicting_test(tmp_path)), majority_only=True, **COLUMNS)
    assert (found.split == "train").sum() == 18
    assert (found.split == "test").sum() == 60


def test_a_split_that_rho_empties_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        samples("table", root=str(contradicting_test(tmp_path)), rho=0.5, **COLUMNS)
    for name in ("0", "1"):
        assert f"data.rho = 0.5 leaves none of the 4 samples of class '{name}' in val" in caplog.text


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ({"rho": 0.5}, "data.rho = 0.5 keeps 8 of 20 samples of train and 2 of 9 samples of val."),
        ({"majority_only": True}, "data.majority_only keeps 16 of 20 samples of train and 4 of 9 samples of val."),
    ],
)
def test_what_a_severity_leaves_out_is_said(
    setting: dict, says: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """In train 8 of 10 agree in both classes; in val class 1 always contradicts the shortcut."""
    rows = [(f"a{i}.png", str(i % 2), "train", str(i % 2 if i >= 4 else 1 - i % 2)) for i in range(20)]
    rows += [(f"v{i}.png", "0", "val", str(int(i == 4))) for i in range(5)]
    rows += [(f"w{i}.png", "1", "val", "0") for i in range(4)]
    rows += [(f"t{i}.png", str(i % 2), "test", str(i // 2 % 2)) for i in range(8)]
    with caplog.at_level(logging.INFO):
        found = samples("table", root=str(table(tmp_path, rows)), **setting, **COLUMNS)
    assert [record.getMessage() for record in caplog.records if record.levelno == logging.INFO] == [says]
    warnings = [record for record in caplog.records if record.levelno == logging.WARNING]
    (warning,) = [record.getMessage() for record in warnings if record.name == "sitar.data.severity"]
    assert "leaves none of the 4 samples of class '1' in val" in warning
    assert found.before == {"train": 20, "val": 9}
    options = [f"--set={key}={value}" for key, value in {**setting, **COLUMNS}.items()]
    done = CliRunner().invoke(data_commands, ["check", "table", "--root", str(tmp_path), "--json", *options])
    report = json.loads(done.stdout)
    kept = {split: report["counts"][split]["total"] for split in report["before"]}
    assert says.endswith(f" keeps {kept['train']} of 20 samples of train and {kept['val']} of 9 samples of val.")
    shown = CliRunner().invoke(data_commands, ["check", "table", "--root", str(tmp_path), *options]).stdout
    assert f"{kept['train']} of 20" in shown
    assert f"{kept['val']} of 9" in shown


def test_a_split_that_a_severity_empties_is_counted(tmp_path: Path) -> None:
    options = [f"--set={key}={value}" for key, value in {"rho": 0.5, **COLUMNS}.items()]
    root = contradicting_test(tmp_path)
    done = CliRunner().invoke(data_commands, ["check", "table", "--root", str(root), "--json", *options])
    report = json.loads(done.stdout)
    assert report["before"]["val"] == 8
    assert report["counts"]["val"]["total"] == 0


def test_other_labels_are_other_data(tmp_path: Path) -> None:
    root = contradicting_test(tmp_path)
    before = load_data(settings("table", root=str(root), image_size=4, **COLUMNS)).checksum
    text = (root / "table.csv").read_text()
    (root / "table.csv").write_text(text.replace("a19.png,1,", "a19.png,0,"))
    assert load_data(settings("table", root=str(root), image_size=4, **COLUMNS)).checksum != before


def test_equal_looking_files_elsewhere_are_other_files(tmp_path: Path) -> None:
    """Archives that are made to be reproducible set all times to one."""
    pixels = []
    for name, value in (("black", 0), ("white", 255)):
        path = tmp_path / name / "0.bmp"
        picture(path, value)
        os.utime(path, ns=(0, 0))
        pixels.append(cached_images("same", ["0.bmp"], Files([tmp_path / name]), (4, 4)).images.mean())
    assert pixels == [0, 255]


def test_names_of_any_bytes(tmp_path: Path) -> None:
    name = os.fsdecode(b"caf\xe9.png")
    picture(tmp_path / "plain.png")
    os.rename(tmp_path / "plain.png", tmp_path / name)
    assert cached_images("bytes", [name], Files([tmp_path]), (4, 4)).good.all()


def test_a_zero_byte_in_a_path(tmp_path: Path) -> None:
    (tmp_path / "table.csv").write_text("path,label\na\0b.png,x\nc.png,y\n")
    with pytest.raises(DataError, match="zero byte"):
        samples("table", root=str(tmp_path))


@pytest.mark.parametrize("file", ["images.npy", "index.json", "state.npy", "bad.json"])
def test_a_damaged_cache_is_named(file: str, tmp_path: Path) -> None:
    picture(tmp_path / "0.png")
    cached_images("d", ["0.png"], Files([tmp_path]), (4, 4))
    (path,) = (tmp_path / "cache").glob(f"*/{file}")
    path.write_bytes(path.read_bytes()[:1])
    with pytest.raises(DataError, match=r"is damaged.*made again"):
        cached_images("d", ["0.png"], Files([tmp_path]), (4, 4))


def test_left_out_images_of_sites_are_named(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(ConfigError, match="leave channels out"):
        settings("sites", channels=1)
    from sitar.images.cache import Cached
    from sitar.integrity import RowSums

    sums = RowSums(np.zeros(2, np.uint32), Path("images.npy"))

    with caplog.at_level(logging.WARNING):
        Cached(np.zeros((2, 3, 4, 4), np.uint8), np.array([True, False]), {"b.png": "empty"}, "", sums).warn("images")
    assert "1 of 2 images are left out, such as b.png: empty" in caplog.text


@pytest.mark.parametrize(("sites", "expected"), [(3, {"train", "val", "test"}), (4, {"train", "val", "test"})])
def test_few_sites_fill_every_split(sites: int, expected: set[str]) -> None:
    by = np.array([f"site {i % sites}" for i in range(120)])
    split = random_split(np.arange(120) % 2, by, 0.1, 0.2, 0)
    assert set(split) == expected
    assert all(len(set(split[by == value])) == 1 for value in set(by))


def test_too_few_sites_are_named(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        split = random_split(np.arange(120) % 2, np.array(["a", "b"] * 60), 0.1, 0.2, 0)
    assert "2 values to split by are too few for 3 splits" in caplog.text
    assert "train" in split


def test_npz_members_that_are_no_arrays(tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz", y=np.arange(4))
    with zipfile.ZipFile(tmp_path / "d.npz", "a") as archive:
        archive.writestr("x", "words")
    with pytest.raises(DataError, match=r"'x'.*no array of NumPy"):
        samples("npz", file=str(tmp_path / "d.npz"))


def test_features_must_be_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="feature_columns"):
        settings("features", feature_columns=[])


def test_missing_labels_of_parquet(tmp_path: Path) -> None:
    import pyarrow as pa
    from pyarrow.parquet import write_table

    columns = {"embedding": [[1.0, 2.0]] * 6, "label": [0.0, 1.0, float("nan"), 1.0, 0.0, 1.0]}
    write_table(pa.table(columns), tmp_path / "t.parquet")
    with pytest.raises(DataError, match="1 of 6 samples have no value in 'label'"):
        samples("features", file=str(tmp_path / "t.parquet"))


def test_an_archive_in_the_folder_is_verified(tmp_path: Path) -> None:
    (tmp_path / "a.tar.gz").write_bytes(b"of somebody else")
    download = Download("a.tar.gz", ("http://127.0.0.1:9/a.tar.gz",), sha256="0" * 64)
    with pytest.raises(DataError, match="the one in the folder: its sha256"):
        fetch(download, tmp_path, timeout=2)


def test_data_that_ships_with_the_package_is_checked_too() -> None:
    sizes = ["--set=train_size=300", "--set=eval_size=100"]
    for name, groups in (("color_mnist", 4), ("sites", 10)):
        done = CliRunner().invoke(data_commands, ["check", name, "--json", *sizes])
        assert done.exit_code == 0, done.exception
        report = json.loads(done.stdout)
        assert (report["paper"], report["agrees"], report["layout"]) == (None, None, None)
        totals = {split: counts["total"] for split, counts in report["counts"].items()}
        assert totals == {"train": 300, "val": 100, "val_ood": 100, "id_test": 100, "ood_test": 100}
        assert all(len(counts) == groups + 1 for counts in report["counts"].values())
    shown = CliRunner().invoke(data_commands, ["check", "color_mnist", *sizes]).stdout
    assert "label 0: digits 0-4, 1: digits 5-9; color 0: green, 1: red" in shown


def test_a_preparation_warns_of_images_that_use_little_of_their_range(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for i in range(20):
        image = Image.fromarray(np.arange(960, 1216, dtype=np.uint16).reshape(16, 16))
        (tmp_path / "ab"[i % 2]).mkdir(exist_ok=True)
        image.save(tmp_path / "ab"[i % 2] / f"{i}.png")
    done = CliRunner().invoke(data_commands, ["prepare", "folder", "--root", str(tmp_path)])
    assert "20 images ready" in done.stdout
    assert "20 of 20 images have more than eight bits and use less than a tenth of their range" in caplog.text


@pytest.mark.parametrize("name", ["color_mnist", "sites"])
def test_there_is_nothing_to_prepare_without_image_files(name: str) -> None:
    done = CliRunner().invoke(data_commands, ["prepare", name])
    assert isinstance(done.exception, ConfigError)
    assert f"{name} has no image files: there is nothing to prepare" in str(done.exception)
