"""Benchmarks measure what they say: parts of a run without those within them, and epochs over rows of a real cache."""

from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np
import pytest
import torch

import sitar.training.run
from helpers.scripts import script
from sitar.training.loop import Loop

compare, contestants, page, whole_run = (
    script(f"benchmarks/{name}.py") for name in ("compare", "contestants", "page", "whole_run")
)
SHAPE = (3, 28, 28)


class Worker:
    def outer(self) -> None:
        time.sleep(0.02)
        self.inner()

    def inner(self) -> None:
        time.sleep(0.05)


def test_a_part_within_another_is_not_counted_there(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(whole_run.time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(time, "sleep", lambda seconds: now.__setitem__(0, now[0] + seconds))
    clock = whole_run.Clock(lambda: None)

    class Own(Worker):
        pass

    clock.watch(Own, "outer", "outer")
    clock.watch(Own, "inner", "inner")
    clock.watch(Own, "not there", "nothing")
    time.sleep(0.01)
    Own().outer()
    assert clock.seconds == pytest.approx({"rest": 0.01, "outer": 0.02, "inner": 0.05})


def test_the_parts_of_a_run_exist() -> None:
    """A hook whose function has another name today would be left out silently."""
    for owner, names in {
        Loop: ("build_step", "_epoch", "_evaluate", "_save"),
        sitar.training.run: ("load", "Making", "evaluate_method", "finish"),
    }.items():
        assert all(callable(getattr(owner, name)) for name in names)


@pytest.mark.parametrize(("words", "numbers"), [("3", [3]), ("0-2", [0, 1, 2])])
def test_seeds_are_read(words: str, numbers: list[int]) -> None:
    assert whole_run.seeds_of(words) == numbers


@pytest.mark.ci
@pytest.mark.parametrize("numbers", ["0", "0-1"])
def test_a_whole_run_is_timed(numbers: str) -> None:
    settings = ["train.epochs=1", "data.train_size=300", "data.eval_size=100"]
    row = whole_run.measure("demo/erm", numbers, "never", settings, "cpu")
    assert "error" not in row, row
    assert row["parts"]["training"] > 0
    assert row["parts"]["evaluation"] > 0
    assert sum(row["parts"].values()) == pytest.approx(row["seconds"], abs=0.1)


@pytest.mark.ci
def test_a_run_that_fails_leaves_its_error() -> None:
    row = whole_run.measure("demo/erm", "0", "never", ["train.epochs=none"], "cpu")
    assert "train.epochs" in row["error"]


def test_a_cache_of_random_images_is_read_as_a_real_one(tmp_path: Path) -> None:
    contestants.make_cache(tmp_path, 5, SHAPE)
    rows = contestants.mapped(tmp_path)
    assert rows[torch.tensor([4, 0])].shape == (2, *SHAPE)
    assert isinstance(rows.array.base, np.memmap) or isinstance(rows.array, np.memmap)
    assert (rows[:] == torch.from_numpy(np.load(tmp_path / "images.npy"))).all()


def test_an_epoch_gathers_every_row(tmp_path: Path) -> None:
    contestants.make_cache(tmp_path, 600, SHAPE)
    work = contestants.Work("demo/erm", SHAPE, 600, "cpu", ("train.batch_size=256",), str(tmp_path))
    gathered: list[int] = []
    rows = contestants.Rows
    with pytest.MonkeyPatch.context() as patch:
        original = rows.gather
        patch.setattr(
            rows, "gather", lambda self, places, out=None: (gathered.extend(places), original(self, places, out))[1]
        )
        turn = contestants.epochs_on_one_thread(work)
        gathered.clear()
        turn(1)
    assert turn.steps == 3
    assert set(gathered) == set(range(600))


def test_a_page_shows_what_a_record_has() -> None:
    """A rival that was not installed, and parts that were not measured, are left out with a word."""
    row = {"milliseconds": 1.0, "processor_milliseconds": 1.0, "samples_per_second": 5, "times_slower": 1.0}
    record = {
        "preset": "demo/sitar", "cores": 2, "device": "cpu", "images": {"sitar": row}, "left_out": {"pythae": "why"},
        "costs": {"batch": [{"value": 64, "milliseconds": 2.0}]},
        "made": {"images": {"load_before": 0.5, "load_after": 0.7}},
    }  # fmt: skip
    text = "\n".join(page.tables("some.json", record))
    assert "1.0<!-- some.json: images.sitar.milliseconds -->" in text
    assert "images: 0.5<!-- some.json: made.images.load_before -->" in text
    assert "Left out, because it is not installed: pythae." in text
    assert "features" not in text


def test_a_missing_rival_is_in_the_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compare, "take_part", lambda *given: ({"sitar": {"milliseconds": 1.0}}, {"pythae": "not here"}))
    file = tmp_path / "record.json"
    file.write_text(json.dumps({"start": "is kept"}))
    monkeypatch.setattr("sys.argv", ["compare.py", "--only", "images", "--record", str(file)])
    compare.main()
    record = json.loads(file.read_text())
    assert record["left_out"] == {"pythae": "not here"}
    assert record["start"] == "is kept"
    assert record["images"] == {"sitar": {"milliseconds": 1.0}}
    assert record["made"]["images"]["commit"]
