"""Weights of a stranger are compared with the module before memory is taken, and numbers of other types are refused."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest
import torch
from torch import nn

from sitar.config import run_config
from sitar.data.types import described_task
from sitar.errors import RunError
from sitar.methods import build_method
from sitar.models.weights import _Counted, check_size, load_weights, to_bytes
from sitar.registry import METHODS

FILE = Path("model.safetensors")
OURS = [name for name in METHODS.names() if METHODS.added_by(name) is None]


def content(kind: str, bits: int) -> bytes:
    """The weights of a layer of 8 to 2, as zeros of a type that safetensors knows."""
    header, end = {}, 0
    for name, shape, size in (("weight", [2, 8], 16), ("bias", [2], 2)):
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [end, end + size * bits // 8]}
        end += size * bits // 8
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + bytes(end)


@pytest.mark.parametrize(("kind", "bits"), [("F64", 64), ("F32", 32), ("F16", 16), ("BF16", 16)])
def test_floats_are_cast(kind: str, bits: int) -> None:
    layer = nn.Linear(8, 2)
    load_weights(content(kind, bits), layer, FILE)
    assert layer.weight.dtype == torch.float32
    assert not layer.weight.any()


@pytest.mark.parametrize(
    ("kind", "bits"), [("BOOL", 8), ("I64", 64), ("U16", 16), ("C64", 64), ("F8_E4M3", 8), ("F8_E8M0", 8), ("XX", 8)]
)
def test_other_types_are_refused(kind: str, bits: int) -> None:
    with pytest.raises(RunError, match=r"numbers of the type|cannot be read"):
        load_weights(content(kind, bits), nn.Linear(8, 2), FILE)


def test_sizes_are_compared_before_memory_is_taken(tmp_path: Path) -> None:
    file = tmp_path / "model.safetensors"
    file.write_bytes(to_bytes(nn.Linear(8, 2).state_dict()))
    check_size(file, lambda: nn.Linear(8, 2))
    for features in (10**6, 10**12, 2**61, 10**400):  # 10**12 of them would not fit into any memory
        with pytest.raises(RunError, match=r"do not fit the run's config\.yaml"):
            check_size(file, lambda n=features: nn.Linear(n, 2))
    with file.open("r+b") as opened:
        opened.truncate(2**32)  # without blocks on the disk
    with pytest.raises(RunError, match=r"4,294,967,296 bytes, and the model that the settings ask for 72\."):
        check_size(file, lambda: nn.Linear(8, 2))


def test_building_stops_where_it_goes_on_for_ever(tmp_path: Path) -> None:
    """A billion layers are refused after a few thousand."""
    file, built = tmp_path / "model.safetensors", []
    file.write_bytes(to_bytes(nn.Linear(8, 2).state_dict()))

    def build() -> nn.Module:
        for _ in range(10**9):
            built.append(nn.Linear(2048, 2048))
        return nn.ModuleList(built)

    with pytest.raises(RunError, match="far more memory than its file has bytes"):
        check_size(file, build)
    assert len(built) < 10**4


@pytest.mark.parametrize("shape", [(6,), (3, 16, 16)], ids=["features", "images"])
@pytest.mark.parametrize("name", OURS)
def test_every_method_of_ours_has_the_same_shapes_without_memory(name: str, shape: tuple[int, ...]) -> None:
    config = run_config({"data": {"name": "npz"}, "method": {"name": name}}, preset="x", seed=0)
    task = {"shape": list(shape), "class_counts": [40, 20]}
    if METHODS.get(name).needs_groups:
        task |= {"group_counts": [10, 0, 40, 10], "environments": 3}
    real = build_method(config, described_task(task)).state_dict()
    with _Counted(2**40), torch.device("meta"):
        planned = build_method(config, described_task(task)).state_dict()
    assert {key: (one.shape, one.dtype) for key, one in planned.items()} == {
        key: (one.shape, one.dtype) for key, one in real.items()
    }
    assert sum(one.nbytes for one in planned.values() if not one.is_meta) < 1000
