"""`--import FILE.py`: a method and a dataset of a user's own file, from training to a report."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from helpers.cli import sitar, sitar_error
from helpers.packages import as_in_a_new_process
from sitar.cli.imports import import_files
from sitar.cli.main import app
from sitar.errors import ConfigError
from sitar.registry import METHODS

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "label_smoothing.py"
TINY = ["--set", "data.image_size=14", "--set", "data.train_size=200", "--set", "data.eval_size=100"]
TINY += ["--set", "model.channels=[4]", "--set", "train.epochs=1", "--quiet"]


@pytest.fixture(autouse=True)
def _new_process() -> Iterator[None]:
    """What a file registers stays until its process ends."""
    with as_in_a_new_process():
        yield


def test_a_run_of_a_method_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(EXAMPLE.read_text())
    method = ["--set", "method.name=label_smoothing", "--set", "method.smoothing=0.2"]
    options = [*TINY, *method, "--import", "mine.py", "--out", "run"]
    assert sitar("train", "color_mnist/erm", *options, cwd=tmp_path).stderr == ""
    environment = json.loads((tmp_path / "run" / "environment.json").read_text())
    assert environment["imports"] == ["mine.py"]
    assert environment["plugins"]["method"].startswith("LabelSmoothing in the file mine.py (sha256 ")
    assert environment["command"].endswith("--set method.smoothing=0.2 --import mine.py")
    recorded = json.loads((tmp_path / "run" / "result.json").read_text())
    assert recorded["method"] == "label_smoothing"
    assert {path.name for path in tmp_path.iterdir()} == {"mine.py", "run"}  # no bytecode


def test_a_run_of_such_a_method_is_loaded_with_its_file(tmp_path: Path) -> None:
    options = [*TINY, "--set", "method.name=label_smoothing", "--import", EXAMPLE, "--out", "run"]
    with as_in_a_new_process():
        sitar("train", "color_mnist/erm", *options, cwd=tmp_path)
    message = sitar_error("evaluate", "run", cwd=tmp_path)
    assert "Unknown method 'label_smoothing'." in message
    assert "If it comes from a file of yours, name the file with --import. If from a package, install" in message
    again = sitar("evaluate", "run", "--import", EXAMPLE, "--json", cwd=tmp_path)
    assert json.loads(again.stdout) == json.loads((tmp_path / "run" / "result.json").read_text())["splits"]


def test_a_file_that_cannot_be_imported_is_one_message(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("import sitar\nsitar.nothing\n")
    reason = "line 2: AttributeError: module 'sitar' has no attribute 'nothing'."
    message = sitar_error("train", "color_mnist/erm", "--import", "mine.py", cwd=tmp_path)
    assert message == f"Error: 'mine.py' cannot be imported: {reason}\n"


def test_a_file_that_takes_one_of_our_names(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(EXAMPLE.read_text().replace('register("label_smoothing")', 'register("erm")'))
    with pytest.raises(
        ConfigError, match=r"method 'erm' is registered twice: by sitar\.methods\.erm\.ERM, and by Label"
    ):
        import_files([tmp_path / "mine.py"])
    assert METHODS.get("erm").__module__ == "sitar.methods.erm"


def test_a_file_that_registers_nothing_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "mine.py").write_text("x = 1\n")
    import_files([tmp_path / "mine.py"])
    import_files([tmp_path / "mine.py"])
    (record,) = caplog.records
    assert record.getMessage().startswith(f"{tmp_path / 'mine.py'} registers no method and no dataset")


def test_the_page_names_every_command_that_has_the_option() -> None:
    text = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
    (item,) = (part for part in text.split("\n- ") if part.startswith("`--import` can be given several times"))
    commands = get_command(app).commands  # type: ignore[attr-defined]
    having = {name for name, found in commands.items() if "--import" in options(found)}
    assert set(re.findall(r"`([a-z]+)`", item)) == having - {"compare"}, "the next item says when compare needs it"
    assert "compare" in having


def options(command: Any) -> set[str]:
    """The options of a command, and of those below it."""
    parts = (command, *getattr(command, "commands", {}).values())
    return {option for part in parts for parameter in part.params for option in parameter.opts}
