"""The recipes for loops of one's own run as a user runs them, and their page shows what they are."""

from __future__ import annotations

import difflib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from torch import Tensor

from helpers.scripts import ROOT

FOLDER = ROOT / "examples" / "loops"
FROZEN = FOLDER / "frozen.py"
PAGE = ROOT / "docs" / "loops.md"
DIFF = re.compile(r"^```diff\n.*?^```\n", re.M | re.S)


def output(recipe: str) -> dict[str, float]:
    """Run a recipe, and return the accuracy of the worst group by the name of the model."""
    path = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path, "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, str(FOLDER / recipe)]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return {name: float(value) for name, value in re.findall(r"^worst group, ([\w ]+): ([\d.]+)", run.stdout, re.M)}


@pytest.mark.ci
@pytest.mark.parametrize(
    ("recipe", "models"),
    [
        ("finetune_plain.py", {"plain loop"}),
        ("finetune_noise.py", {"with noise"}),
        ("accelerate_loop.py", {"without noise", "with noise"}),
        ("hf_trainer.py", {"without noise", "with noise"}),
    ],
)
def test_a_recipe_runs_and_tells_the_worst_group(recipe: str, models: set[str]) -> None:
    found = output(recipe)
    assert found.keys() == models
    assert all(0 <= accuracy <= 1 for accuracy in found.values())


@pytest.mark.ci
def test_the_model_of_the_trainer_starts_without_moments_keeps_those_of_a_checkpoint_and_returns_a_mean(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    from hf_trainer import RobustResNet  # it imports transformers, which takes seconds
    from transformers import ResNetConfig, ResNetForImageClassification, Trainer, TrainingArguments

    config = ResNetConfig(embedding_size=4, hidden_sizes=[4, 6], depths=[1, 1], layer_type="basic", num_labels=2)
    x, labels = torch.randn(8, 3, 32, 32, generator=torch.Generator().manual_seed(0)), torch.arange(8) % 2

    def first_loss(model: RobustResNet) -> Tensor:
        torch.manual_seed(1)
        return model.train()(x, labels).loss

    plain = ResNetForImageClassification(config)
    plain.save_pretrained(tmp_path / "plain")
    with empty_memory_is_nan():
        loaded = RobustResNet.from_pretrained(tmp_path / "plain")
    built = RobustResNet(config)
    built.load_state_dict(plain.state_dict(), strict=False)
    assert loaded.state_dict().keys() == built.state_dict().keys()
    assert all(torch.equal(value, built.state_dict()[name]) for name, value in loaded.state_dict().items())
    assert torch.equal(first_loss(loaded), first_loss(built))

    trainer = Trainer(loaded, TrainingArguments(str(tmp_path / "out"), use_cpu=True, report_to="none"))
    assert not trainer.model_accepts_loss_kwargs  # so that it divides the loss where it accumulates gradients

    loaded.save_pretrained(tmp_path / "trained")
    with empty_memory_is_nan():
        again = RobustResNet.from_pretrained(tmp_path / "trained")
    assert again.noise.running.weight == 8
    assert all(torch.equal(value, loaded.state_dict()[name]) for name, value in again.state_dict().items())


@contextmanager
def empty_memory_is_nan() -> Iterator[None]:
    """Fill new memory with NaN, as a test could not tell it from zeros otherwise."""
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


def test_the_record_holds_every_model_of_the_recipe() -> None:
    runs = json.loads((ROOT / "reproduce" / "records" / "loops.json").read_text(encoding="utf-8"))["runs"]
    assert {run["model"] for run in runs} == set(
        re.findall(r'"(\w+)": (?:plain|targeted)\(', FROZEN.read_text("utf-8"))
    )
    assert len(runs) == 2 * 3 * 3


@pytest.mark.ci
def test_noise_on_the_axes_of_a_bottleneck_helps_where_the_page_says_so() -> None:
    found = output("frozen.py")
    assert found["noise"] > max(found["plain"], found["control"]) + 0.1


def difference() -> str:
    """Return what changes in the plain loop, as the page shows it."""
    plain, noise = ((FOLDER / f"finetune_{name}.py").read_text(encoding="utf-8") for name in ("plain", "noise"))
    lines = list(difflib.unified_diff(plain.splitlines(), noise.splitlines(), lineterm="", n=1))[2:]
    changed = [line for line in lines if '"""' not in line and "print(" not in line and "__main__" not in line]
    kept = [line for line in changed if line.strip() and not line.startswith("@@")]
    return "```diff\n" + "\n".join(kept) + "\n```\n"


def test_the_page_shows_the_difference() -> None:
    page = PAGE.read_text(encoding="utf-8")
    (shown,) = DIFF.findall(page)
    assert shown == difference(), "python tests/smoke/test_loops.py writes it anew"
    assert sum(line.startswith("+") and len(line) > 1 for line in shown.splitlines()) <= 6


@pytest.mark.ci
@pytest.mark.parametrize("network", ["mobilenetv3_small_050", "mobilenetv4_conv_small", "convnext_atto"])
def test_the_five_lines_fit_networks_whose_head_has_a_hidden_layer_and_others(network: str) -> None:
    (block, *_) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    exec(compile(block.replace("resnet10t", network), "docs/loops.md", "exec"), {})


def test_every_recipe_stands_on_the_page() -> None:
    recipes = {path.name for path in FOLDER.glob("*.py")} - {"planted.py"}
    assert recipes == set(re.findall(r"\(\.\./examples/loops/(\w+\.py)\)", PAGE.read_text(encoding="utf-8")))


if __name__ == "__main__":
    PAGE.write_text(DIFF.sub(lambda _: difference(), PAGE.read_text(encoding="utf-8")), encoding="utf-8")
