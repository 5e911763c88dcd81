"""Labelled samples from elsewhere: read as the run's own, classes by name, groups as in training and new ones."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from helpers import made_data
from helpers.made_data import in_csv, write
from helpers.runs import TINY_MODEL, run, settings
from sitar.errors import ConfigError, DataError
from sitar.evaluation.elsewhere import evaluate_elsewhere
from sitar.evaluation.trained_model import TrainedModel, load

TRAIN = {"epochs": 2, "batch_size": 16}
NEW = 60


def trained(maker: str, home: Path) -> TrainedModel:
    (home / "data").mkdir(parents=True)
    config = made_data.MAKERS[maker](home / "data")
    return load(run(settings("erm", data=config.model_dump(), model=TINY_MODEL, train=TRAIN), home / "run").path, "cpu")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> TrainedModel:
    """A run on features of the classes a and b at the sites 0 and 1, whose data is gone."""
    home = tmp_path_factory.mktemp("elsewhere")
    model = trained("features", home)
    shutil.rmtree(home / "data")
    return model


def new_table(place: Path, classes: str = "ba", sites: int = 3) -> tuple[np.ndarray, list[str], list[str]]:
    """Write new samples, and return what stands there: features, labels and sites, of which 2 is new.

    The columns have another order than in training, and one more matches the pattern that names features.
    """
    x = np.random.default_rng(1).normal(size=(NEW, 2))
    labels = [classes[i % len(classes)] for i in range(NEW)]
    site = [str(2 - i // 2 % sites) for i in range(NEW)]
    rows = [[x[i, 1], site[i], np.linalg.norm(x[i]), labels[i], x[i, 0]] for i in range(NEW)]
    write(place, in_csv(["f1", "site", "f_norm", "label", "f0"], rows))
    return x.astype(np.float32), labels, site


def test_all_samples_are_one_split_whose_figures_are_those_of_plain_numpy(model: TrainedModel, tmp_path: Path) -> None:
    x, labels, site = new_table(tmp_path / "new.csv")
    found = evaluate_elsewhere(model, str(tmp_path / "new.csv"))
    right = model.predict(x) == np.array(labels)
    figures = found.splits["all"]
    assert list(found.splits) == ["all"]
    assert found.attributes == {"site": ["0", "1", "2"]}
    assert figures["n"] == NEW
    assert figures["average"] == pytest.approx(right.mean())
    assert figures["auroc"] == pytest.approx(roc_auc_score(np.array(labels) == "b", model.predict_proba(x)[:, 1]))
    assert set(figures["groups"]) == {f"label={c},site={v}" for c in (0, 1) for v in (0, 1, 2)}
    for c, label in enumerate("ab"):
        for v in range(3):
            of = [label == labels[i] and str(v) == site[i] for i in range(NEW)]
            assert figures["groups"][f"label={c},site={v}"] == {
                "n": sum(of),
                "accuracy": pytest.approx(right[of].mean()),
            }
    assert figures["worst_group"] == min(group["accuracy"] for group in figures["groups"].values())


def test_the_adjusted_average_weights_groups_as_training_did(model: TrainedModel, tmp_path: Path) -> None:
    """The new site was never seen in training: it has no weight."""
    new_table(tmp_path / "new.csv")
    figures = evaluate_elsewhere(model, str(tmp_path / "new.csv")).splits["all"]
    share = model.folder.predictions()["test/group_share"].reshape(2, 2)
    cells = [[figures["groups"][f"label={c},site={v}"]["accuracy"] for v in (0, 1)] for c in (0, 1)]
    assert figures["adjusted_average"] == pytest.approx((share * cells).sum())


def test_settings_name_other_columns_and_leave_the_attribute_out(model: TrainedModel, tmp_path: Path) -> None:
    x, labels, _ = new_table(tmp_path / "new.csv")
    place = tmp_path / "new.csv"
    place.write_text(place.read_text().replace("label", "finding").replace("site", "ward"))
    asked = ["label_column=finding", "data.attribute_column=null"]
    found = evaluate_elsewhere(model, str(place), asked)
    assert found.splits["all"]["average"] == pytest.approx((model.predict(x) == np.array(labels)).mean())
    assert found.splits["all"]["groups"] == {}
    with pytest.raises(DataError, match="no column"):
        evaluate_elsewhere(model, str(place))


def test_an_unknown_class_is_named(model: TrainedModel, tmp_path: Path) -> None:
    new_table(tmp_path / "new.csv", classes="ac")
    with pytest.raises(DataError, match=r"The class 'c' is none that the model knows\. It knows: a, b"):
        evaluate_elsewhere(model, str(tmp_path / "new.csv"))


def test_other_shapes_and_kinds_of_data_are_refused(model: TrainedModel, tmp_path: Path) -> None:
    np.savez(tmp_path / "wide.npz", x=np.zeros((8, 5), np.float32), y=np.array(list("abababab")))
    with pytest.raises(DataError, match=r"shape \(5,\), and the model was trained on \(2,\)"):
        evaluate_elsewhere(model, str(tmp_path / "wide.npz"), ["name=npz"])
    with pytest.raises(ConfigError, match="are one of: folder, table, npz, features"):
        evaluate_elsewhere(model, str(tmp_path), ["name=celeba"])


@pytest.mark.parametrize("maker", ["folder", "table", "table in parquet", "npz", "npz of images"])
def test_the_runs_own_data_gives_its_own_predictions(maker: str, tmp_path: Path) -> None:
    """The place of training holds all splits: together they have as many hits as they have in the run's evaluation."""
    model = trained(maker, tmp_path)
    own: Any = model.config.data
    place = own.file if hasattr(own, "file") else own.root
    found = evaluate_elsewhere(model, place).splits["all"]
    splits = model.evaluate().values()
    assert found["n"] == sum(split["n"] for split in splits) == made_data.N
    assert found["average"] * found["n"] == pytest.approx(sum(split["average"] * split["n"] for split in splits))


def test_splits_that_the_place_names_are_kept_apart(tmp_path: Path) -> None:
    model = trained("folder", tmp_path)
    for i in range(8):
        write(tmp_path / "new" / ("train", "test")[i // 4] / "ab"[i % 2] / f"{i}.png", made_data.image(i))
    found = evaluate_elsewhere(model, str(tmp_path / "new")).splits
    assert {name: figures["n"] for name, figures in found.items()} == {"train": 4, "test": 4}


def test_a_table_of_images_may_be_given_to_a_run_on_a_folder(tmp_path: Path) -> None:
    model = trained("folder", tmp_path)
    (tmp_path / "scans").mkdir()
    made_data.table(tmp_path / "scans")
    place = str(tmp_path / "scans" / "table.csv")
    as_table = evaluate_elsewhere(model, place, ["name=table", "attribute_column=site"]).splits["all"]
    assert as_table["n"] == made_data.N
    assert len(as_table["groups"]) == 4
    assert as_table["adjusted_average"] is None, "the run knows no sites"
