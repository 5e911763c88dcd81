"""What copies draw that are trained as one: each what it would draw alone."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.func import vmap

from sitar.functional.draws import for_copies, for_copy, integers, normal_like, uniform, uniform_like

SEEDS = (3, 1, 2)
DRAWS: dict[str, tuple[Callable[[Tensor], Tensor], int]] = {
    "normal": (normal_like, 0),
    "uniform": (uniform_like, 0),
    "count": (lambda batch: uniform(2, batch), 1),
    "integers": (lambda batch: integers(100, batch), 0),
}


def generators() -> list[torch.Generator]:
    return [torch.Generator().manual_seed(seed) for seed in SEEDS]


def alone(draw: Callable[[Tensor], Tensor], batch: Tensor) -> list[Tensor]:
    """Two draws of each seed, one after the other."""
    found = []
    for seed in SEEDS:
        torch.manual_seed(seed)
        found.append(torch.stack([draw(batch), draw(batch)]))
    return found


@pytest.mark.parametrize("name", DRAWS)
def test_under_vmap_a_copy_draws_what_it_draws_alone(name: str) -> None:
    draw, _ = DRAWS[name]
    batch = torch.zeros(20, 4)

    def copy(place: Tensor, rows: Tensor) -> Tensor:
        with for_copy(place):
            return torch.stack([draw(rows), draw(rows)])

    with for_copies(generators()):
        found = vmap(copy, randomness="error")(torch.arange(3), batch.expand(3, -1, -1))
    assert torch.equal(found, torch.stack(alone(draw, batch)))


@pytest.mark.parametrize("name", DRAWS)
def test_a_batch_of_all_copies_has_their_rows_one_after_another(name: str) -> None:
    draw, dim = DRAWS[name]
    with for_copies(generators()):
        batch = torch.zeros(60, 4)
        found = torch.stack([draw(batch), draw(batch)])
    assert torch.equal(found, torch.cat(alone(draw, torch.zeros(20, 4)), dim + 1))


def test_a_draw_has_no_gradient_and_may_be_inside_a_derivative() -> None:
    def copy(place: Tensor, x: Tensor) -> Tensor:
        with for_copy(place):
            return torch.func.grad(lambda x: (x * normal_like(x.detach())).sum())(x)

    x = torch.zeros(3, 20, requires_grad=True)
    with for_copies(generators()):
        found = vmap(copy, randomness="error")(torch.arange(3), x)
    assert torch.equal(found, torch.stack([a[0] for a in alone(normal_like, torch.zeros(20))]))


def test_torchs_own_generator_is_left_alone() -> None:
    torch.manual_seed(0)
    before = torch.get_rng_state()
    with for_copies(generators()):
        normal_like(torch.zeros(60, 4))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(normal_like(torch.zeros(20)), torch.randn(20, generator=torch.Generator().manual_seed(0)))
