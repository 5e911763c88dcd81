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
    """Return what an audit says, where there was one: its first look, and then the axes."""
    audit = run.audit or {}
    look = audit.get("first_look")
    verdicts = [look.get("verdict") if isinstance(look, dict) else None, audit.get("verdict")]
    return " ".join(str(verdict.get("words", "")) for verdict in verdicts if isinstance(verdict, dict)).strip()
