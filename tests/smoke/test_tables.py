"""The tables of the paper: what they quote, and that whoever has the images can fill them with one command."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from helpers import made_data
from helpers.engines import InProcess
from helpers.scripts import ROOT, script
from sitar.data.benchmarks import celeba

REPRODUCE = ROOT / "reproduce"
FILES = {path.stem: yaml.safe_load(path.read_text(encoding="utf-8")) for path in sorted(REPRODUCE.glob("*.yaml"))}
TABLES = {name: table for name, table in FILES.items() if "columns" in table}
WITHOUT_IMAGES = sorted(name for name, table in TABLES.items() if table.get("no_images"))
TINY = ["train.epochs=1", "train.batch_size=64", "model.latent_dim=4", "model.hidden=8", "data.image_size=16"]
PIXELS = [*TINY, "model.channels=[4]"]
ENCODER = [*TINY, "train.precision=float32", "model.encoder=test_resnet", "model.encoder_weights=random"]
MANY, FEW = 320, 60  # images: k-NN needs more training samples than neighbours
MADE: dict[str, tuple[Callable[[Path], Any], int, list[str]]] = {
    "waterbirds": (made_data.waterbirds_original, MANY, PIXELS),
    "waterbirds_pretrained": (made_data.waterbirds_original, FEW, ENCODER),
    "camelyon17": (made_data.camelyon17_wilds, MANY, PIXELS),
    "celeba_full": (made_data.celeba_parquet, MANY, PIXELS),  # made-up lists in text are refused by their checksum
    "celeba_full_pretrained": (made_data.celeba_parquet, FEW, ENCODER),
}


@pytest.mark.parametrize("name", [name for name, table in TABLES.items() if "paper" in table])
def test_a_row_of_the_paper_fills_every_cell(name: str) -> None:
    table = TABLES[name]
    for row, cells in table["paper"].items():
        sizes = [len(of_column) for of_column in cells]
        assert sizes == [len(table["splits"])] * len(table["columns"]), row


@pytest.mark.parametrize(
    ("part", "whole"), [("celeba", "celeba_full"), ("celeba_pretrained", "celeba_full_pretrained")]
)
def test_two_tables_quote_the_paper_alike(part: str, whole: str) -> None:
    """One of them rounds what the other has in full."""
    compared = 0
    for row, cells in TABLES[part]["paper"].items():
        for rounded, full in zip(cells, TABLES[whole]["paper"][row.removeprefix("all of CelebA, ")], strict=True):
            for short, long in zip(rounded, full, strict=True):
                if short != "–":
                    assert abs(short - float(str(long).split(" ± ")[0])) < 0.0501, (row, short, long)
                    compared += 1
                else:
                    assert long == "–"
    assert compared >= 8


@pytest.mark.parametrize("name", WITHOUT_IMAGES)
def test_a_table_has_every_method_of_the_paper_and_our_controls(name: str) -> None:
    table = TABLES[name]
    methods = {what["preset"].rpartition("/")[2] for what in table["rows"].values()}
    papers = {row.lower().replace("-", "_") for row in table["paper"]}
    assert len(papers) == 5
    assert papers | {"sitar_best", "control"} <= methods


@pytest.mark.ci
@pytest.mark.parametrize("name", WITHOUT_IMAGES)
def test_one_command_fills_a_table(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All rows and columns with one seed, on made-up files in a real layout. Only the sizes are tiny."""
    maker, number, tiny = MADE[name]
    monkeypatch.setattr(made_data, "N", number)
    images, reproduce = tmp_path / "images", tmp_path / "reproduce"
    images.mkdir()
    maker(images)
    reproduce.mkdir()
    for file in REPRODUCE.glob("*.py"):
        shutil.copy(file, reproduce)
    table = {**TABLES[name], "seeds": [0]}
    (reproduce / f"{name}.yaml").write_text(yaml.safe_dump(table, sort_keys=False), encoding="utf-8")
    command = [sys.executable, str(reproduce / "run.py"), name, "--device", "cpu"]
    for setting in (f"data.root={images}", *tiny):
        command += ["--set", setting]
    finished = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    is_filled(name, table, tmp_path)


@pytest.mark.ci
def test_the_authors_own_lists_fill_the_table_of_celeba(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The layout that the authors hand out: lists in text and a zip file. In this process, to have our checksums."""
    runner = script("reproduce/run.py")
    monkeypatch.setattr(runner, "LocalEngine", InProcess)
    monkeypatch.setattr(runner.records, "HERE", tmp_path / "reproduce")
    monkeypatch.setattr(made_data, "N", MANY)
    monkeypatch.setattr(celeba, "MD5", made_data.md5_of_lists())
    monkeypatch.chdir(tmp_path)
    for folder in ("images", "reproduce"):
        (tmp_path / folder).mkdir()
    made_data.celeba_original(tmp_path / "images")
    table = {**TABLES["celeba_full"], "seeds": [0]}
    (tmp_path / "reproduce" / "celeba_full.yaml").write_text(yaml.safe_dump(table, sort_keys=False), encoding="utf-8")
    runner.main(["celeba_full", "--device", "cpu", *(w for s in ("data.root=images", *PIXELS) for w in ("--set", s))])
    is_filled("celeba_full", table, tmp_path)


def is_filled(name: str, table: dict[str, Any], home: Path) -> None:
    """Every row and column of a table has a run in its record, and its page has a value in every cell."""
    runs = json.loads((home / "reproduce" / "records" / f"{name}.json").read_text(encoding="utf-8"))["runs"]
    assert [(run["row"], run["column"]) for run in runs] == [(r, c) for r in table["rows"] for c in table["columns"]]
    lines = (home / "docs" / "results" / f"{name}.md").read_text(encoding="utf-8").splitlines()
    cells = len(table["columns"]) * len(table["splits"])
    for row in table["rows"]:
        marked = f"| {row} ‡ |"  # the settings above are not those of the preset
        first = next(line for line in lines if line.startswith(marked))
        values = [float(cell) for cell in first.strip("| ").split(" | ")[1:]]
        assert len(values) == cells
        assert all(0 <= value <= 100 for value in values)
