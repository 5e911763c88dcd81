"""A VAE that uses no axis is started anew, and one that uses some is trained as if nobody had looked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from helpers.runs import metrics, run, settings, weights
from sitar.evaluation.trained_model import load
from sitar.methods.vae import BetaVAE

SMALL: dict[str, Any] = {"train": {"epochs": 2, "batch_size": 64}}


def test_a_vae_that_collapses_is_started_anew_and_at_last_with_half_of_beta(tmp_path: Path) -> None:
    folder = run(settings("vae", beta=1e4, restarts=2, max_samples=100, **SMALL), tmp_path / "run")
    method = load(folder, "cpu").method
    assert isinstance(method, BetaVAE)
    assert method.used is not None
    assert method.used.tolist() == [0, 0, 0]
    phases = list(dict.fromkeys(line["phase"] for line in metrics(folder)))
    assert phases == ["vae", "vae, start 2", "vae, start 3"]
    first = [next(line for line in metrics(folder) if line["phase"] == phase) for phase in phases]
    assert len({line["reconstruction"] for line in first}) == 3, "each start has weights of its own"
    assert weights(folder)["beta"] == 5e3
    assert method.starts() == "The VAE used no axis after 3 of 3 starts; the last had a beta of 5000."


def test_a_vae_that_uses_axes_is_trained_once_and_as_without_restarts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sitar.methods.vae.USED", 1e-12)
    plain = weights(run(settings("vae", **SMALL), tmp_path / "plain"))
    folder = run(settings("vae", restarts=3, **SMALL), tmp_path / "careful")
    careful = weights(folder)
    assert {*careful} - {*plain} == {"used", "beta"}
    assert all(torch.equal(careful[name], weight) for name, weight in plain.items())
    assert careful["used"].tolist()[1:] == [-1, -1, -1]
    method = load(folder, "cpu").method
    assert isinstance(method, BetaVAE)
    assert method.starts() is None
