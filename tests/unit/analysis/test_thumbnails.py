"""Images that are kept for reports."""

from __future__ import annotations

import pytest
import torch

from sitar.analysis import thumbnails as module
from sitar.analysis.thumbnails import pixels, thumbnails


def test_large_images_become_small_and_small_ones_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.zeros(2, 3, 20, 40, dtype=torch.uint8)
    x[..., 20:] = 200
    monkeypatch.setattr(module, "MOST_SIDE", 40)
    assert thumbnails(x) is x
    monkeypatch.setattr(module, "MOST_SIDE", 10)
    small = thumbnails(x)
    assert small.shape == (2, 3, 5, 10)
    assert small.dtype == torch.uint8
    assert small[0, 0, 0, [0, -1]].tolist() == [0, 200]
    assert thumbnails(torch.ones(2, 4, 3, 1, 30)).shape == (2, 4, 3, 1, 10)
    assert thumbnails(x[:0]).shape[0] == 0


def test_floats_become_bytes() -> None:
    assert pixels(torch.tensor([-0.5, 0.0, 0.5, 1.0, 2.0])).tolist() == [0, 0, 128, 255, 255]
