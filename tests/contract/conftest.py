"""Fixtures of the contract tests."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import sitar.evaluation.trained_model
import sitar.training.run
from helpers import toys
from helpers.runs import load_data, run, settings
from sitar.data.types import Data
from sitar.registry import METHODS
from sitar.run_folder import RunFolder


@pytest.fixture(autouse=True)
def _data_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Real data, read once a process instead of once a run."""
    for module in (sitar.training.run, sitar.evaluation.trained_model):
        monkeypatch.setattr(module, "load_data", load_data)


@pytest.fixture
def _toys() -> Iterator[None]:
    """The toys are registered during a test, and only then."""
    with toys.entered():
        yield


@pytest.fixture(scope="session")
def tiny_data() -> Data:
    return load_data(settings(METHODS.names()[0]).data)


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., RunFolder]:
    """Tiny runs by their settings, each made once. A test that changes one copies it first."""
    made: dict[str, RunFolder] = {}

    def of(method: str = "sitar", **options: Any) -> RunFolder:
        key = json.dumps([method, options])
        if key not in made:
            made[key] = run(settings(method, **options), tmp_path_factory.mktemp("runs") / "run")
        return made[key]

    return of
