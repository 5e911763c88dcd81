"""TF32 is for the run that asks for it, from its first step to its last evaluation. The process keeps its settings."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import sitar.training.loop
import sitar.training.run
from helpers.runs import TINY_TRAIN, assert_same_run, metrics, run, settings, toy
from sitar.errors import ConfigError, TrainingError
from sitar.training.copies.seeds import train_copies
from sitar.training.tensor_float import allowed, check_precision, kinds, used

WIDER = {"latent_dim": 8, "channels": [16], "hidden": 64}  # products of a few numbers do not use it
ALL = {"matrix_products": True, "convolutions": True}
pytestmark = pytest.mark.usefixtures("_toys")


def state() -> tuple[str, ...]:
    """All names of torch for it, the older ones among them."""
    backends: Any = torch.backends
    return (
        backends.fp32_precision,
        *(kind.fp32_precision for kind in (*kinds().values(), backends.mkldnn.matmul)),
        torch.get_float32_matmul_precision(),
    )


@pytest.fixture
def before() -> Iterator[tuple[str, ...]]:
    """The settings of the process, which a test must leave as they were, and of which it may try others."""
    kept = state()
    yield kept
    backends: Any = torch.backends
    backends.fp32_precision = "none"
    torch.set_float32_matmul_precision(kept[-1])
    for kind, value in zip((*kinds().values(), backends.mkldnn.matmul), kept[1:-1], strict=True):
        if kind.fp32_precision != value:
            kind.fp32_precision = value


@pytest.fixture
def _as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a run on the CPU ask for TF32: the settings change nothing there."""
    monkeypatch.setattr(sitar.training.run, "check_precision", lambda precision, device: None)


def test_it_is_allowed_for_a_while(before: tuple[str, ...]) -> None:
    with allowed("tf32"):
        assert used() == ALL
        assert torch.get_float32_matmul_precision() == "high"  # torch.compile reads one or the other name
        assert torch.backends.cuda.matmul.allow_tf32
    assert state() == before
    with pytest.raises(KeyError), allowed("tf32"):
        raise KeyError
    assert state() == before


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_other_precisions_change_nothing(precision: str, before: tuple[str, ...]) -> None:
    with allowed(precision):
        assert state() == before


@pytest.mark.parametrize("general", ["none", "ieee"])
def test_what_follows_the_general_setting_follows_it_afterwards(general: str, before: tuple[str, ...]) -> None:
    backends: Any = torch.backends
    backends.fp32_precision = general
    asked = state()
    with allowed("tf32"):
        assert used() == ALL
    assert state() == asked
    backends.fp32_precision = "ieee"
    assert not used()["matrix_products"]


def test_a_setting_of_the_process_is_put_back(before: tuple[str, ...]) -> None:
    for kind in kinds().values():
        kind.fp32_precision = "ieee"
    with allowed("tf32"):
        assert used() == ALL
    assert {kind.fp32_precision for kind in kinds().values()} == {"ieee"}


def test_a_process_that_uses_it_already_goes_on_using_it(before: tuple[str, ...]) -> None:
    torch.set_float32_matmul_precision("high")
    asked = state()
    with allowed("tf32"):
        assert used() == ALL
    assert state() == asked


def test_names_that_do_not_agree_are_left_so(before: tuple[str, ...]) -> None:
    torch.set_float32_matmul_precision("high")
    kinds()["matrix_products"].fp32_precision = "ieee"
    with allowed("tf32"):
        assert used() == ALL
    assert kinds()["matrix_products"].fp32_precision == "ieee"


def test_a_cpu_does_not_have_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"train\.precision 'tf32' needs a CUDA device"):
        run(toy("erm", train={"precision": "tf32"}), tmp_path / "run")
    assert not (tmp_path / "run").exists()
    check_precision("float32", torch.device("cpu"))


def test_an_old_gpu_does_not_have_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 5))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Tesla T4")
    with pytest.raises(ConfigError, match="a newer GPU than Tesla T4"):
        check_precision("tf32", torch.device("cuda"))
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 0))
    check_precision("tf32", torch.device("cuda"))


@pytest.mark.usefixtures("_as_on_a_gpu")
@pytest.mark.parametrize("together", [False, True])
def test_steps_and_evaluations_of_a_run_use_it(
    together: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: tuple[str, ...]
) -> None:
    seen: dict[str, list[bool]] = {}

    def watched(module: Any, name: str) -> None:
        function = getattr(module, name)

        def noting(*given: Any, **named: Any) -> Any:
            seen.setdefault(name, []).append(used() == ALL)
            return function(*given, **named)

        monkeypatch.setattr(module, name, noting)

    watched(sitar.training.loop.Loop, "build_step")
    watched(sitar.training.loop, "predict_split")
    watched(sitar.training.run, "evaluate_method")
    watched(sitar.training.run, "describe_environment")
    configs = [toy("erm", seed=seed, train={"precision": "tf32"}) for seed in (0, 1)]
    if together:
        folders = [sitar.training.run.RunFolder(tmp_path / str(config.seed)) for config in configs]
        pairs = list(zip(configs, folders, strict=True))
        assert not any(one.error for one in train_copies(pairs, progress=False, stack="never"))
    else:
        folders = [run(configs[0], tmp_path / "0")]
    assert {name: all(found) for name, found in seen.items()} == dict.fromkeys(
        ("build_step", "predict_split", "evaluate_method", "describe_environment"), True
    )
    assert state() == before
    assert folders[0].result().get("precision") == "tf32"
    plain = run(toy("erm"), tmp_path / "plain")
    assert plain.result().get("precision") == "float32"
    assert plain.model() == folders[0].model()  # it changes nothing on a CPU


@pytest.mark.usefixtures("_as_on_a_gpu")
def test_a_run_that_fails_puts_the_settings_back(tmp_path: Path, before: tuple[str, ...]) -> None:
    with pytest.raises(TrainingError, match="loss became"):
        run(toy("erm", train={"precision": "tf32", "learning_rate": 1e30, "optimiser": "sgd"}), tmp_path / "run")
    assert state() == before


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("step", ["eager", "captured"])
@pytest.mark.parametrize("compiled", [False, True])
def test_runs_on_a_gpu(step: str, compiled: bool, tmp_path: Path) -> None:
    """Losses are near those of float32, and a float32 run after one in TF32 has the bytes of the one before it."""
    found = {}
    for name, precision in {"before": "float32", "tf32": "tf32", "after": "float32"}.items():
        train = {**TINY_TRAIN, "step": step, "deterministic": True, "compile": compiled, "precision": precision}
        found[name] = run(settings("sitar", model=WIDER, train=train), tmp_path / name, device="cuda")
    assert_same_run(found["before"], found["after"])
    assert found["before"].model() != found["tf32"].model()  # matrix products were rounded
    for exact, rounded in zip(metrics(found["before"]), metrics(found["tf32"]), strict=True):
        assert rounded["loss"] == pytest.approx(exact["loss"], rel=0.02)
    recorded = {name: folder.environment()["tf32"]["matrix_products"] for name, folder in found.items()}  # type: ignore[index]
    assert recorded == {"before": False, "tf32": True, "after": False}
