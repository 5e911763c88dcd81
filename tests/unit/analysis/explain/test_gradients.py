"""How fast logits change along each axis, against an exact case and finite differences."""

from __future__ import annotations

import pytest
import torch

from sitar.analysis.explain.gradients import sizes, slopes
from sitar.models import Classifier


def test_a_linear_classifier_by_hand() -> None:
    """Logits (3 a, 4 a + b): the columns have lengths 5 and 1 everywhere; the axes have deviations 2 and 0.1."""
    weight = torch.tensor([[3.0, 0.0], [4.0, 1.0]])
    z = torch.tensor([[-1.0, 0.1], [3.0, -0.1], [1.0, 0.0]])
    jacobian = slopes(lambda z: z @ weight.T, z, batch=2)
    assert torch.equal(jacobian, weight.expand(3, 2, 2))
    torch.testing.assert_close(sizes(jacobian, z.std(0)), torch.tensor([10.0, 0.1]))


@pytest.mark.parametrize("batch", [1, 7, 100])
def test_slopes_are_finite_differences(batch: int) -> None:
    torch.manual_seed(0)
    f = Classifier(5, 3, hidden=16).double()
    z, step = torch.randn(20, 5, dtype=torch.float64), 1e-5
    jacobian = slopes(f, z, batch)
    assert jacobian.shape == (20, 3, 5)
    for axis in range(5):
        move = step * torch.eye(5, dtype=torch.float64)[axis]
        with torch.no_grad():
            difference = (f(z + move) - f(z - move)) / (2 * step)
        torch.testing.assert_close(jacobian[:, :, axis], difference, rtol=1e-6, atol=1e-9)


def test_sizes_are_a_mean_of_lengths_not_the_length_of_a_mean() -> None:
    """Slopes of opposite signs do not cancel each other."""
    jacobian = torch.tensor([[[1.0], [0.0]], [[-1.0], [0.0]]])
    assert sizes(jacobian, torch.ones(1)).tolist() == [1.0]


def test_nothing_is_left_on_the_parameters() -> None:
    f = Classifier(4, 2, hidden=8)
    slopes(f, torch.randn(6, 4), 3)
    assert all(parameter.grad is None for parameter in f.parameters())
