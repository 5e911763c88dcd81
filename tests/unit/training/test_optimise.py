"""Optimisers are those of torch, without what they import."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from sitar.config import TrainConfig
from sitar.training.optimise import build_optimiser, restore_optimiser

TORCH = {
    "adam": lambda parameters: torch.optim.Adam(parameters, lr=0.01, weight_decay=0.1, fused=True),
    "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=0.01, weight_decay=0.1, fused=True),
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.01, momentum=0.9, weight_decay=0.1, fused=True),
}


@pytest.mark.parametrize("name", TORCH)
def test_steps_are_those_of_torch_bit_by_bit_also_after_a_restore(name: str) -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 2))
    reference, x = copy.deepcopy(network), torch.randn(6, 16, 5)
    config = TrainConfig.model_validate({"optimiser": name, "learning_rate": 0.01, "weight_decay": 0.1})
    cpu = torch.device("cpu")
    ours, theirs = build_optimiser(config, list(network.parameters()), cpu), TORCH[name](reference.parameters())
    assert isinstance(ours, type(theirs))
    for step, batch in enumerate(x):
        if step == 3:
            saved, ours = ours.state_dict(), build_optimiser(config, list(network.parameters()), cpu)
            restore_optimiser(ours, saved)
        for model, optimiser in ((network, ours), (reference, theirs)):
            optimiser.zero_grad(set_to_none=True)
            model(batch).square().sum().backward()
            optimiser.step()
    for own, other in zip(network.parameters(), reference.parameters(), strict=True):
        assert torch.equal(own, other)
    assert ours.state_dict().keys() == theirs.state_dict().keys()


def test_a_step_moves_weights_and_leaves_no_graph() -> None:
    weight = nn.Parameter(torch.ones(3))
    optimiser = build_optimiser(TrainConfig(), [weight], torch.device("cpu"))
    weight.sum().backward()
    optimiser.step()
    assert weight.grad_fn is None
    assert weight.requires_grad
    assert not torch.equal(weight, torch.ones(3))
