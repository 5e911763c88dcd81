"""Say in sentences what the runs show, and what is not shown."""

from __future__ import annotations

from typing import Any

from sitar.reporting.comparison import ComparedRun, Comparison
from sitar.reporting.html.missing import missing_parts
from sitar.reporting.html.sentences import summary


def make(comparison: Comparison, sharing: int) -> dict[str, Any]:
    return {
        "sentences": summary(comparison),
        "audits": [(run.label, words) for run in comparison.runs if (words := _verdict(run))],
        "missing": missing_parts(comparison),
    }


def _verdict(run: ComparedRun) -> str:
    """Return what an audit of the run's axes says, where there was one."""
    verdict = (run.audit or {}).get("verdict")
    return str(verdict.get("words", "")) if isinstance(verdict, dict) else ""
