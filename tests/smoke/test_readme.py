"""README, docs and records tell the truth."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from statistics import mean

import pytest
from click.exceptions import UsageError
from typer.main import get_command

from helpers.scripts import ROOT, script
from sitar.cli.main import app
from sitar.presets import load_config

README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_two_commands_stand_early() -> None:
    first = README.splitlines()[:25]
    assert any(line.startswith("make demo") for line in first)
    assert any(line.startswith("make test") for line in first)
    assert "pip install sitar" not in README


def commands() -> list[str]:
    blocks = re.findall(r"```\n(.*?)```", README, flags=re.DOTALL)
    lines = [line.partition("#")[0].strip() for block in blocks for line in block.splitlines()]
    return [line for line in lines if line.startswith("sitar ")]


@pytest.mark.parametrize("line", commands())
def test_readme_commands_exist(line: str) -> None:
    """Command and options parse; presets and settings are valid."""
    words = shlex.split(line)[1:]
    group = get_command(app)
    command = group.commands[words[0]]  # type: ignore[attr-defined]
    try:
        parameters = command.make_context(words[0], words[1:]).params
    except UsageError as error:
        pytest.fail(str(error))
    if "preset" in parameters:
        load_config(parameters["preset"], parameters["set_"] or [], parameters["seed"])


def test_links_lead_somewhere() -> None:
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *ROOT.glob("docs/**/*.md")]:
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
            if not target.startswith("http"):
                assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_result_tables_are_made_from_the_records() -> None:
    runner = script("reproduce/run.py")
    for record in (ROOT / "reproduce" / "records").glob("*.json"):
        if (ROOT / "reproduce" / f"{record.stem}.yaml").exists():
            page = (ROOT / "docs" / "results" / f"{record.stem}.md").read_text(encoding="utf-8")
            assert page == runner.render(record.stem)


def test_pairs_on_the_pages_of_methods_come_from_the_records() -> None:
    """`in distribution / out of distribution`: a row's means, the paper's values, or a validation run of the search."""
    runner = script("reproduce/run.py")
    table, record = runner.load_table("baselines"), runner.load_record("baselines")
    known = {f"{pair[0]} / {pair[1]}" for values in table["paper"].values() for pair in values}
    for row in table["rows"]:
        runs = runner.runs_of(row, table, record)
        means = {
            split: [
                mean(100 * run["splits"][split]["average"] for run in runs if run["column"] == column)
                for column in table["columns"]
            ]
            for split in ("id_test", "ood_test")
        }
        known |= {f"{a:.1f} / {b:.1f}" for a, b in zip(*means.values(), strict=True)}  # one column
        known |= {"{:.1f} / {:.1f}".format(*values) for values in means.values()}  # one split, both columns
    search = json.loads((ROOT / "reproduce/records/baselines_tuning.json").read_text(encoding="utf-8"))
    for run in [*search["runs"], *search["cpu"]]:
        pairs = [(run["val"], run["val_ood"]), *run.get("epochs", {}).values()]
        known |= {f"{100 * a:.1f} / {100 * b:.1f}" for a, b in pairs}
    shown = [
        (page.name, pair)
        for page in (ROOT / "docs" / "methods").glob("*.md")
        for pair in re.findall(r"\d+\.\d / \d+\.\d", page.read_text(encoding="utf-8"))
    ]
    assert len(shown) > 20
    assert not [(page, pair) for page, pair in shown if pair not in known]


def ood(row: str, column: str) -> list[float]:
    runs = json.loads((ROOT / "reproduce/records/color_mnist.json").read_text(encoding="utf-8"))["runs"]
    return [
        100 * r["splits"]["ood_test"]["average"] for r in runs if r["row"].startswith(row) and r["column"] == column
    ]


def test_what_is_said_of_real_images_holds_in_the_records() -> None:
    def average(name: str, row: str, column: str, split: str, metric: str) -> float:
        runs = json.loads((ROOT / f"reproduce/records/{name}.json").read_text(encoding="utf-8"))["runs"]
        found = [r["splits"][split][metric] for r in runs if r["row"].startswith(row) and r["column"] == column]
        assert len(found) == 3
        return 100 * mean(found)

    words = " ".join(README.split())
    sites = [average("sites", row, "rho = 0.98", "ood_test", "average") for row in ("sitar (axis", "control", "ERM")]
    assert (
        f"SITAR is {sites[0] - sites[1]:.0f} points above its control and {sites[2] - sites[0]:.0f} below ERM" in words
    )
    tasks = sorted({r["column"] for r in json.loads((ROOT / "reproduce/records/celeba.json").read_text())["runs"]})
    worst = {
        row: [average("celeba", row, task, "test", "worst_group") for task in reversed(tasks)]
        for row in ("sitar (axis noise, alpha 0.1, the paper's)", "control", "ERM")
    }
    gains = [[a - b for a, b in zip(worst[row], worst["ERM"], strict=True)] for row in list(worst)[:2]]
    assert "worst group is {:.0f} and {:.0f} points above ERM's".format(*gains[0]) in words
    assert "without noise is {:.0f} and {:.0f} above".format(*gains[1]) in words


@pytest.mark.parametrize(("column", "paper"), [("0.5", 69.9), ("0.7", 70.2), ("0.9", 71.5), ("1.0", 70.3)])
def test_headline_holds_in_the_record(column: str, paper: float) -> None:
    values = ood("sitar_best", f"rho = {column}")
    assert len(values) == 5
    assert mean(values) >= paper


MISSED = pytest.mark.xfail(strict=True, reason="seed 2 at rho = 1.0 has 65.7 (docs/results/color_mnist.md)")


@pytest.mark.parametrize("column", ["0.5", "0.7", "0.9", pytest.param("1.0", marks=MISSED)])
def test_no_seed_of_the_headline_is_under_67(column: str) -> None:
    assert min(ood("sitar_best", f"rho = {column}")) >= 67


def test_the_seed_that_misses_is_named_on_its_page() -> None:
    page = (ROOT / "docs" / "results" / "color_mnist.md").read_text(encoding="utf-8")
    assert f"now has {min(ood('sitar_best', 'rho = 1.0')):.1f}, which is 1.3 below the 67" in page


def test_the_demo_holds_in_the_record_on_three_seeds() -> None:
    runs = json.loads((ROOT / "reproduce/records/demo.json").read_text(encoding="utf-8"))["runs"]
    found = {(run["preset"], run["seed"]): run["splits"]["ood_test"]["average"] for run in runs}
    assert {seed for _, seed in found} == {0, 1, 2}
    assert all(value < 0.20 for (preset, _), value in found.items() if preset != "demo/sitar")
    assert all(value > 0.65 for (preset, _), value in found.items() if preset == "demo/sitar")


@pytest.mark.parametrize(
    ("line", "row"),
    [("ERM, epoch chosen", "ERM, epoch chosen"), ("control:", "control"), ("**sitar_best**", "sitar_best")],
)
def test_readme_numbers_come_from_the_record(line: str, row: str) -> None:
    (shown,) = [text for text in README.splitlines() if text.startswith(f"| {line}")]
    numbers = [float(number) for number in re.findall(r"\b\d+\.\d\b", shown)]
    assert numbers == [round(mean(ood(row, f"rho = {c}")), 1) for c in ("0.5", "0.7", "0.9", "1.0")]


def test_readme_python_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The Python block, with a training of seconds in the place of the demo's minutes."""
    (block,) = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    monkeypatch.chdir(tmp_path)
    quick = ["train.epochs=1", "data.train_size=300", "model.channels=[4]"]
    exec(block.replace("seed=1)", f"seed=1, overrides={quick!r}, progress=False)"), {})
