"""`sitar train --seeds`: a run for each seed, and a table of all of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from helpers.cli import sitar, sitar_error

TINY = ["data.train_size=80", "data.eval_size=40", "data.image_size=14", "model.channels=[4]", "train.epochs=1"]
SETTINGS = [word for setting in TINY for word in ("--set", setting)]
COMMAND = ["train", "color_mnist/sitar", *SETTINGS, "--device", "cpu"]


def test_every_seed_has_a_run_folder_and_a_row(tmp_path: Path) -> None:
    done = sitar(*COMMAND, "--seeds", "0-2", "--stack", "always", cwd=tmp_path)
    folders = sorted((tmp_path / "runs" / "color_mnist" / "sitar").iterdir())
    assert [folder.name.partition("-")[0] for folder in folders] == ["seed0", "seed1", "seed2"]
    assert all((folder / "done").exists() for folder in folders)
    assert "3 seeds are trained as one model." in done.stderr
    words = [set(line.replace("│", " ").split()[:1]) for line in done.stdout.splitlines()]
    assert [{"0"}, {"1"}, {"2"}, {"mean"}] == [row for row in words if row & {"0", "1", "2", "mean"}]
    compared = sitar("compare", *folders, cwd=tmp_path)
    assert "color_mnist/sitar" in compared.stdout
    refused = sitar_error(*COMMAND, "--seeds", "0-2", cwd=tmp_path)
    first = folders[0].relative_to(tmp_path)
    assert refused == (
        f"Error: The seeds 0, 1, 2 are finished already, the first in '{first}'. --resume shows their results, and "
        "--out names another folder. Nothing was overwritten.\n"
    )
    assert "Failed: seed 2" in sitar_error(*COMMAND, "--seeds", "2-3", cwd=tmp_path), "seed 3 was made"
    again = sitar(*COMMAND, "--seeds", "0-3", "--resume", "--json", cwd=tmp_path)
    found = json.loads(again.stdout)
    assert [run["seed"] for run in found] == [0, 1, 2, 3]
    assert all(run["error"] is None and run["result"]["seed"] == run["seed"] for run in found)


def test_one_seed_is_the_single_run(tmp_path: Path) -> None:
    done = sitar(*COMMAND, "--seeds", "4", "--out", "run", cwd=tmp_path)
    assert "color_mnist/sitar, seed 4" in done.stdout
    assert (tmp_path / "run" / "done").exists()


@pytest.mark.ci
def test_seeds_that_fail_are_named_and_the_status_tells_it(tmp_path: Path) -> None:
    """A learning rate that no seed survives."""
    broken = [*COMMAND, "--set", "train.learning_rate=1e30", "--set", "train.epochs=3", "--out", "runs"]
    done = sitar(*broken, "--seeds", "0,7", "--stack", "always", cwd=tmp_path, expect=2)
    assert done.stdout.count("failed") >= 2
    for seed in (0, 7):
        assert f"Failed: seed {seed}: The loss became" in done.stderr
        assert not (tmp_path / "runs" / f"seed{seed}" / "done").exists()


def test_what_makes_no_sense_is_refused(tmp_path: Path) -> None:
    assert "Use one of them" in sitar_error(*COMMAND, "--seeds", "0-1", "--seed", "2", cwd=tmp_path)
    assert "neither a list of numbers" in sitar_error(*COMMAND, "--seeds", "many", cwd=tmp_path)
    assert "auto, always, never" in sitar_error(*COMMAND, "--seeds", "0-1", "--stack", "maybe", cwd=tmp_path)
    assert not list(tmp_path.iterdir())
