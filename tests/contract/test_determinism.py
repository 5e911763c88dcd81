"""The same seed gives the same bytes on one machine. What changes them is said, and by how much is bounded."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path

import pytest
import torch

from helpers.runs import TINY_TRAIN, assert_close_runs, assert_same_run, run, settings, toy
from sitar.errors import TrainingError
from sitar.registry import METHODS
from sitar.run_folder import RunFolder
from sitar.testing.interrupt import Stop, writes
from sitar.training.determinism import WORKSPACE, deterministic

pytestmark = pytest.mark.usefixtures("_toys")
BETWEEN_THREADS = 1e-3  # of the weights as one vector, after a short run (docs/reliability.md)


def test_asking_for_it_changes_nothing_on_a_cpu(tmp_path: Path) -> None:
    """Three runs: as always, and twice with the setting. The same bytes, and torch is left as it was."""
    plain = run(toy("sitar"), tmp_path / "plain")
    asked = [run(toy("sitar", train={"deterministic": True}), tmp_path / name) for name in ("one", "two")]
    assert_same_run(*asked)
    assert plain.model() == asked[0].model()
    assert not torch.are_deterministic_algorithms_enabled()


@pytest.mark.ci
@pytest.mark.parametrize("method", METHODS.names())
def test_every_method_can_be_asked_for_it(method: str, tmp_path: Path) -> None:
    """No method needs, on the CPU, what has no deterministic algorithm."""
    config = settings(method, train={**TINY_TRAIN, "epochs": 1, "deterministic": True})
    assert_same_run(run(config, tmp_path / "one"), run(config, tmp_path / "two"))


@pytest.mark.gpu
@pytest.mark.parametrize("method", METHODS.names())
def test_the_same_bytes_on_one_gpu(method: str, tmp_path: Path) -> None:
    if not torch.cuda.is_available():
        pytest.skip("needs a GPU")
    config = settings(method, train={**TINY_TRAIN, "deterministic": True})
    assert_same_run(run(config, tmp_path / "one", device="cuda"), run(config, tmp_path / "two", device="cuda"))


def test_what_has_no_deterministic_algorithm_is_named() -> None:
    with pytest.raises(TrainingError, match=r"put_.*train\.deterministic=false"), deterministic(True):
        torch.zeros(3).put_(torch.tensor([0, 0]), torch.ones(2), accumulate=False)
    assert not torch.are_deterministic_algorithms_enabled()
    assert os.environ[WORKSPACE]
    with pytest.raises(RuntimeError, match="other"), deterministic(True):
        raise RuntimeError("other")


@pytest.mark.ci
@pytest.mark.parametrize("method", ["sitar", "erm"])
def test_another_number_of_threads_stays_close(method: str, tmp_path: Path) -> None:
    """Images: convolutions add in another order on two threads."""
    before, config = torch.get_num_threads(), settings(method, train={**TINY_TRAIN, "epochs": 2})
    runs = []
    with pytest.MonkeyPatch.context() as patch:
        for number in (1, 2):
            patch.setenv("OMP_NUM_THREADS", str(number))
            torch.set_num_threads(number)
            runs.append(run(config, tmp_path / str(number)))
    torch.set_num_threads(before)
    assert [json.loads(folder.environment_file.read_text())["threads"] for folder in runs] == [1, 2]
    assert_close_runs(*runs, relative=BETWEEN_THREADS)


@pytest.mark.parametrize(
    ("before", "said"),
    [
        ({"device": "NVIDIA H100"}, "started on NVIDIA H100 and continues on cpu"),
        ({"processes": 2}, "started on 2 processes and continues on 1"),
        ({}, ""),
    ],
)
def test_another_processor_or_number_of_processes_is_said_when_a_run_goes_on(
    before: dict[str, object], said: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder, config = RunFolder(tmp_path / "run"), toy("erm")
    with pytest.raises(Stop):
        writes(lambda: run(config, folder.path), stop_at=6)
    environment = json.loads(folder.environment_file.read_text())
    folder.write_environment({**environment, **before})
    with caplog.at_level(logging.WARNING, "sitar"):
        run(config, folder.path, resume=True)
    assert said in caplog.text
    assert ("and continues on" in caplog.text) == bool(said)
    assert_same_run(folder, run(config, tmp_path / "whole"))
