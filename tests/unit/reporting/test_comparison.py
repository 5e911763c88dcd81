"""Runs on the same data stand together, and comparisons have names that tell them apart."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from helpers.made_runs import make_run
from helpers.pages import read
from sitar.reporting.comparison import compare_runs
from sitar.reporting.html.report import write_report


@pytest.mark.parametrize(
    ("data", "checksums", "names"),
    [
        ([{"rho": 0.5}, {"rho": 0.9}], "aa", ["made, rho=0.5", "made, rho=0.9"]),
        ([{"root": "x/a"}, {"root": "y/b"}], "ab", ["made, root=a", "made, root=b"]),
        ([{"file": "x/a.npz"}, {"file": "y/b.npz"}], "ab", ["made, file=a.npz", "made, file=b.npz"]),
        ([{"root": "x/a.npz"}, {"root": "y/a.npz"}], "ab", ["made, checksum=a", "made, checksum=b"]),
        ([{}, {}], "ab", ["made, checksum=a", "made, checksum=b"]),
    ],
)
def test_parts_of_different_data_have_different_names(
    data: list[dict[str, object]], checksums: str, names: list[str], tmp_path: Path
) -> None:
    """The last two runs have the same settings and seed, on a file that has changed: neither is left out."""
    several = []
    for place, (settings, checksum) in enumerate(zip(data, checksums, strict=True)):
        run = make_run(tmp_path / str(place), data=settings, explained=False)
        environment = json.loads(run.environment_file.read_text())
        run.environment_file.write_text(json.dumps({**environment, "data_checksum": checksum}))
        several.append(run.path)
    comparisons, left_out = compare_runs(several)
    assert [comparison.name for comparison in comparisons] == names
    assert not left_out
    page = read(write_report(several, tmp_path / "report.html")).text
    assert all(page.count(name) == 2 for name in names), "in the notice and above the part"
