"""What processes compute over the global batch is what one process computes over the whole of it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from helpers.launch import together
from sitar.functional.draws import normal_like, uniform, uniform_like
from sitar.functional.reduce import Share, batch_sum, gathered, global_mean, global_sum, own_rows, sharing
from sitar.functional.risk import cvar
from sitar.models.global_norm import GlobalBatchNorm
from sitar.training.processes import ALONE, Processes

ROWS = 17  # of which two processes have 8 and 9


def computed(processes: Processes) -> dict[str, Tensor]:
    """What a process finds, of its own rows or of all of them."""
    random = torch.Generator().manual_seed(0)
    x, weight = torch.randn(ROWS, 3, generator=random), torch.rand(ROWS, generator=random)
    images = 5 + torch.randn(ROWS, 3, 2, 2, generator=random)
    own = processes.part(ROWS)
    scale = nn.Parameter(torch.tensor([1.0, 2.0, 3.0]))
    norm = nn.BatchNorm2d(3) if processes is ALONE else GlobalBatchNorm.like(nn.BatchNorm2d(3))
    found: dict[str, Tensor] = {}
    torch.manual_seed(1)
    with processes.sharing(ROWS):
        rows, losses = x[own] * scale, (x[own] * scale).square().sum(1)
        found["gathered"] = gathered(rows)
        found["marks"] = gathered(rows[:, 0] > 0).float()
        found["sum"] = batch_sum(rows.sum(0))
        found["mean"] = global_mean(losses.mean())
        found["weighted"] = global_mean((weight[own] * losses).sum() / weight[own].sum(), weight[own])
        found["cvar"] = cvar(losses, 0.3, weight[own])
        for name, drawn in {
            "normal": normal_like(rows), "one number a row": normal_like(rows[:, :1].expand(-1, 4)),
            "uniform": uniform_like(rows), "five numbers": uniform(5, images[own]).T,
        }.items():  # fmt: skip
            found[name] = gathered(drawn)
            assert torch.equal(own_rows(found[name]), drawn)
        normalised = norm(images[own] * scale.view(3, 1, 1))
        found["normalised"] = gathered(normalised)
        loss = sum(found[name] for name in ("mean", "weighted", "cvar")) + scale.square().sum()
        loss = loss + global_mean((normalised * images[own].square()).sum((1, 2, 3)).mean())
        loss.backward()
        processes.average([scale, *norm.parameters()])
    parameters = {"scale": scale, **dict(norm.named_parameters())}
    found |= {f"gradient of {name}": p.grad for name, p in parameters.items() if p.grad is not None}
    found |= {name: buffer.float() for name, buffer in norm.named_buffers()}
    return {name: tensor.detach() for name, tensor in found.items()}


def keep(processes: Processes, folder: Path) -> None:
    torch.save(computed(processes), folder / f"{processes.rank}.pt")
    rows = torch.ones(2)
    assert global_sum(rows) is rows, "between steps each process computes for itself"


def test_two_processes_compute_what_one_does(tmp_path: Path) -> None:
    alone = computed(ALONE)
    assert len(alone) == 17
    together(keep, tmp_path)
    for rank in range(2):
        found = torch.load(tmp_path / f"{rank}.pt")
        assert found.keys() == alone.keys()
        for name, tensor in alone.items():
            assert torch.allclose(found[name], tensor, rtol=1e-5, atol=1e-5), name


def test_one_process_changes_nothing() -> None:
    rows = torch.randn(4, 2)
    for same in (gathered, own_rows, batch_sum, global_mean):
        assert same(rows) is rows
    torch.manual_seed(0)
    drawn = torch.randn_like(rows)
    torch.manual_seed(0)
    assert torch.equal(normal_like(rows), drawn)


def test_rows_that_are_no_batch_are_refused() -> None:
    with sharing(Share(0, 3, 6)), pytest.raises(ValueError, match="a batch has 3"):
        normal_like(torch.zeros(4, 2))
