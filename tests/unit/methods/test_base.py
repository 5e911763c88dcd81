"""What all methods share: what happens to batch normalisation while a penalty is computed."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from sitar.config import ModelConfig
from sitar.data import Task
from sitar.methods.base import settled
from sitar.methods.erm import ERM, ERMConfig


def with_batch_norm() -> ERM:
    method = ERM(ERMConfig(), ModelConfig(latent_dim=3, channels=(4,), hidden=8), Task((3, 8, 8), 2, 8, (4, 4)))
    method.network.backbone = nn.BatchNorm2d(3)
    return method.train()


def test_settled_batch_norm_uses_its_running_statistics_and_keeps_them():
    method = with_batch_norm()
    norm = method.network.backbone
    x = torch.rand(8, 3, 8, 8)
    with settled(method):
        assert not norm.training
        torch.testing.assert_close(norm(x), x / (1 + norm.eps) ** 0.5)
    assert norm.training
    assert norm.num_batches_tracked == 0


def test_batch_norm_that_was_settled_before_stays_so():
    method = with_batch_norm().eval()
    with settled(method):
        pass
    assert not method.network.backbone.training


def test_an_error_does_not_leave_batch_norm_settled():
    method = with_batch_norm()
    with pytest.raises(ZeroDivisionError), settled(method):
        _ = 1 / 0
    assert method.network.backbone.training
