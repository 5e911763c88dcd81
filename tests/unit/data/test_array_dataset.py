"""Your own arrays: .npz files, tables of features, and what is refused."""

from __future__ import annotations

import io
import pickle
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from sitar.config import section_config
from sitar.data import load_data
from sitar.data.own_data.feature_table import Features, FeaturesConfig
from sitar.data.own_data.npz import Npz, NpzConfig
from sitar.data.splitting import check_leakage
from sitar.errors import ConfigError, DataError

N = 120
RANDOM = np.random.default_rng(5)
X = RANDOM.normal(size=(N, 6))
Y = np.arange(N) % 3


def npz(path: Path, **arrays: Any) -> str:
    np.savez(path / "data.npz", **arrays)
    return str(path / "data.npz")


def rows(data: Any) -> np.ndarray:
    """All inputs of a dataset, whatever the split."""
    return torch.cat([data.train.x, *(split.x for split in data.evaluation.values())]).numpy()


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, np.int64, np.uint8, np.bool_])
def test_features_of_any_number_type_are_float32(dtype: type, tmp_path: Path) -> None:
    x = (X * 20).astype(dtype)
    data = load_data(NpzConfig(file=npz(tmp_path, x=x, y=Y)))
    assert data.train.x.dtype == torch.float32
    assert data.task.shape == (6,)
    assert [len(data.train), len(data.evaluation["val"]), len(data.evaluation["test"])] == [84, 12, 24]
    np.testing.assert_array_equal(np.sort(rows(data), axis=0), np.sort(x.astype(np.float32), axis=0))
    batch = data.train.batch(torch.arange(5))
    torch.testing.assert_close(batch.x, data.train.x[:5])  # not divided by 255


def test_features_keep_their_labels(tmp_path: Path) -> None:
    """Each row carries its own number, so that a shift between inputs and labels would show."""
    x = np.repeat(np.arange(N, dtype=np.float32)[:, None], 2, axis=1)
    words = np.array(["cat", "dog", "eel"])[Y]
    data = load_data(NpzConfig(file=npz(tmp_path, x=x, y=words)))
    assert data.classes == ("cat", "dog", "eel")
    for split in (data.train, *data.evaluation.values()):
        assert (split.x[:, 0].long() % 3 == split.y).all()


def test_whole_numbers_are_in_their_own_order(tmp_path: Path) -> None:
    y = np.arange(N) % 12
    data = load_data(NpzConfig(file=npz(tmp_path, x=X, y=y)))
    assert data.classes == tuple(map(str, range(12)))


def test_given_splits_groups_and_patients(tmp_path: Path) -> None:
    y = np.arange(N) % 2
    site = np.where(np.arange(N) % 10 == 0, 1 - y, y)
    patient = np.arange(N) // 4
    split = np.where(patient < 20, "train", "test")
    names = {"split_key": "split", "attribute_key": "site", "split_by_key": "patient"}
    config = NpzConfig(file=npz(tmp_path, x=X, y=y, site=site, patient=patient, split=split), **names)
    samples = Npz.samples(config)
    check_leakage(samples.split, patient.astype(str), "patient")
    assert ((samples.split == "test") == (split == "test")).all()
    assert set(samples.split) == {"train", "val", "test"}
    assert samples.group_names[1] == "label=0,site=1"
    data = load_data(config)
    assert data.train_groups is not None
    assert data.evaluation["test"].group is not None
    strict = load_data(config.model_copy(update={"majority_only": True}))
    assert len(strict.train) < len(data.train)
    kept = Npz.samples(config.model_copy(update={"majority_only": True}))
    expected = X.astype(np.float32)[kept.files[kept.split == "train"]]
    np.testing.assert_array_equal(strict.train.x.numpy(), expected)
    assert (y == site)[kept.files[kept.split != "test"]].all()
    half = Npz.samples(config.model_copy(update={"rho": 0.5}))
    assert (y == site)[half.files[half.split == "train"]].mean() == pytest.approx(0.5, abs=0.1)
    with pytest.raises(DataError, match="more than one split"):
        Npz.samples(NpzConfig(file=npz(tmp_path, x=X, y=y, patient=np.arange(N) % 40, split=split, site=site), **names))


GRAY = RANDOM.integers(0, 256, (N, 8, 9), dtype=np.uint8)
COLOR = RANDOM.integers(0, 256, (N, 3, 8, 9), dtype=np.uint8)


@pytest.mark.parametrize(
    ("x", "expected"),
    [
        (GRAY, GRAY[:, None]),
        (COLOR, COLOR),
        (COLOR.transpose(0, 2, 3, 1), COLOR),
        ((COLOR / 255).astype(np.float64), (COLOR / 255).astype(np.float32)),
        ((GRAY / 255).astype(np.float16), (GRAY / 255).astype(np.float16).astype(np.float32)[:, None]),
    ],
)
def test_images(x: np.ndarray, expected: np.ndarray, tmp_path: Path) -> None:
    config = NpzConfig(file=npz(tmp_path, x=x, y=Y))
    data, samples = load_data(config), Npz.samples(config)
    assert data.train.x.numpy().dtype == expected.dtype
    np.testing.assert_array_equal(data.train.x.numpy(), expected[samples.split == "train"])


def test_which_axis_is_the_channels_may_be_said(tmp_path: Path) -> None:
    many = RANDOM.integers(0, 256, (N, 7, 8, 9), dtype=np.uint8)
    file = npz(tmp_path, x=many, y=Y)
    with pytest.raises(DataError, match=r"which axis is the channels.*data\.channels"):
        Npz.samples(NpzConfig(file=file))
    assert load_data(NpzConfig(file=file, channels="first")).task.shape == (7, 8, 9)
    assert load_data(NpzConfig(file=file, channels="last")).task.shape == (9, 7, 8)
    tiny = npz(tmp_path, x=many[:, :3, :, :4], y=Y)
    with pytest.raises(DataError, match="which axis is the channels"):
        Npz.samples(NpzConfig(file=tiny))


def changed(value: float, *places: int) -> np.ndarray:
    x = X.copy()
    x[list(places), 2] = value
    return x


@pytest.mark.parametrize(
    ("arrays", "reason"),
    [
        ({"x": X}, "no array 'y'. It has: x"),
        ({"X": X, "y": Y}, "no array 'x'.*It has: X, y"),
        ({"x": X, "y": Y[:-1]}, "'y' has 119 values and 'x' has 120 rows"),
        ({"x": X, "y": np.eye(3)[Y]}, r"'y' has the shape \(120, 3\)"),
        ({"x": X, "y": Y / 2}, "'y' holds float64: expected whole numbers or words"),
        ({"x": X, "y": np.array(["a", 1] * 60, dtype=object)}, "'y' of .* holds Python objects"),
        ({"x": X.astype(object), "y": Y}, "'x' of .* holds Python objects"),
        ({"x": X.astype(str), "y": Y}, "'x' holds <U.*features are numbers"),
        ({"x": X.astype(complex), "y": Y}, "'x' holds complex128"),
        ({"x": X[:, 0], "y": Y}, r"'x' has the shape \(120,\)"),
        ({"x": X[:, :0], "y": Y}, r"'x' has the shape \(120, 0\)"),
        ({"x": X.reshape(N, 1, 1, 2, 3), "y": Y}, r"'x' has the shape \(120, 1, 1, 2, 3\)"),
        ({"x": changed(np.nan, 7, 30), "y": Y}, "2 of 120 samples have features.*first is sample 8 "),
        ({"x": changed(-np.inf, 3), "y": Y}, "1 of 120 samples have features"),
        ({"x": changed(1e300, 3), "y": Y}, "1 of 120 samples have features"),
        ({"x": GRAY.astype(np.int64), "y": Y}, "images as int64: give uint8"),
        ({"x": GRAY.astype(np.uint16), "y": Y}, "images as uint16: give uint8"),
        ({"x": GRAY.astype(np.float32), "y": Y}, "floats from 0 to 255"),
        ({"x": GRAY / 255 - 0.5, "y": Y}, "floats from -0.5 to 0.5"),
        ({"x": np.where(GRAY == 9, np.nan, 0.5), "y": Y}, "floats from nan to nan"),
        ({"x": X, "y": np.zeros(N, dtype=int)}, "one class"),
        ({"x": X, "y": np.arange(N)}, "120 classes for 120 samples"),
        ({"x": X, "y": np.where(Y == 0, "", "a")}, "40 of 120 samples have no value in 'y'"),
    ],
)
def test_arrays_that_are_refused(arrays: dict[str, Any], reason: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=reason):
        Npz.samples(NpzConfig(file=npz(tmp_path, **arrays)))


def array_bytes() -> bytes:
    buffer = io.BytesIO()
    np.savez_compressed(buffer, x=X, y=Y)
    return buffer.getvalue()


def damaged(content: bytes) -> bytes:
    return content[:300] + bytes(200) + content[500:]


def one_array() -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, X)
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "cannot be read as an .npz file"),
        (b"hello there", "cannot be read as an .npz file"),
        (array_bytes()[:200], "cannot be read as an .npz file"),
        (damaged(array_bytes()), "array 'x' of .* is damaged"),
        (pickle.dumps({"x": 1}), "cannot be read as an .npz file"),
        (one_array(), "is one array"),
    ],
)
def test_files_that_are_no_npz(content: bytes, reason: str, tmp_path: Path) -> None:
    (tmp_path / "data.npz").write_bytes(content)
    with pytest.raises(DataError, match=reason):
        Npz.samples(NpzConfig(file=str(tmp_path / "data.npz")))


def test_where_the_file_is_asked(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"needs data\.file: a NumPy \.npz file"):
        Npz.samples(NpzConfig())
    with pytest.raises(DataError, match="is not a file"):
        Npz.samples(NpzConfig(file=str(tmp_path / "parts-*.npz")))
    with pytest.raises(DataError, match=r"is a folder\. Join its parts into one file: a NumPy"):
        Npz.samples(NpzConfig(file=str(tmp_path)))


def test_another_file_has_another_checksum(tmp_path: Path) -> None:
    first = load_data(NpzConfig(file=npz(tmp_path, x=X, y=Y))).checksum
    assert load_data(NpzConfig(file=npz(tmp_path, x=X, y=Y))).checksum == first
    assert load_data(NpzConfig(file=npz(tmp_path, x=X + 1, y=Y))).checksum != first
    assert len(first) == 64


def write(path: Path, columns: dict[str, Any]) -> str:
    """A table of either kind."""
    if path.suffix == ".parquet":
        pq.write_table(pa.table(columns), path)
    else:
        lines = [",".join(columns), *(",".join(map(str, row)) for row in zip(*columns.values(), strict=True))]
        path.write_text("\n".join(lines) + "\n")
    return str(path)


def wide() -> dict[str, Any]:
    return {"label": np.array(["a", "b"])[np.arange(N) % 2], "site": np.arange(N) // 2 % 2,
            **{f"f{i}": X[:, i].astype(np.float32) for i in range(6)}}  # fmt: skip


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_features_in_a_column_each(suffix: str, tmp_path: Path) -> None:
    file = write(tmp_path / f"table.{suffix}", wide())
    config = FeaturesConfig(file=file, feature_columns="f*", attribute_column="site")
    data, samples = load_data(config), Features.samples(config)
    assert data.classes == ("a", "b")
    assert samples.group_names[3] == "label=1,site=1"
    np.testing.assert_array_equal(data.train.x.numpy(), X.astype(np.float32)[samples.split == "train"])
    two = FeaturesConfig(file=file, feature_columns=("f4", "f1"), attribute_column="site")
    np.testing.assert_array_equal(
        load_data(two).train.x.numpy(), X.astype(np.float32)[samples.split == "train"][:, [4, 1]]
    )
    everything = load_data(FeaturesConfig(file=file, feature_columns="*", attribute_column="site"))
    assert everything.task.shape == (6,)  # neither the label nor the site
    assert section_config("data", {"name": "features", "feature_columns": ["f1", "f2"]}) is not None


@pytest.mark.parametrize("kind", [pa.list_(pa.float32()), pa.list_(pa.float64(), 6), pa.large_list(pa.float16())])
def test_a_column_of_embeddings(kind: pa.DataType, tmp_path: Path) -> None:
    values = X.astype(kind.value_type.to_pandas_dtype())
    table = {"embedding": pa.array(list(values), type=kind), "label": wide()["label"]}
    config = FeaturesConfig(file=write(tmp_path / "table.parquet", table))
    data, samples = load_data(config), Features.samples(config)
    np.testing.assert_array_equal(data.train.x.numpy(), values.astype(np.float32)[samples.split == "train"])


@pytest.mark.parametrize("name", ["", "Unnamed: 0", "__index_level_0__"])
def test_row_numbers_are_no_features(name: str, tmp_path: Path) -> None:
    file = write(tmp_path / "table.csv", {name: np.arange(N), **wide()})
    assert load_data(FeaturesConfig(file=file, feature_columns="*", attribute_column="site")).task.shape == (6,)


@pytest.mark.parametrize(
    ("table", "options", "error", "reason"),
    [
        (wide(), {}, DataError, r"no column 'embedding' for features.*data\.feature_columns.*It has: label, site, f0"),
        (wide(), {"feature_columns": "g*"}, DataError, "no column 'g"),
        (wide(), {"feature_columns": ["f1", "label"]}, ConfigError, "names 'label', which is no feature"),
        (wide(), {"feature_columns": "f*", "label_column": "lable"}, DataError, "Did you mean 'label'"),
        (wide() | {"f2": ["x"] * 3 + [1.0] * (N - 3)}, {"feature_columns": "f*"}, DataError,
         "3 of 120 values of the column 'f2' are no numbers, such as 'x'"),
        (wide() | {"f2": [""] * 2 + [1.0] * (N - 2)}, {"feature_columns": "f*"}, DataError,
         "2 of 120 samples have features that are missing.*'f2', the first is sample 1 "),
    ],
)  # fmt: skip
def test_tables_of_features_that_are_refused(
    table: dict[str, Any], options: dict[str, Any], error: type[Exception], reason: str, tmp_path: Path
) -> None:
    with pytest.raises(error, match=reason):
        Features.load(FeaturesConfig(file=write(tmp_path / "table.csv", table), **options))


@pytest.mark.parametrize(
    ("column", "reason"),
    [
        (pa.array([[1.0, 2.0]] * (N - 1) + [[1.0]]), "have the lengths 2, 1: every sample needs as many"),
        (pa.array([[1.0, 2.0]] * (N - 1) + [None]), "1 of 120 samples .* missing.* the first is sample 120"),
        (pa.array([None] * N, type=pa.list_(pa.float32())), "have the lengths none at all"),
        (
            pa.array([[1.0, 2.0]] * 70 + [None] * (N - 70), type=pa.list_(pa.float32(), 2)),
            r"a row without a list in 'embedding', near row 71 \(counted from 1\).* Remove the row",
        ),
        (pa.array([[]] * N, type=pa.list_(pa.float32())), "have the lengths 0"),
        (pa.array([[1.0, None]] + [[1.0, 2.0]] * (N - 1)), "1 of 120 samples have features that are missing"),
        (pa.array([1, None] * (N // 2)), "60 of 120 samples have features that are missing"),
        (pa.array([["a"]] * N), "'embedding' holds string, not numbers"),
        (pa.array(["a"] * N), "'embedding' holds string, not numbers"),
    ],
)
def test_embeddings_that_are_refused(column: pa.Array, reason: str, tmp_path: Path) -> None:
    table = {"embedding": column, "label": wide()["label"]}
    with pytest.raises(DataError, match=reason):
        Features.load(FeaturesConfig(file=write(tmp_path / "table.parquet", table)))


def test_parquet_without_its_package_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write(tmp_path / "table.parquet", wide())
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(ConfigError, match=r'pip install "sitar\[parquet\]"'):
        Features.samples(FeaturesConfig(file=file))


def test_other_kinds_of_tables_are_refused(tmp_path: Path) -> None:
    (tmp_path / "table.xlsx").write_bytes(b"")
    with pytest.raises(ConfigError, match=r"neither \.csv nor \.parquet"):
        Features.samples(FeaturesConfig(file=str(tmp_path / "table.xlsx")))
    (tmp_path / "cut.parquet").write_bytes(b"PAR1 and not more")
    with pytest.raises(DataError, match="cannot be read"):
        Features.samples(FeaturesConfig(file=str(tmp_path / "cut.parquet")))
