"""The benchmarks in the layouts in which people have them: the same samples come out of each, bad ones are named."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from helpers.cli import sitar
from helpers.made_data import (
    SIZE,
    STRUCT,
    N,
    bird,
    birds_in_folder,
    camelyon17_parquet,
    camelyon17_wilds,
    celeba_kaggle,
    celeba_original,
    celeba_parquet,
    celeba_parquet_numbers,
    celeba_wilds,
    image,
    in_csv,
    md5_of_lists,
    shard,
    waterbirds_original,
    waterbirds_parquet,
    waterbirds_wilds,
    write,
)
from sitar.data import Data, load_data
from sitar.data.benchmarks.camelyon17 import Camelyon17, Camelyon17Config
from sitar.data.benchmarks.celeba import MD5, CelebA, CelebAConfig
from sitar.data.benchmarks.waterbirds import Waterbirds, WaterbirdsConfig
from sitar.errors import ConfigError, DataError
from sitar.images.decode import BadImageError, decode
from sitar.images.files import Files, read_text
from sitar.images.parquet import Shard, find_shards, row_name

LAYOUTS = {
    "original": (waterbirds_original, Waterbirds, "original"),
    "wilds": (waterbirds_wilds, Waterbirds, "WILDS folder"),
    "parquet": (waterbirds_parquet, Waterbirds, "Hugging Face Parquet"),
    "celeba": (celeba_original, CelebA, "original"),
    "celeba wilds": (celeba_wilds, CelebA, "WILDS folder"),
    "celeba kaggle": (celeba_kaggle, CelebA, "WILDS folder"),
    "celeba parquet": (celeba_parquet, CelebA, "Hugging Face Parquet"),
    "celeba parquet numbers": (celeba_parquet_numbers, CelebA, "Hugging Face Parquet"),
    "camelyon17": (camelyon17_wilds, Camelyon17, "WILDS folder"),
    "camelyon17 parquet": (camelyon17_parquet, Camelyon17, "Hugging Face Parquet"),
}


@pytest.fixture
def root(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder. What our makers write there as CelebA's lists is taken for them."""
    for name, md5 in md5_of_lists().items():
        monkeypatch.setitem(MD5, name, md5)
    folder = tmp_path / "data"
    folder.mkdir()
    return folder


def samples(data: Data) -> dict[str, list[tuple[bytes, int, int]]]:
    """Pixels, label and group of every sample of every split, in an order that does not depend on names."""
    assert data.train_groups is not None
    splits = {"train": (data.train.x, data.train.y, data.train_groups.group)}
    for name, split in data.evaluation.items():
        assert split.group is not None
        splits[name] = (split.x, split.y, split.group)
    return {
        name: sorted((x.numpy().tobytes(), int(y), int(group)) for x, y, group in zip(*split, strict=True))
        for name, split in splits.items()
    }


def expected(dataset: type) -> dict[str, list[tuple[bytes, int, int]]]:
    """What the made-up samples are, without any reader."""
    found: dict[str, list[tuple[bytes, int, int]]] = {}
    for i in range(N):
        pixels = decode(image(i), (SIZE, SIZE)).tobytes()
        if dataset is Camelyon17:
            sample, seen = (pixels, i % 2, 5 * (i % 2) + i % 5), "val" if i % 4 == 3 else "train"
            homes = {1: ["val_ood", "ood_test"], 2: ["test", "ood_test"]}.get(i % 5, [seen])
        else:
            sample = (pixels, i % 2, 2 * (i % 2) + i // 2 % 2)
            homes = [("train", "val", "test")[i * 3 // N]]
        for home in homes:
            found.setdefault(home, []).append(sample)
    return {name: sorted(split) for name, split in found.items()}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_same_samples_come_out_of_every_layout(layout: str, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build, dataset, name = LAYOUTS[layout]
    config = build(root)
    assert dataset.layout_of(config) == name
    assert samples(load_data(config)) == expected(dataset)


@pytest.mark.parametrize("layout", [name for name, (_, dataset, _) in LAYOUTS.items() if dataset is CelebA])
def test_an_audit_reads_every_attribute_but_the_label(layout: str, root: Path) -> None:
    config = LAYOUTS[layout][0](root)
    metadata, table = CelebA.metadata(config), CelebA.samples(config)
    assert list(metadata.files) == list(table.files)
    assert set(metadata.columns) == {"Male", "Bald", "Smiling", "Attractive"}
    assert table.attribute is not None
    assert metadata.columns["Male"] == [table.attribute_values[value] for value in table.attribute]
    assert set(metadata.columns["Bald"]) == {"not Bald"}


def test_severity_works_on_parquet(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = waterbirds_parquet(root).model_copy(update={"majority_only": True})
    train = Waterbirds.samples(config).counts()["train"]
    assert train["label=0,place=1"] == train["label=1,place=0"] == 0 < train["label=0,place=0"]


def test_hospitals_are_reported_alone_and_together(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = camelyon17_wilds(root)
    counts = Camelyon17.samples(config).counts()
    assert list(counts["ood_test"].values()) == [0, 4, 4, 0, 0, 0, 4, 4, 0, 0]
    for name, hospital in (("val_ood", 1), ("test", 2)):
        assert {group for group, n in counts[name].items() if n} == {f"label={y},center={hospital}" for y in (0, 1)}
    seen = {group[-1] for name in ("train", "val") for group, n in counts[name].items() if n}
    assert seen == {"0", "3", "4"}
    published = Camelyon17.published(config)
    assert published is not None
    assert {split: sizes["total"] for split, sizes in published.items()} == {
        "train": 302_436, "val": 33_560, "val_ood": 34_904, "test": 85_054, "ood_test": 34_904 + 85_054,
    }  # fmt: skip
    assert sum(published[split]["total"] for split in ("train", "val", "val_ood", "test")) == 455_954
    data = load_data(config)
    assert data.train_groups is not None
    assert set(data.train_groups.environment.tolist()) == {0, 3, 4}


@pytest.mark.parametrize("row_group_size", [1, 7, 50])
@pytest.mark.parametrize("bare", [False, True])
def test_rows_are_read_in_any_order(
    bare: bool, row_group_size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sitar.images.parquet.ROWS", 3)
    path = tmp_path / "train.parquet"
    if bare:
        table = pyarrow.table({"image": pyarrow.array([image(i) for i in range(20)], pyarrow.binary())})
        pyarrow.parquet.write_table(table, path, row_group_size=row_group_size)
    else:
        shard(path, list(range(20)), {}, row_group_size)
    for order in (range(20), range(19, -1, -1), [0, 19, 3, 4, 2, 18, 5, 5]):
        rows = Shard(path)
        for i in order:
            assert rows.read(i) == image(i), i
    files = Files([], shards={"train.parquet": path})
    assert files.read(row_name("train.parquet", 11)) == image(11)
    before = files.stamp(row_name("train.parquet", 11))
    os.utime(path, ns=(1, 1))
    assert Files([], shards={"train.parquet": path}).stamp(row_name("train.parquet", 11)) != before


def test_only_a_few_rows_are_in_memory(tmp_path: Path) -> None:
    """A shard of one row group, as some tools write it."""
    table = pyarrow.table({"image": pyarrow.array([bytes([i % 256]) * 50_000 for i in range(2000)], pyarrow.binary())})
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet", row_group_size=2000, compression="none",
                                use_dictionary=False)  # fmt: skip
    del table
    rows, before = Shard(tmp_path / "a.parquet"), pyarrow.total_allocated_bytes()
    most = 0
    for i in range(2000):
        assert rows.read(i)[:1] == bytes([i % 256])
        most = max(most, pyarrow.total_allocated_bytes() - before)
    assert most < 10e6, f"{most:,} of 100 MB are held"


def test_shards_are_found_and_counted(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = waterbirds_parquet(root)
    assert len(find_shards(root)) == 6
    (root / "data" / "train-00001-of-00002.parquet").unlink()
    with pytest.raises(DataError, match=r"1 of the 2 Parquet files data/train-\* are missing.*number 1"):
        Waterbirds.samples(config)


def test_hidden_folders_hold_no_data(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hugging Face's own client keeps what it downloads in .cache."""
    config = waterbirds_parquet(root)
    before = Waterbirds.samples(config).counts()
    shard(root / ".cache" / "huggingface" / "train.parquet", [90, 91], {"label": [0, 1], "place": [0, 1]})
    shard(root / "data" / ".train-00000-of-00007.parquet", [92], {"label": [0], "place": [0]})
    assert len(find_shards(root)) == 6
    assert Waterbirds.samples(config).counts() == before
    write(root / ".trash" / "metadata.csv", "img_filename,y,split,place\na.jpg,0,0,0\n")
    assert Waterbirds.layout_of(config) == "Hugging Face Parquet"


def test_two_copies_of_the_shards_are_refused(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = waterbirds_parquet(root)
    shard(root / "default" / "Validation" / "0000.parquet", [14, 15], {"label": [0, 1], "place": [1, 1]})
    with pytest.raises(DataError, match=r"split 'val' lie in '.*/data' and in '.*/default/Validation': two copies"):
        Waterbirds.samples(config)


@pytest.mark.parametrize("name", ["train-copy.parquet", "test-00001-of-00003.parquet"])
def test_one_shard_under_two_names_is_refused(name: str, root: Path) -> None:
    shard(root / "train.parquet", [0, 1], {"label": [0, 1], "place": [0, 1]})
    shard(root / "test-00000-of-00003.parquet", [2, 3], {"label": [0, 1], "place": [0, 1]})
    shard(root / "test-00001-of-00003.parquet", [4, 5], {"label": [0, 1], "place": [0, 1]})
    shard(root / "test-00002-of-00003.parquet", [6, 7], {"label": [0, 1], "place": [0, 1]})
    assert len(Waterbirds.samples(WaterbirdsConfig(root=str(root)))) == 8
    write(root / name, (root / "train.parquet").read_bytes())
    with pytest.raises(DataError, match=r"files '.*' and '.*' are the same: their images would count twice") as error:
        Waterbirds.samples(WaterbirdsConfig(root=str(root)))
    assert name in str(error.value)
    assert "train.parquet" in str(error.value)


def test_splits_by_folder(root: Path) -> None:
    """As Hugging Face's own conversion names them: default/train/0000.parquet."""
    for split, members in {"train": [0, 1, 2, 3], "validation": [4, 5], "test": [6, 7]}.items():
        columns = {"label": [i % 2 for i in members], "place": [0] * len(members)}
        shard(root / "default" / split / "0000.parquet", members, columns)
    counts = Waterbirds.samples(WaterbirdsConfig(root=str(root))).counts()
    assert {split: sum(groups.values()) for split, groups in counts.items()} == {"test": 2, "train": 4, "val": 2}


def test_parquet_that_cannot_be_used_is_named(root: Path) -> None:
    config = WaterbirdsConfig(root=str(root))
    path = root / "train.parquet"
    shard(path, [0, 1], {"label": [0, 1]})
    with pytest.raises(DataError, match=r"has no column 'place'\..* It has: image, label"):
        Waterbirds.samples(config)
    shard(path, [0, 1], {"label": [0, 7], "place": [0, None]})
    with pytest.raises(DataError, match=r"1 of 2 values of 'label'.*none of 0, 1, such as '7' of sample 2"):
        Waterbirds.samples(config)
    shard(path, [0, 1], {"label": [0, 1], "place": [0, None]})
    with pytest.raises(DataError, match=r"1 of 2 values of 'place'.*such as '' of sample 2"):
        Waterbirds.samples(config)
    pyarrow.parquet.write_table(pyarrow.table({"image": ["a.jpg"], "label": [0], "place": [0]}), path)
    with pytest.raises(DataError, match=r"'image'.*holds string"):
        Waterbirds.samples(config)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(DataError, match=r"train\.parquet' cannot be read: it is no Parquet file, or was cut"):
        Waterbirds.samples(config)
    path.rename(root / "id_train.parquet")
    shard(root / "id_train.parquet", [0, 1], {"label": [0, 1], "place": [0, 1]})
    with pytest.raises(DataError, match="words that name no split, such as 'id_train'"):
        Waterbirds.samples(config)


def test_bad_rows_are_named_and_counted(root: Path) -> None:
    images = [{"bytes": image(0), "path": "0.png"}, {"bytes": None, "path": "1.png"}, {"bytes": b"no", "path": "2.png"}]
    columns = {"image": pyarrow.array(images, STRUCT), "label": [0, 1, 1], "place": [0, 1, 1]}
    pyarrow.parquet.write_table(pyarrow.table(columns), root / "train.parquet")
    config = WaterbirdsConfig(root=str(root), image_size=SIZE)
    with pytest.raises(DataError, match=r"2 of 3 images.*train\.parquet/0000001: its row holds no image, only"):
        load_data(config)
    _, cached = Waterbirds.prepare(config.model_copy(update={"on_bad": "skip"}))
    assert set(cached.bad) == {"train.parquet/0000001", "train.parquet/0000002"}


def test_a_damaged_page_is_a_bad_image(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    shard(path, list(range(30)), {}, row_group_size=10)
    content = bytearray(path.read_bytes())
    middle = pyarrow.parquet.ParquetFile(path).metadata.row_group(1).column(0).data_page_offset
    content[middle : middle + 200] = bytes(200)
    path.write_bytes(bytes(content))
    rows = Shard(path)
    assert rows.read(3) == image(3)
    with pytest.raises(BadImageError, match="Parquet file is damaged"):
        rows.read(12)
    assert rows.read(25) == image(25)


def test_parquet_without_pyarrow_says_what_to_install(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = waterbirds_parquet(root)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(ConfigError, match=r'pip install "sitar\[parquet\]"'):
        Waterbirds.samples(config)


def test_our_split_of_celeba_needs_names(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = celeba_parquet(root)
    with pytest.raises(ConfigError, match="first_10k goes by the names"):
        CelebA.samples(config.model_copy(update={"partition": "first_10k"}))
    with pytest.raises(DataError, match="has no column 'Blond_hair'"):
        CelebA.samples(config.model_copy(update={"label": "Blond_hair"}))


def test_a_changed_csv_of_celeba_is_refused(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = celeba_wilds(root)
    path = root / "celebA_v1.0" / "list_attr_celeba.csv"
    path.write_text(path.read_text().replace("000007.jpg,-1", "000007.jpg,1"))
    with pytest.raises(DataError, match=r"list_attr_celeba\.csv is not CelebA's"):
        CelebA.samples(config)


@pytest.mark.data
def test_the_real_lists_as_csv_files(test_data: Path, tmp_path: Path) -> None:
    """The checksums of the CSV files are those of the authors' lists, written as CSV."""
    lines = [line.split() for line in read_text(test_data / "celeba", "list_attr_celeba.txt").splitlines()]
    write(tmp_path / "list_attr_celeba.csv", in_csv(["image_id", *lines[1]], lines[2:]))
    lines = [line.split() for line in read_text(test_data / "celeba", "list_eval_partition.txt").splitlines()]
    write(tmp_path / "list_eval_partition.csv", in_csv(["image_id", "partition"], lines))
    config = CelebAConfig(root=str(tmp_path), majority_only=True)
    assert CelebA.layout_of(config) == "WILDS folder"
    assert CelebA.samples(config).counts() == CelebA.published(config)


@pytest.mark.parametrize(
    ("dataset", "line", "message"),
    [
        (Waterbirds, "1,a.jpg,0,3,0,x", r"1 of 2 values of 'split' in Waterbirds' metadata\.csv.*none of 0, 1, 2.*'3'"),
        (Waterbirds, "1,a.jpg,2,0,0,x", "values of 'y'.*such as '2' of sample 2"),
        (Waterbirds, "1,a.jpg,0,0,-1,x", "values of 'place'.*such as '-1'"),
        (
            Waterbirds,
            "1,a.jpg,0",
            r"Waterbirds' metadata\.csv has 1 lines with .*fewer cells than its head, which has 6; .*first is line 3",
        ),
        (Camelyon17, "1,004,4,3328,1,1,0,5,0", "values of 'center'.*none of 0, 1, 2, 3, 4, such as '5'"),
        (Camelyon17, "1,004,4,3328,1,1,0,3,2", "values of 'split'.*such as '2'"),
        (Camelyon17, "1,004,4,3328,1,yes,0,3,0", "values of 'tumor'.*such as 'yes'"),
        (Waterbirds, "1,../a.jpg,0,0,0,x", r"In Waterbirds' metadata\.csv 1 paths lead out.*'\.\./a\.jpg'"),
        (Waterbirds, "1,/a.jpg,0,0,0,x", "1 paths lead out of data.root, such as '/a.jpg'"),
        (Waterbirds, "1,,0,0,0,x", "1 paths are empty"),
        (Waterbirds, "1,c/../b.jpg,0,2,0,x", r"1 file is in Waterbirds' metadata\.csv more than once.*'b\.jpg'"),
        (Camelyon17, "1,a/../../../..,4,3328,1,1,0,4,0", r"In Camelyon17's metadata\.csv 1 paths lead out"),
        (Camelyon17, "1,004,4,3328,0,1,0,1,0", r"1 file is in Camelyon17's metadata\.csv more than once"),
    ],
)
def test_strange_values_are_named(dataset: Any, line: str, message: str, root: Path) -> None:
    heads = {
        Waterbirds: "img_id,img_filename,y,split,place,place_filename\n0,b.jpg,0,0,0,x\n",
        Camelyon17: ",patient,node,x_coord,y_coord,tumor,slide,center,split\n0,004,4,3328,0,1,0,4,0\n",
    }
    (root / "metadata.csv").write_text(heads[dataset] + line + "\n")
    with pytest.raises(DataError, match=message):
        dataset.samples(dataset.Config(root=str(root)))


def test_metadata_of_another_dataset_or_of_nothing(root: Path) -> None:
    birds_in_folder(root)
    with pytest.raises(DataError, match="has no column 'patient', 'node', 'x_coord', 'y_coord', 'tumor', 'center'"):
        Camelyon17.samples(Camelyon17Config(root=str(root)))
    (root / "metadata.csv").write_text("img_filename,y,split,place\n")
    with pytest.raises(DataError, match="no lines below its head"):
        Waterbirds.samples(WaterbirdsConfig(root=str(root)))
    (root / "metadata.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DataError, match=r"metadata\.csv' is damaged"):
        Waterbirds.samples(WaterbirdsConfig(root=str(root)))


def test_half_an_archive_is_named(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = celeba_original(root)
    archive = root / "img_align_celeba.zip"
    content = archive.read_bytes()
    archive.write_bytes(content[: len(content) // 2])
    with pytest.raises(DataError, match=r"img_align_celeba\.zip' is no zip archive, or was cut"):
        CelebA.prepare(config)
    damaged = bytearray(content)
    damaged[200:260] = bytes(60)
    archive.write_bytes(bytes(damaged))
    with pytest.raises(DataError, match=r"1 of 40 images.*000001\.jpg: the zip archive is damaged here"):
        CelebA.prepare(config)
    (root / "list_attr_celeba.txt").rename(root / "list_attr_celeba.txt.gz")
    with pytest.raises(DataError, match=r"list_attr_celeba\.txt\.gz' is damaged"):
        CelebA.samples(config)


def test_empty_folders_say_how_to_get_the_files(root: Path) -> None:
    with pytest.raises(DataError, match=r"no files of Waterbirds.*sitar data prepare waterbirds --root DIR.*by hand"):
        Waterbirds.samples(WaterbirdsConfig(root=str(root)))
    for dataset in (CelebA, Camelyon17):
        with pytest.raises(DataError, match=r"No host gives them.*by hand: .*huggingface\.co/datasets"):
            dataset.samples(dataset.Config(root=str(root)))
    with pytest.raises(DataError, match=r"is not a folder.*sitar data prepare waterbirds"):
        Waterbirds.samples(WaterbirdsConfig(root=str(root / "nowhere")))


def test_the_command_line_says_which_layout_it_found(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    camelyon17_parquet(root)
    report = json.loads(sitar("data", "check", "camelyon17", "--root", root, "--json", expect=1).stdout)
    assert report["layout"] == "Hugging Face Parquet"
    assert report["agrees"] is False
    assert report["counts"]["ood_test"]["total"] == 16
    table = sitar("data", "check", "camelyon17", "--root", root, expect=1).stdout
    assert "layout: Hugging Face Parquet" in table
    assert "16 (119,958)" in table
    done = sitar("data", "prepare", "camelyon17", "--root", root, "--set", "image_size=8")
    assert "40 images ready, 0 left out" in done.stdout


@pytest.mark.data
def test_check_agrees_with_what_is_published(test_data: Path) -> None:
    report = json.loads(sitar("data", "check", "waterbirds", "--root", test_data / "waterbirds", "--json").stdout)
    assert report["agrees"] is True
    assert report["layout"] == "original"


def test_half_a_copy_is_said_once(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waterbirds_original(root)
    done = sitar("data", "prepare", "waterbirds", "--root", root, "--set", "image_size=8")
    (line,) = [line for line in done.stderr.splitlines() if "WARNING" in line]
    assert "train 14 (published 4,795), val 13 (published 1,199), test 13 (published 5,794)" in line
    assert f"`sitar data check waterbirds --root {root}` shows every group" in line
    table = sitar("data", "check", "waterbirds", "--root", root, expect=1).stdout
    assert "14 (4,795)" in table
    assert "some differ" in table
    done = sitar("data", "prepare", "waterbirds", "--root", root, "--set", "image_size=8", "--set", "rho=0.5")
    assert "published" not in done.stderr
    assert done.stderr.count("data.rho = 0.5 keeps") == 1


def test_a_declared_subset_is_no_half_copy(
    root: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    config = celeba_original(root)
    load_data(config)
    assert caplog.text.count("CelebA has other counts than published. In total: train 14 (published 162,770)") == 1
    caplog.clear()
    monkeypatch.setattr("sitar.data.benchmarks.celeba.FIRST_10K", N)
    load_data(config.model_copy(update={"partition": "first_10k"}))
    assert "published" not in caplog.text


def test_on_bad_is_an_option(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waterbirds_original(root)
    (root / "waterbird_complete95_forest2water2" / bird(4)).write_bytes(b"")
    call = ["data", "prepare", "waterbirds", "--root", root, "--set", "image_size=8"]
    assert "1 of 40 images" in sitar(*call, expect=2).stderr
    assert "1 of 40 images" in sitar(*call, "--on-bad", "fail", expect=2).stderr
    done = sitar(*call, "--on-bad", "skip")
    assert "39 images ready, 1 left out" in done.stdout
    assert f"left out: {bird(4)}: the file is empty" in done.stderr
    report = json.loads(sitar(*call, "--on-bad", "skip", "--json").stdout)
    assert (report["ready"], report["left_out"], report["bad"]) == (39, 1, {bird(4): "the file is empty"})
    assert "data.on_bad = 'maybe' is not allowed" in sitar(*call, "--on-bad", "maybe", expect=2).stderr


def test_list_names_licence_and_citation() -> None:
    found = json.loads(sitar("data", "list", "--json").stdout)
    for name in ("celeba", "waterbirds", "camelyon17", "bar", "color_mnist"):
        assert all(found[name][key] for key in ("files", "licence", "citation", "homepage")), name
    assert {name for name, about in found.items() if about["downloads"]} == {"bar", "waterbirds"}
    table = sitar("data", "list").stdout
    assert "CC0" in table
    assert "Sagawa" in table
