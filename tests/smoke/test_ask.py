"""`sitar ask` and `sitar choose` as a person meets them: real runs, exit codes and messages."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import numpy as np
import pytest

import sitar as library
from helpers.cli import sitar, sitar_error
from sitar.analysis.answers import read_answers
from sitar.data import load_data
from sitar.presets import load_config

TINY = ["--set", "data.image_size=14", "--set", "data.train_size=400", "--set", "data.eval_size=200"]
TINY += ["--set", "model.channels=[4]", "--set", "train.epochs=3", "--set", "train.batch_size=64"]
CHOOSE = ("choose", "runs/a", "runs/b", "--images", "new.npz")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs on ColorMNIST, and images of another seed in which the colour says nothing."""
    root = tmp_path_factory.mktemp("ask")
    sitar("train", "color_mnist/erm", *TINY, "--out", "runs/a", "--quiet", cwd=root)
    sitar("train", "color_mnist/control", *TINY, "--out", "runs/b", "--quiet", cwd=root)
    model = library.load(root / "runs/a", device="cpu")
    other = load_config("color_mnist/erm", [*TINY[1::2], "data.rho=0.5"], None).data
    split = load_data(other).evaluation["val"]
    np.savez(root / "new.npz", x=split.x.numpy())
    lines = [f"{i},{model.classes[label]}\n" for i, label in enumerate(split.y.tolist())]
    (root / "labels.csv").write_text("image,label\n" + "".join(lines[:60]))
    np.save(root / "truth.npy", split.y.numpy())
    return root


def ask(place: Path, typed: str, *options: object, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(sys, "stdin", io.StringIO(typed))
    return sitar("ask", "runs/a", "runs/b", "--images", "new.npz", "--no-browser", *options, cwd=place).stdout


def test_labels_that_exist_choose(place: Path) -> None:
    said = sitar(*CHOOSE, "--answers", "labels.csv", cwd=place).stdout
    assert "60 labels existed already" in said
    assert "best with probability" in said
    choice = json.loads(sitar(*CHOOSE, "--answers", "labels.csv", "--json", cwd=place).stdout)
    assert choice["answers"] == 60
    assert choice["chosen"]["run"] in ("runs/a", "runs/b")
    assert f"Chosen: {choice['chosen']['run']}" in said
    truth, x = np.load(place / "truth.npy"), np.load(place / "new.npz")["x"]
    for standing in choice["standings"]:
        real = (library.load(place / standing["run"], device="cpu").predict_index(x) == truth).mean()
        assert standing["interval"][0] - 0.1 < real < standing["interval"][1] + 0.1
    assert [standing["label"] for standing in choice["standings"]] == ["a", "b"]


def test_a_terminal_asks_stops_and_goes_on(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = ask(place, "1\n2\nq\n", monkeypatch=monkeypatch)
    assert "sitar choose runs/a runs/b --images new.npz --answers answers.csv" in first
    assert "cannot choose" in sitar_error(*CHOOSE, cwd=place)
    ask(place, "1\n2\n1\n2\n", monkeypatch=monkeypatch)
    assert len(read_answers(place / "answers.csv").lines) == 6
    assert "By 6 answers" in sitar(*CHOOSE, cwd=place).stdout


def test_one_candidate_and_other_answers_are_said(place: Path) -> None:
    assert "One candidate" in sitar_error(
        "choose", "runs/a", "--images", "new.npz", "--answers", "labels.csv", cwd=place
    )
    (place / "other.csv").write_text("image,label\nx.png,0\n")
    assert "None of the 1 answers" in sitar_error(*CHOOSE, "--answers", "other.csv", cwd=place)
    assert "cannot be read" in sitar_error(*CHOOSE, "--answers", "missing.csv", cwd=place)


def test_images_of_the_test_split_are_refused(place: Path) -> None:
    test = library.load(place / "runs/a", device="cpu").data.evaluation["ood_test"].x[:3].numpy()
    np.savez(place / "test.npz", x=np.concatenate([test, np.load(place / "new.npz")["x"]]))
    refused = sitar_error("ask", "runs/a", "runs/b", "--images", "test.npz", "--no-browser", cwd=place)
    assert "are in the split" in refused


def test_without_starlette_the_page_says_what_to_install(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sitar.analysis.ask.server", None)
    said = sitar_error("ask", "runs/a", "--images", "new.npz", "--answers", "page.csv", cwd=place)
    assert 'pip install "sitar[ask]"' in said
