"""A table in many files is read as one, and files that do not fit each other are named."""

from __future__ import annotations

import glob
import logging
import time
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sitar.data import load_data
from sitar.data.own_data.feature_table import Features, FeaturesConfig
from sitar.data.shards import find_files, find_tables
from sitar.errors import ConfigError, DataError, SitarError
from sitar.testing.datasets import assert_same_data

N = 120
RANDOM = np.random.default_rng(3)
X = RANDOM.normal(size=(N, 6)).astype(np.float32)
LABEL = np.array(["a", "b"])[np.arange(N) % 2]
SITE = np.arange(N) // 2 % 2


def table(rows: slice = slice(None), x: np.ndarray = X, **columns: Any) -> pa.Table:
    embedding = pa.FixedSizeListArray.from_arrays(pa.array(x[rows].ravel()), x.shape[1])
    return pa.table({"embedding": embedding, "label": LABEL[rows], "site": SITE[rows]} | columns)


def write(folder: Path, parts: dict[str, pa.Table]) -> Path:
    for name, part in parts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(part, folder / name, row_group_size=17)
    return folder


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    """Three files with the rows of one."""
    ends = [0, 50, 51, N]
    parts = {f"part-{i}.parquet": table(slice(*ends[i : i + 2])) for i in range(3)}
    write(tmp_path, {"whole.parquet": table()})
    return write(tmp_path / "shards", parts)


def config(file: Path | str, **settings: Any) -> FeaturesConfig:
    return FeaturesConfig(file=str(file), attribute_column="site", **settings)


@pytest.mark.parametrize(
    "given", ["shards", "shards/", "shards/*.parquet", "shards/part-?.parquet", "**/part-*.parquet"]
)
def test_shards_are_the_table_that_they_are_parts_of(given: str, shards: Path) -> None:
    whole = load_data(config(shards.parent / "whole.parquet"))
    data = load_data(config(f"{shards.parent}/{given}"))
    for name, split in {"train": data.train, **data.evaluation}.items():
        other = whole.train if name == "train" else whole.evaluation[name]
        np.testing.assert_array_equal(split.x.numpy(), other.x.numpy())
        np.testing.assert_array_equal(split.y.numpy(), other.y.numpy())
    metadata = Features.metadata(config(f"{shards.parent}/{given}"))
    assert list(metadata.columns) == ["site"]
    assert list(metadata.columns["site"]) == [str(value) for value in SITE]


def test_csv_files_are_shards_too(tmp_path: Path) -> None:
    for i in range(2):
        rows = [f"{X[r, 0]},{X[r, 1]},{LABEL[r]}" for r in range(60 * i, 60 * i + 60)]
        (tmp_path / f"{i}.csv").write_text("\n".join(["f0,f1,label", *rows]) + "\n")
    data = load_data(FeaturesConfig(file=str(tmp_path), feature_columns="f*"))
    samples = Features.samples(FeaturesConfig(file=str(tmp_path), feature_columns="f*"))
    np.testing.assert_array_equal(data.train.x.numpy(), X[samples.split == "train"][:, :2])


def test_a_file_system_elsewhere(shards: Path) -> None:
    """`memory://` is a real file system of fsspec, which reads as hf:// and s3:// do."""
    memory = fsspec.filesystem("memory")
    for file in shards.iterdir():
        memory.pipe_file(f"/bucket/shards/{file.name}", file.read_bytes())
    try:
        here = load_data(config(shards))
        for given in ("memory://bucket/shards", "memory://bucket/shards/*.parquet"):
            assert_same_data(load_data(config(given)), here)
        with pytest.raises(DataError, match=r"'memory://bucket/none/.*': it is not a file"):
            Features.samples(config("memory://bucket/none/*.parquet"))
    finally:
        memory.rm("/bucket", recursive=True)


def test_a_place_that_cannot_be_reached_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="nothing here knows nonsense://"):
        Features.samples(config("nonsense://a/b.parquet"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(DataError, match=r"'hf://datasets/a/b/.*' cannot be reached: .*Is there a network"):
        Features.samples(config("hf://datasets/a/b/*.parquet"))


def test_the_names_of_files_may_say_the_split(tmp_path: Path) -> None:
    names = {"train-00000-of-00002.parquet": (0, 40), "train-00001-of-00002.parquet": (40, 80),
             "validation-00000-of-00001.parquet": (80, 100), "test-00000-of-00001.parquet": (100, N)}  # fmt: skip
    write(tmp_path / "hub", {name: table(slice(*rows)) for name, rows in names.items()})
    counts = {split: len(rows) for split, rows in Features.samples(config(tmp_path / "hub")).splits().items()}
    assert counts == {"train": 80, "val": 20, "test": 20}
    write(tmp_path / "one", {"train-0.parquet": table(slice(0, 50)), "train-1.parquet": table(slice(50, N))})
    counts = {split: len(rows) for split, rows in Features.samples(config(tmp_path / "one")).splits().items()}
    assert counts == {"train": 84, "val": 12, "test": 24}  # only one split is named, so one is made


def test_an_empty_file_is_left_out_and_said(shards: Path, caplog: pytest.LogCaptureFixture) -> None:
    before = load_data(config(shards))
    write(shards, {"part-9.parquet": table(slice(0, 0))})
    with caplog.at_level(logging.WARNING):
        after = load_data(config(shards))
    assert_same_data(before, after)
    assert "part-9.parquet' has no rows, and is left out" in caplog.text


def test_a_label_or_a_split_that_is_no_such_word_is_told_with_its_file_and_row(shards: Path) -> None:
    files = {"part-0.parquet": ["train"] * 50, "part-1.parquet": ["test"], "part-2.parquet": ["val"] * 69}
    for first, last, word in ((4, 9, "holdout"), (9, 10, "later")):
        files["part-2.parquet"][first:last] = [word] * (last - first)
    for start, (name, split) in zip((0, 50, 51), files.items(), strict=True):
        write(shards, {name: table(slice(start, start + len(split)), split=split)})
    strange = r"2 words that name no split, such as 'holdout' \(5\), 'later' \(1\); the first is sample 56 .*"
    with pytest.raises(DataError, match=strange + r"in row 5 of '.*part-2\.parquet'"):
        Features.samples(config(shards, split_column="split"))
    label = [None if row == 7 else "a" for row in range(69)]
    write(shards, {"part-2.parquet": table(slice(51, N), label=label, split=["val"] * 69)})
    with pytest.raises(
        DataError, match=r"no value in 'label', the first is sample 59 .*in row 8 of '.*part-2\.parquet'"
    ):
        Features.samples(config(shards))


@pytest.mark.parametrize(
    ("words", "used", "warned"),
    [(["train", "Test"], False, True), (["train", "Test"], True, False), (["train"], False, False),
     (["train", "first"], False, False), (["train", ""], False, False)],
)  # fmt: skip
def test_a_split_that_is_not_used_is_warned_of(
    words: list[str], used: bool, warned: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    split = (words * N)[:N]
    write(tmp_path, {"whole.parquet": table(split=split, label=LABEL[np.arange(N) // 2])})
    Features.samples(config(tmp_path / "whole.parquet", split_column="split" if used else None))
    said = "has a column 'split' that holds train, test. It is not used"
    assert (said in caplog.text) == warned
    assert ("not used" in caplog.text) == warned


def test_a_column_may_be_called_as_a_pattern_is(tmp_path: Path) -> None:
    (tmp_path / "f.csv").write_text("f[0],f0,label\n" + "".join(f"{r},0,{'ab'[r % 2]}\n" for r in range(20)))
    data = load_data(FeaturesConfig(file=str(tmp_path / "f.csv"), feature_columns=("f[0]", "f0")))
    assert data.feature_columns == ("f[0]", "f0")


def test_files_with_numbers_of_other_types_are_one_table(shards: Path) -> None:
    write(shards, {"part-2.parquet": table(slice(51, N), x=X.astype(np.float16))})
    data = load_data(config(shards))
    assert str(data.train.x.dtype) == "torch.float32"
    write(shards, {"part-0.parquet": table(slice(50), x=X.astype(np.float16))})
    write(shards, {"part-1.parquet": table(slice(50, 51), x=X.astype(np.float16))})
    assert str(load_data(config(shards)).train.x.dtype) == "torch.float16"


def test_all_files_with_rows_that_cannot_be_used_are_named(shards: Path) -> None:
    flawed = np.where(X[3, 2] == X, np.nan, X)
    write(shards, {"q.parquet": table(slice(5), x=flawed), "r.parquet": table(slice(2, 9), x=flawed)})
    reason = (
        r"first is sample 4 .*q\.parquet'\. So have others: the table .*r\.parquet' \(1 of 7, the first is sample 2\)\."
    )
    with pytest.raises(DataError, match=reason):
        load_data(config(shards))


def test_a_class_that_only_one_file_has_is_a_class(shards: Path) -> None:
    write(shards, {"part-1.parquet": table(slice(50, 60), label=["c"] * 10)})
    assert Features.samples(config(shards, seed=1)).classes == ("a", "b", "c")


FLOATS = pa.array(SITE[:5].astype(float))


@pytest.mark.parametrize(
    ("name", "part", "error", "reason"),
    [
        ("q.parquet", table(slice(5)).drop_columns("site"), DataError, "q.parquet' has no column 'site', and .*part-0"),
        ("q.parquet", table(slice(5), extra=[1] * 5), DataError, "part-0.parquet' has no column 'extra', and .*q.parq"),
        ("q.parquet", table(slice(5), x=X[:, :4]), DataError, "q.parquet' has 4 features in a row.* before have 6"),
        ("q.parquet", table(slice(5), site=FLOATS), DataError, "'site' holds whole numbers in .*, and floats in .*q.p"),
        ("q.parquet", table(slice(5), embedding=pa.array([[1.0] * 6] * 4 + [None])), DataError,
         "1 of 5 samples .* missing.* the first is sample 5 .*q.parquet"),
        ("q.parquet", table(slice(5), x=np.where(X[3, 2] == X, np.nan, X)), DataError,
         "1 of 5 samples .* NaN .*'embedding', the first is sample 4 .*q.parquet"),
        ("q.parquet", table(slice(50)), DataError, "q.parquet' has the same numbers as the table '.*part-0.parquet'"),
        ("q.parquet", None, DataError, "q.parquet' cannot be read: it is no Parquet file, or was cut"),
        ("p.csv", "label,site\na,1\n", DataError, r"names files that end in \.csv, \.parquet. Name one kind"),
        ("part-00000-of-00002.parquet", table(slice(5)), DataError, "1 of the 2 Parquet files part-.* are missing"),
    ],
)  # fmt: skip
def test_shards_that_are_refused(name: str, part: Any, error: type[Exception], reason: str, shards: Path) -> None:
    if isinstance(part, str):
        (shards / name).write_text(part)
    elif part is None:
        (shards / name).write_bytes((shards / "part-0.parquet").read_bytes()[:-200])
    else:
        write(shards, {name: part})
    with pytest.raises(error, match=reason):
        load_data(config(shards))


def test_a_damaged_page_is_an_error_of_ours(shards: Path) -> None:
    """Every byte of a shard in turn, some of them: our error, or numbers that are read."""
    file = shards / "part-0.parquet"
    whole = file.read_bytes()
    for place in range(0, len(whole), len(whole) // 60):
        file.write_bytes(whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :])
        try:
            load_data(config(shards))
        except SitarError:
            continue


@pytest.mark.parametrize("given", ["nothing", "nothing/*.parquet", "shards/*.csv", "empty"])
def test_what_matches_nothing_is_said(given: str, shards: Path) -> None:
    (shards.parent / "empty").mkdir()
    with pytest.raises(DataError, match=r"There is no table .*: it is not a file, nor a folder"):
        Features.samples(config(shards.parent / given))


def test_files_that_are_all_empty(tmp_path: Path) -> None:
    write(tmp_path, {f"{i}.parquet": table(slice(0, 0)) for i in range(2)})
    with pytest.raises(DataError, match="all files are empty"):
        Features.samples(config(tmp_path))


def test_links_that_lead_in_circles_are_followed_once(shards: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("p", "q"):
        (shards / name).symlink_to(".")
    (shards.parent / "elsewhere").symlink_to("shards")
    began = time.process_time()
    files = [shards / f"part-{i}.parquet" for i in range(3)]
    for given in ("**/part-*.parquet", "sh*/**/*.parquet", "**/**/part-?.parquet", "shards/**/part-[0-2].parquet"):
        assert find_tables(f"{shards.parent}/{given}") == files
    monkeypatch.chdir(shards.parent)
    assert find_tables("**/part-0.parquet") == [Path("shards/part-0.parquet")]
    assert find_tables("elsewhere/**") == [Path("elsewhere") / file.name for file in files]
    assert time.process_time() - began < 2


@pytest.mark.parametrize(
    ("pattern", "fitting"),
    [
        ("**", ["a.csv", "x/b.csv", "x/y/a.csv"]),
        ("**/*.csv", ["a.csv", "x/b.csv", "x/y/a.csv"]),
        ("**/y/*", ["x/y/a.csv"]),
        ("x/**/a.csv", ["x/y/a.csv"]),
        ("**/x/**/*.csv", ["x/b.csv", "x/y/a.csv"]),
        ("*/**/a.csv", ["x/y/a.csv"]),
    ],
)
def test_a_pattern_finds_what_that_of_python_finds(
    pattern: str, fitting: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a.csv", "x/b.csv", "x/y/a.csv", ".hidden/a.csv", "x/.a.csv"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("label\na\n")
    monkeypatch.chdir(tmp_path)
    found = find_files(pattern)
    assert found == fitting
    assert found == sorted(one for one in glob.glob(pattern, recursive=True) if Path(one).is_file())
    assert find_files(f"{tmp_path}/{pattern}") == [f"{tmp_path}/{name}" for name in fitting]
