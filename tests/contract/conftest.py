"""Fixtures of the contract tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import sitar.evaluation.trained_model
import sitar.training.run
from helpers import toys
from helpers.runs import load_data, settings
from sitar.data.types import Data
from sitar.registry import METHODS


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
