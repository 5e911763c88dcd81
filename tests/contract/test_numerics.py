"""Inputs at the edge of what numbers can say: every method trains with finite losses, or says clearly why it cannot."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import settings as budget
from hypothesis import strategies as st

from helpers.runs import run, settings
from sitar.errors import ConfigError, SitarError
from sitar.evaluation.trained_model import load
from sitar.functional.correlation import label_correlation, label_moments, shortcut_score
from sitar.presets import load_config
from sitar.registry import METHODS
from sitar.run_folder import RunFolder
from sitar.training.copies.seeds import train_copies

N = 48
MODEL = {"latent_dim": 3, "hidden": 8}
TRAIN = {"epochs": 2, "batch_size": 16, "learning_rate": 0.01, "checkpoint_seconds": 1000}


def _noise(n: int = N, width: int = 4) -> Any:
    return np.random.default_rng(0).normal(size=(n, width)).astype(np.float32)


def _one_axis(x: Any, value: float) -> Any:
    x[:, 0] = value
    return x


INPUTS: dict[str, Callable[[], Any]] = {
    "all features are constant": lambda: np.full((N, 4), 3.0, np.float32),
    "all features are zero": lambda: np.zeros((N, 4), np.float32),
    "one feature is constant": lambda: _one_axis(_noise(), 7.0),
    "one feature is huge": lambda: _one_axis(_noise(), 1.0) * np.array([1e30, 1, 1, 1], np.float32),
    "features are huge": lambda: _noise() * np.float32(1e30),
    "features are large": lambda: _noise() * np.float32(1e6),
    "features are tiny": lambda: _noise() * np.float32(1e-30),
    "features are subnormal": lambda: _noise() * np.float32(1e-42),
    "the largest numbers": lambda: np.sign(_noise()) * np.finfo(np.float32).max,
}
TRAININGS: dict[str, dict[str, Any]] = {
    "a batch of one": {"batch_size": 1, "epochs": 1},
    "bfloat16": {"precision": "bfloat16"},
    "a huge learning rate": {"learning_rate": 1e6},
}


def trained(
    method: str, x: Any, path: Path, train: dict[str, Any] | None = None, y: Any = None, **options: Any
) -> None:
    """Train on features, and check that all that is left is finite. A SitarError must say something."""
    n = len(x)
    y = np.arange(n) % 2 if y is None else y
    split = np.array(["train", "val", "test"])[np.repeat([0, 1, 2], [n // 2, n // 4, n - n // 2 - n // 4])]
    file = path / "x.npz"
    np.savez(file, x=x, y=y, split=split, place=(np.arange(n) // 2) % 2)
    data = {"name": "npz", "file": str(file), "split_key": "split", "attribute_key": "place"}
    try:
        config = settings(method, data=data, model=MODEL, train={**TRAIN, **(train or {})}, **options)
        folder = run(config, path / "run")
    except SitarError as error:
        said = str(error)
        assert len(said) > 30
        assert "nan" not in said or "loss" in said
        return
    for line in folder.metrics():
        terms = [value for key, value in line.items() if isinstance(value, float) and key != "seconds"]
        assert all(map(math.isfinite, terms)), line
    logits = load(folder, "cpu").logits(torch.from_numpy(np.ascontiguousarray(x)))
    assert np.isfinite(logits).all()


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    with caplog.at_level(logging.ERROR):
        yield


@pytest.mark.ci
@pytest.mark.parametrize("method", METHODS.names())
@pytest.mark.parametrize("inputs", INPUTS)
def test_inputs_at_the_edge(method: str, inputs: str, tmp_path: Path) -> None:
    trained(method, INPUTS[inputs](), tmp_path)


@pytest.mark.ci
@pytest.mark.parametrize("method", METHODS.names())
@pytest.mark.parametrize("train", TRAININGS)
def test_training_at_the_edge(method: str, train: str, tmp_path: Path) -> None:
    trained(method, _noise(), tmp_path, TRAININGS[train])


@pytest.mark.ci
@pytest.mark.parametrize("method", METHODS.names())
def test_batches_of_one_class(method: str, tmp_path: Path) -> None:
    """Most batches have one class only: the other has a single training sample."""
    y = np.zeros(N, np.int64)
    y[[0, N // 2, N // 2 + 1, -1, -2]] = 1
    trained(method, _noise(), tmp_path, {"batch_size": 4}, y)


OPTIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "nuisances": ("sitar", {"method": {"nuisances": ["place"]}}),
    "the gate": ("sitar", {"method": {"gate": True}}),
    "the gate and nuisances": ("sitar", {"method": {"gate": True, "nuisances": ["place"]}}),
    "a mean of weights": ("sitar", {"train": {"average_epochs": 2}}),
    "a mean of weights of ERM": ("erm", {"train": {"average_epochs": 2}}),
}


@pytest.mark.ci
@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("inputs", INPUTS)
def test_settings_at_the_edge(option: str, inputs: str, tmp_path: Path) -> None:
    method, given = OPTIONS[option]
    trained(method, INPUTS[inputs](), tmp_path, given.get("train"), **given.get("method", {}))


@pytest.mark.parametrize("noise", ["axis", "direction", "swap"])
def test_the_gate_of_three_classes_at_the_edge(noise: str, tmp_path: Path) -> None:
    """A latent that is not finite has no directions, and of two classes there is only one."""
    x = INPUTS["the largest numbers"]()
    trained("sitar", x, tmp_path, y=np.arange(N) % 3, gate=True, noise=noise)


@pytest.mark.ci
@pytest.mark.parametrize("inputs", INPUTS)
def test_seeds_that_train_together_at_the_edge(inputs: str, tmp_path: Path) -> None:
    """One seed that fails says so, and every number of the others is finite."""
    x = INPUTS[inputs]()
    split = np.array(["train", "val", "test"])[np.repeat([0, 1, 2], [N // 2, N // 4, N // 4])]
    np.savez(tmp_path / "x.npz", x=x, y=np.arange(N) % 2, split=split)
    data = {"name": "npz", "file": str(tmp_path / "x.npz"), "split_key": "split"}
    runs = [
        (settings("sitar", data=data, model=MODEL, train=TRAIN, seed=seed), RunFolder(tmp_path / str(seed)))
        for seed in (0, 1)
    ]
    try:
        train_copies(runs, device="cpu", stack="always", progress=False)
    except SitarError as error:
        said = str(error)
        assert len(said) > 30
    for _, folder in runs:
        for line in folder.metrics() if folder.is_done else []:
            assert all(map(math.isfinite, (value for value in line.values() if isinstance(value, float)))), line


def test_float16_is_refused_with_what_is_allowed() -> None:
    """Gradients of float16 need to be scaled, or they vanish. bfloat16 has the range of float32."""
    message = r"train\.precision = 'float16' is not allowed.*'float32', 'tf32' or 'bfloat16'"
    with pytest.raises(ConfigError, match=message):
        load_config("color_mnist/sitar", ["train.precision=float16"])


@pytest.mark.parametrize("method", ["sitar", "erm"])
@pytest.mark.parametrize("inputs", ["all features are constant", "features are huge"])
def test_a_few_of_these_in_every_run_of_the_tests(method: str, inputs: str, tmp_path: Path) -> None:
    trained(method, INPUTS[inputs](), tmp_path)


# The score's invariances (Eq. 2)

BATCHES = st.tuples(st.integers(0, 10_000), st.integers(4, 64), st.integers(1, 6), st.integers(2, 4))
INVARIANCE = budget(max_examples=60, deadline=None)


def _batch(seed: int, n: int, latent: int, classes: int) -> tuple[torch.Tensor, torch.Tensor]:
    random = torch.Generator().manual_seed(seed)
    y = torch.arange(n) % classes
    mu = torch.randn(n, latent, generator=random) + y[:, None] * torch.randn(latent, generator=random)
    return mu, y[torch.randperm(n, generator=random)] if seed % 2 else y


def _score(mu: torch.Tensor, y: torch.Tensor, classes: int) -> torch.Tensor:
    return shortcut_score(label_correlation(mu, y, classes))


@INVARIANCE
@given(BATCHES, st.integers(-6, 6), st.floats(-50, 50))
def test_the_score_knows_no_sign_no_scale_and_no_offset(
    shape: tuple[int, int, int, int], power: int, offset: float
) -> None:
    (mu, y), classes = _batch(*shape), shape[3]
    scale = 2.0**power * torch.where(torch.arange(mu.shape[1]) % 2 == 0, -1.0, 1.0)
    moved = _score(mu * scale + offset * 2.0**power, y, classes)
    torch.testing.assert_close(moved, _score(mu, y, classes), atol=2e-3, rtol=2e-3)


@INVARIANCE
@given(BATCHES, st.integers(0, 1000))
def test_the_score_knows_no_order(shape: tuple[int, int, int, int], seed: int) -> None:
    """Of samples it changes nothing, of axes it moves with them, and of the names of classes it changes nothing."""
    (mu, y), classes = _batch(*shape), shape[3]
    random = torch.Generator().manual_seed(seed)
    samples, axes = torch.randperm(len(y), generator=random), torch.randperm(mu.shape[1], generator=random)
    names = torch.randperm(classes, generator=random)
    found = _score(mu[samples][:, axes], names[y[samples]], classes)
    torch.testing.assert_close(found, _score(mu, y, classes)[axes], atol=1e-4, rtol=1e-4)
    assert ((found >= 0) & (found <= 1 + 1e-5)).all()


@INVARIANCE
@given(BATCHES, st.integers(0, 1000))
def test_a_rotation_turns_the_direction_of_the_label_with_it(shape: tuple[int, int, int, int], seed: int) -> None:
    """The covariance with the label, along which the noise `direction` moves, turns with the latent."""
    (mu, y), classes = _batch(*shape), shape[3]
    random = torch.Generator().manual_seed(seed)
    turn = torch.linalg.qr(torch.randn(mu.shape[1], mu.shape[1], generator=random)).Q
    found, before = label_moments(mu @ turn, y, classes), label_moments(mu, y, classes)
    torch.testing.assert_close(found.with_label, before.with_label @ turn, atol=1e-4, rtol=1e-3)
    torch.testing.assert_close(found.variance.sum(), before.variance.sum(), atol=1e-3, rtol=1e-3)


@INVARIANCE
@given(BATCHES, st.sampled_from([torch.bfloat16, torch.float16]), st.sampled_from([0.0, 1e-30, 1e-6, 1.0, 1e3]))
def test_half_precision_and_extreme_scales_give_a_score(
    shape: tuple[int, int, int, int], kind: torch.dtype, scale: float
) -> None:
    (mu, y), classes = _batch(*shape), shape[3]
    found = _score((mu * scale).to(kind), y, classes)
    assert found.dtype == torch.float32
    assert ((found >= 0) & (found <= 1 + 1e-3)).all()


@pytest.mark.parametrize("n", [1, 2, 16])
def test_a_constant_axis_and_a_single_class_score_nothing(n: int) -> None:
    y = torch.arange(n) % 2
    assert torch.equal(_score(torch.full((n, 2), 5.0), y, 2), torch.zeros(2))
    assert torch.equal(_score(torch.randn(n, 2), torch.zeros(n, dtype=torch.long), 2), torch.zeros(2))
