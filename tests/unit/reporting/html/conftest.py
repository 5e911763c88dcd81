"""Runs that reports are made of."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.made_runs import make_run


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    place = tmp_path_factory.mktemp("runs")
    return [
        make_run(place / "erm", "erm", accuracy=0.5).path,
        make_run(place / "control", alpha=0.0, accuracy=0.55).path,
        make_run(place / "sitar", accuracy=0.8).path,
    ]
