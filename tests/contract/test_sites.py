"""Every method on data whose test has groups that training has not, and three environments."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from helpers.runs import TINY_TRAIN, run, settings, weights
from sitar.registry import METHODS

DATA = {"name": "sites", "train_size": 200, "eval_size": 120, "rho": 0.9}


@pytest.mark.parametrize("name", METHODS.names())
def test_unseen_sites_are_scored_by_group(name: str, tmp_path: Path) -> None:
    folder = run(settings(name, data=DATA, train={**TINY_TRAIN, "epochs": 1}), tmp_path / "run")
    assert all(torch.isfinite(tensor).all() for tensor in weights(folder).values())
    ood = folder.result()["splits"]["ood_test"]
    scored = {group for group, figures in ood["groups"].items() if figures["accuracy"] is not None}
    assert scored == {f"label={label},site={site}" for label in (0, 1) for site in (3, 4)}
    assert ood["worst_group"] is not None
    assert ood["adjusted_average"] is None  # the shares of training are those of sites that are not here
