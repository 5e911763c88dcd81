"""Counts of what was tried go into a record, where SITAR_FAULTS_RECORD names a file."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sitar.files import to_json
from sitar.locks import locked
from sitar.training.environment import commit
from sitar.writing import replaced

Tally = Callable[..., None]
ABOUT = "Faults that were injected and held, counted by tests/faults. A fault that does not hold fails its test."


@pytest.fixture
def tally() -> Tally:
    """Add to the record what a test has tried, part by part. What fails adds nothing: the record says what held."""

    def add(group: str, name: str, **counts: int) -> None:
        if (named := os.environ.get("SITAR_FAULTS_RECORD")) is not None:
            count(Path(named).absolute(), group, name.replace(",", "").replace(" ", "_"), counts, commit())

    return add


def count(file: Path, group: str, name: str, counts: dict[str, int], at: str | None) -> None:
    """Add counts to a row of the record. A row has the counts of one commit: another commit begins it anew."""
    with locked(file.with_name(f".{file.name}.lock"), wait=True):  # several parts of the suite may run at once
        record: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {"about": ABOUT}
        rows = record.setdefault(group, {})
        row = rows.get(name, {})
        row = row if row.get("commit") == at else {"commit": at}
        rows[name] = row | {key: row.get(key, 0) + value for key, value in counts.items()}
        with replaced(file) as out:
            out.write(to_json(record))
