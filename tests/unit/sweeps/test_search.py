"""What a search tries: the same for the same command, after any stop, and never outside its ranges."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from helpers.bits import flipped
from sitar.errors import ConfigError, RunError
from sitar.sweeps.axes import parse_over
from sitar.sweeps.choosing import Rule
from sitar.sweeps.notes import Notes
from sitar.sweeps.plan import Plan, Point
from sitar.sweeps.search import Search, Trial

pytest.importorskip("optuna", reason='needs Optuna: pip install "sitar[optuna]"')
OVER = ("method.alpha=0.01..10:log", "model.latent_dim=2..8", "method.noise=axis,direction")
RULE = Rule("average")


def search(folder: Path, *over: str, higher: bool = True, seeds: tuple[int, ...] = (0, 1)) -> Search:
    plan = Plan("color_mnist/sitar", (), tuple(parse_over(over or OVER)), seeds, folder).typed()
    return Search(plan, RULE, folder / "optuna.db", higher)


def score(point: Point) -> float:
    """As if a small alpha and many axes were good."""
    return 1 / (1 + point.values["method.alpha"]) + 0.01 * point.values["model.latent_dim"]


def run(found: Search, total: int, size: int = 2, score: Callable[[Point], float | None] = score) -> list[str]:
    for trials in found.rounds(total, size):
        for trial in trials:
            found.tell(trial, score(trial.point))
    return [trial.point.name for trial in found.trials()]


def test_values_are_of_their_ranges_and_short(tmp_path: Path) -> None:
    run(found := search(tmp_path), 12)
    assert len(found.trials()) == 12
    for trial in found.trials():
        alpha, axes, noise = trial.point.values.values()
        assert 0.01 <= alpha <= 10
        assert alpha == float(f"{alpha:.4g}")
        assert axes in range(2, 9)
        assert isinstance(axes, int)
        assert noise in ("axis", "direction")


def test_the_same_search_tries_the_same(tmp_path: Path) -> None:
    whole = run(search(tmp_path / "a"), 12)
    assert run(search(tmp_path / "b"), 12) == whole
    assert run(search(tmp_path / "c"), 12, score=lambda point: -score(point)) != whole, "what came out decides the next"


@pytest.mark.ci
def test_a_search_that_is_stopped_anywhere_tries_the_same(tmp_path: Path) -> None:
    whole = run(search(tmp_path / "whole"), 8)

    def told(found: Search, trial: Trial) -> None:
        found.tell(trial, score(trial.point))

    for stop in (1, 2, 3, 6):  # a new process after every trial that was asked for or told of
        found, told_of = search(tmp_path / f"stopped{stop}"), 0
        for trials in found.rounds(8, 2):
            for trial in trials:
                if told_of < stop:
                    told(found, trial)
                    told_of += 1
            if told_of == stop:
                break
        assert run(search(tmp_path / f"stopped{stop}"), 8) == whole, stop


def test_more_trials_go_on_from_there(tmp_path: Path) -> None:
    first = run(search(tmp_path), 4)
    assert run(search(tmp_path), 8)[:4] == first
    assert len(run(search(tmp_path), 6)) == 8


def test_a_trial_without_a_result_is_tried_again_by_the_same_command(tmp_path: Path) -> None:
    failing = search(tmp_path)
    names = run(failing, 4, score=lambda point: None)
    again = next(iter(search(tmp_path).rounds(4, 2)))
    assert [trial.point.name for trial in again] == names


def test_settings_that_do_not_fit_together_are_left_out(tmp_path: Path) -> None:
    over = ("train.warmup_epochs=0,5", "train.epochs=4,8")
    found = search(tmp_path, *over)
    names = run(found, 12, score=lambda point: 1.0)
    assert names
    assert "train.warmup_epochs=5,train.epochs=4" not in names
    assert len(found.study.trials) == 12


def test_it_looks_for_the_lowest_where_that_is_best(tmp_path: Path) -> None:
    run(found := search(tmp_path, higher=False), 10)
    assert found.study.best_value == min(score(trial.point) for trial in found.trials())


def test_other_searches_in_the_same_folder_are_apart(tmp_path: Path) -> None:
    run(search(tmp_path), 3)
    assert search(tmp_path, "method.alpha=0.1..1").trials() == []
    assert search(tmp_path, seeds=(0,)).trials() == []
    assert len(search(tmp_path).trials()) == 3


def test_what_cannot_be_searched_is_refused(tmp_path: Path) -> None:
    plan = Plan("color_mnist/sitar", (), (), (0,), tmp_path)
    with pytest.raises(ConfigError, match="needs settings to vary"):
        Search(plan, RULE, tmp_path / "optuna.db", True)
    (tmp_path / "optuna.db").write_bytes(b"not a database" * 100)
    with pytest.raises(RunError, match="cannot be read"):
        search(tmp_path)


def values(found: Search) -> list[dict[str, Any]]:
    return found._known()


@pytest.mark.ci
def test_one_flipped_bit_of_the_trials_is_named_and_never_used(tmp_path: Path) -> None:
    run(search(tmp_path), 6)
    sound = values(search(tmp_path))
    refused = {"optuna.db": 0, "trials.json": 0}
    for name in refused:
        content = (tmp_path / name).read_bytes()
        written = [8 * place + place % 8 for place, byte in enumerate(content) if byte]  # most of a database is zero
        for bit in random.Random(0).sample(written, 50):
            copy = tmp_path / "copy"
            shutil.rmtree(copy, ignore_errors=True)
            copy.mkdir()
            for file in refused:
                shutil.copy(tmp_path / file, copy)
            (copy / name).write_bytes(flipped(content, bit))
            try:
                assert values(search(copy)) == sound, f"bit {bit} of {name} was used"
            except RunError as error:
                refused[name] += name in str(error)
    assert refused["optuna.db"] > 10, "the rest holds nothing that is read: times, names, free pages"
    assert refused["trials.json"] > 45


def test_a_kill_before_a_trial_is_noted_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = run(search(tmp_path / "whole"), 3)
    folder = tmp_path / "killed"
    for _ in range(30):
        calls = iter(range(2))  # one note, and then the process is gone
        write = Notes.write

        def killed(notes: Notes, trials: Any, calls: Any = calls, write: Any = write) -> None:
            if next(calls, None) is None:
                raise KeyboardInterrupt
            write(notes, trials)

        with monkeypatch.context() as patch, suppress(KeyboardInterrupt):
            patch.setattr(Notes, "write", killed)
            run(search(folder), 3)
            break
    assert run(search(folder), 3) == whole


def test_trials_of_an_earlier_release_are_continued(tmp_path: Path) -> None:
    run(search(tmp_path), 4)
    (tmp_path / "trials.json").unlink()
    known = values(search(tmp_path))
    assert len(known) == 4
    assert (tmp_path / "trials.json").exists()


def test_a_storage_that_has_lost_a_trial_is_named(tmp_path: Path) -> None:
    run(search(tmp_path), 2)
    (tmp_path / "before").mkdir()
    shutil.copy(tmp_path / "optuna.db", tmp_path / "before")
    run(search(tmp_path), 4)
    shutil.copy(tmp_path / "before" / "optuna.db", tmp_path)
    with pytest.raises(RunError, match=r"optuna\.db.* it has 2 trials, by the notes in .*trials\.json"):
        search(tmp_path)


def test_trials_are_not_kept_where_a_link_leads(tmp_path: Path) -> None:
    folder = tmp_path / "sweep"
    folder.mkdir()
    (folder / "optuna.db").symlink_to(tmp_path / "elsewhere.db")
    with pytest.raises(RunError, match="is a link"):
        search(folder)
    assert not (tmp_path / "elsewhere.db").exists()
