"""What every registered method promises (sitar.testing.methods). A new method is covered by being registered."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pytest
import torch
from torch._subclasses.fake_tensor import DataDependentOutputException

from helpers.runs import TINY_METHOD, assert_same_tensors
from sitar.data.types import Task, TrainBatch, TrainSplit, UnlabelledBatch, UnlabelledSplit
from sitar.functional.noise import NOISES, WITH_ROWS, Distribution
from sitar.methods import Objective
from sitar.presets import load_config, preset_names, preset_text
from sitar.registry import METHODS
from sitar.testing import Check, method_checks
from sitar.testing.methods import (
    RUN_CHECKS,
    LossModule,
    MethodCase,
    assert_compiled_equals_eager,
    check_the_loss_compiles,
    fake_terms,
    loss_checks,
)

ROOT = Path(__file__).parents[2]
NAMES = METHODS.names()
SITAR_NOISES = [
    {"noise": noise, "noise_distribution": distribution}
    for noise, kind in NOISES.items()
    if kind.has_distribution
    for distribution in get_args(Distribution)
]
WITH_TARGET = [name for name, noise in NOISES.items() if noise.has_target]
SITAR_VARIANTS = [
    *SITAR_NOISES,
    *({"noise": noise} for noise, kind in NOISES.items() if not kind.has_distribution),
    {"noise": "swap", "class_weight": "balanced"},
    {"alpha": 0.0, "lambda": 0.0},
    {"unlabelled": True},
    {"unlabelled": True, "nuisances": ["mean_colour", "color"]},
    {"vae": "tc"},
    {"vae": "factor"},
    *({"objective": "analytic", "noise": noise} for noise in WITH_ROWS),
    {"objective": "analytic", "class_weight": "balanced"},
    *({"noise": noise, "nuisances": ["mean_colour", "color"], "gate": True} for noise in WITH_TARGET),
    {"objective": "analytic", "noise": "direction", "nuisances": ["brightness"], "gate": True},
]
RUN_VARIANTS = [{"noise": "swap", "nuisances": ["mean_colour"], "gate": True, "class_weight": "balanced"}]
VARIANTS = [
    *(("sitar", options, 2) for options in SITAR_VARIANTS),
    ("sitar", SITAR_NOISES[3], 4),
    ("sitar", {"objective": "analytic", "noise": "direction", "class_weight": "balanced"}, 4),
    ("sitar", {"noise": "swap", "class_weight": "balanced"}, 4),
    ("divdis", {"heads": 3}, 4),
    ("ace", {"each_pair": True}, 4),
    ("sitar", {"noise": "swap", "nuisances": ["mean_colour", "color"], "gate": True}, 4),
    ("chroma_vae", {"head": "logistic"}, 2),
    ("chroma_vae", {"head": "mlp"}, 4),
    ("jacobian", {"projections": 3}, 4),
    ("afr", {"last_epochs": 2}, 4),
    ("afr", {"last_steps": 3}, 4),
    *(
        (name, {"class_weight": "balanced"}, 4)
        for name in NAMES
        if "class_weight" in METHODS.get(name).Config.model_fields
    ),
]


def parameters(name: str, checks: list[Check]) -> list[object]:
    return [pytest.param(check, id=f"{name}-{check.__name__}", marks=marks(check)) for check in checks]


def marks(check: Check) -> list[pytest.MarkDecorator]:
    """A second or more to compile each loss is too long: make test compiles one of every method, .ci/run all."""
    return [pytest.mark.ci] if check.function is check_the_loss_compiles and check.variant != "2_classes" else []


def promises(name: str) -> list[object]:
    return parameters(name, method_checks(name, **TINY_METHOD.get(name, {})))


def promises_of_a_variant(name: str, options: dict[str, Any], classes: int) -> list[object]:
    case = MethodCase(name, {**TINY_METHOD.get(name, {}), **options}, classes)
    return parameters(name, loss_checks(case, *options.values()))


@pytest.mark.parametrize("check", [check for name in NAMES for check in promises(name)])
def test_method(check: Check) -> None:
    check()


@pytest.mark.parametrize("check", [check for variant in VARIANTS for check in promises_of_a_variant(*variant)])
def test_variant_of_a_method(check: Check) -> None:
    check()


@pytest.mark.parametrize("check", RUN_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("case", [MethodCase("sitar", options) for options in RUN_VARIANTS], ids=["nuisances and gate"])
def test_runs_of_a_variant(case: MethodCase, check: Callable[[MethodCase], None]) -> None:
    """With nuisances and a gate too, a run is decided by its seed, and a continued run is the same bit for bit."""
    check(case)


def test_the_fake_mode_catches_a_host_sync() -> None:
    """The check that a loss never waits for the device can fail."""
    module, batch = next(MethodCase(NAMES[0]).losses())
    real = module.objective.loss
    objective = Objective(lambda b: {"loss": real(b)["loss"] * batch_mean(b)}, module.objective.parameters)

    def batch_mean(batch: TrainBatch) -> float:
        return batch.x.mean().item()

    with pytest.raises(DataDependentOutputException):
        fake_terms(LossModule(module.method, objective, type(batch)), batch)


@pytest.mark.parametrize("cls", [TrainBatch, TrainSplit, UnlabelledBatch, UnlabelledSplit, Task])
def test_nothing_that_training_sees_has_groups(cls: type) -> None:
    fields = {field.name for field in dataclasses.fields(cls)}
    assert not [name for name in fields if "group" in name or "attribute" in name or "color" in name]
    if cls is TrainBatch:
        assert fields == {"x", "y", "index"}
    if cls is UnlabelledBatch:
        assert fields == {"x", "y", "index", "unlabelled"}
    if cls is UnlabelledSplit:
        assert fields == {"x", "y", "unlabelled"}


@pytest.fixture(scope="module")
def methods_of_presets() -> dict[str, str]:
    return {preset: load_config(preset).to_dict()["method"]["name"] for preset in preset_names()}


@pytest.mark.parametrize("name", NAMES)
def test_every_method_has_a_preset(name: str, methods_of_presets: dict[str, str]) -> None:
    own = [preset for preset, method in methods_of_presets.items() if method == name]
    assert own, f"no file under src/sitar/presets has method.name: {name}"
    for preset in own:
        first = preset_text(preset).splitlines()[0]
        marked = "Needs groups: an upper bound." in first
        assert marked == METHODS.get(name).needs_groups, f"{preset}: the first line says whether groups are needed"
        marked = "Needs unlabelled images." in first
        assert marked == METHODS.get(name).needs_unlabelled, f"{preset}: the first line says whether it is given more"


@pytest.mark.parametrize("name", NAMES)
def test_every_method_has_a_page(name: str) -> None:
    page = ROOT / "docs" / "methods" / f"{name}.md"
    assert page.is_file(), f"{page.relative_to(ROOT)} is missing"
    assert "departures" in page.read_text(encoding="utf-8").lower(), "a method's page lists its Departures"


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("name", NAMES)
def test_loss_compiles_with_inductor(name: str) -> None:
    """With torch's own random numbers (`fallback_random`), so that eager is a referee."""
    import torch._inductor.config as inductor  # here: slow to import

    case = MethodCase(name, TINY_METHOD.get(name))
    for module, batch in case.losses(device=torch.device("cuda")):
        with inductor.patch(fallback_random=True):
            assert_compiled_equals_eager(module, batch, backend="inductor", rtol=1e-3)


def test_same_tensors_means_same_bits() -> None:
    """The comparison on which these tests rest can fail."""
    a = {"w": torch.tensor([1.0, 2.0])}
    assert_same_tensors(a, {"w": torch.tensor([1.0, 2.0])})
    with pytest.raises(AssertionError, match="w"):
        assert_same_tensors(a, {"w": torch.tensor([1.0, 2.0 + 3e-7])})
