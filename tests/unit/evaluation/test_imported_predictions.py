"""Predictions of other code are read for the samples of a run, and refused where they are of others."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from helpers.made_runs import make_run
from sitar.errors import SitarError
from sitar.evaluation.imported_predictions import import_predictions
from sitar.evaluation.metrics import Predictions, auroc, softmax
from sitar.run_folder import Run

CLASSES = ("red", "green")
SAMPLES = 40
ALL: list[object] = list(range(SAMPLES))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return Run.read(make_run(tmp_path_factory.mktemp("runs") / "erm", "erm", samples=SAMPLES, explained=False))


def table(place: Path, columns: dict[str, list[object]]) -> Path:
    lines = [",".join(columns), *(",".join(map(str, row)) for row in zip(*columns.values(), strict=True))]
    place.write_text("\n".join(lines))
    return place


def probabilities(run: Run) -> np.ndarray:
    random = np.random.default_rng(0)
    return softmax(random.normal(0, 1, (SAMPLES, 2)) + 2 * np.eye(2)[run.labels("ood_test")])


def test_probabilities_have_every_metric(run: Run, tmp_path: Path) -> None:
    p, order = probabilities(run), np.random.default_rng(1).permutation(SAMPLES)
    columns = {"index": order.tolist(), "p_red": p[order, 0].tolist(), "p_green": p[order, 1].tolist()}
    columns["label"] = run.labels("ood_test")[order].tolist()  # numbers stand for classes as well as names do
    (mine,) = import_predictions([f"mine={table(tmp_path / 'p.csv', columns)}"], run)
    assert (mine.seed, mine.config["preset"], mine.data_checksum) == (0, "mine", run.data_checksum)
    np.testing.assert_allclose(softmax(mine.logits("ood_test")), p, atol=1e-6)
    np.testing.assert_array_equal(mine.labels("ood_test"), run.labels("ood_test"))
    found = mine.result["splits"]["ood_test"]
    assert found["average"] == (p.argmax(1) == run.labels("ood_test")).mean()
    assert found["auroc"] == pytest.approx(auroc(p, run.labels("ood_test")))
    stored = run.predictions("ood_test")
    groups = Predictions(np.log(p), stored["y"], stored["group"], list(found["groups"])).groups
    assert found["worst_group"] == min(accuracy for _, accuracy in groups if accuracy is not None)
    assert list(mine.result["splits"]) == ["ood_test"]


def test_numbers_of_classes_stand_for_their_names(run: Run, tmp_path: Path) -> None:
    """As columns of probabilities, and as the floats that pandas makes of whole numbers."""
    p = probabilities(run)
    columns: dict[str, list[object]] = {"index": ALL, "p_0": p[:, 0].tolist(), "p_1": p[:, 1].tolist()}
    columns["prediction"] = [f"{label}.0" for label in p.argmax(1)]
    (mine,) = import_predictions([f"mine={table(tmp_path / 'p.csv', columns)}"], run)
    np.testing.assert_allclose(softmax(mine.logits("ood_test")), p, atol=1e-6)
    assert mine.result["splits"]["ood_test"]["auroc"] == pytest.approx(auroc(p, run.labels("ood_test")))


def test_a_class_whose_name_is_a_number_is_meant_by_its_name(tmp_path: Path) -> None:
    """With the classes 1 and 2, both 1.0 and p_1 are the first class."""
    run = Run.read(make_run(tmp_path / "erm", "erm", classes=("1", "2"), samples=SAMPLES, explained=False))
    p = probabilities(run)
    columns: dict[str, list[object]] = {"index": ALL, "p_1": p[:, 0].tolist(), "p_2": p[:, 1].tolist()}
    columns["prediction"] = [f"{label + 1}.0" for label in p.argmax(1)]
    (mine,) = import_predictions([f"mine={table(tmp_path / 'p.csv', columns)}"], run)
    np.testing.assert_allclose(softmax(mine.logits("ood_test")), p, atol=1e-6)


def test_a_column_that_looks_like_a_probability_is_named(
    run: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    columns: dict[str, list[object]] = {"index": ALL, "prediction": [0] * SAMPLES, "p_id": ALL}
    columns["label"] = run.labels("ood_test").tolist()
    (mine,) = import_predictions([f"mine={table(tmp_path / 'p.csv', columns)}"], run)
    assert mine.logits("ood_test").argmax(1).tolist() == [0] * SAMPLES
    assert "the column 'p_id', which is of no class" in caplog.text
    assert "p_red, p_green, or p_0, p_1. It is not used." in caplog.text


def test_of_equal_probabilities_the_prediction_decides(run: Run, tmp_path: Path) -> None:
    """Numbers that were rounded to two places are often equal."""
    y = run.labels("ood_test")
    columns = {"index": list(range(SAMPLES)), "p_red": [0.5] * SAMPLES, "p_green": [0.5] * SAMPLES}
    columns["prediction"] = [CLASSES[label] for label in y]
    (mine,) = import_predictions([f"mine={table(tmp_path / 'p.csv', columns)}"], run)
    assert mine.result["splits"]["ood_test"]["average"] == 1.0
    np.testing.assert_allclose(softmax(mine.logits("ood_test")), 0.5, atol=1e-6)


def test_classes_have_no_metric_of_probabilities(run: Run, tmp_path: Path) -> None:
    columns = {"index": list(range(SAMPLES)), "prediction": [CLASSES[y] for y in run.labels("ood_test")]}
    (mine,) = import_predictions([f"mine={table(tmp_path / 'p.csv', columns)}"], run)
    found = mine.result["splits"]["ood_test"]
    assert (found["average"], found["worst_group"], found["f1"]) == (1.0, 1.0, 1.0)
    assert found["auroc"] is found["core_auc"] is found["calibration_error"] is found["auprc"] is None


def test_a_file_may_have_several_splits_and_a_name_several_seeds(run: Run, tmp_path: Path) -> None:
    columns = {
        "index": [*range(SAMPLES), *range(SAMPLES)],
        "split": ["id_test"] * SAMPLES + ["ood_test"] * SAMPLES,
        "prediction": [0] * SAMPLES + [1] * SAMPLES,
    }
    file = table(tmp_path / "p.csv", columns)
    found = import_predictions([f"a={file}", f"a={file}", f"b@7={file}"], run)
    assert [(one.config["preset"], one.seed) for one in found] == [("a", 0), ("a", 1), ("b", 7)]
    assert found[0].logits("id_test").argmax(1).tolist() == [0] * SAMPLES
    assert found[0].logits("ood_test").argmax(1).tolist() == [1] * SAMPLES
    with pytest.raises(SitarError, match="two files for seed 0 of 'a'"):
        import_predictions([f"a={file}", f"a@0={file}"], run)


WRONG: dict[str, tuple[dict[str, list[object]], str]] = {
    "no place": ({"prediction": [0] * SAMPLES}, "neither a column 'name' nor 'index'"),
    "no prediction": ({"index": ALL}, "has no column 'prediction'"),
    "fewer": ({"index": ALL[:-3], "prediction": [0] * (SAMPLES - 3)}, "3 of 40 are missing, such as '37'"),
    "more": ({"index": [*ALL, 40], "prediction": [0] * 41}, "1 are not of it, such as '40'"),
    "twice": ({"index": [0, *ALL], "prediction": [0] * 41}, "has '0' more than once"),
    "no class": (
        {"index": ALL, "prediction": ["blue"] * SAMPLES},
        "is no class, such as 'blue'. The classes are red, green",
    ),
    "no number": ({"index": ALL, "prediction": [2] * SAMPLES}, "is no class, such as '2'"),
    "empty": (
        {"index": ALL, "prediction": ["red"] * 39 + [""]},
        "1 rows whose prediction is empty, such as that of index '39'",
    ),
    "empty among floats": (
        {"index": ALL, "prediction": ["0.0", "1.0"] * 19 + ["", "1.0"]},
        "1 rows whose prediction is empty, such as that of index '38'",
    ),
    "nan": ({"index": ALL, "prediction": ["0.0", "nan"] * 20}, "20 rows whose prediction is empty"),
    "no whole number": ({"index": ALL, "prediction": ["0.5", "1.0"] * 20}, "20 rows .* is no class, such as '0.5'"),
    "one number": ({"index": ALL, "p_1": [0.5] * SAMPLES}, "has no column 'p_0'"),
    "columns of no class": (
        {"index": ALL, "p_1": [0.5] * SAMPLES, "p_2": [0.5] * SAMPLES},
        "has no column 'p_0'",
    ),
    "columns of other names": (
        {"index": ALL, "p_blue": [0.5] * SAMPLES, "p_gray": [0.5] * SAMPLES},
        "the column 'p_blue', which is of no class. Probabilities stand in the columns p_red, p_green, or p_0, p_1",
    ),
    "labels": ({"index": ALL, "prediction": [0] * 40, "label": [1, 0] * 20}, "another label than the run for 40 of 40"),
    "one column": ({"index": ALL, "p_red": [0.5] * SAMPLES}, "has no column 'p_green'"),
    "sums": ({"index": ALL, "p_red": [0.5] * SAMPLES, "p_green": [0.7] * SAMPLES}, "are no probabilities"),
    "nan of a class": ({"index": ALL, "p_red": ["nan"] * SAMPLES, "p_green": [0.7] * SAMPLES}, "are no probabilities"),
    "negative": ({"index": ALL, "p_red": [-0.5] * SAMPLES, "p_green": [1.5] * SAMPLES}, "are no probabilities"),
    "words": ({"index": ALL, "p_red": ["x"] * SAMPLES, "p_green": [1] * SAMPLES}, "are no numbers"),
    "both": (
        {"index": ALL, "p_red": [0.2] * SAMPLES, "p_green": [0.8] * SAMPLES, "prediction": ["red"] * SAMPLES},
        "40 rows whose prediction is not their most probable class",
    ),
    "split": (
        {"index": ALL, "prediction": [0] * SAMPLES, "split": ["tst"] * SAMPLES},
        "the split 'tst', and the run has",
    ),
}


@pytest.mark.parametrize(("columns", "message"), WRONG.values(), ids=WRONG)
def test_wrong_files_are_refused(columns: dict[str, list[object]], message: str, run: Run, tmp_path: Path) -> None:
    with pytest.raises(SitarError, match=message):
        import_predictions([f"mine={table(tmp_path / 'p.csv', columns)}"], run)


def test_an_order_that_nothing_shows_is_warned_of(run: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    columns: dict[str, list[object]] = {"index": ALL, "prediction": [0] * SAMPLES}
    import_predictions([f"mine={table(tmp_path / 'p.csv', columns)}"], run)
    assert "neither names nor labels" in caplog.text
    caplog.clear()
    columns["label"] = run.labels("ood_test").tolist()
    import_predictions([f"mine={table(tmp_path / 'p.csv', columns)}"], run)
    assert not caplog.text
