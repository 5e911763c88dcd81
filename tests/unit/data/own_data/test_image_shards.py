"""Images within Parquet files, as Hugging Face's `datasets` writes them, are data like images in files."""

from __future__ import annotations

import csv
import io
import json
import os
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from helpers.cli import sitar, sitar_error
from helpers.made_data import STRUCT
from helpers.made_data import image as png
from sitar.data import load_data
from sitar.data.inputs import Form, input_windows, read_inputs
from sitar.data.own_data.table import TableConfig, TableOfImages
from sitar.errors import ConfigError, DataError
from sitar.images import parquet
from sitar.images.bit_depth import BadImageError
from sitar.images.files import Files
from sitar.images.remote import RemoteFile
from sitar.testing.datasets import assert_same_data

pytestmark = pytest.mark.usefixtures("cache")

N = 60
LABEL = [("cat", "dog")[i % 3 == 0] for i in range(N)]
PLACE = [("north", "south")[i // 2 % 2] for i in range(N)]
PATIENT = [f"p{i // 3}" for i in range(N)]
SPLIT = [("train", "train", "train", "train", "val", "test")[i // 6 % 6] for i in range(N)]
COLUMNS = {"label": LABEL, "place": PLACE, "patient": PATIENT, "split": SPLIT}
Column = Callable[[list[bytes]], pa.Array]


def struct(content: list[bytes]) -> pa.Array:
    return pa.array([{"bytes": one, "path": "a.png"} for one in content], STRUCT)


def plain(content: list[bytes]) -> pa.Array:
    return pa.array(content, pa.binary())


def shard(path: Path, rows: range, images: Column = struct, name: str = "image", **columns: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    said: dict[str, Any] = {key: [values[i] for i in rows] for key, values in COLUMNS.items()} | columns
    table = pa.table({name: images([png(i) for i in rows])} | {key: said[key] for key in said if said[key] is not None})
    pq.write_table(table, path, row_group_size=7)
    return path


def classes(path: Path, names: list[str] | None) -> None:
    """Write whole numbers for the labels and, as `datasets` does, the names that they stand for."""
    table = pq.read_table(path)
    numbers = [sorted(set(LABEL)).index(word) for word in table.column("label").to_pylist()]
    table = table.set_column(table.column_names.index("label"), "label", pa.array(numbers, pa.int64()))
    if names is not None:
        notes = {"info": {"features": {"label": {"names": names, "_type": "ClassLabel"}}}}
        table = table.replace_schema_metadata({"huggingface": json.dumps(notes)})
    pq.write_table(table, path, row_group_size=7)


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    for number, rows in enumerate((range(25), range(25, 26), range(26, N))):
        shard(tmp_path / "shards" / f"part-{number}.parquet", rows)
    return tmp_path / "shards"


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """The same images in files, with a table of them."""
    (tmp_path / "files").mkdir()
    with (tmp_path / "files" / "table.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["path", *COLUMNS])
        for i in range(N):
            (tmp_path / "files" / f"{i:03}.png").write_bytes(png(i))
            writer.writerow([f"{i:03}.png", *(values[i] for values in COLUMNS.values())])
    return tmp_path / "files"


def config(root: Path | None = None, **settings: Any) -> TableConfig:
    return TableConfig(root=None if root is None else str(root), image_size=12, **settings)


@pytest.mark.parametrize(
    "settings",
    [{}, {"split_column": "split", "attribute_column": "place"}, {"split_by": "patient"}],
)
def test_images_in_shards_are_the_same_data_as_in_files(settings: dict[str, str], shards: Path, files: Path) -> None:
    expected = load_data(config(files, **settings))
    assert_same_data(load_data(config(shards, **settings)), expected)
    one = shard(shards.parent / "one" / "all.parquet", range(N), plain, "picture")
    assert_same_data(load_data(config(one.parent, image_column="picture", **settings)), expected)


@pytest.mark.parametrize("given", ["shards", "shards/", "shards/*.parquet", "**/part-*.parquet"])
def test_a_table_may_name_shards_by_folder_or_pattern(given: str, shards: Path, monkeypatch: Any) -> None:
    expected = load_data(config(shards))
    assert_same_data(load_data(config(table=f"{shards.parent}/{given}")), expected)
    monkeypatch.chdir(shards.parent)
    assert_same_data(load_data(config(table=given)), expected)
    assert len(list(Path(os.environ["SITAR_CACHE"]).iterdir())) == 1, "decoded once, however they are named"
    assert_same_data(load_data(config(shards.parent, table=given)), expected)


def test_a_run_on_shards_has_the_weights_of_one_on_files(shards: Path, files: Path, tmp_path: Path) -> None:
    """Also where training reads the images from the mapped array, and not from memory."""
    small = ["data.image_size=12", "model.channels=[4]", "model.hidden=8", "train.epochs=2", "train.least_steps=0",
             "data.split_column=split", "data.attribute_column=place"]  # fmt: skip
    options = [word for setting in small for word in ("--set", setting)]

    def weights(out: str, root: Path) -> bytes:
        sitar(
            "train",
            "table/sitar_best",
            *options,
            "--set",
            f"data.root={root}",
            "--quiet",
            "--out",
            tmp_path / "runs" / out,
        )
        return (tmp_path / "runs" / out / "checkpoint/model.safetensors").read_bytes()

    expected = weights("files", files)
    assert weights("shards", shards) == expected
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sitar.data.rows.HELD", 0)
        assert weights("mapped", shards) == expected

    def predicted(*given: Path) -> list[dict[str, str]]:
        sitar("predict", tmp_path / "runs" / "files", *given, "--out", tmp_path / "p.csv", "--quiet")
        with (tmp_path / "p.csv").open(newline="") as file:
            return list(csv.DictReader(file))

    of_files = predicted(files)
    rows = [f"part-0.parquet/{i:07}" for i in range(25)] + ["part-1.parquet/0000000"]
    rows += [f"part-2.parquet/{i:07}" for i in range(N - 26)]
    for given in ([shards], sorted(shards.iterdir())):
        of_shards = predicted(*given)
        assert [row.pop("name") for row in of_shards] == rows
        assert of_shards == [{key: row[key] for key in row if key != "name"} for row in of_files]
    assert [row["name"] for row in predicted(shards / "part-1.parquet")] == ["part-1.parquet/0000000"]


def test_new_images_in_shards_are_read_in_windows_and_at_once(shards: Path) -> None:
    form = Form(config(), (3, 12, 12))
    whole = read_inputs(f"{shards}/*.parquet", form)
    assert len(whole) == N
    assert whole.files is None
    total, windows = input_windows(shards, form, 16)
    assert total == N
    read = [(window.names, window.x.numpy().copy()) for window in windows]
    assert [name for names, _ in read for name in names] == whole.names
    np.testing.assert_array_equal(np.concatenate([x for _, x in read]), whole.x[:].numpy())


def test_numbers_that_name_classes_are_read_as_names(shards: Path) -> None:
    expected = TableOfImages.samples(config(shards, attribute_column="place"))
    for path in shards.iterdir():
        classes(path, ["cat", "dog"])
    samples = TableOfImages.samples(config(shards, attribute_column="place"))
    assert samples.classes == ("cat", "dog")
    assert samples.counts() == expected.counts()
    (first, *_) = sorted(shards.iterdir())
    shard(first, range(25))
    classes(first, ["cat"])
    with pytest.raises(DataError, match=r"part-0.parquet' has the class 1 in 'label', in row 1 .*names 1 classes"):
        TableOfImages.samples(config(shards))
    shard(first, range(25))
    classes(first, None)
    with pytest.raises(DataError, match=r"part-1.parquet' names the classes of its column 'label', and files before"):
        TableOfImages.samples(config(shards))
    for path in shards.iterdir():
        rows = {"part-0.parquet": range(25), "part-1.parquet": range(25, 26)}.get(path.name, range(26, N))
        shard(path, rows)
        classes(path, None)
    assert TableOfImages.samples(config(shards)).classes == ("0", "1")


def test_labels_that_are_missing_are_counted(shards: Path) -> None:
    shard(shards / "part-1.parquet", range(25, 26), label=pa.array([None], pa.string()))
    with pytest.raises(DataError, match=r"1 of 60 samples have no value in 'label', the first is sample 26 "):
        TableOfImages.samples(config(shards))
    for number, rows in enumerate((range(25), range(25, 26), range(26, N))):
        path = shard(shards / f"part-{number}.parquet", rows)
        notes = {"info": {"features": {"label": {"names": ["cat", "dog"]}}}}
        table = pq.read_table(path)
        table = table.set_column(1, "label", pa.array([-1 if i == 30 else i % 2 for i in rows], pa.int64()))
        pq.write_table(table.replace_schema_metadata({"huggingface": json.dumps(notes)}), path)
    with pytest.raises(DataError, match=r"1 of 60 samples have no value in 'label', the first is sample 31 "):
        TableOfImages.samples(config(shards))


@pytest.mark.parametrize(
    "notes", [b"", b"[", b"[1]", b"{}", b'{"info": 3}', b"[" * 9000, b'{"info": {"features": {"label": {"names": 3}}}}']
)
def test_notes_that_say_nothing_leave_numbers_as_they_are(notes: bytes, shards: Path) -> None:
    for path in shards.iterdir():
        classes(path, None)
        pq.write_table(pq.read_table(path).replace_schema_metadata({b"huggingface": notes}), path)
    assert TableOfImages.samples(config(shards)).classes == ("0", "1")


def test_names_of_files_may_say_the_split(tmp_path: Path) -> None:
    parts = {"train-00000-of-00002": range(20), "train-00001-of-00002": range(20, 40)}
    parts |= {"validation-00000-of-00001": range(40, 46), "test-00000-of-00001": range(46, N)}
    for name, rows in parts.items():
        shard(tmp_path / "hub" / "data" / f"{name}.parquet", rows)
    (tmp_path / "hub" / "README.md").write_text("# A data set")
    samples = TableOfImages.samples(config(tmp_path / "hub"))
    assert {split: len(rows) for split, rows in samples.splits().items()} == {"train": 40, "val": 6, "test": 14}
    (tmp_path / "hub" / "data" / "train-00000-of-00002.parquet").unlink()
    with pytest.raises(DataError, match=r"1 of the 2 Parquet files .*train-\* are missing"):
        TableOfImages.samples(config(tmp_path / "hub"))


def test_an_image_that_cannot_be_read_is_named_by_file_and_row(shards: Path, caplog: Any) -> None:
    bad = [b"no image", None, png(32)[:40], png(33)]
    rows = [{"bytes": one, "path": "scans/9.png"} for one in bad]
    shard(shards / "part-3.parquet", range(4), lambda _: pa.array(rows, STRUCT))
    with pytest.raises(DataError, match=r"3 of 64 images cannot be used") as raised:
        load_data(config(shards))
    message = str(raised.value)
    assert "part-3.parquet/0000000: no image, or of a kind" in message
    assert "part-3.parquet/0000001: its row holds no image, only the path 'scans/9.png': save the bytes" in message
    assert "part-3.parquet/0000002: " in message
    data = load_data(config(shards, on_bad="skip"))
    assert len(data.train) + sum(map(len, data.evaluation.values())) == N + 1
    assert f"3 of 64 images of the data set in {str(shards)!r} are left out" in caplog.text


def test_metadata_has_the_other_columns_and_no_images(shards: Path) -> None:
    for path in shards.iterdir():
        table = pq.read_table(path)
        pq.write_table(table.append_column("mask", table.column("image")), path)
    metadata = TableOfImages.metadata(config(shards))
    assert sorted(metadata.columns) == ["patient", "place", "split"]
    assert list(metadata.columns["place"]) == PLACE
    assert len(metadata.files) == N


def test_what_cannot_be_used_is_said(shards: Path, tmp_path: Path) -> None:
    def refused(kind: type[Exception] = DataError, words: str = "", root: Path | None = shards, **more: Any) -> None:
        with pytest.raises(kind, match=words):
            TableOfImages.samples(config(root, **more))

    refused(words="has no column 'finding'.* It has: image, label", label_column="finding")
    refused(ConfigError, "'image' holds images, and says nothing else", label_column="image")
    refused(words=r"There is no table 'none/\*.parquet'", table="none/*.parquet")
    refused(words="needs data.root", root=None)
    (tmp_path / "empty").mkdir()
    refused(words=r"has 0 .csv or .parquet files", root=tmp_path / "empty")
    refused(words="is not a folder", root=tmp_path / "nowhere")
    (tmp_path / "other" / "x").mkdir(parents=True)
    shard(tmp_path / "other" / "a.parquet", range(9), name="img")
    refused(words=r"no column 'image' with images, and no .*'path'.* images in 'img': --set data.image_column=img",
            root=tmp_path / "other")  # fmt: skip
    shard(shards / "part-9.parquet", range(9), place=None)
    refused(words=r"part-9.parquet' has no column 'place', and .*part-0.parquet' has")
    shard(shards / "part-9.parquet", range(9), lambda content: pa.array(["a.png"] * 9))
    refused(words=r"'image' holds bytes in .*part-0.parquet', and text in .*part-9.parquet'")
    (shards / "part-9.parquet").write_bytes((shards / "part-0.parquet").read_bytes())
    refused(words=r"part-0.parquet' and .*part-9.parquet' are the same")
    (shards / "part-9.parquet").write_bytes(b"PAR1")
    refused(words=r"part-9.parquet' cannot be read: it is no Parquet file")


def test_a_folder_of_shards_sends_to_the_data_set_that_reads_them(shards: Path) -> None:
    assert "Parquet files that hold images are read by the data set 'table'" in sitar_error(
        "data", "check", "folder", "--root", shards
    )


def test_a_table_of_paths_may_lie_in_many_files(files: Path) -> None:
    expected = load_data(config(files))
    lines = (files / "table.csv").read_text().splitlines()
    (files / "table.csv").unlink()
    (files / "parts").mkdir()
    for number, rows in enumerate((lines[1:20], lines[20:])):
        (files / "parts" / f"{number}.csv").write_text("\n".join([lines[0], *rows]) + "\n")
    assert_same_data(load_data(config(files, table="parts")), expected)


def test_two_columns_of_images_have_caches_of_their_own(shards: Path) -> None:
    for path in shards.iterdir():
        table = pq.read_table(path)
        other = pa.array([{"bytes": png(i + 500), "path": None} for i in range(len(table))], STRUCT)
        pq.write_table(table.append_column("other", other), path, row_group_size=7)
    one, two = load_data(config(shards)), load_data(config(shards, image_column="other"))
    assert one.checksum != two.checksum


def test_one_file_is_open_at_a_time(shards: Path) -> None:
    files = TableOfImages.files(config(shards))
    for name in TableOfImages.samples(config(shards)).files.tolist():
        files.read(name)
        assert sum(shard._file is not None for shard in files.shards.values()) == 1


def test_a_row_that_is_not_there_spoils_no_other(shards: Path) -> None:
    one = parquet.Shard(shards / "part-2.parquet")
    assert one.read(20) == png(46)
    with pytest.raises(BadImageError, match="fewer rows"):
        one.read(10**6)
    assert one.read(3) == png(29)


class Faulty:
    """A file on another host, which once does not answer."""

    def __init__(self, path: Path) -> None:
        self.file, self.fails = io.BytesIO(path.read_bytes()), 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)

    def read(self, *size: int) -> bytes:
        self.fails -= 1
        if self.fails == 0:
            raise TimeoutError("no answer")
        return self.file.read(*size)


def test_a_host_that_does_not_answer_makes_no_image_a_bad_one(shards: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is kept as a bad image is missing for good, and the next try may work."""
    file = Faulty(shards / "part-2.parquet")
    remote = RemoteFile(None, "part-2.parquet", "s3://bucket/part-2.parquet")
    monkeypatch.setattr(RemoteFile, "open", lambda self: file)
    one = parquet.Shard(remote)
    assert one.read(0) == png(26)
    file.fails = 1
    with pytest.raises(DataError, match=r"part-2\.parquet' cannot be read further: no answer"):
        one.read(20)
    assert one.read(20) == png(46)


def test_a_shard_that_takes_the_place_of_another_is_decoded(shards: Path) -> None:
    """Also if it has the size and the time of the other."""
    path = shards / "part-0.parquet"
    before, status = Files([], shards={"a": path}).stamp("a/0"), path.stat()
    path.write_bytes(path.read_bytes())
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert path.stat().st_mtime_ns == status.st_mtime_ns
    assert Files([], shards={"a": path}).stamp("a/0") != before


def test_a_small_file_of_large_images_takes_little_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of kilobytes can repeat one image of many megabytes in every row: 64 of them were read at once."""
    large = bytes(2**22)
    same = pa.DictionaryArray.from_arrays(pa.array([0] * 200, pa.int32()), pa.array([large], pa.binary()))
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"image": same}), path, compression="zstd", dictionary_pagesize_limit=2**30,
                   store_schema=False)  # fmt: skip
    assert path.stat().st_size < 10_000
    monkeypatch.setattr(parquet, "AT_ONCE", 2**24)
    files = Files([], shards={"x": path})
    assert files.read("x/0000150") == large
    (shard,) = files.shards.values()
    assert len(shard._rows) == 3, "the whole of what it has, over what may be read at once"
    monkeypatch.setattr("sitar.images.files.MOST", 2**21)
    with pytest.raises(ValueError, match=r"4,194,304 bytes, where at most 2,097,152 are read of an image"):
        files.read("x/0000151")


@pytest.mark.skipif(sys.platform == "win32", reason="paths of POSIX")
def test_shards_on_another_machine(shards: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in of s3fs, which also the processes that decode can import, reads a folder as if it were a bucket."""
    expected = load_data(config(shards))
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "s3fs.py").write_text(
        textwrap.dedent(f"""
            from fsspec.implementations.dirfs import DirFileSystem
            from fsspec.implementations.local import LocalFileSystem

            __version__ = "9999"

            class S3FileSystem(DirFileSystem):
                protocol = "s3"

                def __init__(self, **options):
                    super().__init__(path={str(tmp_path)!r}, fs=LocalFileSystem())

                @classmethod
                def _strip_protocol(cls, path):
                    return path.removeprefix("s3://").strip("/")

                def ukey(self, path):
                    return str(self.info(path)["mtime"])
        """)
    )
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    entries = [str(tmp_path / "site"), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(entries))
    for given in ("s3://shards", "s3://shards/*.parquet"):
        assert_same_data(load_data(config(table=given)), expected)
    with pytest.raises(DataError, match=r"There is no table 's3://nothing'"):
        load_data(config(table="s3://nothing"))
