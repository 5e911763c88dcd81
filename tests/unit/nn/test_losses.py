"""The consistency loss for loops of one's own."""

from __future__ import annotations

import pytest
import torch

from helpers import referees
from helpers.referees import close
from sitar.errors import DataError
from sitar.nn import consistency_loss


def test_it_is_the_papers_term() -> None:
    referees.check_consistency(consistency_loss)


def test_half_precision_is_computed_in_float32() -> None:
    logits = torch.tensor([[300.0, 0.0]], dtype=torch.float16)
    found = consistency_loss(logits, torch.zeros_like(logits))
    assert found.dtype == torch.float32
    close(found, 90_000)
    assert consistency_loss(torch.zeros(2, 3).double(), torch.ones(2, 3).double()).dtype == torch.float64


@pytest.mark.parametrize("shapes", [((4,), (4,)), ((4, 2), (4, 3)), ((4, 2), (3, 2))])
def test_wrong_shapes_are_refused(shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    with pytest.raises(DataError, match=r"two of the same shape \(batch, classes\)"):
        consistency_loss(torch.zeros(shapes[0]), torch.zeros(shapes[1]))
