"""A run that was told what to ignore: what it leaves behind, how tables mark it, and when it cannot be continued."""

from __future__ import annotations

import csv
import logging
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from helpers.cli import sitar
from sitar import train
from sitar.errors import ConfigError, DataError, RunError
from sitar.functional.gate import TAU
from sitar.run_folder import RunFolder

SETTINGS = [
    "data.image_size=16", "data.split_column=split", "model.latent_dim=4", "model.channels=[4]", "train.epochs=2",
    "train.least_steps=0", "train.batch_size=32", "method.noise=swap", "method.alpha=1",
    "train.selection=last",
]  # fmt: skip


@pytest.fixture
def scans(tmp_path: Path) -> Path:
    random = np.random.default_rng(0)
    root = tmp_path / "scans"
    root.mkdir()
    rows = []
    for i in range(160):
        label, site = i % 2, (i + (i % 5 == 0)) % 2
        pixels = random.integers(0, 120, (16, 16, 3)) + 100 * site
        Image.fromarray(pixels.astype(np.uint8)).save(root / f"{i}.png")
        rows.append([f"{i}.png", "ab"[label], f"s{site}", ("train", "train", "train", "val", "test")[i // 2 % 5]])
    _table(root, rows)
    return root


def _table(root: Path, rows: list[list[str]]) -> None:
    with (root / "table.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["path", "label", "site", "split"], *rows])


def run(root: Path, name: str, *settings: str, resume: bool = False) -> RunFolder:
    overrides = [f"data.root={root}", *SETTINGS, *settings]
    out = root.parent / name
    return train("table/sitar_best", overrides=overrides, out=out, device="cpu", progress=False, resume=resume)


def test_a_run_says_what_it_was_told_and_tables_mark_it(scans: Path) -> None:
    told = run(scans, "told", "method.nuisances=[site,brightness]")
    control = run(scans, "control", "method.alpha=0", "method.lambda=0")
    assert told.result()["nuisances"] == ["site", "brightness"]
    assert [each["kind"] for each in (told.environment() or {})["nuisances"]] == ["column", "property"]
    assert not told.result()["needs_groups"]  # the site is a column here, and groups are not made by it
    assert control.result()["nuisances"] == []
    shown = sitar("compare", str(told.path), str(control.path)).stdout
    marked = [line for line in shown.splitlines() if "¶" in line]
    assert len(marked) == 2  # the row, and the note
    assert "was told what to ignore" in " ".join(shown.split())  # a narrow table folds the note
    assert "¶" in sitar("evaluate", str(told.path)).stdout


def test_the_attribute_of_the_groups_makes_an_upper_bound(scans: Path) -> None:
    told = run(scans, "bound", "method.nuisances=site", "data.attribute_column=site")
    assert told.result()["needs_groups"]


def test_nuisances_move_the_weights(scans: Path) -> None:
    plain, told = run(scans, "plain"), run(scans, "told", "method.nuisances=[site]")
    assert plain.metrics()[-1]["loss"] != told.metrics()[-1]["loss"]


def test_a_run_whose_nuisance_changed_is_not_continued(scans: Path) -> None:
    folder = run(scans, "told", "method.nuisances=[site]")
    (folder.path / "done").unlink()
    lines = list(csv.reader((scans / "table.csv").read_text().splitlines()))
    _table(scans, [[*row[:2], "s0" if i % 3 else "s1", row[3]] for i, row in enumerate(lines[1:])])
    with pytest.raises(RunError, match="nuisances have changed"):
        run(scans, "told", "method.nuisances=[site]", resume=True)


def _concept_of_the_classes(scans: Path, n: int) -> str:
    """A concept of n samples of each class: one class is on the one side, and the other on the other."""
    with (scans / "table.csv").open() as file:
        label = {row["path"]: row["label"] for row in csv.DictReader(file)}
    for side, wanted in (("with", "a"), ("without", "b")):
        (scans.parent / "concept" / side).mkdir(parents=True)
        for name in [name for name in label if label[name] == wanted][:n]:
            shutil.copy(scans / name, scans.parent / "concept" / side)
    return str(scans.parent / "concept")


@pytest.mark.parametrize(
    ("nuisance", "error"),
    [
        ("label_too", "label_too equals the label"),
        ("always", "one value for all training samples"),
        ("nothing", "no column, property, or existing file"),
        (5, "has 5 examples with it"),
        (40, "concept' equals the label in this data"),
    ],
)
def test_a_refused_nuisance_leaves_no_run_folder(scans: Path, nuisance: str | int, error: str) -> None:
    lines = [line.split(",") for line in (scans / "table.csv").read_text().splitlines()]
    lines = [[*line, *(("label_too", "always") if i == 0 else (line[1] * 2, "x"))] for i, line in enumerate(lines)]
    (scans / "table.csv").write_text("".join(",".join(line) + "\n" for line in lines))
    if isinstance(nuisance, int):
        nuisance = _concept_of_the_classes(scans, nuisance)
    with pytest.raises((ConfigError, DataError), match=error):
        run(scans, "refused", f"method.nuisances=[{nuisance}]")
    assert not (scans.parent / "refused").exists()


def test_a_gate_that_never_opens_says_why_and_the_run_is_the_control(
    scans: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A latent of one axis has no rest, however well it tells the label."""
    for i in range(160):
        Image.new("RGB", (16, 16), (200 * (i % 2) + i // 4,) * 3).save(scans / f"{i}.png")
    with caplog.at_level(logging.WARNING):
        closed = run(scans, "closed", "method.gate=true", "model.latent_dim=1")
    reason = f"the suspects alone hold 1.00 and the rest alone 0.00. Each must hold {TAU:g}."
    off, never = (record.getMessage() for record in caplog.records if record.name == "sitar.methods.sitar")
    assert off.startswith("The noise is off from here on. Of what the latent tells about the label, ")
    assert never.startswith("The gate never opened up to the epoch that is kept, so this model was trained as the con")
    assert off.endswith(reason)
    assert never.endswith(reason)
    gate = closed.result()["gate"]
    assert gate["words"].endswith(reason)
    assert not gate["open"]
    assert (gate["epochs_open"], gate["epochs"]) == (0, 2)
    assert [line["gate"] for line in closed.metrics()] == [0.0, 0.0]
    assert all(line["consistency"] == 0 for line in closed.metrics())  # nothing is perturbed


def test_an_open_gate_is_no_gate(scans: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sitar.methods.sitar.TAU", 0.0)
    opened, plain = run(scans, "open", "method.gate=true"), run(scans, "plain")
    assert [line["loss"] for line in opened.metrics()] == [line["loss"] for line in plain.metrics()]
    assert opened.result()["gate"]["open"]
    assert 0 < TAU < 1


@pytest.mark.parametrize("setting", ["method.nuisances=[site]", "method.gate=true"])
def test_noise_without_a_target_is_refused(scans: Path, setting: str) -> None:
    with pytest.raises(ConfigError, match="isotropic noise has no target"):
        run(scans, "no", "method.noise=isotropic", setting)


def test_a_name_twice_is_refused(scans: Path) -> None:
    with pytest.raises(ConfigError, match="a name twice"):
        run(scans, "no", "method.nuisances=[site,site]")
