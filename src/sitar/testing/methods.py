"""These checks say what every method promises. A package that adds a method can run them on it.

A check is a function of a `MethodCase`. It asserts, and its docstring says what the method should do.
"""

from __future__ import annotations

import atexit
import dataclasses
import functools
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.func import functional_call, stack_module_state, vmap

from sitar.config import NamedConfig, RunConfig, run_config
from sitar.data.types import Data, TrainBatch, TrainSplit, to_float
from sitar.evaluation.predict import predict_logits
from sitar.methods import FitPhase, GradientPhase, Method, Objective, build_method, data_for, needs_unlabelled
from sitar.registry import DATASETS, METHODS
from sitar.run_folder import RunFolder
from sitar.testing import toy
from sitar.testing.contract import Check
from sitar.testing.interrupt import Stop, writes
from sitar.testing.same_run import assert_same_run, predictions, weights
from sitar.training.attributes import Attributes
from sitar.training.checkpoint import snapshot
from sitar.training.run import train_config
from sitar.training.seeding import INIT, seed_everything

CPU = torch.device("cpu")
MODEL = {"latent_dim": 4, "channels": [4], "hidden": 8}
TRAIN = {"batch_size": 64, "checkpoint_seconds": 0}
EPOCHS = 3
BATCH = 64
COPIES = 3
STOPS = (0.4, 0.8)  # how far a run is when it is stopped
FILES = {
    "config.yaml", "metrics.jsonl", "result.json", "predictions.npz", "environment.json",
    "checkpoint/model.safetensors", "done",
}  # fmt: skip


class MethodCase:
    """A case is a method with chosen settings, on toy data with a chosen number of classes."""

    def __init__(self, name: str, options: Mapping[str, Any] | None = None, classes: int = 2) -> None:
        self.name = name
        self.options = dict(options or {})
        self.classes = classes

    def config(self, *, seed: int = 0, rho: float = 0.8, epochs: int = EPOCHS) -> RunConfig:
        """Return the complete configuration of a short run."""
        sections: dict[str, dict[str, Any]] = {
            "data": {"name": toy.NAME, "classes": self.classes, "rho": rho},
            "model": MODEL,
            "method": {"name": self.name, **self.options},
            "train": {**TRAIN, "epochs": epochs},
        }
        with DATASETS.holding({toy.NAME: toy.Toy}):
            config = run_config({**sections, "seed": seed})
            if needs_unlabelled(config):
                sections["data"]["unlabelled"] = "val_ood"
                config = run_config({**sections, "seed": seed})
            return config

    def run(self, name: str, *, resume: bool = False, **settings: Any) -> RunFolder:
        """Train on the CPU, in a temporary folder of this name."""
        config, folder = self.config(**settings), RunFolder(self._folder / name)
        with DATASETS.holding({toy.NAME: toy.Toy}), one_thread():
            return train_config(config, folder, device="cpu", resume=resume, progress=False)

    @functools.cached_property
    def _folder(self) -> Path:
        folder = tempfile.mkdtemp(prefix="sitar-contract-")
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        return Path(folder)

    @functools.cached_property
    def finished(self) -> tuple[RunFolder, int]:
        """Return the uninterrupted run, made once, and how many writes it makes."""
        count = writes(lambda: self.run("finished"))
        return RunFolder(self._folder / "finished"), count

    @functools.cached_property
    def data(self) -> Data:
        """Return the toy data as the method may see it."""
        with DATASETS.holding({toy.NAME: toy.Toy}):
            return data_for(self.config(), toy.Toy.load(toy.ToyConfig(classes=self.classes)))

    def fresh(self, seed: int = 0) -> Method:
        """Return the untrained method."""
        return fresh(self.config(), self.data, seed)

    def losses(self, seed: int = 0, device: torch.device = CPU) -> Iterator[tuple[LossModule, TrainBatch]]:
        """Yield each objective of each gradient phase, with a batch for it, in the order of training."""
        split = self.data.train.to(device)
        method = self.fresh(seed).to(device)
        self.begin_epoch(method, split, 1)
        for phase in gradient_phases(method, split):
            for objective in phase.objectives:
                batch = batch_of(split, phase)
                yield LossModule(method, objective, type(batch)), batch
                objective.loss(batch)  # later phases may read what it leaves in buffers

    def begin_epoch(self, method: Method, split: TrainSplit, epoch: int) -> None:
        """Begin an epoch as training does."""
        method.observe(split, None if self.data.nuisances is None else self.data.nuisances.to(split.x.device))
        method.begin_epoch(epoch)


class LossModule(nn.Module):
    """This module computes an objective's loss, for tools that work on modules."""

    def __init__(self, method: Method, objective: Objective, batch: type[TrainBatch] = TrainBatch) -> None:
        super().__init__()
        self.method = method
        self.objective = objective
        self.batch = batch

    def forward(self, *parts: Tensor) -> dict[str, Tensor]:
        return self.objective.loss(self.batch(*parts))


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute on one thread, so that sums are added in one order."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def fresh(config: RunConfig, data: Data, seed: int = 0) -> Method:
    """Return an untrained method for `data`, of which it sees what it may."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return build_method(config, data_for(config, data, to_learn=False).task)


def gradient_phases(method: Method, split: TrainSplit) -> Iterator[GradientPhase]:
    """Yield the method's gradient phases in order. Fits between them are run, as training does."""
    for phase in method.phases():
        if isinstance(phase, FitPhase):
            method.eval()
            phase.fit(split)
            method.train()
        else:
            yield phase


def batch_of(split: TrainSplit, phase: GradientPhase | None = None, size: int = BATCH) -> TrainBatch:
    """Return the first samples of a phase's view of the data."""
    indices = torch.arange(len(split)) if phase is None or phase.indices is None else phase.indices.cpu()
    return split.batch(indices[:size].to(split.x.device))


def check_settings(case: MethodCase) -> None:
    """The method is a subclass of `sitar.methods.Method` and has its settings as `Config`: a subclass of
    `sitar.config.NamedConfig` in which `name: Literal["..."]` has the registered name as its default."""
    cls = METHODS.get(case.name)
    assert issubclass(cls, Method), f"{cls!r} is no subclass of sitar.methods.Method"
    assert issubclass(cls.Config, NamedConfig), f"{cls.Config!r} is no subclass of sitar.config.NamedConfig"
    config = case.config()
    assert isinstance(config.method, cls.Config), f"its settings are read into {type(config.method)}"
    name = config.to_dict()["method"]["name"]
    assert name == case.name, f"the name in its settings is {name!r}"


def check_training_leaves_a_complete_folder(case: MethodCase) -> None:
    """Training moves weights, logs a finite loss in every epoch and leaves a complete run folder."""
    folder, _ = case.finished
    files = {str(file.relative_to(folder.path)) for file in folder.path.rglob("*")}
    assert files >= FILES, f"files are missing: {sorted(FILES - files)}"
    assert "checkpoint/state.pt" not in files, "checkpoint/state.pt is left, which is for unfinished runs"
    half = [file for file in files if Path(file).name.startswith(".")]
    assert not half, f"files that are only for a run in progress are left: {half}"
    lines = folder.metrics()
    assert lines, "no epoch was logged"
    assert all(isinstance(line["loss"], float) for line in lines if "loss" in line), "a loss is no number"
    result = folder.result()
    assert result.get("method") == case.name, f"result.json names the method {result.get('method')!r}"
    splits = {"train", *case.data.evaluation}
    assert set(result["splits"]) == splits, f"result.json has the splits {set(result['splits'])}, not {splits}"
    with torch.random.fork_rng():
        seed_everything(case.config().seed, INIT, 0)  # as training begins
        before = dict(build_method(case.config(), case.data.task).named_parameters())
    after = weights(folder)
    assert any(not torch.equal(before[key], after[key]) for key in before), "no weight has moved"


def check_the_seed_decides(case: MethodCase) -> None:
    """Two runs with the same seed are equal bit for bit, and another seed gives other weights."""
    torch.rand(7)  # the caller's random state must not matter
    folder, _ = case.finished
    assert_same_run(case.run("again"), folder)
    same, other = weights(folder), weights(case.run("other", seed=1))
    assert all(torch.isfinite(tensor).all() for tensor in other.values()), "weights are not finite"
    assert not all(torch.equal(same[key], other[key]) for key in same), "another seed gives the same weights"


def check_a_continued_run_equals_an_uninterrupted_one(case: MethodCase) -> None:
    """A run that is stopped and continued equals an uninterrupted one bit for bit: everything that training changes is
    a parameter or a buffer."""
    folder, total = case.finished
    for share in STOPS:
        name = f"stopped{share}"
        try:
            writes(lambda name=name: case.run(name), stop_at=round(share * total))
        except Stop:
            pass
        else:
            raise AssertionError("the second run makes fewer writes than the first")
        assert not RunFolder(folder.path.parent / name).is_done, "the stopped run says that it is finished"
        assert_same_run(case.run(name, resume=True), folder)


def check_the_state_dict_is_complete(case: MethodCase) -> None:
    """Weights alone bring a trained method back: nothing that `logits` needs is outside the state dict."""
    folder, _ = case.finished
    method = case.fresh(seed=123)
    method.load_state_dict(weights(folder))  # strict
    method.eval()
    stored = predictions(folder)
    for split in ("val", "ood_test"):
        logits = predict_logits(method.logits, case.data.evaluation[split].x, CPU)
        assert (logits == stored[f"{split}/logits"]).all(), f"other logits on {split} after loading the weights"


def check_majority_only_data(case: MethodCase) -> None:
    """Training works where no sample contradicts the shortcut (rho = 1), so that two of the four groups are empty."""
    folder = case.run("majority", rho=1.0, epochs=2)
    assert all(torch.isfinite(tensor).all() for tensor in weights(folder).values()), "weights are not finite"
    ood = folder.result()["splits"]["ood_test"]
    groups = ood.get("groups", {})
    empty = {group for group, figures in groups.items() if figures["n"] == 0}
    assert empty == {"label=0,color=0", "label=1,color=1"}, f"the empty groups are {empty}"
    assert all(groups[group]["accuracy"] is None for group in empty), "an empty group has an accuracy"
    assert ood.get("worst_group") is not None, "there is no worst group"


def check_objectives_move_parameters_of_the_method(case: MethodCase) -> None:
    """Every objective has parameters to move, and all of them are parameters of the method."""
    method = case.fresh()
    for phase in gradient_phases(method, case.data.train):
        own = {id(parameter) for parameter in method.parameters()}
        for objective in phase.objectives:
            assert objective.parameters, f"an objective of the phase {phase.name!r} has no parameters"
            given = {id(parameter) for parameter in objective.parameters}
            assert given <= own, f"an objective of the phase {phase.name!r} moves what is no parameter of the method"
            objective.loss(batch_of(case.data.train, phase))


def check_the_loss_leaves_its_batch_alone(case: MethodCase) -> None:
    """A loss does not change the tensors of its batch."""
    for module, batch in case.losses():
        before = {name: tensor.clone() for name, tensor in _parts(batch).items()}
        module.objective.loss(batch)["loss"].backward()
        changed = [name for name, tensor in _parts(batch).items() if not torch.equal(before[name], tensor)]
        assert not changed, f"batch.{', batch.'.join(changed)} changed"


def check_an_epoch_begins_in_buffers(case: MethodCase) -> None:
    """The loss reads from `observe` and `begin_epoch` only buffers: a CUDA graph keeps the plain attributes that it was
    captured with."""
    split, method = case.data.train, case.fresh()
    case.begin_epoch(method, split, 0)
    for phase in gradient_phases(method, split):
        batch = batch_of(split, phase)
        for objective in phase.objectives:
            case.begin_epoch(method, split, 0)
            before = Attributes(method)
            case.begin_epoch(method, split, 1)
            if changed := before.changed():
                restore = snapshot(method, [])
                torch.manual_seed(0)
                expected = objective.loss(batch)
                restore()
                before.restore()
                torch.manual_seed(0)
                found = objective.loss(batch)
                restore()
                alike = expected.keys() == found.keys() and all(torch.equal(expected[k], found[k]) for k in expected)
                assert alike, f"the loss reads {', '.join(changed)}, which another epoch changes"
            objective.loss(batch)  # later phases may read what it leaves in buffers


def check_logits(case: MethodCase) -> None:
    """`logits` returns float32 (batch, class), finite and without randomness, also for a single input."""
    method = case.fresh()
    for phase in gradient_phases(method, case.data.train):
        for objective in phase.objectives:
            objective.loss(batch_of(case.data.train, phase))
    method.eval()
    x = to_float(case.data.train.x[:17])
    torch.manual_seed(0)
    first = method.logits(x)
    torch.manual_seed(1)
    second = method.logits(x)
    assert first.shape == (17, case.classes), f"the shape of 17 inputs' logits is {tuple(first.shape)}"
    assert first.dtype == torch.float32, f"logits are {first.dtype}"
    assert torch.equal(first, second), "a second call gives other logits"
    assert torch.isfinite(first).all(), "logits are not finite"
    one = method.logits(x[:1])
    assert one.shape == (1, case.classes), f"the shape of one input's logits is {tuple(one.shape)}"


def check_the_loss_compiles(case: MethodCase) -> None:
    """`torch.compile(loss, fullgraph=True)` gives the terms, gradients and buffers of the loss itself."""
    for module, batch in case.losses():
        assert_compiled_equals_eager(module, batch, backend="aot_eager", rtol=1e-5)


def check_the_loss_runs_under_vmap(case: MethodCase) -> None:
    """A loss runs under `torch.vmap` over copies of the model, on one batch for all or on a batch for each."""
    for copies in zip(*(case.losses(seed) for seed in range(COPIES)), strict=True):
        modules: list[nn.Module] = [module for module, _ in copies]
        state, template = stack_module_state(modules), modules[0]

        def terms(parameters: Any, buffers: Any, *inputs: Tensor, module: nn.Module = template) -> Any:
            return functional_call(module, (parameters, buffers), inputs)

        together = tuple(_parts(copies[0][1]).values())
        apart = tuple(torch.stack([part, part.flip(0), part.roll(1, 0)]) for part in together)
        single = template(*together)
        for inputs, dimension in ((together, None), (apart, 0)):
            torch.manual_seed(0)
            dimensions = (0, 0, *[dimension] * len(inputs))
            batched = vmap(terms, dimensions, randomness="different")(*state, *inputs)
            assert batched.keys() == single.keys(), f"the terms are {set(batched)} under vmap, else {set(single)}"
            for key, value in batched.items():
                assert value.shape == (COPIES, *single[key].shape), f"{key!r} has the shape {tuple(value.shape)}"
                assert torch.isfinite(value).all(), f"{key!r} is not finite"
            assert batched["loss"].unique().numel() == COPIES, "copies with other weights have the same loss"


def check_the_loss_never_waits_for_the_device(case: MethodCase) -> None:
    """A loss never asks for a value in Python (`.item()`, `if tensor:`, `.tolist()`): that would stall a GPU."""
    for module, batch in case.losses():
        assert fake_terms(module, batch)["loss"].shape == (), "the loss is no single number"


def fake_terms(module: LossModule, batch: TrainBatch) -> dict[str, Tensor]:
    """Compute the loss of tensors that have a shape and a dtype but no values: who asks for one fails."""
    mode = FakeTensorMode()
    real = [*module.named_parameters(), *module.named_buffers()]
    state: dict[str, Tensor] = {name: mode.from_tensor(tensor) for name, tensor in real}
    inputs = tuple(mode.from_tensor(tensor) for tensor in _parts(batch).values())
    with mode:
        return functional_call(module, state, inputs)


def assert_compiled_equals_eager(module: LossModule, batch: TrainBatch, backend: str, rtol: float) -> None:
    """Compare terms, gradients and what the loss leaves in buffers."""
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
    assert "loss" in eager, f"there is no term 'loss' among {set(eager)}"
    assert eager["loss"].shape == (), "the loss is no single number"
    moves = any(gradient is not None and gradient.abs().sum() > 0 for gradient in eager_gradients)
    assert moves, "the loss has no gradient by any parameter"
    for a, b in ((eager, compiled), (eager_buffers, compiled_buffers)):
        assert a.keys() == b.keys(), f"only one of them has {sorted(a.keys() ^ b.keys())}"
        for key in a:
            torch.testing.assert_close(b[key], a[key], rtol=rtol, atol=rtol, msg=lambda m, key=key: f"{key}: {m}")
    for a, b in zip(eager_gradients, compiled_gradients, strict=True):
        assert (a is None) == (b is None), "a parameter has a gradient in only one of them"
        if a is not None and b is not None:
            torch.testing.assert_close(b, a, rtol=10 * rtol, atol=rtol * float(a.abs().max()) + 1e-7)


def _parts(batch: TrainBatch) -> dict[str, Tensor]:
    return {field.name: getattr(batch, field.name) for field in dataclasses.fields(batch)}


RUN_CHECKS: tuple[Callable[[MethodCase], None], ...] = (
    check_settings,
    check_training_leaves_a_complete_folder,
    check_the_seed_decides,
    check_a_continued_run_equals_an_uninterrupted_one,
    check_the_state_dict_is_complete,
    check_majority_only_data,
    check_objectives_move_parameters_of_the_method,
    check_the_loss_leaves_its_batch_alone,
    check_an_epoch_begins_in_buffers,
)
LOSS_CHECKS: tuple[Callable[[MethodCase], None], ...] = (
    check_logits,
    check_the_loss_compiles,
    check_the_loss_runs_under_vmap,
    check_the_loss_never_waits_for_the_device,
)


def method_checks(name: str, **options: Any) -> list[Check]:
    """Return the checks of a registered method, each a function without arguments that pytest can name.

    `options` are settings of the method. They should make it small.
    """
    cases = [MethodCase(name, options, classes) for classes in (2, 4)]  # two classes are a special case of many methods
    runs = [Check(f"method {name!r}", function, (cases[0],)) for function in RUN_CHECKS]
    return runs + [check for case in cases for check in loss_checks(case)]


def loss_checks(case: MethodCase, *variant: Any) -> list[Check]:
    """Return the checks of the losses and logits alone; `variant` are words that tell this case from others."""
    name = "-".join(map(str, (*variant, f"{case.classes}_classes")))
    return [Check(f"method {case.name!r}", function, (case,), name) for function in LOSS_CHECKS]


def check_method(name: str, **options: Any) -> None:
    """Run all checks of a registered method. The first that fails raises a `ContractError`."""
    for check in method_checks(name, **options):
        check()
