"""`sitar predict`: new inputs in, a row for each out, in their order, without the training data."""

from __future__ import annotations

import csv
import io
import shutil
from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest

import sitar as package
from helpers import made_data
from helpers.cli import sitar, sitar_error
from helpers.runs import TINY_MODEL, run, settings
from sitar.evaluation.inputs import input_windows, read_inputs
from sitar.evaluation.metrics import softmax
from sitar.evaluation.prediction_table import Predictor
from sitar.registry import DATASETS
from sitar.run_folder import RunFolder

TRAIN = {"epochs": 2, "batch_size": 16}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, list[str]]:
    """A run on a table of images, a copy of its images elsewhere, and the files of its split val. The table is gone."""
    home = tmp_path_factory.mktemp("predict")
    (home / "data").mkdir()
    config = settings("sitar", data=made_data.table(home / "data").model_dump(), model=TINY_MODEL, train=TRAIN)
    run(config, home / "run")
    samples = DATASETS.get("table").samples(config.data)
    val = samples.files[samples.split == "val"].tolist()
    shutil.copytree(home / "data" / "scans", home / "new" / "scans")
    shutil.rmtree(home / "data")
    return home / "run", home / "new", val


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def numbers(table: list[dict[str, str]], *names: str) -> np.ndarray:
    return np.array([[float(row[name]) for name in names] for row in table])


def test_it_agrees_with_the_evaluation_to_the_bit(finished: tuple[Path, Path, list[str]], tmp_path: Path) -> None:
    folder, new, val = finished
    listed = new / "val.csv"
    listed.write_text("path\n" + "\n".join(val))
    out = tmp_path / "out.csv"
    said = sitar("predict", folder, listed, "--out", out, "--device", "cpu").stdout
    assert f"{len(val)} inputs predicted: {out}" in said
    table = rows(out.read_text())
    assert [row["name"] for row in table] == val
    recorded = RunFolder(folder).predictions()["val/logits"]
    np.testing.assert_array_equal(numbers(table, "p_a", "p_b"), softmax(recorded))
    assert [row["prediction"] for row in table] == ["ab"[i] for i in recorded.argmax(1)]
    assert not any(row["error"] for row in table)


def test_small_windows_give_the_same_rows(finished: tuple[Path, Path, list[str]]) -> None:
    folder, new, _ = finished
    model = package.load(folder, device="cpu")
    whole = read_inputs(new, model)
    total, windows = input_windows(new, model, 7)
    made = [row for window in windows for row in Predictor(model).rows(window)]
    assert total == len(made) == made_data.N
    assert [row["name"] for row in made] == whole.names
    np.testing.assert_allclose([row["p_b"] for row in made], softmax(model.logits(whole.x))[:, 1], rtol=1e-5)


def test_what_cannot_be_read_keeps_its_row(finished: tuple[Path, Path, list[str]], tmp_path: Path) -> None:
    folder, new, val = finished
    shutil.copytree(new / "scans", tmp_path / "scans")
    damaged = tmp_path / val[1]
    damaged.write_bytes(damaged.read_bytes()[:40])
    listed = tmp_path / "some.csv"
    listed.write_text("path\n" + "\n".join([*val[:3], "scans/nowhere.png"]))
    done = sitar("predict", folder, listed, "--device", "cpu")
    table = rows(done.stdout)
    assert [row["name"] for row in table] == [*val[:3], "scans/nowhere.png"]
    assert [bool(row["error"]) for row in table] == [False, True, False, True]
    assert [bool(row["prediction"]) for row in table] == [True, False, True, False]
    assert f"cannot be read: {val[1]}" in done.stderr
    recorded = softmax(RunFolder(folder).predictions()["val/logits"])
    np.testing.assert_allclose(numbers([table[0], table[2]], "p_a", "p_b"), recorded[[0, 2]], rtol=1e-5)


def test_an_input_is_not_written_over(finished: tuple[Path, Path, list[str]], tmp_path: Path) -> None:
    folder, new, val = finished
    listed, link = new / "mine.csv", tmp_path / "link.csv"
    listed.write_text("path,note\n" + "\n".join(f"{name},mine" for name in val))
    link.symlink_to(listed)
    before = listed.read_bytes()
    for out in (listed, link):
        assert "is an input" in sitar_error("predict", folder, listed, "--out", out, "--device", "cpu")
    assert listed.read_bytes() == before


def test_nothing_readable_leaves_no_file(finished: tuple[Path, Path, list[str]], tmp_path: Path) -> None:
    folder, _, _ = finished
    (tmp_path / "a.png").write_bytes(b"no image")
    out = tmp_path / "out.csv"
    assert "None of the 1 inputs can be read" in sitar_error("predict", folder, tmp_path / "a.png", "--out", out)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.png"]


def test_parquet_has_the_same_rows(finished: tuple[Path, Path, list[str]], tmp_path: Path) -> None:
    folder, new, _ = finished
    words = ("predict", folder, new, "--axes", "--device", "cpu", "--out")
    sitar(*words, tmp_path / "out.csv")
    sitar(*words, tmp_path / "out.parquet")
    table = rows((tmp_path / "out.csv").read_text())
    other = pyarrow.parquet.read_table(tmp_path / "out.parquet").to_pylist()
    assert list(other[0]) == list(table[0]) == ["name", "prediction", "p_a", "p_b", "z0", "z1", "z2", "z3", "error"]
    assert [row["name"] for row in other] == [row["name"] for row in table]
    np.testing.assert_array_equal([[row["p_a"], row["z2"]] for row in other], numbers(table, "p_a", "z2"))


def test_a_threshold_moves_the_prediction_alone(finished: tuple[Path, Path, list[str]]) -> None:
    folder, new, _ = finished
    plain = rows(sitar("predict", folder, new, "--device", "cpu").stdout)
    middle = sorted(float(row["p_b"]) for row in plain)[len(plain) // 3]
    moved = rows(sitar("predict", folder, new, "--threshold", middle, "--device", "cpu").stdout)
    assert [row["p_b"] for row in moved] == [row["p_b"] for row in plain]
    assert [row["prediction"] for row in moved] == ["b" if float(row["p_b"]) >= middle else "a" for row in plain]


def test_features_come_as_an_array(tmp_path: Path) -> None:
    config = settings("erm", data=made_data.npz(tmp_path).model_dump(), model=TINY_MODEL, train=TRAIN)
    run(config, tmp_path / "run")
    x = np.random.default_rng(1).normal(size=(9, 6))
    np.savez(tmp_path / "new.npz", x=x)
    (tmp_path / "data.npz").unlink()
    table = rows(sitar("predict", tmp_path / "run", tmp_path / "new.npz", "--device", "cpu").stdout)
    assert [row["name"] for row in table] == [str(i) for i in range(9)]
    model = package.load(tmp_path / "run", device="cpu")
    names = [f"p_{name}" for name in model.classes]
    np.testing.assert_array_equal(numbers(table, *names), softmax(model.logits(x.astype(np.float32))))


@pytest.mark.parametrize("given", [["whole.parquet"], ["parts"], ["parts/0.parquet", "parts/1.parquet"]])
def test_a_table_of_features_is_read_in_windows(
    given: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blocks, windows and files end at different rows. The probabilities are those of all rows at once."""
    x = np.random.default_rng(1).normal(size=(50, 6)).astype(np.float16)
    table = pyarrow.table({"embedding": list(x), "label": np.arange(50) % 2})
    (tmp_path / "parts").mkdir()
    for path, part in {"whole": table, "parts/0": table.slice(0, 23), "parts/1": table.slice(23)}.items():
        pyarrow.parquet.write_table(part, tmp_path / f"{path}.parquet")
    data = {"name": "features", "file": str(tmp_path / "whole.parquet")}
    run(settings("erm", data=data, model=TINY_MODEL, train=TRAIN), tmp_path / "run")
    model = package.load(tmp_path / "run", device="cpu")
    monkeypatch.setattr("sitar.data.tables.BLOCK_ROWS", 7)
    monkeypatch.setattr("sitar.methods.base.Method.evaluation_batch", 9)
    shown = rows(sitar("predict", tmp_path / "run", *(tmp_path / one for one in given), "--device", "cpu").stdout)
    of_parts = [f"{part}.parquet/{row:07}" for part, size in enumerate((23, 27)) for row in range(size)]
    assert [row["name"] for row in shown] == ([str(i) for i in range(50)] if given == ["whole.parquet"] else of_parts)
    expected = softmax(model.logits(x.astype(np.float32)))
    np.testing.assert_allclose(numbers(shown, "p_0", "p_1"), expected, rtol=1e-5)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--threshold", "1.5"], "from 0 to 1"),
        (["--out", "out.txt"], "end its name in .csv or .parquet"),
        (["--out", "nowhere/out.csv"], "There is no folder 'nowhere'"),
        (["--path-column", "x"], "for a table that lists image files, and these inputs are none"),
        (["--root", "x"], "for a table that lists image files, and these inputs are none"),
        (["--keep", "x"], "Leave --keep out"),
        (["--keep", "prediction"], "have a column 'prediction' of their own"),
    ],
)
def test_what_is_refused(finished: tuple[Path, Path, list[str]], words: list[str], message: str) -> None:
    folder, new, _ = finished
    assert message in sitar_error("predict", folder, new, *words)


def test_columns_of_a_table_are_kept(finished: tuple[Path, Path, list[str]], tmp_path: Path) -> None:
    folder, new, val = finished
    listed, out = new / "kept.csv", tmp_path / "out.parquet"
    listed.write_text("path,id,age\n" + "\n".join(f"{name},s{i},{i}" for i, name in enumerate(val)))
    sitar("predict", folder, listed, "--keep", "id,age", "--out", out, "--device", "cpu")
    shown = pyarrow.parquet.read_table(out).to_pydict()
    assert list(shown)[:4] == ["name", "id", "age", "prediction"]
    assert (shown["name"], shown["id"]) == (val, [f"s{i}" for i in range(len(val))])
    assert "has no column 'ids'" in sitar_error("predict", folder, listed, "--keep", "ids", "--device", "cpu")


def test_columns_of_a_table_of_features_are_kept_beside_rows_that_cannot_be_used(tmp_path: Path) -> None:
    x = np.random.default_rng(1).normal(size=(20, 3))
    new = tmp_path / "new"
    new.mkdir()
    whole = pyarrow.table({"embedding": list(x), "label": np.arange(20) % 2, "id": [f"s{i}" for i in range(20)]})
    pyarrow.parquet.write_table(whole, tmp_path / "whole.parquet")
    x[7, 1] = np.nan
    flawed = whole.set_column(0, "embedding", pyarrow.array(list(x)))
    for part, rows_ in enumerate((slice(0, 5), slice(5, 20))):
        pyarrow.parquet.write_table(flawed[rows_], new / f"{part}.parquet")
    data = {"name": "features", "file": str(tmp_path / "whole.parquet")}
    run(settings("erm", data=data, model=TINY_MODEL, train=TRAIN), tmp_path / "run")
    words = ("predict", tmp_path / "run", "--device", "cpu")
    shown = rows(sitar(*words, new, "--keep", "id", "--keep", "label").stdout)
    assert [row["id"] for row in shown] == [f"s{i}" for i in range(20)]
    assert [row["label"] for row in shown] == [str(i % 2) for i in range(20)]
    assert [row["name"] for row in shown if row["error"]] == ["1.parquet/0000002"]
    assert [row["id"] for row in shown if not row["prediction"]] == ["s7"]
    assert "holds lists of floats, and only words" in sitar_error(*words, new, "--keep", "embedding")
    assert "for a table that lists image files" in sitar_error(*words, new, "--path-column", "id")


def test_inputs_of_another_kind_are_refused(finished: tuple[Path, Path, list[str]], tmp_path: Path) -> None:
    folder, _, _ = finished
    np.savez(tmp_path / "x.npz", x=np.zeros((3, 4)))
    assert "this model reads images" in sitar_error("predict", folder, tmp_path / "x.npz")
    assert "There is no" in sitar_error("predict", folder, tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    assert "has no images in it" in sitar_error("predict", folder, tmp_path / "empty")


class Terminal(io.TextIOWrapper):
    """A standard output that somebody looks at."""

    def __init__(self, buffer: io.BytesIO, encoding: str, errors: str) -> None:
        super().__init__(buffer, encoding, errors, write_through=True)

    def isatty(self) -> bool:
        return True


def test_a_class_cannot_steer_the_terminal(
    finished: tuple[Path, Path, list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file and a pipe have the name as it is."""
    folder = RunFolder(shutil.copytree(finished[0], tmp_path / "run"))
    folder.finish({**folder.result(), "classes": ["\x1b[31mred", "b"]})
    arguments = ("predict", folder.path, finished[1] / "scans", "--device", "cpu", "-q")
    assert "p_\x1b[31mred" in sitar(*arguments).stdout
    monkeypatch.setattr("helpers.cli._stream", lambda errors: Terminal(io.BytesIO(), "utf-8", errors))
    shown = sitar(*arguments).stdout
    assert r"p_\x1b[31mred" in shown
    assert "\x1b" not in shown


@pytest.mark.parametrize("shape", [[0], [-6], [3, 4]])
def test_a_shape_that_no_input_has_is_refused(
    shape: list[int], finished: tuple[Path, Path, list[str]], tmp_path: Path
) -> None:
    folder = RunFolder(shutil.copytree(finished[0], tmp_path / "run"))
    folder.finish({**folder.result(), "task": {"shape": shape, "class_counts": [5, 5]}})
    said = sitar_error("predict", folder.path, finished[1] / "scans", "--device", "cpu", "-q")
    assert "result.json' is damaged: task.shape" in said
