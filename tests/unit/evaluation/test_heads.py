"""Every head is judged, and a few answers choose one of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from helpers.runs import run, settings
from sitar.data import load_data
from sitar.data.types import to_float
from sitar.errors import ConfigError
from sitar.evaluation.heads import ANSWERS, chosen_head
from sitar.evaluation.trained_model import load
from sitar.methods.several_heads import SeveralHeads

POOL = "val_ood"
DATA = {"name": "color_mnist", "image_size": 14, "train_size": 300, "eval_size": 200, "unlabelled": POOL}


def sure(classes: np.ndarray) -> np.ndarray:
    """Probabilities of .9 for these classes: (sample, head) becomes (sample, head, class)."""
    return np.where(np.arange(2) == classes[..., None], 0.9, 0.1)


def test_answers_choose_the_head_that_is_right_where_they_differ() -> None:
    y = np.arange(60) % 2
    heads = np.stack([y, np.where(np.arange(60) < 20, 1 - y, y)], 1)  # the second is wrong on a third
    assert chosen_head(sure(heads), y) == 0
    assert chosen_head(sure(heads[:, ::-1]), y) == 1


def test_the_images_that_are_asked_about_are_those_on_which_heads_differ_most() -> None:
    """The second head is right more often, but not on the four images on which they differ most."""
    y = np.zeros(40, dtype=np.int64)
    p = sure(np.stack([np.ones(40, dtype=int), np.zeros(40, dtype=int)], 1)) * 0.5 + 0.25
    p[:4] = sure(np.stack([np.zeros(4, dtype=int), np.ones(4, dtype=int)], 1))
    assert chosen_head(p, y, answers=4) == 0
    assert chosen_head(p, y, answers=40) == 1


def test_of_equal_heads_the_first_is_chosen() -> None:
    y = np.arange(20) % 2
    assert chosen_head(sure(np.stack([y, y], 1)), y) == 0


@pytest.mark.parametrize(("name", "head"), [("divdis", 1), ("dbat", 0), ("dbat", 1), ("ace", 1)])
def test_a_run_says_what_each_head_has(name: str, head: int, tmp_path: Path) -> None:
    config = settings(name, data=DATA, head=head, train={"epochs": 2, "batch_size": 64, "learning_rate": 0.01})
    folder = run(config, tmp_path / "run")
    result = folder.result()
    heads = result["heads"]
    assert (heads["predicts"], heads["answers"]) == (head, ANSWERS)
    model, data = load(folder, device="cpu"), load_data(config.data, progress=False)
    assert isinstance(model.method, SeveralHeads)
    split = data.evaluation["ood_test"]
    with torch.no_grad():
        logits = model.method.head_logits(to_float(split.x))
    assert torch.equal(logits[:, head], model.method.logits(to_float(split.x)))
    for number, figures in enumerate(heads["splits"]["ood_test"]):
        right = (logits[:, number].argmax(1) == split.y).double().mean().item()
        assert figures["average"] == pytest.approx(right)
    assert heads["splits"]["ood_test"][head]["worst_group"] == result["splits"]["ood_test"]["worst_group"]
    pool = data.evaluation[POOL]
    with torch.no_grad():
        p = model.method.head_logits(to_float(pool.x)).double().softmax(2).numpy()
    assert heads["chosen"] == chosen_head(p, pool.y.numpy())


def test_files_without_labels_choose_no_head(tmp_path: Path) -> None:
    np.savez(tmp_path / "new.npz", x=np.random.default_rng(0).integers(0, 255, (50, 3, 14, 14)).astype(np.uint8))
    config = settings("divdis", data={**DATA, "unlabelled": str(tmp_path / "new.npz")}, train={"epochs": 1})
    heads = run(config, tmp_path / "run").result()["heads"]
    assert "chosen" not in heads
    assert len(heads["splits"]["val"]) == 2


def test_methods_of_one_head_have_nothing_to_say(tmp_path: Path) -> None:
    assert (
        "heads" not in run(settings("erm", data={**DATA, "unlabelled": None}, train={"epochs": 1}), tmp_path).result()
    )


def test_a_head_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"method\.head=3: there are 3 heads"):
        run(settings("divdis", data=DATA, heads=3, head=3), tmp_path / "run")
