"""Columns of words that are dates."""

from __future__ import annotations

import time

import numpy as np
import pytest

from sitar.data.column_values import column_values

NEW_YORK = "EST5EDT,M3.2.0,M11.1.0"


@pytest.fixture
def _in_new_york(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TZ", NEW_YORK)
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("_in_new_york")
def test_days_are_equally_far_apart_in_every_time_zone() -> None:
    """A machine that changes its clocks within the column reads the same numbers as one that does not."""
    days = [f"2024-03-{day:02}T12:00" for day in range(1, 32)]
    found = column_values(days)
    assert found is not None
    assert np.diff(found.values).tolist() == [1.0] * 30
