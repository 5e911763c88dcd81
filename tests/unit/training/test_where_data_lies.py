"""Whether a training split lies on the GPU: by what is free there, or as the user asks, and the log says so."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any, cast

import pytest
import torch

from sitar.data.types import TrainSplit
from sitar.training.loop import RESIDENT_SHARE, _resident

FREE = 10 * 10**9  # bytes
FITS, DOES_NOT_FIT = int(RESIDENT_SHARE * FREE), int(RESIDENT_SHARE * FREE) + 1


@dataclass
class Split:
    """A split of a given size. It stands in for a GPU that tests do not have."""

    input_bytes: int
    x: str = "inputs"

    def to(self, device: torch.device) -> str:
        return f"all on {device}"

    def labels_to(self, device: torch.device, x: str) -> str:
        return f"{x} on the host, labels on {device}"


@pytest.mark.parametrize(
    ("device", "size", "where", "lies"),
    [
        ("cuda", FITS, "auto", "all on cuda"),
        ("cuda", DOES_NOT_FIT, "auto", "inputs on the host, labels on cuda"),
        ("cuda", FITS, "host", "inputs on the host, labels on cuda"),
        ("cuda", DOES_NOT_FIT, "device", "all on cuda"),
        ("cpu", DOES_NOT_FIT, "auto", "all on cpu"),
    ],
)
def test_where_inputs_lie_follows_from_what_is_free_and_can_be_forced(
    device: str, size: int, where: Any, lies: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.mem_get_info", lambda device: (FREE, 14 * FREE))
    with caplog.at_level(logging.INFO, "sitar"):
        assert _resident(cast(TrainSplit, Split(size)), torch.device(device), where) == lies
    on_host = "stays in host memory, and batches are fed to the GPU, which has 10.0 GB free. train.data_on=device"
    assert (on_host in caplog.text) == ("host" in lies)
