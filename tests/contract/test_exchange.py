"""Without counter-examples label and shortcut are interchangeable: no method can tell which one is meant.

The two roles of a pair have the same training images in the same two piles. A method that sees only images and labels
trains the same model on both, bit for bit. So its accuracies on what contradicts the shortcut add up to 1, and its core
AUC in one role is its shortcut AUC in the other.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import sitar
from helpers import made_data
from helpers.runs import assert_same_tensors, predictions, weights
from sitar.data.benchmarks import celeba
from sitar.run_folder import RunFolder

FACES = 320
TINY = [
    "data.partition=exchange",
    "data.image_size=16",
    "model.channels=[4]",
    "model.hidden=8",
    "train.epochs=2",
    "train.batch_size=32",
]


@pytest.fixture
def faces(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Made-up faces in CelebA's own layout, whose lists are taken for the real ones."""
    monkeypatch.setattr(made_data, "N", FACES)
    monkeypatch.setattr(celeba, "FIRST_10K", FACES)
    for name, md5 in made_data.md5_of_lists().items():
        monkeypatch.setitem(celeba.MD5, name, md5)
    folder = tmp_path / "faces"
    folder.mkdir()
    made_data.celeba_original(folder)
    return folder


def run(preset: str, label: str, attribute: str, faces: Path, out: Path) -> RunFolder:
    roles = [f"data.root={faces}", f"data.label={label}", f"data.attribute={attribute}"]
    return sitar.train(preset, overrides=[*TINY, *roles], seed=0, out=out / label, device="cpu", progress=False)


@pytest.mark.parametrize("pair", [("Blond_Hair", "Male"), ("Smiling", "Attractive"), ("Blond_Hair", "Smiling")])
@pytest.mark.parametrize("preset", ["celeba/erm", "celeba/control", "celeba/sitar"])
def test_the_two_roles_have_one_model_and_their_accuracies_add_up(
    preset: str, pair: tuple[str, str], faces: Path, tmp_path: Path
) -> None:
    first, second = (run(preset, *roles, faces, tmp_path) for roles in (pair, pair[::-1]))
    assert_same_tensors(weights(first), weights(second))
    one, other = predictions(first), predictions(second)
    assert (one["test/logits"] == other["test/logits"]).all()
    mine, yours = (folder.result()["splits"]["test"]["groups"] for folder in (first, second))
    for label, value in ((0, 1), (1, 0)):
        here = mine[f"label={label},{pair[1]}={value}"]
        there = yours[f"label={value},{pair[0]}={label}"]
        assert here["n"] == there["n"] > 0
        assert here["accuracy"] + there["accuracy"] == 1
    figures, exchanged = (folder.result()["splits"]["test"] for folder in (first, second))
    assert figures["core_auc"] == pytest.approx(exchanged["shortcut_auc"], abs=1e-12)
    assert figures["shortcut_auc"] == pytest.approx(exchanged["core_auc"], abs=1e-12)
    for value in (0, 1):
        assert mine[f"label={value},{pair[1]}={value}"] == yours[f"label={value},{pair[0]}={value}"]
