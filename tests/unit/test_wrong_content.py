"""Files of a run that are well formed and wrong: what the fuzzer found in them (tests/fuzz), each a traceback once."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.cli import sitar
from helpers.made_runs import make_run
from sitar.errors import RunError
from sitar.run_folder import Run, RunFolder


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return make_run(tmp_path / "run", axes=2, size=6, samples=24, epochs=2)


@pytest.mark.parametrize("text", ["x: !!int ''", "x: !!bool maybe", "x: &x [*x]", "x: " + "[" * 2000])
def test_settings_that_pyyaml_stumbles_over(folder: RunFolder, text: str) -> None:
    folder.config_file.write_text(text)
    with pytest.raises(RunError, match=r"config\.yaml.*cannot be read"):
        folder.read_config()


@pytest.mark.parametrize("versions", [["torch"], [1, 2], "torch", 7])
def test_versions_that_are_no_mapping(folder: RunFolder, versions: Any) -> None:
    environment = json.loads(folder.environment_file.read_text())
    folder.environment_file.write_text(json.dumps({**environment, "versions": versions}))
    with pytest.raises(RunError, match=r"environment\.json.*damaged"):
        folder.environment()
    sitar("card", folder.path, "--out", folder.path / "card.md")


def test_checksums_that_are_nested_deep(folder: RunFolder) -> None:
    folder.done_file.write_text("[" * 20_000)
    with pytest.raises(RunError, match="done' is damaged"):
        folder.result()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes")
@pytest.mark.parametrize(
    "name", ["metrics.jsonl", "predictions.npz", "environment.json", "artifacts/audit/pictures.npz"]
)
def test_a_pipe_in_place_of_a_file_is_not_waited_for(folder: RunFolder, name: str) -> None:
    (folder.path / name).unlink()
    os.mkfifo(folder.path / name)
    with pytest.raises(RunError, match="not a regular file"):
        folder._bytes(folder.path / name)
    with suppress(AssertionError):  # a run without metrics is left out, and that no run is left is an error
        sitar("report", folder.path, "--out", folder.path / "report.html")


@pytest.mark.parametrize("interval", [[], [0.5], [0.1, 0.2, 0.3]])
def test_an_interval_has_two_ends(folder: RunFolder, interval: list[float]) -> None:
    result = json.loads(folder.result_file.read_text())
    result["splits"]["ood_test"]["intervals"]["worst_group"] = interval
    folder.result_file.write_text(json.dumps(result))
    with pytest.raises(RunError, match=r"result\.json' is damaged: .*intervals\.worst_group"):
        folder.result()


def test_predictions_without_labels_are_not_used(folder: RunFolder) -> None:
    arrays = {name: array for name, array in folder.predictions().items() if name != "val/y"}
    np.savez(folder.predictions_file, **arrays)
    assert not Run.read(folder).is_right("val").size
