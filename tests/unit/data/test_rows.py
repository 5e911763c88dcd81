"""Rows of an array that stays where it is read like a tensor of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from sitar.data import rows as module
from sitar.data.rows import Rows, select, stored_rows
from sitar.data.types import TrainSplit

RANDOM = np.random.default_rng(0)


@pytest.mark.parametrize("shape", [(40, 5), (40, 3, 4, 4)])
@pytest.mark.parametrize("kind", [np.float16, np.float32, np.uint8])
def test_rows_read_like_a_tensor(shape: tuple[int, ...], kind: type) -> None:
    array = (RANDOM.random(shape) * 200).astype(kind)
    array.flags.writeable = False
    places = RANDOM.permutation(40)[:25]
    stored, tensor = Rows(array, places), torch.from_numpy(array[places])
    assert (stored.shape, stored.ndim, stored.dtype, stored.nbytes) == (
        tensor.shape, tensor.ndim, tensor.dtype, tensor.nbytes
    )  # fmt: skip
    index = torch.tensor([3, 3, 24, 0])
    for key in (index, index.tolist(), slice(4, 20), slice(None), 7, index.view(2, 2)):
        torch.testing.assert_close(stored[key], tensor[key], rtol=0, atol=0)
    parts = list(stored.split(10))
    assert [len(part) for part in parts] == [10, 10, 5]
    assert torch.equal(torch.cat(parts), tensor)
    assert torch.equal(stored.select(index)[:], tensor[index])
    with pytest.raises(IndexError):
        stored[torch.tensor([25])]


def test_rows_are_copied_to_a_device_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PART", 100)
    stored = Rows(np.arange(60, dtype=np.float32).reshape(20, 3), np.arange(19, -1, -1))
    assert stored.to(torch.device("cpu")) is stored
    assert stored.to(torch.device("meta")).shape == (20, 3)


def test_few_rows_are_copied_and_many_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    array = np.arange(30, dtype=np.float32).reshape(10, 3)
    monkeypatch.setattr(module, "HELD", 60)
    few, many = stored_rows(array, np.array([1, 3])), stored_rows(array, np.array([1, 3, 5, 7, 9, 0]))
    assert isinstance(few, torch.Tensor)
    assert isinstance(many, Rows)
    assert np.shares_memory(many.array, array)
    assert torch.equal(many[:], torch.from_numpy(array[[1, 3, 5, 7, 9, 0]]))
    index = torch.tensor([2, 0])
    assert isinstance(select(many, index), Rows)
    assert torch.equal(select(many, index)[:], select(torch.from_numpy(array[[1, 3, 5, 7, 9, 0]]), index))


def test_a_mapped_file_that_cannot_be_written_is_no_warning(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.arange(6, dtype=np.float16).reshape(3, 2))
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    few = stored_rows(mapped, np.arange(3))
    few[0] = 9  # a copy: the file keeps its numbers
    assert mapped[0, 0] == 0


def test_moments_of_parts_are_those_of_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(1000, 3, dtype=torch.float64) * torch.tensor([1.0, 50, 0]) + torch.tensor([0, 300.0, 7])
    whole = TrainSplit(x.float(), torch.zeros(1000, dtype=torch.long)).moments
    monkeypatch.setattr("sitar.data.types.MOMENT_VALUES", 2000)
    monkeypatch.setattr("sitar.data.types.PART_VALUES", 3 * 77)
    parts = TrainSplit(x.float(), torch.zeros(1000, dtype=torch.long)).moments
    assert whole is not None
    assert parts is not None
    for one, two, expected in zip(whole, parts, (x.float().double().mean(0), x.float().double().std(0, correction=0))):  # noqa: B905
        torch.testing.assert_close(one, expected.float(), rtol=0, atol=0)
        torch.testing.assert_close(two, one, rtol=1e-6, atol=1e-6)
