"""The data on which presets for one's own images are chosen (reproduce/own_presets.py)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from helpers.scripts import script
from sitar.presets import load_config

own_presets = script("reproduce/own_presets.py")


@pytest.mark.parametrize("task", own_presets.TASKS)
def test_the_cue_tells_the_label_as_often_as_asked_for_and_nothing_in_the_test(task: str, tmp_path: Path) -> None:
    rho = own_presets.TASKS[task][2]
    own_presets.make_data(task, tmp_path / "data.npz")
    with np.load(tmp_path / "data.npz") as file:
        x, y, split, cue = (file[name] for name in ("x", "y", "split", "attribute"))
    training, test = split != "test", split == "test"
    assert np.mean(cue[training] == y[training]) == pytest.approx(rho, abs=0.03 if rho < 1 else 0)
    assert np.mean(cue[test] == y[test]) == pytest.approx(0.5, abs=0.08)
    assert min(np.sum((y == a) & (cue == b) & test) for a in (0, 1) for b in (0, 1)) > 30
    brightest = x.max(axis=(2, 3)).astype(int)  # of each channel: the cue can be seen
    if "colour" in task or "digits" in task:
        assert ((brightest[:, 0] > brightest[:, 1]) == (cue == 1)).all()
    else:
        assert ((x[:, 0, 0, 0] == 255) == (cue == 1)).mean() > 0.95


def test_wrong_labels_are_wrong_in_all_parts(tmp_path: Path) -> None:
    """So no model can be right about more than three of four images by their shape."""
    right, wrong = "colour, 95 %", "colour, 90 %, wrong labels"
    for task in (right, wrong):
        own_presets.make_data(task, tmp_path / f"{task}.npz")
    with np.load(tmp_path / f"{right}.npz") as a, np.load(tmp_path / f"{wrong}.npz") as b:
        assert np.mean(a["y"] != b["y"]) == pytest.approx(0.25, abs=0.03)


@pytest.mark.parametrize(
    ("row", "preset"),
    [
        ("small, direction, alpha 1, beta 0.2", "sitar_best"),
        ("small, control, beta 0.2", "control"),
        ("small, ERM", "erm"),
        ("small, auto", "sitar_auto"),
    ],
)
@pytest.mark.parametrize("folder", ["folder", "table"])
def test_what_the_study_chose_is_what_the_presets_have(row: str, preset: str, folder: str) -> None:
    base, settings = own_presets.ROWS[row]
    studied = load_config(base, [*own_presets.LIKE_FOLDER, *settings, "train.selection=last", "data.file=x.npz"])
    shipped = load_config(f"{folder}/{preset}", ["data.root=x", "train.evaluate=[val,test]"])
    for section in ("model", "method", "train"):
        assert getattr(studied, section) == getattr(shipped, section), section


def test_the_summary_is_a_mean_over_tasks_with_a_shortcut_and_over_those_without() -> None:
    """Every run has 10 times the place of its task, in percent, and a tenth more at the last epoch."""
    runs = [
        {
            "task": task, "row": "ERM", "seed": 0,
            "kept": {"average": place / 10, "worst_group": place / 10},
            "last": {"average": place / 10 + 0.001, "worst_group": place / 10 + 0.001},
        }
        for place, task in enumerate(own_presets.TASKS)
    ]  # fmt: skip
    (row,) = own_presets.summary(runs)
    assert row["row"] == "ERM"
    assert row["kept worst_group"] == pytest.approx((0 + 0.1 + 0.2 + 0.3 + 0.4) / 5)
    assert row["last worst_group"] == pytest.approx(0.201)
    assert row["kept average without a shortcut"] == pytest.approx(0.55)
    assert own_presets.summary(runs[:-1]) == []  # a row counts when all its tasks have run
