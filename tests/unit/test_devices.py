"""The choice of a device. There is no Mac here: what is tested of mps is the choice, and what is said of it."""

from __future__ import annotations

import multiprocessing
import os
import re
import threading
from pathlib import Path

import pytest
import torch

import sitar
from sitar.devices import device_name, forked_random_state, resolve_device, what_it_cannot_do
from sitar.errors import ConfigError, TrainingError
from sitar.functional.precision import in_float64

MAC = torch.device("mps")


@pytest.fixture
def mac(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with a GPU of Apple, on which tensors cannot be made for real."""
    real = torch.empty

    def empty(*size: int, device: torch.device) -> torch.Tensor:
        return real(*size, device="cpu" if device.type == "mps" else device)

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    monkeypatch.setattr(torch, "empty", empty)


@pytest.mark.usefixtures("mac")
def test_a_mac_trains_on_its_gpu() -> None:
    assert resolve_device("auto") == MAC
    assert resolve_device("mps") == MAC
    assert resolve_device("cpu") == torch.device("cpu")
    assert device_name(MAC).startswith("mps (")
    with pytest.raises(ConfigError, match="Known: auto, cpu, mps"):
        resolve_device("cuda")


def test_without_a_gpu_it_is_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    assert resolve_device("auto") == torch.device("cpu")
    with pytest.raises(ConfigError, match=r"'mps' cannot be used here\. Known: auto, cpu"):
        resolve_device("mps")
    with pytest.raises(ConfigError, match="Use auto, cpu, cuda or mps"):
        resolve_device("meta")


@pytest.mark.parametrize(
    "error",
    [
        TypeError("Cannot convert a MPS Tensor to float64 dtype as the MPS framework doesn't support float64."),
        NotImplementedError("The operator 'aten::x' is not currently implemented for the MPS device.\nMore."),
    ],
)
def test_what_a_mac_cannot_do_is_said_with_the_way_out(error: Exception) -> None:
    with pytest.raises(ConfigError, match=r"Use --device cpu\.$") as caught, what_it_cannot_do(MAC):
        raise error
    assert str(error).splitlines()[0].rstrip(".") in str(caught.value)
    assert "More" not in str(caught.value)
    with pytest.raises(type(error)), what_it_cannot_do(torch.device("cpu")):
        raise error


def test_other_errors_are_left_as_they_are() -> None:
    with pytest.raises(RuntimeError, match=r"^shapes$"), what_it_cannot_do(MAC):
        raise RuntimeError("shapes")
    with pytest.raises(TrainingError, match=r"^mps$"), what_it_cannot_do(MAC):
        raise TrainingError("mps")


def test_the_random_state_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    before, given = torch.get_rng_state(), []
    monkeypatch.setattr(torch.mps, "get_rng_state", lambda: "mine")
    monkeypatch.setattr(torch.mps, "set_rng_state", given.append)
    with forked_random_state(MAC):
        torch.rand(3)
    assert torch.equal(torch.get_rng_state(), before)
    assert given == ["mine"]


def test_threads_take_turns_at_drawing() -> None:
    entered = threading.Event()

    def draw() -> None:
        with forked_random_state():
            entered.set()

    other = threading.Thread(target=draw)
    with forked_random_state(), forked_random_state():
        other.start()
        assert not entered.wait(0.2)
    other.join(10)
    assert entered.is_set()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_process_that_is_forked_while_a_thread_draws_can_draw() -> None:
    held, release = threading.Event(), threading.Event()

    def hold() -> None:
        with forked_random_state():
            held.set()
            release.wait(60)

    other = threading.Thread(target=hold)
    other.start()
    assert held.wait(10)
    child = multiprocessing.get_context("fork").Process(target=_draw)
    try:
        child.start()
        child.join(20)
        assert child.exitcode == 0
    finally:
        child.kill()
        release.set()
        other.join()


def _draw() -> None:
    with forked_random_state():
        pass


def test_float64_is_computed_on_the_cpu_of_a_mac() -> None:
    class OnMac:
        device = MAC

        def cpu(self) -> torch.Tensor:
            return torch.ones(2)

        def double(self) -> torch.Tensor:
            raise TypeError("the MPS framework doesn't support float64")

    assert in_float64(OnMac()).dtype == torch.float64  # type: ignore[arg-type]
    assert in_float64(torch.ones(2)).dtype == torch.float64


def test_training_has_no_other_way_to_float64() -> None:
    """`.double()` of a tensor on a Mac's GPU fails: all that training and prediction use goes through `in_float64`."""
    root = Path(sitar.__file__).parent
    rooms = ("functional", "models", "methods", "data", "evaluation", "training")
    found = [
        str(file.relative_to(root))
        for room in rooms
        for file in sorted((root / room).rglob("*.py"))
        if re.search(r"\.double\(\)|torch\.float64|torch\.double", file.read_text(encoding="utf-8"))
    ]
    assert found == ["functional/cubature.py", "functional/precision.py"]  # the first draws on the CPU, for the theory
