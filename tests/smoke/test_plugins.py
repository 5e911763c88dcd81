"""Packages that add a method, a dataset and presets: the example works, and a broken one does not spoil the rest."""

from __future__ import annotations

import json
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from helpers.packages import install
from sitar.cli.main import main
from sitar.presets import files
from sitar.registry import DATASETS, METHODS

EXAMPLE = Path(__file__).parents[2] / "examples" / "sitar-mixup"
TINY = ["--set", "data.train_size=200", "--set", "data.eval_size=100", "--set", "model.channels=[4]"]
TINY += ["--set", "train.epochs=1", "--quiet"]
Command = Callable[..., str]


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for packages that look installed, for one test."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    for registry in (METHODS, DATASETS):
        registry.names()
        monkeypatch.setattr(registry, "_classes", dict(registry._classes))
        monkeypatch.setattr(registry, "_plugins", None)
    files._files.cache_clear()
    yield tmp_path / "site"
    files._files.cache_clear()
    for name in [name for name in set(sys.modules) - before if name.startswith(("sitar_mixup", "broken"))]:
        del sys.modules[name]


@pytest.fixture
def sitar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    monkeypatch.chdir(tmp_path)

    def call(*arguments: object, expect: int = 0) -> str:
        monkeypatch.setattr(sys, "argv", ["sitar", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        printed = capsys.readouterr()
        assert ended.value.code in ((None, 0) if expect == 0 else (expect,)), printed
        return printed.err if expect else printed.out

    return call


def test_the_example_stands_beside_ours(
    site: Path, sitar: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]
    install(site, project["name"], project["entry-points"], {}, project["version"])
    monkeypatch.syspath_prepend(str(EXAMPLE / "src"))
    assert "mixup" in METHODS.names()
    assert {"stripes/erm", "stripes/mixup"} <= set(json.loads(sitar("presets", "--json")))
    assert not [name for name in sys.modules if name.startswith("sitar_mixup.mixup")]  # nobody has asked for it
    for method in ("erm", "mixup"):
        sitar("train", f"stripes/{method}", *TINY, "--out", method)
    rows = json.loads(sitar("compare", "erm", "mixup", "--json"))
    assert [row["runs"] for row in rows] == ["stripes/erm", "stripes/mixup"]
    sitar("report", "erm", "mixup", "--out", "report.html")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "stripes/mixup" in page
    assert "horizontal" in page
    plugins = json.loads((tmp_path / "mixup" / "environment.json").read_text())["plugins"]
    assert plugins["method"] == "sitar_mixup.mixup:Mixup of the package 'sitar-mixup' (0.1.0)"
    assert plugins["dataset"] == "sitar_mixup.stripes:Stripes of the package 'sitar-mixup' (0.1.0)"


def test_a_broken_package_is_named_and_the_rest_works(
    site: Path, sitar: Command, caplog: pytest.LogCaptureFixture
) -> None:
    points = {"sitar.methods": {"bad": "broken.m:M", "erm": "broken.m:M"}, "sitar.datasets": {"worse": "broken.d:D"}}
    install(site, "broken", points, {"broken/m.py": "import nothing_of_that_name", "broken/d.py": "1 / 0"})
    listed = json.loads(sitar("data", "list", "--json"))
    assert "color_mnist" in listed
    assert "worse" not in listed
    reason = "broken.d:D of the package 'broken' (1.0) cannot be imported. ZeroDivisionError: division by zero."
    assert f"The dataset 'worse' is left out. {reason}" in caplog.text
    message = sitar("train", "color_mnist/erm", "--set", "method.name=bad", expect=2)
    reason = "ModuleNotFoundError: No module named 'nothing_of_that_name'."
    assert message.startswith(f"Error: broken.m:M of the package 'broken' (1.0) cannot be imported. {reason}")
    assert "is refused: the method 'erm' is that of sitar.methods.erm.ERM." in caplog.text
    sitar("train", "color_mnist/erm", "--set", "data.image_size=14", *TINY, "--out", "run")
