"""The average of weights, compared with numpy, and what a method has of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from helpers import toys
from helpers.runs import assert_same_run, metrics, run, toy, weights
from sitar.config import TrainConfig
from sitar.errors import ConfigError
from sitar.training.averaging import Average

EPOCHS = 3


@pytest.fixture
def _toys() -> Iterator[None]:
    with toys.entered():
        yield


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))


def changed(module: nn.Module, seed: int) -> dict[str, np.ndarray]:
    """Move every tensor of a module as an epoch does, and return copies of them."""
    random = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for tensor in module.state_dict().values():
            if tensor.is_floating_point():
                tensor.add_(torch.randn(tensor.shape, generator=random))
            else:
                tensor.add_(7)
    return {name: tensor.numpy().copy() for name, tensor in module.state_dict().items()}


def expected(epochs: list[np.ndarray]) -> Any:
    """A plain mean of the first epochs, in which each later one counts as one part in EPOCHS."""
    mean = np.mean(epochs[:EPOCHS], 0, dtype=np.float64)
    for values in epochs[EPOCHS:]:
        mean = mean + (values - mean) / EPOCHS
    return mean


def test_it_is_a_plain_mean_at_first_and_then_fades() -> None:
    module, average = network(), Average(EPOCHS)
    seen = []
    for epoch in range(6):
        seen.append(changed(module, epoch))
        average.add(module)
        for name in ("0.weight", "0.bias", "1.weight", "1.running_mean", "1.running_var"):
            wanted = expected([values[name] for values in seen])
            np.testing.assert_allclose(average.mean[name].numpy(), wanted, rtol=1e-5, atol=1e-6)


def test_a_count_is_that_of_the_last_epoch() -> None:
    module, average, last = network(), Average(EPOCHS), {}
    for epoch in range(3):
        last = changed(module, epoch)
        average.add(module)
    average.give(module)
    assert module.state_dict()["1.num_batches_tracked"].item() == last["1.num_batches_tracked"]


def test_a_method_gets_its_own_weights_back_in_the_same_memory() -> None:
    module, average, own = network(), Average(EPOCHS), {}
    for epoch in range(3):
        own = changed(module, epoch)
        average.add(module)
    places = [tensor.data_ptr() for tensor in module.state_dict().values()]
    with average.lent(module):
        assert not np.allclose(module.state_dict()["0.weight"].numpy(), own["0.weight"])
        assert [tensor.data_ptr() for tensor in module.state_dict().values()] == places
    assert all(np.array_equal(tensor.numpy(), own[name]) for name, tensor in module.state_dict().items())
    assert [tensor.data_ptr() for tensor in module.state_dict().values()] == places


def test_it_goes_on_from_a_checkpoint() -> None:
    module, whole, cut = network(), Average(EPOCHS), Average(EPOCHS)
    for epoch in range(5):
        changed(module, epoch)
        whole.add(module)
        cut = Average(EPOCHS, cut.state())
        cut.add(module)
    assert all(torch.equal(whole.mean[name], cut.mean[name]) for name in whole.mean)


def test_what_is_no_average_of_the_method_is_refused() -> None:
    module, average = network(), Average(EPOCHS)
    average.check(module, 0)
    for _ in range(2):
        average.add(module)
    saved = average.state()
    mean = average.mean
    Average(EPOCHS, saved).check(module, 2)
    wrong = [
        {"seen": 1}, {"seen": 0, "mean": {}}, {"mean": {**mean, "other": torch.zeros(1)}},
        {"mean": {"0.bias": mean["0.bias"]}},
        {"mean": {**mean, "0.bias": torch.zeros(1)}}, {"mean": {**mean, "0.bias": torch.zeros(2, dtype=torch.int64)}},
    ]  # fmt: skip
    for change in wrong:
        with pytest.raises(ValueError, match="average of weights"):
            Average(EPOCHS, {**saved, **change}).check(module, 2)
    with pytest.raises(ValueError, match="average of weights"):
        Average(1, saved).check(module, 2)


def test_without_an_average_nothing_is_kept() -> None:
    module, average = network(), Average(1)
    own = changed(module, 0)
    average.add(module)
    average.give(module)
    assert not average.mean
    assert all(np.array_equal(tensor.numpy(), own[name]) for name, tensor in module.state_dict().items())


@pytest.mark.usefixtures("_toys")
def test_a_run_evaluates_and_keeps_the_average_and_trains_on_with_its_own_weights(tmp_path: Path) -> None:
    plain = run(toy("erm", train={"epochs": 4}), tmp_path / "plain")
    averaged = run(toy("erm", train={"epochs": 4, "average_epochs": 4}), tmp_path / "averaged")
    ends = [run(toy("erm", train={"epochs": n}), tmp_path / str(n)) for n in range(1, 5)]
    for name, tensor in weights(averaged).items():
        wanted = torch.stack([weights(end)[name].double() for end in ends]).mean(0)
        assert torch.allclose(tensor.double(), wanted, rtol=1e-5, atol=1e-6)
    losses = [[line["loss"] for line in metrics(folder)] for folder in (plain, averaged)]
    assert losses[0] == losses[1]  # the weights that are trained on are not averaged
    assert metrics(plain)[-1]["val"] != metrics(averaged)[-1]["val"]


@pytest.mark.usefixtures("_toys")
def test_one_epoch_is_no_average(tmp_path: Path) -> None:
    plain = run(toy("erm"), tmp_path / "plain")
    assert_same_run(plain, run(toy("erm", train={"average_epochs": 1}), tmp_path / "one"))


def test_no_epoch_is_refused() -> None:
    with pytest.raises((ConfigError, ValueError), match="average_epochs"):
        TrainConfig(average_epochs=0)
