"""Hold the paper's claims against the records: `python reproduce/claims.py` writes docs/results/claims.md.

reproduce/claims.yaml quotes each claim, and names the figures that test it (values.py, without a statistic). The
verdict is not written there. It follows from rules over the figures, such as `holds: gain.lower > 0`. A figure has
`mean`, `low` and `high` (the lowest and the highest seed), `lower` and `upper` (the 95 % interval of the mean over
seeds) and `seeds`. The first rule that is true gives the verdict, in the order of RULES. Without one the claim does not
hold.
"""

from __future__ import annotations

import ast
from statistics import mean
from typing import Any, NamedTuple

import records
from pydantic import TypeAdapter
from values import Sample, ValueNameError, fill, interval, is_earlier, sample, show

from sitar.files import write_atomic

RULES = ("holds", "holds in part")
FAILS, WAITS, NEVER = "does not hold", "not measured yet", "cannot be tested here"
ALLOWED = (
    ast.Expression, ast.BoolOp, ast.And, ast.Or, ast.Compare, ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.BinOp, ast.Sub,
    ast.Mult, ast.UnaryOp, ast.USub, ast.Attribute, ast.Name, ast.Load, ast.Constant,
)  # fmt: skip
INTRODUCTION = """\
# The paper's claims, held against our records

`python reproduce/claims.py` makes this page from `reproduce/claims.yaml` and `reproduce/records`. Each claim is quoted.
The figures are means over seeds with their 95 % interval (Student's t). A difference is taken seed by seed. The rule
beside a claim decides its verdict. Most rules were written when most of these figures were known. More is said to be
more if the interval lies above 0, and two figures are said to be equal if it lies within 5 points. "Does not hold"
means that our figures do not show it: a wide interval does not show the opposite either. Accuracies are in percent.
‡ marks a figure with runs that were made before their preset changed ([earlier
settings](../glossary.md#earlier-settings))."""


TEXTS = ("claim", "section", "quote", "note", NEVER, *RULES)  # of a claim; the first three are needed
CLAIMS = TypeAdapter(list[dict[str, Any]])


class Figure(NamedTuple):
    """What the rules see of a figure. One seed has no interval."""

    mean: float
    low: float
    high: float
    lower: float | None
    upper: float | None
    seeds: int


class OneSeedError(Exception):
    """A rule asks for the interval of a single seed."""


def figure(values: Sample) -> Figure:
    numbers = list(values.values())
    return Figure(mean(numbers), min(numbers), max(numbers), *(interval(values) or (None, None)), len(numbers))


def load() -> list[dict[str, Any]]:
    file = records.HERE / f"{records.CLAIMS}.yaml"
    found = records.checked(CLAIMS, file, records.read_written(file))
    for number, claim in enumerate(found):
        wrong = [key for key in TEXTS if not isinstance(claim.get(key, None if key in TEXTS[:3] else ""), str)]
        wrong += ["figures"] if not isinstance(claim.get("figures", {}), dict) else []
        wrong += ["decimals"] if claim.get("decimals", 1) not in range(9) else []
        if wrong:
            raise ValueNameError(f"claim {number + 1}: {wrong[0]} is missing, or of another kind than it should be")
    return found


def samples(claim: dict[str, Any]) -> dict[str, Sample]:
    """Return the values over seeds of every figure. What has no record yet is empty."""
    for name, said in claim.get("figures", {}).items():
        if not (isinstance(said, list) and len(said) == 2 and all(isinstance(part, str) for part in said)):
            raise ValueNameError(f"claim {claim['claim']!r}: the figure {name} is not [words, value], but {said!r}")
    figures = claim.get("figures", {}).items()
    return {name: {} if missing_record(value) else sample(value) for name, (_, value) in figures}


def missing_record(value: str) -> str | None:
    """Name the record that a figure waits for."""
    name = value.partition(".json:")[0] if ".json:" in value else value.partition(";")[0]
    known = name in records.table_names() or ".json:" in value
    return f"reproduce/records/{name}.json" if known and not records.record_path(name).exists() else None


def verdict(claim: dict[str, Any], found: dict[str, Sample]) -> str:
    """Decide a claim by its rules."""
    if NEVER in claim:
        return NEVER
    figures = {name: figure(values) for name, values in found.items() if values}
    if len(figures) < len(found):
        return WAITS
    try:
        return next((rule for rule in RULES if rule in claim and decide(claim[rule], figures)), FAILS)
    except OneSeedError:
        return WAITS


def decide(rule: str, figures: dict[str, Figure]) -> bool:
    """Evaluate a rule: comparisons of figures and numbers, joined by `and` and `or`."""
    try:
        tree = ast.parse(rule.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError, AttributeError) as error:
        raise ValueNameError(f"rule {str(rule)[:80]!r} is no rule: {error}") from error
    for node in ast.walk(tree):
        if not isinstance(node, ALLOWED):
            raise ValueNameError(f"rule {rule!r}: {type(node).__name__} is not allowed")
        if isinstance(node, ast.Constant) and type(node.value) not in (int, float):
            raise ValueNameError(f"rule {rule!r}: {node.value!r} is no number")
        if isinstance(node, ast.Name) and node.id not in figures:
            raise ValueNameError(f"rule {rule!r}: there is no figure {node.id!r}; figures are {', '.join(figures)}")
        if isinstance(node, ast.Attribute) and node.attr not in Figure._fields:
            raise ValueNameError(f"rule {rule!r}: a figure has {', '.join(Figure._fields)}, and no {node.attr!r}")
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and getattr(figures[node.value.id], node.attr) is None:  # type: ignore[attr-defined]
            raise OneSeedError(rule)
    try:
        return bool(eval(compile(tree, "rule", "eval"), {"__builtins__": {}}, dict(figures)))
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueNameError(f"rule {rule!r} compares what cannot be compared: {error}") from error


def render() -> str:
    """Write the page of the claims."""
    entries, verdicts = [], []
    for claim in load():
        found = {} if NEVER in claim else samples(claim)
        verdicts.append(verdict(claim, found))
        entries += _entry(claim, found, verdicts[-1])
    kinds = [*RULES, FAILS, WAITS, NEVER]
    counts = ", ".join(f"{kind} {verdicts.count(kind)}" for kind in kinds if kind in verdicts)
    lines = [
        f"| {claim['claim']} | {claim['section']} | {said} |" for claim, said in zip(load(), verdicts, strict=True)
    ]
    summary = ["| claim | paper | verdict |", "|---|---|---|", *lines]
    return "\n".join([INTRODUCTION, "", f"There are {len(verdicts)} claims: {counts}.", "", *summary, "", *entries])


def _entry(claim: dict[str, Any], found: dict[str, Sample], said: str) -> list[str]:
    quote = " ".join(claim["quote"].split())
    lines = [f"## {claim['claim']}", "", f"> {quote} ({claim['section']})", ""]
    for name, values in found.items():
        words, value = claim["figures"][name]
        lines.append(f"- `{name}`: {words}: {_shown(values, value, claim.get('decimals', 1))}")
    rules = "; ".join(f"{rule} if `{' '.join(claim[rule].split())}`" for rule in RULES if rule in claim)
    lines += ["", f"Rule: {rules}.", ""] if rules else []
    lines += [f"**Verdict: {said}.** {fill(claim[NEVER])}" if said == NEVER else f"**Verdict: {said}.**", ""]
    return lines + ([fill(claim["note"]).rstrip(), ""] if "note" in claim else [])


def _shown(values: Sample, value: str, decimals: int) -> str:
    if missing := missing_record(value):
        return f"waits for `{missing}`"
    if not values:
        return f"{records.NOT_RUN} (`{value}`)"
    text = show(mean(values.values()), decimals)
    if ends := interval(values):
        text += f" [{show(ends[0], decimals)}, {show(ends[1], decimals)}], {len(values)} seeds"
    elif ".json:" not in value:
        text += ", 1 seed"
    return f"{text}{f' {records.EARLIER}' if is_earlier(value) else ''} (`{value}`)"


if __name__ == "__main__":
    file = records.page_path(records.CLAIMS)
    write_atomic(file, render().encode())
    print(f"Wrote {file}")
