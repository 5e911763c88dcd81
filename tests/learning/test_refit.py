"""Fifty answers decide what training images cannot: run with -m slow (about a minute)."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
import torch

import sitar
from sitar.analysis.refit.refit import refit
from sitar.evaluation.trained_model import load

SETTINGS = [
    "data.rho=1.0", "data.label_noise=0", "data.image_size=14", "data.train_size=6000", "data.eval_size=3000",
    "model.latent_dim=16", "train.epochs=15", "train.batch_size=256",
]  # fmt: skip


@pytest.mark.slow
def test_fifty_answers_beat_both_candidates_where_no_training_image_contradicts_the_colour(tmp_path: Path) -> None:
    """The new images have a colour that says nothing of the label. `ood_test` has the colours of the other class."""
    runs = [
        sitar.train(f"color_mnist/{name}", overrides=SETTINGS, out=tmp_path / name, device="cpu", progress=False)
        for name in ("erm", "control")
    ]
    model = load(runs[0], "cpu")
    pool = [model.data.evaluation[split] for split in ("val", "val_ood")]
    np.savez(tmp_path / "images.npz", x=torch.cat([split.x for split in pool]).numpy())
    labels = torch.cat([split.y for split in pool]).tolist()
    gains = []
    for draw in range(3):
        asked = np.random.default_rng(draw).choice(len(labels), 50, replace=False)
        with (tmp_path / "answers.csv").open("w", newline="") as file:
            csv.writer(file).writerows([["image", "answer"], *([i, model.classes[labels[i]]] for i in asked)])
        paths = [run.path for run in runs]
        folder = refit(
            paths, tmp_path / "answers.csv", tmp_path / "images.npz", out=tmp_path / f"refit{draw}", device="cpu",
            progress=False,
        )  # fmt: skip
        after, before = folder.result()["splits"], [run.result()["splits"] for run in runs]
        assert after["ood_test"]["average"] > max(splits["ood_test"]["average"] for splits in before) + 0.2
        gains.append(_deployed(after) - max(map(_deployed, before)))
    assert min(gains) > 0
    assert np.mean(gains) > 0.08


def _deployed(splits: dict) -> float:
    """Return the accuracy where every second image has the colour of the other class."""
    return (splits["id_test"]["average"] + splits["ood_test"]["average"]) / 2
