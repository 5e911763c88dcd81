"""Attributes of a method that a trial changes are named, and put back."""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest
import torch
from torch import nn

from sitar.training.attributes import Attributes


class Keeper(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(2, 2)
        self.register_buffer("buffer", torch.zeros(2))
        self.mean, self.none, self.count = torch.ones(2), None, 1
        self.seen, self.named, self.known, self.last = [1], {"a": 1}, {1}, deque([1, 2])


def grow(keeper: Any) -> None:
    keeper.new = 3
    keeper.inner.new = 3


@pytest.mark.parametrize(
    ("change", "names"),
    [
        (lambda keeper: keeper.mean.mul_(2), ["mean"]),
        (lambda keeper: setattr(keeper, "mean", 2 * keeper.mean), ["mean"]),
        (lambda keeper: setattr(keeper, "none", torch.ones(1)), ["none"]),
        (lambda keeper: setattr(keeper, "count", 2), ["count"]),
        (lambda keeper: setattr(keeper, "count", True), ["count"]),
        (lambda keeper: setattr(keeper, "count", int("1")), []),
        (lambda keeper: keeper.seen.append(2), ["seen"]),
        (lambda keeper: keeper.named.update(a=2), ["named"]),
        (lambda keeper: keeper.known.clear(), ["known"]),
        (lambda keeper: keeper.last.rotate(), ["last"]),
        (lambda keeper: delattr(keeper, "last"), ["last"]),
        (grow, ["new"]),
        (lambda keeper: keeper.buffer.add_(1), []),
        (lambda keeper: keeper.train(False), []),
    ],
)
def test_what_has_changed_is_named_and_put_back(change: Any, names: list[str]) -> None:
    keeper = Keeper()
    held = {key: value for key, value in vars(keeper).items() if key not in vars(nn.Module())}
    attributes = Attributes(keeper)
    assert attributes.changed() == []
    change(keeper)
    assert attributes.changed() == names
    attributes.restore()
    assert not hasattr(keeper, "new")
    assert not hasattr(keeper.inner, "new")
    assert all(getattr(keeper, key) is value for key, value in held.items())
    assert keeper.mean.tolist() == [1, 1]
    assert (keeper.none, keeper.count, keeper.seen, keeper.named) == (None, 1, [1], {"a": 1})
    assert (keeper.known, keeper.last) == ({1}, deque([1, 2]))
