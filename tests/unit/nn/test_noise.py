"""The module for loops of one's own: what it promises of features, labels, precision and processes."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import Tensor, multiprocessing, nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from helpers.referees import batch, close
from sitar.config import ModelConfig
from sitar.data.types import Task
from sitar.errors import ConfigError, DataError
from sitar.functional.correlation import label_moments, shortcut_score
from sitar.functional.noise import NOISES
from sitar.methods.sitar import SITAR, SITARConfig
from sitar.nn import TargetedNoise, consistency_loss

KINDS = pytest.mark.parametrize("kind", NOISES)
CLASSES = pytest.mark.parametrize("classes", [2, 3])


def made(classes: int = 2) -> tuple[Tensor, Tensor]:
    """Features of different scales, which follow the label to different degrees, and their labels."""
    features, labels = batch(classes)
    return features * torch.logspace(-1, 1, features.shape[1]), labels


def drawn(noise: nn.Module, *inputs: Tensor, seed: int = 0) -> Tensor:
    torch.manual_seed(seed)
    return noise(*inputs)


@KINDS
@CLASSES
@pytest.mark.parametrize("floor", [False, True])
def test_it_is_the_noise_of_the_method(kind: str, classes: int, floor: bool) -> None:
    """`SITAR.classification` with the features as its latent: the classifier sees the same perturbed latent."""
    features, labels = made(classes)
    task = Task((3, 8, 8), classes, len(labels), (1,) * classes)
    config = SITARConfig.model_validate({"alpha": 0.7, "noise": kind, "score_floor": floor})
    method = SITAR(config, ModelConfig(latent_dim=features.shape[1], channels=(4,)), task)
    seen = []
    method.classifier = nn.Sequential(Recorder(seen), nn.Linear(features.shape[1], classes))
    torch.manual_seed(0)
    terms = method.classification(features, labels, method.moments(features, labels))

    noise = TargetedNoise(features.shape[1], classes, kind, 0.7, score_floor=floor, relative=False)
    noisy = drawn(noise, features, labels)
    close(noisy, seen[1].numpy(), atol=1e-6)
    assert not torch.equal(noisy, features)
    close(noise.scores, shortcut_score(method.moments(features, labels).correlation).numpy())
    loss = consistency_loss(method.classifier(features), method.classifier(noisy))
    close(loss.detach(), terms["consistency"].detach().numpy(), rtol=1e-5)


class Recorder(nn.Module):
    def __init__(self, seen: list[Tensor]) -> None:
        super().__init__()
        self.seen = seen

    def forward(self, z: Tensor) -> Tensor:
        self.seen.append(z.detach().clone())
        return z


@KINDS
@CLASSES
def test_relative_noise_is_in_units_of_the_features(kind: str, classes: int) -> None:
    """Features in other units have the same noise in these units."""
    features, labels = made(classes)
    units = torch.logspace(-2, 3, features.shape[1])
    noise = TargetedNoise(features.shape[1], classes, kind)
    plain = drawn(noise, features, labels) - features
    other = drawn(noise, units * features, labels) - units * features
    close(other / units, plain.numpy(), rtol=1e-3, atol=1e-3 * float(plain.abs().max()))


def test_relative_noise_has_the_deviation_alpha_v_sd() -> None:
    torch.manual_seed(0)
    labels = torch.arange(20_000) % 2
    features = (
        torch.tensor([3.0, 0.2, 10.0]) * torch.randn(20_000, 3) + torch.tensor([[0.0, 0.2, 5.0]]) * labels[:, None]
    )
    noise = TargetedNoise(3, 2, alpha=0.5)
    added = noise(features, labels) - features
    v = [abs(np.corrcoef(column, labels)[0, 1]) for column in features.T.numpy()]
    close(noise.scores, v, atol=1e-5)
    close(added.std(0), 0.5 * np.array(v) * features.std(0).numpy(), rtol=0.03)


@KINDS
def test_eval_is_the_identity(kind: str) -> None:
    noise = TargetedNoise(4, 2, kind, momentum=0.1).eval()
    before = {name: value.clone() for name, value in noise.state_dict().items()}
    features = torch.randn(5, 4)
    assert noise(features) is features
    assert noise(features, torch.zeros(5).long()) is features
    assert all(torch.equal(value, before[name]) for name, value in noise.state_dict().items())


@KINDS
def test_alpha_0_is_the_identity_and_still_scores(kind: str) -> None:
    features, labels = made()
    noise = TargetedNoise(features.shape[1], 2, kind, alpha=0.0)
    assert torch.equal(noise(features, labels), features)
    assert noise.scores.max() > 0.3


@KINDS
@pytest.mark.parametrize("momentum", [None, 0.1])
def test_no_gradient_flows_through_the_noise(kind: str, momentum: float | None) -> None:
    features, labels = made()
    features.requires_grad_()
    noise = TargetedNoise(features.shape[1], 2, kind, momentum=momentum)
    direction = torch.randn_like(features)
    (gradient,) = torch.autograd.grad((noise(features, labels) * direction).sum(), features)
    assert torch.equal(gradient, direction)
    assert not list(noise.parameters())


@KINDS
@pytest.mark.parametrize("momentum", [None, 0.1])
def test_it_compiles_to_the_same_numbers(kind: str, momentum: float | None) -> None:
    torch._dynamo.reset()
    features, labels = made(3)
    plain = TargetedNoise(features.shape[1], 3, kind, momentum=momentum, score_floor=True)
    other = TargetedNoise(features.shape[1], 3, kind, momentum=momentum, score_floor=True)
    compiled = torch.compile(other, fullgraph=True, backend="aot_eager")
    for seed in range(3):
        expected = drawn(plain, features + seed, labels, seed=seed)
        close(drawn(compiled, features + seed, labels, seed=seed), expected.numpy(), atol=1e-5)
    close(other.scores, plain.scores.numpy())
    torch._dynamo.reset()


@KINDS
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_the_dtype_of_the_features_stays(kind: str, dtype: torch.dtype) -> None:
    features, labels = made()
    noise = TargetedNoise(features.shape[1], 2, kind)
    assert drawn(noise, features.to(dtype), labels).dtype == dtype
    close(noise.scores, shortcut_score(label_moments(features.to(dtype).float(), labels, 2).correlation).numpy())


@KINDS
def test_autocast_changes_nothing(kind: str) -> None:
    """Inside, mixed precision would round correlations and the exchange of components to three digits."""
    features, labels = made()
    noise = TargetedNoise(features.shape[1], 2, kind)
    expected = drawn(noise, features, labels)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = drawn(noise, features, labels)
    assert torch.equal(found, expected)


def test_a_network_trains_under_autocast() -> None:
    torch.manual_seed(0)
    body, head, noise = nn.Linear(6, 8), nn.Linear(8, 2), TargetedNoise(8, 2, "direction", momentum=0.2)
    x, y = torch.randn(32, 6), torch.arange(32) % 2
    with torch.autocast("cpu", dtype=torch.bfloat16):
        features = body(x)
        assert features.dtype == torch.bfloat16
        logits, noisy = head(features), head(noise(features, y))
        loss = cross_entropy(noisy, y) + 10 * consistency_loss(logits, noisy)
    loss.backward()
    assert loss.dtype == torch.float32
    assert body.weight.grad is not None
    assert body.weight.grad.isfinite().all()


@KINDS
@pytest.mark.parametrize("floor", [False, True])
def test_a_batch_of_one_sample_or_of_one_class_has_no_targeted_noise(kind: str, floor: bool) -> None:
    for labels in (torch.tensor([1]), torch.ones(8).long()):
        features = torch.randn(len(labels), 4)
        noise = TargetedNoise(4, 2, kind, score_floor=floor)
        noisy = noise(features, labels)
        assert noisy.isfinite().all()
        assert not noise.scores.any()
        if kind != "isotropic":
            assert torch.equal(noisy, features)


@KINDS
def test_a_constant_feature_stays_what_it_is(kind: str) -> None:
    features, labels = made()
    features[:, 1] = 0.7
    noisy = TargetedNoise(features.shape[1], 2, kind)(features, labels)
    close(noisy[:, 1], features[:, 1].numpy(), atol=1e-3)
    assert (noisy[:, 0] - features[:, 0]).abs().max() > 1e-3


def test_an_empty_batch_is_passed_on() -> None:
    noise = TargetedNoise(4, 2, momentum=0.1)
    assert noise(torch.zeros(0, 4), torch.zeros(0).long()).shape == (0, 4)
    assert noise.running is not None
    assert noise.running.mean.isfinite().all()


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_features_that_are_not_finite_are_passed_on_and_not_remembered(bad: float) -> None:
    features, labels = made()
    noise = TargetedNoise(features.shape[1], 2, momentum=0.1)
    noise(features, labels)
    before = noise.scores.clone()
    damaged = features.clone()
    damaged[3, 0] = bad
    noisy = noise(damaged, labels)
    assert not noisy[3, 0].isfinite()
    assert noisy[4].isfinite().all()
    assert torch.equal(noise.scores, before)
    assert TargetedNoise(features.shape[1], 2)(damaged, labels)[:, 0].isnan().all()


def test_weights_weigh_the_moments() -> None:
    features, labels = made()
    weight = torch.linspace(0.1, 2, len(labels))
    noise = TargetedNoise(features.shape[1], 2)
    noise(features, labels, weight=weight)
    close(noise.scores, shortcut_score(label_moments(features, labels, 2, weight).correlation).numpy())


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int32, torch.bool])
def test_labels_may_be_any_integers(dtype: torch.dtype) -> None:
    features, labels = made()
    noise = TargetedNoise(features.shape[1], 2)
    close(drawn(noise, features, labels.to(dtype)), drawn(noise, features, labels).numpy())


@pytest.mark.parametrize(
    ("labels", "says"),
    [
        (None, "needs labels in training mode"),
        (torch.zeros(8), "one class index a sample, an integer"),
        (torch.zeros(8, 2), "before one-hot coding"),
        (torch.zeros(8, 1).long(), r"shape \(8, 1\)"),
        (torch.zeros(7).long(), "for 8 samples"),
        (torch.full((8,), 2), "between 2 and 2, and there are 2 classes"),
        (torch.full((8,), -1), "Leave out samples without a label"),
    ],
)
def test_wrong_labels_are_refused(labels: Tensor | None, says: str) -> None:
    with pytest.raises(DataError, match=says):
        TargetedNoise(4, 2)(torch.randn(8, 4), labels)


@pytest.mark.parametrize("features", [torch.randn(8, 5), torch.randn(8, 4, 3, 3), torch.zeros(8, 4).long()])
def test_wrong_features_are_refused(features: Tensor) -> None:
    with pytest.raises(DataError, match=r"of the shape \(batch, 4\)"):
        TargetedNoise(4, 2)(features, torch.zeros(8).long())


def test_wrong_weights_are_refused() -> None:
    with pytest.raises(DataError, match=r"Weights have the shape \(3,\)"):
        TargetedNoise(4, 2)(torch.randn(8, 4), torch.zeros(8).long(), weight=torch.ones(3))


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"num_features": 0}, "at least 1 and 2"),
        ({"num_classes": 1}, "at least 1 and 2"),
        ({"kind": "axes"}, "Known: axis, direction, swap, isotropic"),
        ({"alpha": -1.0}, "0 or more"),
        ({"alpha": float("nan")}, "0 or more"),
        ({"distribution": "normal"}, "Known: gaussian"),
        ({"kind": "swap", "distribution": "uniform"}, "draws no numbers"),
        ({"momentum": 0.0}, "above 0 and at most 1"),
        ({"momentum": 1.5}, "above 0 and at most 1"),
    ],
)
def test_wrong_settings_are_refused(settings: dict, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        TargetedNoise(**{"num_features": 4, "num_classes": 2, **settings})


def test_it_says_what_it_is() -> None:
    text = repr(TargetedNoise(4, 2, "direction", 0.5, momentum=0.1))
    assert "kind=direction" in text
    assert "momentum=0.1" in text


class Network(nn.Module):
    """A network as a loop would write it: in training it returns both logits."""

    def __init__(self, kind: str, momentum: float | None) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body, self.head = nn.Linear(5, 3), nn.Linear(3, 3)
        self.noise = TargetedNoise(3, 3, kind, momentum=momentum, score_floor=True)

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        features = self.body(x)
        return self.head(features), self.head(self.noise(features, y))


def _one_of_two(rank: int, folder: str) -> None:
    """A process that trains on its part of each batch."""
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.set_num_threads(1)
    place, patience = f"file://{folder}/store", timedelta(minutes=2)
    dist.init_process_group("gloo", init_method=place, rank=rank, world_size=2, timeout=patience)
    try:
        found = {}
        x, y = made(3)
        mine = slice(0, 100) if rank == 0 else slice(100, None)
        for kind in NOISES:
            for momentum in (None, 0.3):
                network = Network(kind, momentum)
                model = DistributedDataParallel(network)
                for step in range(2):
                    logits, noisy = model(x[mine] + step * y[mine, None], y[mine])
                    (cross_entropy(noisy, y[mine]) + consistency_loss(logits, noisy)).backward()
                found[f"{kind} {momentum}"] = network.noise.state_dict()
                assert all(p.grad is not None and p.grad.isfinite().all() for p in network.parameters())
        torch.save(found, Path(folder) / f"{rank}.pt")
    finally:
        dist.destroy_process_group()


def test_two_processes_have_the_moments_of_one(tmp_path: Path) -> None:
    """Each sees its part of the batch, of different sizes, within DistributedDataParallel. This process is one."""
    other = multiprocessing.get_context("spawn").Process(target=_one_of_two, args=(1, str(tmp_path)))
    other.start()
    _one_of_two(0, str(tmp_path))
    other.join()
    assert other.exitcode == 0
    x, y = made(3)
    states = [torch.load(tmp_path / f"{rank}.pt", weights_only=True) for rank in range(2)]
    for kind in NOISES:
        for momentum in (None, 0.3):
            network = Network(kind, momentum)
            for step in range(2):
                network(x + step * y[:, None], y)
            alone = network.noise.state_dict()
            for state in states:
                found = state[f"{kind} {momentum}"]
                assert found.keys() == alone.keys()
                for name, value in alone.items():
                    close(found[name], value.numpy(), rtol=1e-4, atol=1e-5)
