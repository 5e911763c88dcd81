"""Weights and buffers of modules, stacked: the modules have views of them."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from sitar.training.copies.stack import Stack


class Counter(nn.Module):
    count: torch.Tensor

    def __init__(self, count: float, table: torch.Tensor, rows: int = 2) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((rows,), count))
        self.register_buffer("count", torch.tensor(count))
        self.register_buffer("table", table)


def counters(*rows: int) -> list[Counter]:
    table = torch.arange(5.0)
    return [Counter(float(place), table, size) for place, size in enumerate(rows)]


def test_what_the_stack_has_the_modules_have_and_the_other_way_round() -> None:
    modules = counters(2, 2, 2)
    stack = Stack(modules)
    assert stack.parameters["weight"].tolist() == [[0, 0], [1, 1], [2, 2]]
    with torch.no_grad():
        modules[1].weight += 5
        stack.buffers["count"].fill_(9)
    assert stack.parameters["weight"].tolist() == [[0, 0], [6, 6], [2, 2]]
    assert [module.count.item() for module in modules] == [9, 9, 9]
    assert stack.parameters["weight"].requires_grad


def test_a_state_that_is_loaded_reaches_the_stack() -> None:
    modules = counters(2, 2)
    stack = Stack(modules)
    modules[0].load_state_dict(Counter(7.0, torch.zeros(5)).state_dict())
    assert stack.parameters["weight"].tolist() == [[7, 7], [1, 1]]


def test_a_buffer_that_was_replaced_is_taken_up() -> None:
    modules = counters(2, 2)
    stack = Stack(modules)
    modules[1].count = torch.tensor(3.0)
    stack.refresh()
    assert stack.buffers["count"].tolist() == [0, 3]
    stack.buffers["count"][1] = 4
    assert modules[1].count.item() == 4


def test_a_tensor_that_all_have_is_not_copied() -> None:
    modules = counters(2, 2)
    place = modules[0].table.data_ptr()
    stack = Stack(modules)
    assert set(stack.shared) == {"table"}
    assert "table" not in stack.buffers
    assert stack.shared["table"].data_ptr() == place


def test_modules_that_differ_are_refused() -> None:
    with pytest.raises(RuntimeError, match="equal size"):
        Stack(counters(2, 3))
    with pytest.raises(ValueError, match="different names"):
        Stack([Counter(0.0, torch.zeros(5)), nn.Linear(2, 2)])
