"""New inputs are stored as the run's data stores its own, pixel by pixel, and what cannot be read is said."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from copy import copy
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import tifffile
import torch
from PIL import Image

from helpers import made_data
from helpers.runs import TINY_MODEL, run, settings
from sitar.data.own_data.feature_table import FeaturesConfig
from sitar.errors import DataError
from sitar.evaluation.inputs import Inputs, input_windows, read_inputs
from sitar.evaluation.trained_model import TrainedModel, load

TRAIN = {"epochs": 1, "batch_size": 16, "checkpoint_seconds": 0}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., TrainedModel]:
    """A tiny finished run on made data, by the name of its maker and settings of data; each is trained once."""
    made: dict[str, TrainedModel] = {}

    def of(maker: str, **data: Any) -> TrainedModel:
        key = f"{maker} {data}"
        if key not in made:
            root = tmp_path_factory.mktemp("data")
            config = (lists if maker == "lists" else made_data.MAKERS[maker])(root).model_dump() | data
            folder = run(settings("erm", data=config, model=TINY_MODEL, train=TRAIN), root / "run")
            made[key] = load(folder.path, "cpu")
        return made[key]

    return of


def rows(x: torch.Tensor) -> set[bytes]:
    return {row.numpy().tobytes() for row in x}


def root_of(model: TrainedModel) -> Path:
    return Path(model.config.data.root)  # type: ignore[attr-defined]


@pytest.mark.parametrize("form", [{}, {"crop_pct": 0.8, "image_size": 14}, {"channels": 1}])
def test_images_are_decoded_as_the_run_decoded_its_own(models: Any, form: dict[str, Any]) -> None:
    model = models("folder", **form)
    inputs = read_inputs(root_of(model), model)
    own = [model.data.train.x, *(split.x for split in model.data.evaluation.values())]
    assert inputs.x.dtype == torch.uint8
    assert set().union(*map(rows, own)) == rows(inputs.x)
    assert len(inputs) == len(inputs.names) == made_data.N
    assert np.isfinite(model.logits(inputs.x)).all()


def test_a_name_is_the_path_below_the_folder_and_each_image_has_its_file(models: Any) -> None:
    model = models("folder")
    inputs = read_inputs(str(root_of(model)), model)
    assert inputs.names == sorted(inputs.names)
    assert all("/" in name and not name.startswith("/") for name in inputs.names)
    assert inputs.files == [root_of(model) / name for name in inputs.names]
    assert all(file.is_file() for file in inputs.files)


def test_files_a_table_and_the_folder_give_the_same_images(models: Any, tmp_path: Path) -> None:
    model = models("folder")
    folder = read_inputs(root_of(model), model)
    order = [3, 0, 7]
    files = read_inputs([folder.files[i] for i in order], model)  # type: ignore[index]
    assert files.names == [folder.files[i].as_posix() for i in order]  # type: ignore[index]
    (tmp_path / "new.csv").write_text("path\n" + "\n".join(folder.names[i] for i in order))
    pyarrow.parquet.write_table(pyarrow.table({"image": [folder.names[i] for i in order]}), tmp_path / "new.parquet")
    in_csv = read_inputs(tmp_path / "new.csv", model, root=root_of(model))
    in_parquet = read_inputs(tmp_path / "new.parquet", model, root=root_of(model), path_column="image")
    assert in_csv.names == in_parquet.names == [folder.names[i] for i in order]
    for inputs in (files, in_csv, in_parquet):
        assert torch.equal(inputs.x, folder.x[order])
    one = read_inputs(folder.files[0], model)  # type: ignore[index]
    assert torch.equal(one.x, folder.x[:1])


def test_the_paths_of_a_table_lie_beside_it_unless_a_root_is_given(models: Any, tmp_path: Path) -> None:
    model = models("folder")
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "a.png").write_bytes(made_data.image(1))
    (tmp_path / "new.csv").write_text("path\ndeep/a.png\n")
    inputs = read_inputs(tmp_path / "new.csv", model)
    assert inputs.names == ["deep/a.png"]
    assert inputs.files == [tmp_path / "deep/a.png"]


def test_files_that_are_no_images_are_counted_as_those_of_training_are(
    models: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = models("folder")
    (tmp_path / "a.png").write_bytes(made_data.image(1))
    (tmp_path / "notes.txt").write_text("none")
    assert read_inputs(tmp_path, model).names == ["a.png"]
    assert "1 file without the ending of an image is left out: .txt (1)." in caplog.text


@pytest.mark.parametrize("read", [read_inputs, lambda path, model: list(input_windows(path, model, 2)[1])])
def test_images_that_use_little_of_their_range_are_warned_of_once(
    models: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture, read: Any
) -> None:
    model = models("folder")
    for i in range(5):
        values = np.arange(400, dtype=np.uint16).reshape(20, 20) * (5 if i else 160)
        Image.fromarray(values).save(tmp_path / f"{i}.png")
    read(tmp_path, model)
    (said,) = [record.getMessage() for record in caplog.records if "bits" in record.getMessage()]
    assert said.startswith(
        "4 of 5 images have more than eight bits and use less than a tenth of their range, such as 1"
    )


def test_what_cannot_be_read_is_named_and_the_rest_goes_on(
    models: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = models("folder")
    for i in range(3):
        (tmp_path / f"{i}.png").write_bytes(made_data.image(i))
    (tmp_path / "1.png").write_bytes(b"no image")
    inputs = read_inputs(tmp_path, model)
    assert inputs.names == ["0.png", "2.png"]
    assert list(inputs.unreadable) == ["1.png"]
    assert f"1 of 3 new images in {str(tmp_path)!r} are left out, such as 1.png: " in caplog.text
    assert inputs.files == [tmp_path / "0.png", tmp_path / "2.png"]
    (tmp_path / "1.png").unlink()
    assert torch.equal(inputs.x, read_inputs(tmp_path, model).x)


def test_nothing_is_decoded_twice(models: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = models("folder")
    (tmp_path / "a.png").write_bytes(made_data.image(1))
    first = read_inputs(tmp_path, model)
    monkeypatch.setattr("sitar.images.cache.DecoderPool", None)
    assert torch.equal(read_inputs(tmp_path, model).x, first.x)


def test_arrays_of_the_runs_shape_are_read_from_an_npz_file(models: Any, tmp_path: Path) -> None:
    model = models("color_mnist")
    x = model.data.evaluation["ood_test"].x[:5]
    inputs = saved(tmp_path, model, x.numpy())
    assert inputs.names == ["0", "1", "2", "3", "4"]
    assert inputs.files is None
    assert torch.equal(inputs.x, x)
    last = saved(tmp_path, model, x.permute(0, 2, 3, 1).numpy())
    assert torch.equal(last.x, x)
    floats = saved(tmp_path, model, (x / 255).numpy())
    np.testing.assert_allclose(model.logits(floats.x), model.logits(x), atol=1e-5)


def test_many_channels_come_first_as_the_run_has_them(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    for i in range(20):
        (tmp_path / "ab"[i % 2]).mkdir(exist_ok=True)
        stack = random.integers(0, 256, (6, 8, 8), dtype=np.uint8)
        tifffile.imwrite(tmp_path / "ab"[i % 2] / f"{i}.tif", stack, photometric="minisblack")
    data = {"name": "folder", "root": str(tmp_path), "image_size": 8, "channels": 6}
    model = load(run(settings("erm", data=data, model=TINY_MODEL, train=TRAIN), tmp_path / "run").path, "cpu")
    x = model.data.train.x[:3]
    assert x.shape == (3, 6, 8, 8)
    assert torch.equal(saved(tmp_path, model, x.numpy()).x, x)


def test_an_npz_file_serves_image_runs_and_feature_runs(models: Any, tmp_path: Path) -> None:
    images = models("folder")
    assert torch.equal(saved(tmp_path, images, images.data.train.x[:3].numpy()).x, images.data.train.x[:3])
    features = models("npz")
    x = features.data.train.x[:3]
    assert torch.equal(saved(tmp_path, features, x.double().numpy()).x, x)


def test_a_feature_run_reads_a_table_of_features_without_labels(models: Any, tmp_path: Path) -> None:
    model = models("features")
    (tmp_path / "new.csv").write_text("f0,f1\n0.5,1\n2,3\n")
    inputs = read_inputs(tmp_path / "new.csv", model)
    assert inputs.x.tolist() == [[0.5, 1.0], [2.0, 3.0]]
    assert inputs.names == ["0", "1"]


class TestColumns:
    """Features lie in columns with names, and a file may have them in any order."""

    def test_they_are_taken_by_name(self, models: Any, tmp_path: Path) -> None:
        model = models("features")
        assert model.feature_columns == ("f0", "f1")
        (tmp_path / "new.csv").write_text("f1,f2,note,f0\n1,9,x,0.5\n3,9,x,2\n")
        expected = [[0.5, 1.0], [2.0, 3.0]]
        assert read_inputs(tmp_path / "new.csv", model).x.tolist() == expected
        _, windows = input_windows(tmp_path / "new.csv", model, 1)
        assert [window.x.tolist() for window in windows] == [expected[:1], expected[1:]]

    def test_their_order_changes_no_prediction(self, models: Any, tmp_path: Path) -> None:
        model = models("features")
        lines = [line.split(",") for line in Path(model.config.data.file).read_text().splitlines()]
        turned = tmp_path / "turned.csv"
        turned.write_text("\n".join(",".join(reversed(line)) for line in lines))
        there, here = (read_inputs(file, model).x for file in (model.config.data.file, turned))
        np.testing.assert_array_equal(model.logits(here), model.logits(there))

    def test_those_that_are_missing_are_named(self, models: Any, tmp_path: Path) -> None:
        model = models("features")
        for head, missing in (("f1,f2", "'f0'"), ("x,y", "'f0', 'f1'")):
            (tmp_path / "new.csv").write_text(f"{head}\n1,2\n")
            message = rf"no column {missing} of features, which the training data has.* It has: {head[0]}"
            with pytest.raises(DataError, match=message) as caught:
                read_inputs(tmp_path / "new.csv", model)
            assert "data.feature_columns" not in str(caught.value)

    def test_a_run_of_an_early_release_is_read_as_before(
        self, models: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        for name, warned in (("features", True), ("lists", False)):
            model = copy(models(name))
            task = {key: value for key, value in model.result["task"].items() if key != "feature_columns"}
            model.result = {**model.result, "task": task}
            caplog.clear()
            if name == "features":
                (tmp_path / "new.csv").write_text("f1,f0\n1,0.5\n")
                assert read_inputs(tmp_path / "new.csv", model).x.tolist() == [[1.0, 0.5]]
            else:
                read_inputs(model.config.data.file, model)
            assert ("does not say in which order" in caplog.text) == warned


class TestFlaws:
    """Rows of features that are missing, NaN or infinite are what images are that cannot be read."""

    def test_of_a_table(self, models: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        model, file = models("features"), tmp_path / "new.csv"
        file.write_text("f0,f1\n0.5,1\n2,\ninf,3\n4,5\n")
        inputs = read_inputs(file, model)
        assert (inputs.names, inputs.x.tolist()) == (["0", "3"], [[0.5, 1.0], [4.0, 5.0]])
        assert [(name, reason[-4:]) for name, reason in inputs.unreadable.items()] == [("1", "'f1'"), ("2", "'f0'")]
        assert "2 of 4 inputs are left out, such as 1: it has features that are missing, NaN" in caplog.text
        total, windows = input_windows(file, model, 3)
        assert total == 4
        assert [(w.names, w.x.tolist(), list(w.unreadable)) for w in windows] == [
            (["0", "1", "2"], [[0.5, 1.0]], ["1", "2"]), (["3"], [[4.0, 5.0]], []),
        ]  # fmt: skip
        file.write_text("f0,f1\n,1\n")
        with pytest.raises(DataError, match="None of the 1 inputs can be used, such as 0"):
            read_inputs(file, model)

    def test_of_lists_and_of_arrays(self, models: Any, tmp_path: Path) -> None:
        rows = [[0.5, 1.0], None, [2.0, None], [3.0, 4.0]]
        pyarrow.parquet.write_table(pyarrow.table({"f": rows}), tmp_path / "new.parquet")
        inputs = read_inputs(tmp_path / "new.parquet", models("lists"))
        array = saved(tmp_path, models("lists"), np.array([[0.5, 1.0], [np.nan, 1], [np.inf, 2], [3.0, 4.0]]))
        for found in (inputs, array):
            assert (found.x.tolist(), list(found.unreadable)) == ([[0.5, 1.0], [3.0, 4.0]], ["1", "2"])


@pytest.mark.filterwarnings("error")
def test_lists_of_numbers_in_parquet_are_read_without_a_warning(models: Any, tmp_path: Path) -> None:
    model = models("lists")
    lists = pyarrow.FixedSizeListArray.from_arrays(pyarrow.array([0.5, 1.0, 2.0, 3.0], pyarrow.float32()), 2)
    pyarrow.parquet.write_table(pyarrow.table({"f": lists}), tmp_path / "new.parquet")
    inputs = read_inputs(tmp_path / "new.parquet", model)
    assert inputs.x.tolist() == [[0.5, 1.0], [2.0, 3.0]]


def lists(root: Path) -> FeaturesConfig:
    """Features that are lists of two numbers."""
    x = np.random.default_rng(0).normal(size=(40, 2))
    table = pyarrow.table({"f": list(x), "label": np.arange(40) % 2})
    pyarrow.parquet.write_table(table, root / "table.parquet")
    return FeaturesConfig(file=str(root / "table.parquet"), feature_columns="f*")


def saved(folder: Path, model: TrainedModel, x: Any) -> Inputs:
    np.savez(folder / "x.npz", x=x)
    return read_inputs(folder / "x.npz", model)


class TestRefused:
    @pytest.fixture
    def model(self, models: Any) -> TrainedModel:
        return models("folder")

    def test_a_path_that_does_not_exist(self, model: TrainedModel, tmp_path: Path) -> None:
        with pytest.raises(DataError, match=r"There is no .*nowhere"):
            read_inputs(tmp_path / "nowhere", model)
        with pytest.raises(DataError, match="No inputs are given"):
            read_inputs([], model)

    def test_a_folder_without_images(self, model: TrainedModel, tmp_path: Path) -> None:
        (tmp_path / "notes.txt").write_text("x")
        with pytest.raises(DataError, match=r"has no images in it.*\.txt \(1\)"):
            read_inputs(tmp_path, model)

    def test_a_folder_in_which_no_image_can_be_read(self, model: TrainedModel, tmp_path: Path) -> None:
        (tmp_path / "a.png").write_bytes(b"")
        with pytest.raises(DataError, match="None of the 1 images can be read"):
            read_inputs(tmp_path, model)

    def test_several_kinds_at_once(self, model: TrainedModel, tmp_path: Path) -> None:
        (tmp_path / "a.png").write_bytes(made_data.image(1))
        np.savez(tmp_path / "b.npz", x=np.zeros(3))
        with pytest.raises(DataError, match=r"of other kinds too: .*\.npz \(1\)"):
            read_inputs([tmp_path / "a.png", tmp_path / "b.npz"], model)
        with pytest.raises(DataError, match="a folder"):
            read_inputs([tmp_path / "a.png", tmp_path], model)

    def test_a_file_of_an_unknown_kind(self, model: TrainedModel, tmp_path: Path) -> None:
        (tmp_path / "a.xlsx").write_bytes(b"x")
        with pytest.raises(DataError, match="no kind of inputs that is read"):
            read_inputs(tmp_path / "a.xlsx", model)

    def test_an_image_named_twice(self, model: TrainedModel, tmp_path: Path) -> None:
        (tmp_path / "a.png").write_bytes(made_data.image(1))
        (tmp_path / "new.csv").write_text("path\na.png\na.png\n")
        with pytest.raises(DataError, match="named more than once"):
            read_inputs(tmp_path / "new.csv", model)

    def test_a_table_without_paths(self, model: TrainedModel, tmp_path: Path) -> None:
        (tmp_path / "new.csv").write_text("file,age\na.png,3\n")
        with pytest.raises(DataError, match="has no column 'path'"):
            read_inputs(tmp_path / "new.csv", model)
        (tmp_path / "new.csv").write_text("path,age\n,3\n")
        with pytest.raises(DataError, match="1 rows without a path"):
            read_inputs(tmp_path / "new.csv", model)
        with pytest.raises(DataError, match="is no folder"):
            read_inputs(tmp_path / "new.csv", model, root=tmp_path / "nowhere")

    @pytest.mark.parametrize(
        ("name", "why"),
        [
            ("../outside/secret.png", r"1 paths lead out of the folder '.*tables', such as '\.\./outside/secret\.png'"),
            ("deep/../../outside/secret.png", "lead out of the folder"),
            ("{here}/outside/secret.png", "lead out of the folder"),
            ("a\0.png", "1 paths are empty or hold a zero byte"),
            (".", "1 paths are empty"),
            ("x" * 5000 + ".png", "1 paths are longer than 4,096 characters"),
        ],
        ids=["up", "down and up", "absolute", "zero byte", "the folder itself", "long"],
    )
    @pytest.mark.parametrize("read", [read_inputs, lambda path, model: input_windows(path, model, 4)])
    def test_a_table_whose_paths_lead_out_of_its_folder(
        self, model: TrainedModel, tmp_path: Path, name: str, why: str, read: Any
    ) -> None:
        for place in ("tables/a.png", "outside/secret.png"):
            made_data.write(tmp_path / place, made_data.image(1))
        words = pyarrow.array(["a.png", name.format(here=tmp_path)])
        pyarrow.parquet.write_table(pyarrow.table({"path": words}), tmp_path / "tables" / "new.parquet")
        with pytest.raises(DataError, match=why):
            read(tmp_path / "tables" / "new.parquet", model)

    def test_arrays_of_another_shape(self, model: TrainedModel, models: Any, tmp_path: Path) -> None:
        with pytest.raises(DataError, match="the shape 3x9x9, and this model was trained on 3x16x16"):
            saved(tmp_path, model, np.zeros((2, 3, 9, 9), np.uint8))
        with pytest.raises(DataError, match="reads images"):
            saved(tmp_path, model, np.zeros((2, 9)))
        with pytest.raises(DataError, match="is empty"):
            saved(tmp_path, model, np.zeros((0, 3, 16, 16), np.uint8))
        with pytest.raises(DataError, match="reads features"):
            saved(tmp_path, models("npz"), np.zeros((2, 3, 9, 9), np.uint8))

    def test_images_for_a_run_on_arrays(self, models: Any, tmp_path: Path) -> None:
        shutil.copytree(root_of(models("folder")), tmp_path / "images")
        with pytest.raises(DataError, match=r"arrays of the shape 3x28x28 \(color_mnist\)"):
            read_inputs(tmp_path / "images", models("color_mnist"))
