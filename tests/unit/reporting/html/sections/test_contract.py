"""What every section keeps to: alone, with everything, with nothing, and with findings that are damaged."""

from __future__ import annotations

import importlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.made_runs import make_run
from sitar.findings import PARTS, array_parts
from sitar.reporting.comparison import Comparison, compare_runs
from sitar.reporting.html import report, sections
from sitar.reporting.html.report import make_sections, templates
from sitar.reporting.html.sections import SECTIONS
from sitar.run_folder import RunFolder

ALWAYS = {"summary", "accuracy", "training", "confusion", "settings"}  # what every run has
DAMAGES: dict[str, Callable[[np.ndarray], Any]] = {
    "missing": lambda array: None,
    "shorter": lambda array: array[:-1],
    "empty": lambda array: array[:0],
    "flat": lambda array: array.reshape(-1),
    "deeper": lambda array: array[None],
    "larger numbers": lambda array: array + 100 if array.dtype.kind == "i" else array,
}


def render(name: str, values: Any) -> str:
    return templates().get_template(f"sections/{name}.html").render(section=values, place=0)


def compared(*runs: RunFolder) -> Comparison:
    (comparison,), left_out = compare_runs([run.path for run in runs])
    assert not left_out
    return comparison


def made(name: str, comparison: Comparison) -> Any:
    return importlib.import_module(f"sitar.reporting.html.sections.{name}").make(comparison, 1)


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> list[RunFolder]:
    place = tmp_path_factory.mktemp("everything")
    folders = [make_run(place / "sitar", accuracy=0.8), make_run(place / "control", alpha=0.0, accuracy=0.5)]
    for folder in folders:  # measured on the same axes
        explanation = json.loads(folder.explain_file.read_text())
        explanation["shared_axes"]["v"] = [0.5] * 6
        folder.explain_file.write_text(json.dumps(explanation))
    return folders


@pytest.fixture(scope="module")
def nothing(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A finished run of which only the result can be read, without groups."""
    folder = make_run(tmp_path_factory.mktemp("nothing") / "run", explained=False)
    result = json.loads(folder.result_file.read_text())
    for metrics in result["splits"].values():
        metrics |= {"groups": {}, "worst_group": None, "intervals": {}}
    folder.result_file.write_text(json.dumps({key: value for key, value in result.items() if key != "classes"}))
    for file in (folder.metrics_file, folder.predictions_file, folder.environment_file):
        file.unlink()
    return folder


def test_every_section_has_a_module_and_a_template_and_no_other_is_there() -> None:
    modules = {file.stem for file in Path(sections.__file__ or "").parent.glob("*.py")} - {"__init__"}
    pages = {file.stem for file in (Path(report.__file__ or "").parent / "templates" / "sections").iterdir()}
    assert modules == pages == set(SECTIONS)
    assert len({*SECTIONS.values()}) == len(SECTIONS)


@pytest.mark.parametrize("name", SECTIONS)
def test_a_section_shows_what_there_is(name: str, everything: list[RunFolder]) -> None:
    values = made(name, compared(*everything))
    assert isinstance(values, dict)
    page = render(name, values)
    assert page.startswith("<h2>")
    assert "None" not in page


@pytest.mark.parametrize("name", SECTIONS)
def test_a_section_of_nothing_is_left_out_or_stands(name: str, nothing: RunFolder) -> None:
    values = made(name, compared(nothing))
    assert (values is not None) == (name in ALWAYS)
    if values is not None:
        assert render(name, values)


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("part", array_parts())
def test_damaged_arrays_cost_their_section_at_most(
    part: str, damage: str, everything: list[RunFolder], tmp_path: Path
) -> None:
    """Each array of a part in turn: no section fails, and those of other parts stay as they were."""
    whole = make_sections(compared(*everything))
    arrays = everything[0].part_arrays(part)
    for gone, array in arrays.items():
        copies = []
        for folder in everything:
            path = tmp_path / gone.replace("/", "-") / folder.path.name
            shutil.copytree(folder.path, path)
            damaged = {**arrays, gone: DAMAGES[damage](array)} if folder is everything[0] else folder.part_arrays(part)
            kept = {key: value for key, value in damaged.items() if value is not None}
            np.savez(RunFolder(path).part_file(part), **kept)
            copies.append(RunFolder(path))
        comparison = compared(*copies)
        left = make_sections(comparison)
        for name, values in left.items():
            render(name, values)
        assert set(whole) - set(left) <= {part}
        others = set(PARTS) & set(SECTIONS) - {part}
        assert all(str(left[name]) == str(whole[name]) for name in others)


def test_pages_show_sections_in_the_order_of_the_list(everything: list[RunFolder]) -> None:
    assert list(make_sections(compared(*everything))) == list(SECTIONS)
