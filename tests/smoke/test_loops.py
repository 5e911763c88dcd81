"""The recipes for loops of one's own run as a user runs them, and their page shows what they are."""

from __future__ import annotations

import difflib
import json
import os
import re
import subprocess
import sys

import pytest

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


def test_every_recipe_stands_on_the_page() -> None:
    recipes = {path.name for path in FOLDER.glob("*.py")} - {"planted.py"}
    assert recipes == set(re.findall(r"\(\.\./examples/loops/(\w+\.py)\)", PAGE.read_text(encoding="utf-8")))


if __name__ == "__main__":
    PAGE.write_text(DIFF.sub(lambda _: difference(), PAGE.read_text(encoding="utf-8")), encoding="utf-8")
