"""Make the table of differences from a reference."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sitar.registry import metrics
from sitar.reporting.against import ONE_SEED, Verdict
from sitar.reporting.comparison import Row
from sitar.reporting.tables.table import Table

TESTS = {"mcnemar": "McNemar", "t_test": "t-test", "sign_flip": "sign-flip"}
NOT_PAIRED = (
    "Seeds of imported predictions belong to no seed of another row. Such rows are paired over test samples alone, and "
    "the interval over seeds is Welch's."
)
HOW = (
    "Points, paired over the same seeds and the same test samples, with an interval over both. A row can be told apart "
    "where 0 lies outside of its interval. p and interval are corrected for the number of rows (Holm); with one other "
    "row the interval is of 95 %. Other tests are not corrected."
)


def differences_table(verdicts: Sequence[Verdict], reference: Row, shown: Sequence[tuple[str, str]]) -> Table:
    """Show what each row is against the reference, one line for each split, metric and row."""
    lines = [
        [
            verdict.row.marked_label,
            verdict.split,
            metrics()[verdict.metric].title,
            ",".join(map(str, verdict.seeds)),
            verdict.words,
            p_value(verdict.p),
            ", ".join(f"{TESTS[name]} {p_value(p)}" for name, p in verdict.tests.items()) or "–",
        ]
        for verdict in verdicts
    ]
    columns = ["runs", "split", "metric", "seeds", f"against {reference.label}", "p", "other tests"]
    notes = [HOW] + ([] if all(verdict.pairs_seeds for verdict in verdicts) else [NOT_PAIRED])
    notes += [ONE_SEED] if any(len(verdict.seeds) == 1 for verdict in verdicts) else []
    if any("sign_flip" in verdict.tests and len(verdict.seeds) == 5 for verdict in verdicts):
        notes.append("With five seeds the sign-flip test cannot go below 0.062.")
    if any(metrics()[verdict.metric].ideal is not None for verdict in verdicts):
        notes.append("A shortcut AUC is better where it is closer to 50.")
    compared = {(verdict.split, verdict.metric) for verdict in verdicts}
    if lacking := [f"{metrics()[name].title} on {split}" for split, name in shown if (split, name) not in compared]:
        notes.append(f"Not compared, because runs do not have or have not stored it: {', '.join(lacking)}.")
    return Table(f"Difference from {reference.label}", columns, lines, " ".join(notes))


def verdict_record(verdict: Verdict | None) -> dict[str, Any]:
    """Return a verdict as plain values, fractions and not points. They are None where there is none."""
    tests = dict.fromkeys(TESTS) | (verdict.tests if verdict else {})
    if verdict is None:
        names = ("against", "shared_seeds", "better_by", "low", "high", "level", "told_apart", "words", "p")
        return {**dict.fromkeys(names), **tests}
    low, high = verdict.interval
    return {
        "against": verdict.reference.label, "shared_seeds": " ".join(map(str, verdict.seeds)),
        "better_by": verdict.difference.value, "low": low, "high": high, "level": verdict.level,
        "told_apart": verdict.told_apart, "words": verdict.words, "p": verdict.p, **tests,
    }  # fmt: skip


def p_value(p: float) -> str:
    return "<0.001" if p < 0.001 else f"{p:.3f}"
