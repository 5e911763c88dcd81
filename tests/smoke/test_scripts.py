"""The scripts whose records and pictures the pages show, as they are today: a record itself tests no code."""

from __future__ import annotations

import json
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import sitar
from helpers.scripts import ROOT, script
from sitar.run_folder import RunFolder

TINY = ["data.train_size=300", "data.eval_size=400", "data.image_size=14", "model.channels=[4]", "train.epochs=1"]


def test_a_row_of_the_record_of_audits_is_what_the_audit_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    audits = script("reproduce/audit_runs.py")

    def train(preset: str, *, overrides: list[str], **options: object) -> RunFolder:
        return sitar.train(preset, overrides=[*overrides, *TINY], device="cpu", progress=False, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(audits, "train", train)
    row = audits.summary("color_mnist", 0.7, 1, tmp_path)
    record = json.loads((ROOT / "reproduce" / "records" / "audit_color_mnist.json").read_text(encoding="utf-8"))
    assert all(list(row) == list(recorded) for recorded in record["runs"])
    run = tmp_path / "rho0.7-seed1"
    assert RunFolder(run).read_config()["data"]["rho"] == row["rho"] == 0.7
    audit = json.loads((run / "artifacts" / "audit" / "audit.json").read_text())
    first, second = audit["axes"][:2]
    assert (row["verdict"], row["axis"]) == (audit["verdict"]["kind"], first["axis"])
    assert (row["accuracy"], row["next_accuracy"]) == (round(first["accuracy"], 3), round(second["accuracy"], 3))
    assert row["attribute_auc"] == round(audit["attribute"]["attribute_auc"][first["axis"]], 3)
    assert row["label_auc"] == round(audit["attribute"]["label_auc"][first["axis"]], 3)


def test_the_picture_of_the_sites_shows_their_styles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Letters may differ with the release of matplotlib, colours may not."""
    picture = script("reproduce/sites_picture.py")
    monkeypatch.setattr(picture, "FOLDER", tmp_path)
    picture.main()
    with Image.open(ROOT / "docs" / "sites.png") as there, Image.open(tmp_path / "sites.png") as again:
        assert again.size == there.size
        difference = np.asarray(again.convert("RGB")).astype(int) - np.asarray(there.convert("RGB"))
    assert np.abs(difference).mean() < 2


@pytest.mark.ci
@pytest.mark.usefixtures("cache")
def test_the_benchmark_of_images_compares_equal_pixels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    benchmark = script("benchmarks/images.py")
    random = np.random.default_rng(0)
    with zipfile.ZipFile(tmp_path / "images.zip", "w") as archive:
        for i in range(40):
            Image.fromarray(random.integers(0, 256, (30, 20, 3), dtype=np.uint8)).save(tmp_path / "x.png")
            archive.write(tmp_path / "x.png", f"{i:02}.png")
    measured = benchmark.best({"nothing": lambda: None}, repeats=2)
    assert measured["nothing"].keys() == {"clock", "processors"}

    def once(functions: dict[str, Callable[[], object]]) -> dict[str, dict[str, float]]:
        for call in functions.values():
            call()
        return {name: dict.fromkeys(measured["nothing"], 1.0) for name in functions}

    monkeypatch.setattr(benchmark, "best", once)
    monkeypatch.setattr(sys, "argv", ["images.py", str(tmp_path / "images.zip"), "--size", "8"])
    benchmark.main()
    report = json.loads(capsys.readouterr().out)
    assert report["images"] == 40
    assert report["largest difference of a pixel"] == 0
    record = json.loads((ROOT / "reproduce/records/images_speed.json").read_text(encoding="utf-8"))
    assert all(report.keys() <= measured.keys() for measured in record["measurements"])
