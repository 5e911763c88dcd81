"""What every registered method promises. A new method is covered by being registered."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode
from torch.func import functional_call, stack_module_state, vmap

from helpers.runs import (
    TINY_DATA,
    TINY_TRAIN,
    Stop,
    assert_same_run,
    assert_same_tensors,
    batch_of,
    fresh,
    gradient_phases,
    hashes,
    load_data,
    predictions,
    run,
    settings,
    weights,
    writes,
)
from sitar.config import RunConfig
from sitar.data.types import Data, GroupBatch, Task, TrainBatch, TrainGroups, TrainSplit, to_float
from sitar.evaluation.predict import predict_logits
from sitar.methods import Method, data_for
from sitar.methods.base import Objective
from sitar.presets import load_config, preset_names, preset_text
from sitar.registry import METHODS
from sitar.run_folder import RunFolder

ROOT = Path(__file__).parents[2]
NAMES = METHODS.names()
SITAR_NOISES = [
    {"noise": noise, "noise_distribution": distribution}
    for noise in ("axis", "direction", "isotropic")
    for distribution in ("gaussian", "rademacher", "uniform")
]
SITAR_VARIANTS = [
    *SITAR_NOISES,
    {"noise": "swap"},
    {"noise": "swap", "class_weight": "balanced"},
    {"beta_start": 0.0, "beta_anneal_epochs": 2},
    {"alpha": 0.0, "lambda": 0.0},
    {"vae": "tc"},
    {"vae": "factor"},
    *({"objective": "analytic", "noise": noise} for noise in ("axis", "direction", "isotropic")),
    {"objective": "analytic", "class_weight": "balanced"},
]
VARIANTS = [
    *(("sitar", options, 2) for options in SITAR_VARIANTS),
    ("sitar", SITAR_NOISES[3], 4),
    ("sitar", {"objective": "analytic", "noise": "direction", "class_weight": "balanced"}, 4),
    ("sitar", {"noise": "swap", "class_weight": "balanced"}, 4),
    ("chroma_vae", {"head": "logistic"}, 2),
    ("chroma_vae", {"head": "mlp"}, 4),
    ("jacobian", {"projections": 3}, 4),
    ("afr", {"last_epochs": 2}, 4),
    *(
        (name, {"class_weight": "balanced"}, 4)
        for name in NAMES
        if "class_weight" in METHODS.get(name).Config.model_fields
    ),
]
CASES = [pytest.param(name, {}, classes, id=f"{name}-{classes}") for name in NAMES for classes in (2, 4)] + [
    pytest.param(name, options, classes, id="-".join([name, str(classes), *map(str, options.values())]))
    for name, options, classes in VARIANTS
]
LOSSES = pytest.mark.parametrize(("name", "options", "classes"), CASES)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], RunFolder]:
    """The uninterrupted tiny run of a method, made once. The data is the one that `_data_once` shares."""
    made: dict[str, RunFolder] = {}

    def of(name: str) -> RunFolder:
        if name not in made:
            made[name] = run(settings(name), tmp_path_factory.mktemp("runs") / name)
        return made[name]

    return of


def several_classes(classes: int, n: int = 64) -> Data:
    """Data of any number of classes, unbalanced, as small as the tiny runs'."""
    random = torch.Generator().manual_seed(classes)
    y = torch.randint(0, classes, (n,), generator=random) * torch.randint(0, 2, (n,), generator=random)
    x = torch.randint(0, 256, (n, 3, 14, 14), generator=random).to(torch.uint8)
    attribute = torch.randint(0, 2, (n,), generator=random)
    groups = TrainGroups(2 * y + attribute, (y % 2 != attribute).long())
    return Data(TrainSplit(x, y), {}, tuple(f"class {i}" for i in range(classes)), "synthetic", groups)


def case(name: str, options: dict[str, Any], classes: int, tiny_data: Data) -> tuple[RunConfig, Data]:
    config = settings(name, **options)
    return config, data_for(config, tiny_data if classes == 2 else several_classes(classes))


class LossModule(nn.Module):
    """An objective's loss as a module, for what works on modules."""

    def __init__(self, method: Method, objective: Objective) -> None:
        super().__init__()
        self.method = method
        self.objective = objective

    def forward(self, *parts: Tensor) -> dict[str, Tensor]:
        return self.objective.loss(GroupBatch(*parts) if self.method.needs_groups else TrainBatch(*parts))


def parts(batch: TrainBatch) -> tuple[Tensor, ...]:
    return tuple(getattr(batch, field.name) for field in dataclasses.fields(batch))


def loss_modules(config: RunConfig, data: Data, seed: int = 0) -> Iterator[tuple[LossModule, TrainBatch]]:
    """Each objective of each gradient phase of a fresh method, with a batch for it, in the order of training."""
    method = fresh(config, data, seed).to(data.train.x.device)
    method.begin_epoch(1)
    for phase in gradient_phases(method, data.train):
        for objective in phase.objectives:
            batch = batch_of(data.train, phase)
            yield LossModule(method, objective), batch
            objective.loss(batch)  # later phases may read what it leaves in buffers


def fake_terms(module: LossModule, batch: TrainBatch) -> dict[str, Tensor]:
    """The loss of tensors that have a shape and a dtype but no values."""
    mode = FakeTensorMode()
    state = dict([*module.named_parameters(), *module.named_buffers()])
    state = {name: mode.from_tensor(tensor) for name, tensor in state.items()}
    inputs = tuple(mode.from_tensor(tensor) for tensor in parts(batch))
    with mode:
        return functional_call(module, state, inputs)


@pytest.mark.parametrize("name", NAMES)
def test_trains_and_leaves_a_complete_folder(name: str, finished: Callable[[str], RunFolder]) -> None:
    folder = finished(name)
    files = set(hashes(folder.path))
    assert files >= {
        "config.yaml", "metrics.jsonl", "result.json", "predictions.npz", "environment.json",
        "checkpoint/model.safetensors", "done",
    }  # fmt: skip
    assert "checkpoint/state.pt" not in files  # only while a run is not done
    assert not [file for file in files if Path(file).name.startswith(".")]  # nothing half-written
    lines = folder.metrics()
    assert lines
    assert all(isinstance(line["loss"], float) for line in lines if "loss" in line)
    result = json.loads(folder.result_file.read_text())
    assert result["method"] == name
    assert set(result["splits"]) == {"train", "val", "val_ood", "id_test", "ood_test"}
    before = fresh(settings(name), load_data(settings(name).data)).state_dict()
    after = weights(folder)
    assert any(not torch.equal(before[key], after[key]) for key in before)


@pytest.mark.parametrize("name", NAMES)
def test_same_seed_same_weights_and_another_seed_others(
    name: str, finished: Callable[[str], RunFolder], tmp_path: Path
) -> None:
    torch.rand(7)  # the caller's random state must not matter
    assert_same_run(run(settings(name), tmp_path / "again"), finished(name))
    other = weights(run(settings(name, seed=1), tmp_path / "other"))
    same = weights(finished(name))
    assert all(torch.isfinite(tensor).all() for tensor in other.values())
    assert not all(torch.equal(same[key], other[key]) for key in same)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("share", [0.4, 0.8])
def test_continued_run_equals_uninterrupted(
    name: str, share: float, finished: Callable[[str], RunFolder], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped at some of the writes; test_resume.py stops at all of them and kills processes."""
    config = settings(name)
    total = finished_writes(name, config, tmp_path, monkeypatch)
    with pytest.raises(Stop):
        writes(lambda: run(config, tmp_path / "stopped"), monkeypatch, stop_at=round(share * total))
    assert not RunFolder(tmp_path / "stopped").is_done
    assert_same_run(run(config, tmp_path / "stopped", resume=True), finished(name))


_WRITES: dict[str, int] = {}


def finished_writes(name: str, config: RunConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    if name not in _WRITES:
        _WRITES[name] = writes(lambda: run(config, tmp_path / "counted"), monkeypatch)
    return _WRITES[name]


@pytest.mark.parametrize("name", NAMES)
def test_state_dict_is_complete(name: str, finished: Callable[[str], RunFolder], tiny_data: Data) -> None:
    """Weights alone bring a trained method back: nothing that logits need hides outside the state dict."""
    config = settings(name)
    method = fresh(config, tiny_data, seed=123)
    method.load_state_dict(weights(finished(name)))  # strict
    method.eval()
    cpu = torch.device("cpu")
    stored = predictions(finished(name))
    for split in ("val", "ood_test"):
        logits = predict_logits(method.logits, tiny_data.evaluation[split].x, cpu)
        assert (logits == stored[f"{split}/logits"]).all()


@pytest.mark.parametrize("name", NAMES)
def test_majority_only_data_is_handled(name: str, tmp_path: Path) -> None:
    """At rho = 1 no training sample contradicts the shortcut, and two of the four groups are empty."""
    data = {**TINY_DATA, "rho": 1.0}
    folder = run(settings(name, data=data, train={**TINY_TRAIN, "epochs": 2}), tmp_path / "run")
    assert all(torch.isfinite(tensor).all() for tensor in weights(folder).values())
    ood = folder.result()["splits"]["ood_test"]
    empty = [group for group, figures in ood["groups"].items() if figures["n"] == 0]
    assert set(empty) == {"label=0,color=0", "label=1,color=1"}
    assert all(ood["groups"][group]["accuracy"] is None for group in empty)
    assert ood["worst_group"] is not None


@LOSSES
def test_logits_shape_dtype_and_determinism(name: str, options: dict[str, Any], classes: int, tiny_data: Data) -> None:
    config, data = case(name, options, classes, tiny_data)
    method = fresh(config, data)
    for phase in gradient_phases(method, data.train):
        for objective in phase.objectives:
            objective.loss(batch_of(data.train, phase))
    method.eval()
    x = to_float(data.train.x[:17])
    torch.manual_seed(0)
    first = method.logits(x)
    torch.manual_seed(1)
    second = method.logits(x)
    assert first.shape == (17, classes)
    assert first.dtype == torch.float32
    assert torch.equal(first, second)
    assert torch.isfinite(first).all()
    assert method.logits(x[:1]).shape == (1, classes)


@LOSSES
def test_loss_compiles_and_equals_eager(name: str, options: dict[str, Any], classes: int, tiny_data: Data) -> None:
    config, data = case(name, options, classes, tiny_data)
    for module, batch in loss_modules(config, data):
        assert_compiled_equals_eager(module, batch, backend="aot_eager", rtol=1e-5)


def assert_compiled_equals_eager(module: LossModule, batch: TrainBatch, backend: str, rtol: float) -> None:
    """Terms, gradients and what the loss leaves in buffers."""
    torch._dynamo.reset()
    start = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    seen = []
    for loss in (module.objective.loss, torch.compile(module.objective.loss, fullgraph=True, backend=backend)):
        module.load_state_dict(start)
        torch.manual_seed(5)
        terms = loss(batch)
        gradients = torch.autograd.grad(terms["loss"], list(module.objective.parameters), allow_unused=True)
        buffers = {name: tensor.clone() for name, tensor in module.named_buffers()}
        seen.append((terms, gradients, buffers))
    torch._dynamo.reset()
    (eager, eager_gradients, eager_buffers), (compiled, compiled_gradients, compiled_buffers) = seen
    assert "loss" in eager
    assert eager["loss"].shape == ()
    assert any(gradient is not None and gradient.abs().sum() > 0 for gradient in eager_gradients)
    for a, b in ((eager, compiled), (eager_buffers, compiled_buffers)):
        assert a.keys() == b.keys()
        for key in a:
            torch.testing.assert_close(b[key], a[key], rtol=rtol, atol=rtol, msg=lambda m, key=key: f"{key}: {m}")
    for a, b in zip(eager_gradients, compiled_gradients, strict=True):
        assert (a is None) == (b is None)
        if a is not None and b is not None:
            torch.testing.assert_close(b, a, rtol=10 * rtol, atol=rtol * float(a.abs().max()) + 1e-7)


@LOSSES
def test_loss_runs_for_copies_of_the_model_under_vmap(
    name: str, options: dict[str, Any], classes: int, tiny_data: Data
) -> None:
    config, data = case(name, options, classes, tiny_data)
    several = [loss_modules(config, data, seed) for seed in range(3)]
    for copies in zip(*several, strict=True):
        modules: list[nn.Module] = [module for module, _ in copies]
        batch = copies[0][1]
        state = stack_module_state(modules)
        template = modules[0]

        def terms(parameters: Any, buffers: Any, *inputs: Tensor, module: nn.Module = template) -> Any:
            return functional_call(module, (parameters, buffers), inputs)

        together = parts(batch)
        apart = tuple(torch.stack([p, p.flip(0), p.roll(1, 0)]) for p in together)
        single = modules[0](*together)
        for inputs, dimension in ((together, None), (apart, 0)):  # copies may share batches or have their own
            torch.manual_seed(0)
            dimensions = (0, 0, *[dimension] * len(inputs))
            batched = vmap(terms, dimensions, randomness="different")(*state, *inputs)
            assert batched.keys() == single.keys()
            for key, value in batched.items():
                assert value.shape == (3, *single[key].shape), key
                assert torch.isfinite(value).all(), key
            assert batched["loss"].unique().numel() == 3  # each copy has its own weights


@LOSSES
def test_loss_never_waits_for_the_device(name: str, options: dict[str, Any], classes: int, tiny_data: Data) -> None:
    """Fake tensors have no values: `.item()`, `if tensor:` and `.tolist()` raise, as they would stall a GPU."""
    config, data = case(name, options, classes, tiny_data)
    for module, batch in loss_modules(config, data):
        assert fake_terms(module, batch)["loss"].shape == ()


def test_the_fake_mode_catches_a_host_sync(tiny_data: Data) -> None:
    """The guard above can fail."""
    module, batch = next(loss_modules(settings(NAMES[0]), tiny_data))
    real = module.objective.loss
    objective = Objective(lambda b: {"loss": real(b)["loss"] * batch_mean(b)}, module.objective.parameters)

    def batch_mean(batch: TrainBatch) -> float:
        return batch.x.mean().item()

    with pytest.raises(DataDependentOutputException):
        fake_terms(LossModule(module.method, objective), batch)


@pytest.mark.parametrize("name", NAMES)
def test_objectives_move_only_parameters_of_their_method(name: str, tiny_data: Data) -> None:
    config, data = case(name, {}, 2, tiny_data)
    method = fresh(config, data)
    for phase in gradient_phases(method, data.train):
        own = {id(parameter) for parameter in method.parameters()}
        for objective in phase.objectives:
            assert objective.parameters
            assert {id(parameter) for parameter in objective.parameters} <= own
            objective.loss(batch_of(data.train, phase))


@pytest.mark.parametrize("name", NAMES)
def test_loss_leaves_its_batch_alone(name: str, tiny_data: Data) -> None:
    for module, batch in loss_modules(*case(name, {}, 2, tiny_data)):
        before = tuple(tensor.clone() for tensor in parts(batch))
        module.objective.loss(batch)["loss"].backward()
        assert all(map(torch.equal, before, parts(batch)))


def test_beta_annealing_reaches_its_value(tiny_data: Data) -> None:
    method = fresh(settings("sitar", beta=3.0, beta_start=1.0, beta_anneal_epochs=4), tiny_data)
    seen = []
    for epoch in range(7):
        method.begin_epoch(epoch)
        seen.append(float(method.state_dict()["beta"]))
    assert seen == [1.0, 1.5, 2.0, 2.5, 3.0, 3.0, 3.0]


@pytest.mark.parametrize("cls", [TrainBatch, TrainSplit, Task])
def test_nothing_that_training_sees_has_groups(cls: type) -> None:
    fields = {field.name for field in dataclasses.fields(cls)}
    assert not [name for name in fields if "group" in name or "attribute" in name or "color" in name]
    if cls is TrainBatch:
        assert fields == {"x", "y", "index"}


@pytest.mark.parametrize("name", NAMES)
def test_every_method_has_a_preset(name: str) -> None:
    methods = {preset: load_config(preset).to_dict()["method"]["name"] for preset in preset_names()}
    own = [preset for preset, method in methods.items() if method == name]
    assert own, f"no file under src/sitar/presets has method.name: {name}"
    for preset in own:
        marked = "Needs groups: an upper bound." in preset_text(preset).splitlines()[0]
        assert marked == METHODS.get(name).needs_groups, f"{preset}: the first line says whether groups are needed"


@pytest.mark.parametrize("name", NAMES)
def test_every_method_has_a_page(name: str) -> None:
    page = ROOT / "docs" / "methods" / f"{name}.md"
    assert page.is_file(), f"{page.relative_to(ROOT)} is missing"
    assert "departures" in page.read_text(encoding="utf-8").lower(), "a method's page lists its Departures"


@pytest.mark.parametrize("name", NAMES)
def test_settings_are_the_methods_own(name: str) -> None:
    config = settings(name)
    assert isinstance(config.method, METHODS.get(name).Config)
    assert config.to_dict()["method"]["name"] == name


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("name", NAMES)
def test_loss_compiles_with_inductor(name: str, tiny_data: Data) -> None:
    """With torch's own random numbers (`fallback_random`), so that eager is a referee."""
    import torch._inductor.config as inductor  # here: slow to import

    config, data = case(name, {}, 2, tiny_data)
    data = dataclasses.replace(data, train=data.train.to(torch.device("cuda")))
    for module, batch in loss_modules(config, data):
        with inductor.patch(fallback_random=True):
            assert_compiled_equals_eager(module, batch, backend="inductor", rtol=1e-3)


def test_same_tensors_means_same_bits() -> None:
    """The comparison on which these tests rest can fail."""
    a = {"w": torch.tensor([1.0, 2.0])}
    assert_same_tensors(a, {"w": torch.tensor([1.0, 2.0])})
    with pytest.raises(AssertionError, match="w"):
        assert_same_tensors(a, {"w": torch.tensor([1.0, 2.0 + 3e-7])})
