"""Packages that add a method, a dataset and presets: the example works, and a broken one does not spoil the rest."""

from __future__ import annotations

import json
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.cli import sitar, sitar_error
from helpers.packages import as_in_a_new_process, install
from sitar.registry import METHODS

EXAMPLE = Path(__file__).parents[2] / "examples" / "sitar-mixup"
TINY = ["--set", "data.train_size=200", "--set", "data.eval_size=100", "--set", "model.channels=[4]"]
TINY += ["--set", "train.epochs=1", "--quiet"]


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Path]:
    """A folder for packages that look installed, for one test."""
    with as_in_a_new_process(tmp_path / "site", EXAMPLE / "src"):
        yield tmp_path / "site"


def test_the_example_stands_beside_ours(site: Path, tmp_path: Path) -> None:
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]
    install(site, project["name"], project["entry-points"], {}, project["version"])
    assert "mixup" in METHODS.names()
    assert {"stripes/erm", "stripes/mixup"} <= set(json.loads(sitar("presets", "--json").stdout))
    assert not [name for name in sys.modules if name.startswith("sitar_mixup.mixup")]  # nobody has asked for it
    for method in ("erm", "mixup"):
        sitar("train", f"stripes/{method}", *TINY, "--out", method, cwd=tmp_path)
    rows = json.loads(sitar("compare", "erm", "mixup", "--json", cwd=tmp_path).stdout)
    assert [row["runs"] for row in rows] == ["stripes/erm", "stripes/mixup"]
    sitar("report", "erm", "mixup", "--out", "report.html", cwd=tmp_path)
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "stripes/mixup" in page
    assert "horizontal" in page
    plugins = json.loads((tmp_path / "mixup" / "environment.json").read_text())["plugins"]
    assert plugins["method"] == "sitar_mixup.mixup:Mixup of the package 'sitar-mixup' (0.1.0)"
    assert plugins["dataset"] == "sitar_mixup.stripes:Stripes of the package 'sitar-mixup' (0.1.0)"


def test_a_broken_package_is_named_and_the_rest_works(site: Path, tmp_path: Path) -> None:
    points = {"sitar.methods": {"bad": "broken.m:M", "erm": "broken.m:M"}, "sitar.datasets": {"worse": "broken.d:D"}}
    install(site, "broken", points, {"broken/m.py": "import nothing_of_that_name", "broken/d.py": "1 / 0"})
    listed = sitar("data", "list", "--json")
    assert "color_mnist" in json.loads(listed.stdout)
    assert "worse" not in json.loads(listed.stdout)
    reason = "broken.d:D of the package 'broken' (1.0) cannot be imported. ZeroDivisionError: division by zero."
    assert f"WARNING: The dataset 'worse' is left out. {reason}" in listed.stderr
    warning, error = sitar_error("train", "color_mnist/erm", "--set", "method.name=bad").splitlines()
    assert warning.endswith("is refused: the method 'erm' is that of sitar.methods.erm.ERM.")
    reason = "ModuleNotFoundError: No module named 'nothing_of_that_name'."
    assert error.startswith(f"Error: broken.m:M of the package 'broken' (1.0) cannot be imported. {reason}")
    sitar("train", "color_mnist/erm", "--set", "data.image_size=14", *TINY, "--out", "run", cwd=tmp_path)
