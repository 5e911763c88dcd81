"""Which runs a sweep has, and what their folders are called. The names are pinned: a new name makes every run again."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from sitar.errors import ConfigError, RunError
from sitar.presets import load_config
from sitar.run_folder import RunFolder
from sitar.sweeps.axes import Range, parse_over
from sitar.sweeps.plan import LONGEST, Plan, default_root, point_name


def plan(*over: str, seeds: tuple[int, ...] = (0,), preset: str = "color_mnist/sitar", root: str = "out") -> Plan:
    return Plan(preset, (), tuple(parse_over(over)), seeds, Path(root))


@pytest.mark.parametrize(
    ("values", "name"),
    [
        ({"method.alpha": 0.5}, "method.alpha=0.5"),
        ({"method.alpha": 1.0, "model.latent_dim": 10}, "method.alpha=1,model.latent_dim=10"),
        ({"train.learning_rate": 1e-05}, "train.learning_rate=1e-05"),
        ({"method.noise": "direction"}, "method.noise=direction"),
        ({"model.freeze_encoder": True, "model.head_hidden": None}, "model.freeze_encoder=true,model.head_hidden=null"),
        ({"model.encoder": "resnet18.tv_in1k"}, "model.encoder=resnet18.tv_in1k"),
        ({"data.label": "Male"}, "data.label=Male-4844a329"),
        ({"data.root": "../a b"}, "data.root=_a_b-c14ab965"),
        ({"data.root": "x."}, "data.root=x_-b7f3d882"),
        ({"model.channels": [4, 8]}, "model.channels=_4_8_-e956190c"),
        ({"data.label": "1"}, "data.label=1-391552c0"),
        ({}, "preset"),
    ],
)
def test_the_name_of_a_point_is_stable(values: dict[str, Any], name: str) -> None:
    assert point_name(values) == name


def test_names_are_different_where_values_are() -> None:
    values = [1, 1.5, "1", True, "true", None, "null", "male", "Male", "a/b", "a b", [1], "[1]", "x", "x."]
    names = [point_name({"data.label": value}).casefold() for value in values]
    assert len(set(names)) == len(values)


def test_a_long_name_is_cut_and_stays_apart() -> None:
    names = {point_name({f"method.setting{i}": i + end for i in range(20)}) for end in (0, 1)}
    assert len(names) == 2
    assert max(map(len, names)) <= LONGEST + 9


def test_a_grid_has_every_combination_once() -> None:
    points = plan("method.alpha=0.1,1e-1,0.10,1", "model.latent_dim=4,8").grid()
    assert [point.name for point in points] == [
        "method.alpha=0.1,model.latent_dim=4",
        "method.alpha=0.1,model.latent_dim=8",
        "method.alpha=1,model.latent_dim=4",
        "method.alpha=1,model.latent_dim=8",
    ]
    assert load_config("color_mnist/sitar", points[0].overrides, 0) == points[0].config


def test_jobs_go_seed_by_seed_and_leave_out_what_is_finished(tmp_path: Path) -> None:
    made = plan("method.alpha=0.1,1", seeds=(0, 1), root=str(tmp_path))
    points = made.grid()
    done = made.folder(points[0], 1)
    done.write_config({**points[0].config.to_dict(), "seed": 1})
    done.finish({})
    jobs = made.jobs(points)
    assert [Path(job.folder).relative_to(tmp_path).as_posix() for job in jobs] == [
        "method.alpha=0.1/seed0",
        "method.alpha=1/seed0",
        "method.alpha=1/seed1",
    ]
    assert jobs[1].recipe == jobs[2].recipe != jobs[0].recipe


def test_a_folder_with_other_settings_is_refused(tmp_path: Path) -> None:
    made = plan("method.alpha=0.1", root=str(tmp_path))
    RunFolder(tmp_path / "method.alpha=0.1" / "seed0").write_config(load_config("color_mnist/erm").to_dict())
    with pytest.raises(RunError, match=r"other settings.*Choose another folder.*method.name: 'sitar' asked for, 'erm'"):
        made.check_folders(made.grid())


@pytest.mark.parametrize(
    ("over", "says"),
    [
        ("method.alhpa=1", "Did you mean 'alpha'"),
        ("method.alpha=-1", "greater than or equal to 0"),
        ("method=1,2", "expected settings"),
        ("method.alpha=0.1..1", "add --search optuna"),
        ("preset=a,b", "named by the argument"),
    ],
)
def test_a_grid_that_cannot_be_run_is_refused_before_it_begins(over: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        plan(over).grid()


def test_a_grid_of_too_many_runs_is_refused() -> None:
    many = ",".join(map(str, range(1, 102)))
    with pytest.raises(ConfigError, match="10,201 runs"):
        plan(f"train.epochs={many}", f"model.latent_dim={many}").grid()


def test_a_range_has_whole_numbers_where_the_setting_does() -> None:
    alpha, axes = plan("method.alpha=0..10", "model.latent_dim=2..8").typed().axes
    assert alpha == Range("method.alpha", 0, 10, integer=False)
    assert axes == Range("model.latent_dim", 2, 8, integer=True)
    with pytest.raises(ConfigError, match="valid integer"):
        plan("train.epochs=1.5..3").typed()
    with pytest.raises(ConfigError, match=r"method\.noise = 1 is not allowed"):
        plan("method.noise=1..3").typed()
    with pytest.raises(ConfigError, match="is no number, so it has no range"):
        plan("method.score_floor=0..1").typed()


def test_the_control_is_known() -> None:
    assert [point.is_control for point in plan("method.alpha=0,0.1").grid()] == [True, False]
    assert [point.is_control for point in plan("train.epochs=1", preset="color_mnist/erm").grid()] == [False]


def test_the_default_folder_follows_from_preset_and_settings() -> None:
    assert default_root("color_mnist/sitar", []).as_posix() == "runs/sweeps/color_mnist/sitar"
    root = default_root("mine/own.yaml", ["train.epochs=2", "data.rho=1"])
    assert root == default_root("mine/own.yaml", ["data.rho=1", "train.epochs=2"])
    assert root.as_posix() == "runs/sweeps/own-0ced19e2"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="Windows has no such pipes")
def test_logs_that_lead_elsewhere_are_refused_before_anything_is_run(tmp_path: Path) -> None:
    """A sweep folder from a stranger may hold links and pipes. What a run prints is appended to its log."""
    made, mine = plan("method.alpha=0.5", root=str(tmp_path / "sweep")), tmp_path / "mine"
    mine.mkdir()
    points = list(made.grid())
    log = made.log(points[0], 0)
    made.check_folders(points)
    log.parent.parent.parent.mkdir(parents=True)
    (made.root / "logs").symlink_to(mine)
    with pytest.raises(RunError, match="no file of this sweep folder"):
        made.check_folders(points)
    (made.root / "logs").unlink()
    log.parent.mkdir(parents=True)
    log.symlink_to(mine / "profile")
    with pytest.raises(RunError, match="no file of this sweep folder"):
        made.check_folders(points)
    log.unlink()
    os.mkfifo(log)
    with pytest.raises(RunError, match="no file of this sweep folder"):
        made.check_folders(points)
    assert not list(mine.iterdir())
