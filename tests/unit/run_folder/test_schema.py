"""A run folder of a stranger costs one message, whichever value of it is wrong."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from safetensors.numpy import save_file

from helpers.cli import sitar_error
from helpers.made_runs import make_run
from sitar.errors import RunError
from sitar.evaluation.metrics import METRICS
from sitar.run_folder import RunFolder
from sitar.run_folder.schema import MOST_CLASSES, MOST_GROUPS

NUMBER = int("9" * 400)
EXPECTED = {"accuracy": 0.5, "interval": [0.4, 0.6]}
REFIT = {
    "run": "a", "features": "latent", "penalty": 1.0, "weighted": False, "expected": EXPECTED,
    "before": [{"run": "a", **EXPECTED}],
}  # fmt: skip


def task(**values: Any) -> dict[str, Any]:
    return {"task": {"shape": [3, 8, 8], "class_counts": [5, 5], **values}}


def split(**values: Any) -> dict[str, Any]:
    return {"splits": {"ood_test": {"n": 10, "average": 0.5, **values}}}


DAMAGES: dict[str, dict[str, Any]] = {
    "two sides": task(shape=[3, 4]),
    "no side": task(shape=[]),
    "empty side": task(shape=[0]),
    "negative side": task(shape=[-6]),
    "endless sides": task(shape=[3, 2**40, 2**40]),
    "negative count": task(class_counts=[5, -5]),
    "endless count": task(class_counts=[5, 2**60]),
    "no classes": task(class_counts=[]),
    "other classes": task(class_counts=[5, 5, 5]),
    "groups without environments": task(group_counts=[5, 5]),
    "no environment": task(group_counts=[5, 5], environments=0),
    "endless groups": task(group_counts=[2**50, 5], environments=2),
    "columns without a name": task(feature_columns=[1, 2]),
    "one column twice": task(feature_columns=["f0", "f0"]),
    "no columns": task(feature_columns=[]),
    "expected word": {"refit": {**REFIT, "expected": "x"}},
    "expected empty": {"refit": {**REFIT, "expected": {}}},
    "before number": {"refit": {**REFIT, "before": 3}},
    "before list of numbers": {"refit": {**REFIT, "before": [3]}},
    "calibration word": split(calibration_error="x"),
    "calibration mapping": split(calibration_error={}),
    "calibration endless": split(calibration_error=NUMBER),
    "auroc word": split(auroc="x"),
    "accuracy above one": split(groups={"label=0": {"n": 3, "accuracy": 2.0}}),
    "negative size": split(groups={"label=0": {"n": -3, "accuracy": 0.5}}),
    "interval nan": split(intervals={"average": [float("nan"), 0.5]}),
    "seconds nan": {"seconds": float("nan")},
    "seconds infinite": {"seconds": float("inf")},
    "nan elsewhere": {"more": [{"x": float("nan")}]},
    "deep": {"more": json.loads("[" * 200 + "]" * 200)},
    "no split": {"splits": {}},
    "unknown split": {"splits": {"mine": {"n": 10, "average": 0.5}}},
    "classes twice": {"classes": ["red", "red"]},
}


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    """A run that `sitar push` would publish."""
    made = make_run(tmp_path / "run", explained=False)
    made.model_file.parent.mkdir(exist_ok=True)
    save_file({"w": np.zeros(1, np.float32)}, made.model_file)
    return made


def change(file: Path, **values: Any) -> None:
    file.write_text(json.dumps({**json.loads(file.read_text()), **values}))


def said_by_all(folder: RunFolder) -> list[str]:
    """What `sitar card`, `push`, `report` and `compare` say of a run that none of them can use."""
    out = folder.path.parent
    return [
        sitar_error("card", folder.path, "--out", out / "card.md", "--force"),
        sitar_error("push", folder.path, "me/digits"),
        sitar_error("report", folder.path, "--out", out / "report.html"),
        sitar_error("compare", folder.path),
    ]


@pytest.mark.parametrize("damage", DAMAGES)
def test_wrong_values_of_a_result_cost_a_message(folder: RunFolder, damage: str) -> None:
    change(folder.result_file, **DAMAGES[damage])
    for said in said_by_all(folder):
        assert "result.json' is damaged" in said


@pytest.mark.parametrize("crop", ["x", [1, 2]])
def test_wrong_settings_cost_a_message(folder: RunFolder, crop: Any) -> None:
    change(folder.result_file, **task())
    settings = yaml.safe_load(folder.config_file.read_text())
    settings["data"]["crop_pct"] = crop
    folder.config_file.write_text(yaml.safe_dump(settings))
    for said in said_by_all(folder):
        assert "config.yaml' is damaged: data.crop_pct" in said


def test_a_seed_that_is_no_number_is_not_published(folder: RunFolder) -> None:
    change(folder.environment_file, seed=float("nan"))
    assert "is damaged, so it is not published" in sitar_error("push", folder.path, "me/digits")


@pytest.mark.parametrize(
    ("wrong", "bound"),
    [
        (lambda: split(groups={f"label=0,a={i}": {"n": 1, "accuracy": 0.5} for i in range(200_000)}), MOST_GROUPS),
        (lambda: split(groups={f"label=0,a={i}": 0 for i in range(500_000)}), MOST_GROUPS),
        (lambda: {"classes": [str(i) for i in range(200_000)]}, MOST_CLASSES),
        (lambda: {"attributes": {"a": [str(i) for i in range(200_000)]}}, MOST_CLASSES),
    ],
)
def test_more_groups_or_classes_than_any_run_has_are_refused_at_once(
    folder: RunFolder, wrong: Callable[[], dict[str, Any]], bound: int
) -> None:
    change(folder.result_file, **wrong())
    began = time.process_time()
    said = sitar_error("card", folder.path, "--out", folder.path.parent / "card.md")
    assert f"at most {bound:,} are read" in said
    assert time.process_time() - began < 3


@pytest.mark.parametrize("metric", METRICS)
def test_every_metric_is_checked(folder: RunFolder, metric: str) -> None:
    for wrong in ("x", [0.5], True, NUMBER, float("nan")):
        change(folder.result_file, **split(**{metric: wrong}))
        with pytest.raises(RunError, match="is damaged"):
            folder.result()
    change(folder.result_file, **split(**{metric: None}))
    assert folder.result()


def test_what_runs_are_made_of_is_read(folder: RunFolder) -> None:
    """A last layer that was fitted again, groups of the training data, and a run that was trained on everything."""
    change(folder.result_file, refit=REFIT, **task(group_counts=[5, 0, 5], environments=2))
    assert folder.result().get("refit") == REFIT
    change(folder.result_file, splits={"train": {"n": 10, "average": 0.5, "groups": {}}})
    assert folder.result()["splits"].keys() == {"train"}
