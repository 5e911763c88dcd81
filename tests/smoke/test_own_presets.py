"""The data on which presets for one's own images are chosen (reproduce/own_presets.py)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from helpers.scripts import script

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
