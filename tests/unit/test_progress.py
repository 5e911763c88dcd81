"""Progress of slow work: nothing for a moment's work, lines where there is no terminal, a bar where there is one."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

import sitar
from helpers import made_data
from sitar import progress
from sitar.cli.data import app
from sitar.data import load_data
from sitar.progress import ShownProgress


class Clock:
    """A clock that stands still until it is told to go on."""

    now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(progress, "time", clock)
    return clock


def count(tell: Callable[[int], None], clock: Clock, total: int, seconds: float) -> None:
    """Do so much work, one piece in so many seconds."""
    for done in range(1, total + 1):
        clock.now += seconds
        tell(done)


def test_work_of_a_moment_is_not_shown(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    with ShownProgress() as shown:
        count(shown.watch("images", 100), clock, 100, 0.01)
    assert capsys.readouterr().err == ""


def test_lines_now_and_then(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    with ShownProgress() as shown:
        count(shown.watch("CelebA: images decoded", 4000), clock, 4000, 0.01)
    assert capsys.readouterr().err.splitlines() == [
        "CelebA: images decoded: 200/4,000, 38 s left",
        "CelebA: images decoded: 1,700/4,000, 23 s left",
        "CelebA: images decoded: 3,200/4,000, 8 s left",
    ]


def test_a_slow_start_does_not_count_as_the_pace(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    with ShownProgress() as shown:
        tell = shown.watch("last layers fitted", 605)
        clock.now += 5.6
        tell(1)
        count(lambda done: tell(1 + done), clock, 604, 0.03)
    assert capsys.readouterr().err.splitlines() == [
        "last layers fitted: 1/605",
        "last layers fitted: 501/605, 3 s left",
    ]


def test_what_an_earlier_process_did_does_not_count_as_the_pace(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    with ShownProgress() as shown:
        tell = shown.watch("images decoded", 4000)
        count(lambda done: tell(3000 + done), clock, 40, 0.125)
    assert capsys.readouterr().err == "images decoded: 3,016/4,000, 123 s left\n"


def test_nothing_is_shown_where_nobody_wants_it(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    with ShownProgress(enabled=False) as shown:
        count(shown.watch("images", 100), clock, 100, 1.0)
    assert capsys.readouterr().err == ""


def test_a_bar_on_a_terminal(clock: Clock) -> None:
    with ShownProgress() as shown:
        shown.console = Console(file=io.StringIO(), force_terminal=True, width=80)
        tell = shown.watch("images", 50)
        count(tell, clock, 2, 0.5)
        assert shown.bar is None
        count(tell, clock, 30, 0.5)
        assert shown.bar is not None
        (task,) = shown.bar.tasks
        assert (task.description, task.completed, task.total) == ("images", 30, 50)
        assert shown.bar.live.is_started
    assert not shown.bar.live.is_started


def test_the_bar_ends_with_an_error(clock: Clock) -> None:
    shown = ShownProgress()
    shown.console = Console(file=io.StringIO(), force_terminal=True, width=80)

    def fail() -> None:
        with shown:
            count(shown.watch("images", 50), clock, 5, 1.0)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert shown.bar is not None
    assert not shown.bar.live.is_started


@pytest.fixture
def patience(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    """Everything is slow, and no image is decoded yet."""
    monkeypatch.setattr(progress, "PATIENCE_SECONDS", 0.0)


@pytest.mark.usefixtures("patience")
def test_decoding_is_shown_wherever_data_is_loaded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = made_data.folder(tmp_path / "images")
    load_data(config)
    assert "A folder of yours: images decoded: 40/40, 0 s left" in capsys.readouterr().err
    load_data(config)
    assert capsys.readouterr().err == ""  # from the cache
    load_data(config.model_copy(update={"image_size": 8}), progress=False)
    assert capsys.readouterr().err == ""


@pytest.mark.usefixtures("patience")
@pytest.mark.parametrize("shown", [True, False])
def test_training_and_loading_a_run_show_it(
    shown: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made_data.folder(tmp_path / "images")
    overrides = [f"data.root={tmp_path / 'images'}", "data.image_size=8", "model.channels=[4]", "train.epochs=1"]
    run = sitar.train("folder/erm", overrides=overrides, out=tmp_path / "run", device="cpu", progress=shown)
    assert ("images decoded" in capsys.readouterr().err) == shown
    monkeypatch.setenv("SITAR_CACHE", str(tmp_path / "another"))
    model = sitar.load(run, device="cpu")
    assert capsys.readouterr().err == ""  # a model needs no data
    assert len(model.data.train) > 0
    assert "A folder of yours: images decoded: 40/40" in capsys.readouterr().err


@pytest.mark.usefixtures("patience")
def test_prepare_shows_it(tmp_path: Path) -> None:
    made_data.folder(tmp_path / "images")
    done = CliRunner().invoke(app, ["prepare", "folder", "--root", str(tmp_path / "images"), "--set", "image_size=12"])
    assert done.exit_code == 0
    assert "A folder of yours: images decoded: 40/40" in done.stderr
    assert "40 images ready" in done.stdout
