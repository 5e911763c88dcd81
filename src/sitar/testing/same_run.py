"""Compare two runs of one configuration, bit for bit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from safetensors.torch import load
from torch import Tensor

from sitar.run_folder import INERT, RunFolder, flat


def weights(folder: RunFolder) -> dict[str, Tensor]:
    """Read the weights that a run leaves."""
    return load(folder.model())


def metrics(folder: RunFolder) -> list[dict[str, Any]]:
    """Read metrics.jsonl without the clock."""
    return [{key: value for key, value in line.items() if key != "seconds"} for line in folder.metrics()]


def predictions(folder: RunFolder) -> dict[str, np.ndarray]:
    """Read the logits, labels and groups that a run leaves."""
    return folder.predictions()


def assert_same_tensors(a: Mapping[str, Tensor], b: Mapping[str, Tensor]) -> None:
    """Compare bit for bit. The message names the tensors that differ."""
    assert a.keys() == b.keys(), f"tensors that only one has: {sorted(a.keys() ^ b.keys())}"
    different = [name for name in a if a[name].dtype != b[name].dtype or not torch.equal(a[name], b[name])]
    assert not different, f"tensors that differ: {different}"


def assert_same_run(a: RunFolder, b: RunFolder) -> None:
    """Compare everything that two runs of one configuration must share, bit for bit."""
    for folder in (a, b):
        assert folder.is_done, f"the run in {folder.path} is not finished"
    assert_same_tensors(weights(a), weights(b))
    assert metrics(a) == metrics(b), "the terms of the loss or the accuracies of an epoch differ (metrics.jsonl)"
    ours, theirs = predictions(a), predictions(b)
    assert ours.keys() == theirs.keys(), f"predictions that only one has: {sorted(ours.keys() ^ theirs.keys())}"
    for name, array in ours.items():
        np.testing.assert_array_equal(array, theirs[name], err_msg=name, strict=True)
    mine, yours = ({**folder.result(), "seconds": 0} for folder in (a, b))
    assert mine == yours, "the results differ (result.json)"
    mine, yours = ({**flat(folder.read_config()), **dict.fromkeys(INERT)} for folder in (a, b))
    assert mine == yours, "the settings differ (config.yaml)"
