"""Unlabelled inputs: what `data.unlabelled` may name, what is refused, and that nothing but the inputs is read."""

from __future__ import annotations

import logging
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from helpers import made_data
from helpers.runs import Stop, assert_same_tensors, metrics, run, settings, weights, writes
from sitar.config import RunConfig, run_config, section_config
from sitar.data import Data, UnlabelledSplit, load_data
from sitar.data.types import TrainSplit
from sitar.data.unlabelled import checksum, read_unlabelled
from sitar.errors import DataError, RunError
from sitar.methods import data_for
from sitar.registry import DATASETS, METHODS
from sitar.run_folder import RunFolder
from sitar.splits import TEST_SPLITS
from sitar.testing import toy

pytestmark = pytest.mark.usefixtures("cache")
NEED = [name for name in METHODS.names() if METHODS.get(name).needs_unlabelled]
NEW = 1000  # made images from this number on are in no data set


@pytest.fixture
def made(tmp_path: Path) -> Any:
    """Make data of a kind, and return it with its settings as `data.unlabelled` changes them."""

    def make(kind: str, unlabelled: str | None, **more: Any) -> tuple[Any, Data]:
        root = tmp_path / "data"
        root.mkdir()
        raw = made_data.MAKERS[kind](root).model_dump() | {"unlabelled": unlabelled} | more
        config: Any = section_config("data", raw)
        return config, load_data(config, progress=False)

    return make


def images(folder: Path, numbers: range) -> Path:
    for i in numbers:
        made_data.write(folder / "deeper" / f"{i}.png", made_data.image(i))
    return folder


@pytest.mark.parametrize("form", ["folder", "pattern", "table"])
def test_images_are_decoded_as_those_of_the_data(form: str, made: Any, tmp_path: Path) -> None:
    new = images(tmp_path / "new", range(NEW, NEW + 7))
    made_data.write(new / "list.csv", "path\n" + "".join(f"deeper/{i}.png\n" for i in range(NEW, NEW + 7)))
    where = {"folder": new, "pattern": f"{new}/deeper/*.png", "table": new / "list.csv"}[form]
    (new / "list.csv").unlink() if form == "folder" else None
    config, data = made("folder", str(where))
    x = read_unlabelled(config, data)
    assert x.shape == (7, *data.task.shape)
    assert x.dtype == data.train.x.dtype == torch.uint8
    assert len(set(x.flatten(1).sum(1).tolist())) == 7


def test_arrays_and_tables_of_features(made: Any, tmp_path: Path) -> None:
    config, data = made("npz", str(tmp_path / "new.npz"))
    new = np.random.default_rng(9).normal(size=(9, data.task.shape[0]))
    np.savez(tmp_path / "new.npz", **{config.x_key: new})  # no labels
    np.testing.assert_allclose(read_unlabelled(config, data).numpy(), new.astype(np.float32))


def test_a_table_of_features_without_labels(made: Any, tmp_path: Path) -> None:
    config, data = made("features", str(tmp_path / "new.csv"))
    width = data.task.shape[0]
    columns = config.feature_columns
    names = [columns.replace("*", str(i)) for i in range(width)] if isinstance(columns, str) else list(columns)
    rows = "\n".join(",".join(str(10 * i + j) for j in range(width)) for i in range(3))
    made_data.write(tmp_path / "new.csv", ",".join(names) + "\n" + rows)
    expected = [[10.0 * i + j for j in range(width)] for i in range(3)]
    assert read_unlabelled(config, data).tolist() == expected
    turned = "\n".join(",".join(reversed(row.split(","))) for row in [",".join(names), *rows.split("\n")])
    made_data.write(tmp_path / "new.csv", turned)
    assert read_unlabelled(config, data).tolist() == expected, "columns are taken by their names"


def test_images_of_the_test_split_are_refused_whatever_their_names(made: Any, tmp_path: Path) -> None:
    config, data = made("folder", str(tmp_path / "new"))
    images(tmp_path / "new", range(NEW, NEW + 5))
    table = DATASETS.get("folder").samples(config)
    (judged,) = [table.files[place] for place in np.flatnonzero(table.split == "test")[:1]]
    shutil.copy(Path(config.root) / judged, tmp_path / "new" / "renamed.png")
    with pytest.raises(DataError, match=r"1 of the 6 inputs are in the split 'test', such as 'renamed.png'.*Take them"):
        read_unlabelled(config, data)


def test_images_of_the_training_split_are_counted(made: Any, tmp_path: Path, caplog: Any) -> None:
    config, data = made("folder", str(tmp_path / "new"))
    table = DATASETS.get("folder").samples(config)
    for place in np.flatnonzero(table.split == "train")[:3]:
        made_data.write(tmp_path / "new" / f"{place}.png", (Path(config.root) / table.files[place]).read_bytes())
    with caplog.at_level(logging.WARNING, logger="sitar.data.unlabelled"):
        assert len(read_unlabelled(config, data)) == 3
    assert "3 of the 3 unlabelled inputs are in the split 'train'" in caplog.text


@pytest.mark.parametrize("split", TEST_SPLITS)
def test_a_test_split_is_refused(split: str) -> None:
    config = toy.ToyConfig(unlabelled=split)
    with pytest.raises(DataError, match="judged"):
        read_unlabelled(config, toy.Toy.load(config))


def test_a_split_that_is_not_there_is_named() -> None:
    config = toy.ToyConfig(unlabelled="val_ood")
    data = toy.Toy.load(config)
    del data.evaluation["val_ood"]
    with pytest.raises(DataError, match=r"no such split with samples. It has val\..*\./val_ood"):
        read_unlabelled(config, data)


def test_another_shape_is_refused(made: Any, tmp_path: Path) -> None:
    config, data = made("npz", str(tmp_path / "new.npz"))
    width = data.task.shape[0]
    np.savez(tmp_path / "new.npz", **{config.x_key: np.ones((4, width + 2))})
    with pytest.raises(DataError, match=rf"data.unlabelled=.*new.npz: .*shape {width + 2}, .*trained on {width}"):
        read_unlabelled(config, data)
    np.savez(tmp_path / "new.npz", **{config.x_key: np.ones((4, 3, 8, 8))})
    with pytest.raises(DataError, match="features"):
        read_unlabelled(config, data)


def test_an_array_of_images_of_another_shape_is_refused(made: Any, tmp_path: Path) -> None:
    config, data = made("npz of images", str(tmp_path / "new.npz"))
    assert data.task.shape == (3, 8, 9)
    for shape, named in (((4, 10, 9, 3), "3x10x9"), ((4, 8, 9), "1x8x9")):
        np.savez(tmp_path / "new.npz", **{config.x_key: np.zeros(shape, dtype=np.uint8)})
        with pytest.raises(DataError, match=rf"data.unlabelled=.*new.npz: .*shape {named}, .*trained on 3x8x9, which"):
            read_unlabelled(config, data)


@pytest.mark.parametrize(
    ("where", "reason"),
    [
        ("nowhere", "There is no"),
        ("nowhere/*.png", "No file has such a name"),
        (".", "has no images"),
        ("x.txt", "x.txt"),
    ],
)
def test_a_place_without_inputs_is_named(where: str, reason: str, made: Any, tmp_path: Path, monkeypatch: Any) -> None:
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    config, data = made("folder", where)
    if where == "x.txt":
        Path(where).write_text("no images")
    with pytest.raises(DataError, match=f"data.unlabelled=.*{reason}"):
        read_unlabelled(config, data)


@pytest.mark.parametrize("name", NEED)
def test_a_method_that_needs_them_asks_for_them(name: str, tmp_path: Path) -> None:
    raw = settings(name).to_dict()
    raw["data"]["unlabelled"] = None
    with pytest.raises(DataError, match=r"data\.unlabelled: a folder .* \(val_ood, val\)|\(val, val_ood\)"):
        run(run_config(raw), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_refused_images_leave_no_run_folder(tmp_path: Path) -> None:
    """Those of the test split, and those of another shape, are found before anything is written."""
    for kind in ("folder", "npz of images"):
        (tmp_path / kind).mkdir()
        data = made_data.MAKERS[kind](tmp_path / kind)
        raw = data.model_dump() | {"unlabelled": str(tmp_path / ("new" if kind == "folder" else "new.npz"))}
        if kind == "folder":
            table = DATASETS.get("folder").samples(data)
            images(tmp_path / "new", range(NEW, NEW + 5))
            judged = table.files[np.flatnonzero(table.split == "test")[0]]
            shutil.copy(tmp_path / kind / judged, tmp_path / "new")
        else:
            np.savez(tmp_path / "new.npz", x=np.zeros((4, 10, 9, 3), dtype=np.uint8))
        with pytest.raises(DataError, match="are in the split 'test'" if kind == "folder" else "shape 3x10x9"):
            run(settings("divdis", data=raw), tmp_path / "run")
        assert not (tmp_path / "run").exists()


def test_other_methods_are_not_given_them_and_say_so(tmp_path: Path, caplog: Any) -> None:
    """The folder need not even be there."""
    data = {"name": "color_mnist", "image_size": 14, "train_size": 200, "eval_size": 100}
    with caplog.at_level(logging.WARNING, logger="sitar.training.run"):
        told = run(settings("erm", data={**data, "unlabelled": "nowhere"}), tmp_path / "told")
    assert "erm learns nothing from data.unlabelled" in caplog.text
    plain = run(settings("erm", data=data), tmp_path / "plain")
    assert all(torch.equal(weights(told)[key], weights(plain)[key]) for key in weights(plain))
    assert told.result()["unlabelled"] == 0


def test_only_the_inputs_reach_a_method() -> None:
    """The labels of the split change, and nothing of the training data does."""
    config: RunConfig = settings("divdis", data={"name": "color_mnist", "image_size": 14, "unlabelled": "val_ood"})
    data = load_data(config.data, progress=False)
    given = data_for(config, data).train
    assert type(given) is UnlabelledSplit
    assert torch.equal(given.unlabelled, data.evaluation["val_ood"].x)
    assert type(data_for(config, data, to_learn=False).train) is TrainSplit
    batch = given.batch(torch.arange(5))
    assert set(vars(batch)) == {"x", "y", "index", "unlabelled"}
    assert batch.unlabelled.shape == batch.x.shape
    assert batch.unlabelled.dtype == torch.float32


def test_a_batch_draws_all_of_them_in_time() -> None:
    split = UnlabelledSplit(torch.zeros(8, 2), torch.zeros(8, dtype=torch.long), torch.arange(20.0).repeat(2, 1).T)
    torch.manual_seed(0)
    drawn = torch.cat([split.batch(torch.arange(8)).unlabelled[:, 0] for _ in range(40)])
    assert set(drawn.tolist()) == set(range(20))
    torch.manual_seed(0)
    assert torch.equal(split.batch(torch.arange(8)).unlabelled[:, 0], drawn[:8])


def test_a_split_changes_its_inputs_and_moves_as_a_whole() -> None:
    split = UnlabelledSplit(torch.ones(4, 2), torch.zeros(4, dtype=torch.long), torch.ones(6, 2))
    halved = split.with_inputs(lambda x, name: x[:, :1] * {"train": 2, "unlabelled": 3}[name])
    assert (halved.x.sum().item(), halved.unlabelled.sum().item()) == (8, 18)
    assert split.input_bytes == 4 * (8 + 12)
    moved = split.to(torch.device("meta"))
    assert moved.unlabelled.device.type == moved.x.device.type == moved.y.device.type == "meta"
    partly = split.labels_to(torch.device("meta"), x=split.x)
    assert (partly.unlabelled.device.type, partly.y.device.type) == ("cpu", "meta")


def test_augmentation_changes_both_halves_of_a_batch() -> None:
    batch = UnlabelledSplit(torch.ones(4, 2), torch.zeros(4, dtype=torch.long), torch.ones(6, 2)).batch(torch.arange(4))
    changed = batch.augmented(lambda x: x + 1)
    assert changed.x.unique().tolist() == changed.unlabelled.unique().tolist() == [2.0]


def folder_run(tmp_path: Path, place: str, resume: bool = False) -> RunFolder:
    raw = made_data.FolderConfig(root=str(tmp_path / "data"), image_size=made_data.SIZE).model_dump()
    raw["unlabelled"] = str(tmp_path / place)
    config = settings("divdis", data=raw, train={"epochs": 2, "batch_size": 8, "checkpoint_seconds": 0})
    return run(config, tmp_path / "run", resume=resume)


def test_a_run_is_continued_with_the_same_images_only(tmp_path: Path) -> None:
    """They may have moved. Others, or fewer, are refused."""
    (tmp_path / "data").mkdir()
    made_data.folder(tmp_path / "data")
    images(tmp_path / "new", range(NEW, NEW + 6))
    whole = writes(lambda: folder_run(tmp_path, "new"))
    shutil.move(tmp_path / "run", tmp_path / "whole")
    with pytest.raises(Stop):
        writes(lambda: folder_run(tmp_path, "new"), stop_at=whole // 2)
    images(tmp_path / "other", range(NEW + 1, NEW + 7))
    with pytest.raises(RunError, match="unlabelled inputs have changed"):
        folder_run(tmp_path, "other", resume=True)
    shutil.move(tmp_path / "new", tmp_path / "moved")
    assert_same_tensors(weights(folder_run(tmp_path, "moved", resume=True)), weights(RunFolder(tmp_path / "whole")))
    assert metrics(RunFolder(tmp_path / "run"))[-1]["mutual_information"] >= 0


def test_the_checksum_is_of_the_images_in_their_order() -> None:
    x = torch.arange(12.0).reshape(4, 3)
    assert checksum(x) == checksum(x.clone())
    assert len({checksum(x), checksum(x.flip(0)), checksum(x[:3]), checksum(x + 1)}) == 4


def test_a_frozen_encoder_turns_them_into_features_too(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    data = made_data.folder(tmp_path / "data").model_dump() | {
        "unlabelled": str(images(tmp_path / "new", range(NEW, NEW + 6)))
    }
    model = {"encoder": "test_resnet.r160_in1k", "encoder_weights": "random", "freeze_encoder": True, "latent_dim": 4}
    train = {"epochs": 1, "batch_size": 8}
    result = run(settings("dbat", data=data, model=model, train=train), tmp_path / "run").result()
    assert result["unlabelled"] == 6
    assert [len(heads) for heads in result["heads"]["splits"].values()] == [2, 2]


def test_a_pattern_of_any_depth_follows_links_once(made: Any, tmp_path: Path) -> None:
    new = images(tmp_path / "new", range(NEW, NEW + 3))
    for name in ("p", "q"):
        (new / name).symlink_to(".")
    config, data = made("folder", f"{new}/**/*.png")
    began = time.process_time()
    assert len(read_unlabelled(config, data)) == 3
    assert time.process_time() - began < 5
