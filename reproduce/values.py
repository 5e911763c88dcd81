"""Values over records: the one language in which notes, claims, README and docs name a measured number.

A value of a table has five parts:

    color_mnist; sitar_best; rho = 0.9; OOD; mean
    TABLE; ROW; COLUMN; SPLIT; STATISTIC

- A row may be named without its brackets, where this is clear. `paper, SITAR` is a row of the paper's own values.
- The column `mean of columns` is the mean over the columns that count, where a table leaves some out for tuning.
- A split is a label of the table (`OOD`) or what a label stands for (`ood_test.worst_group@last`, `v.1`).
- A statistic is over the seeds: `mean`, `sd`, `low` and `high` (the lowest and the highest seed), `seeds` (how many),
  `seed 3` (this one), `lower` and `upper` (the 95 % interval of the mean, by Student's t), `interval` (both ends).
- `A - B` in a part is a difference, taken seed by seed: `celeba; sitar - ERM; ...`.
- ` / `, ` and `, ` to ` and ` ± ` in a part name several values: `mean ± sd`, `ID / OOD`. `*` names all rows, columns
  or splits.

A value of any other record is a path in its file, with the first three statistics if the path leads to many numbers:

    theory.json: runs[seed=0].theory.predicted[0] - runs[seed=0].theory.clean
    audit_color_mnist.json: runs[rho=0.9].correlation; low to high
    baselines_tuning.json: runs[preset=color_mnist/afr][method.gamma=2.0].val / val_ood; percent

`[key=value]` keeps the items of a list that have this value, themselves or in their settings. `[key!=value]` keeps the
others. `[key counts in TABLE]` keeps those whose value is a column of the table that counts in its means. A key of a
list is that of all its items.

    bit.json: runs[column counts in exchange].refit.worst_group; percent; mean

Prose holds values in two ways. `fill` writes them where `{{ VALUE }}` or `{{ VALUE; .0 }}` (no decimals) stands. In
Markdown, `72.2<!-- VALUE -->` is compared by check.py. ‡ stands behind a value of runs whose preset has changed since.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from statistics import mean, stdev
from typing import Any, NamedTuple

import records
from scipy.special import stdtrit

Sample = Mapping[Any, float]  # a value for each seed; the paper's values have the seed None
JOINS = r" (/|and|to|±) "
MEAN = "mean of columns"
COUNTS = " counts in "


class ValueNameError(Exception):
    """Says what is wrong with a value, and which names are known."""


class Value(NamedTuple):
    """A number, or None where nothing was run yet, with the word that joins it to the number before it."""

    join: str
    number: float | None


def interval(sample: Sample) -> tuple[float, float] | None:
    """Return the 95 % interval of the mean over seeds, by Student's t. It needs two seeds."""
    if len(sample) < 2:
        return None
    half = float(stdtrit(len(sample) - 1, 0.975)) * stdev(sample.values()) / len(sample) ** 0.5
    return mean(sample.values()) - half, mean(sample.values()) + half


STATISTICS: dict[str, Callable[[Sample], float | None]] = {
    "mean": lambda sample: mean(sample.values()),
    "sd": lambda sample: stdev(sample.values()) if len(sample) > 1 else None,
    "low": lambda sample: min(sample.values()),
    "high": lambda sample: max(sample.values()),
    "seeds": len,
    "lower": lambda sample: (interval(sample) or (None, None))[0],
    "upper": lambda sample: (interval(sample) or (None, None))[1],
}


def evaluate(expression: str) -> list[Value]:
    """Compute the values that an expression names."""
    try:
        return _evaluated(expression)
    except (TypeError, ValueError, KeyError, IndexError, AttributeError, OverflowError, OSError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise ValueNameError(
            f"{expression.strip()!r}: it leads to no numbers, or a record is damaged ({reason})"
        ) from error


def _evaluated(expression: str) -> list[Value]:
    parts = [" ".join(part.split()) for part in expression.split(";")]
    if ".json:" in parts[0]:
        return _of_path(parts)
    if len(parts) != 5:
        raise ValueNameError(f"{expression.strip()!r}: a value has five parts, TABLE; ROW; COLUMN; SPLIT; STATISTIC")
    *place, statistic = parts
    return [
        Value(join, _statistic(name, found))
        for join, (found, name) in _spread([_samples("; ".join(place)), _statistics(statistic)])
    ]


def sample(expression: str) -> Sample:
    """Return the values over seeds that an expression without a statistic names."""
    if ".json:" in expression:
        path, *rest = (part.strip() for part in expression.split(";"))
        return dict(enumerate(_numbers(path, percent="percent" in rest)))
    found = _samples(expression)
    if len(found) != 1:
        raise ValueNameError(f"{expression!r} names {len(found)} values and not one")
    return found[0][1]


def is_earlier(expression: str) -> bool:
    """Say whether an expression rests on runs that were made before their preset changed."""
    name, _, rest = " ".join(expression.split()).partition(";")
    if ".json:" in expression or not records.record_path(name).exists():
        return False
    table, record = records.load_table(name), records.record_so_far(name)
    rows = [*table["rows"], *(f"paper, {row}" for row in table["paper"])]
    named = {row for _, terms in _terms(rest.partition(";")[0].strip(), "row", rows) for row in terms}
    return any(records.outdated(row, table, record) for row in named if row in table["rows"])


def fill(text: str) -> str:
    """Write the values into a text, where it says {{ VALUE }}. Those of runs with earlier settings get a mark."""

    def written(match: re.Match[str]) -> str:
        expression, _, decimals = match[1].strip().partition("; .")
        shown = "".join(value.join + show(value.number, int(decimals or 1)) for value in evaluate(expression))
        return shown + (records.EARLIER if is_earlier(expression) else "")

    return re.sub(r"\{\{(.+?)\}\}", written, text, flags=re.DOTALL)


def show(number: float | None, decimals: int) -> str:
    """Write a number. What rounds to zero has no sign."""
    if number is None:
        return records.NOT_RUN
    text = f"{number:,.{decimals}f}"
    return text.removeprefix("-") if not text.strip("-0.,") else text


def _samples(place: str) -> list[tuple[str, Sample]]:
    """Return the samples at TABLE; ROW; COLUMN; SPLIT, each with the word that joins it to the one before."""
    parts = [part.strip() for part in place.split(";")]
    if len(parts) != 4:
        raise ValueNameError(f"{place!r}: expected TABLE; ROW; COLUMN; SPLIT")
    name, *fields = parts
    table = _table(name)
    record = records.record_so_far(name)
    rows = [*table["rows"], *(f"paper, {row}" for row in table["paper"])]
    counted = [column for column in table["columns"] if column not in table.get("left_out", [])]
    known = (rows, [*table["columns"], MEAN], list(table["splits"]))
    words = [_terms(*part) for part in zip(fields, ("row", "column", "split"), known, strict=True)]

    def read(row: str, column: str, split: str) -> Sample:
        if column == MEAN:
            found = [read(row, one, split) for one in counted]
            return {seed: mean(one[seed] for one in found) for seed in found[0] if all(seed in one for one in found)}
        if row.startswith("paper, "):
            values = table["paper"][row.removeprefix("paper, ")]
            shown = str(values[known[1].index(column)][known[2].index(split)]).partition(" ± ")[0]
            return {} if shown == "–" else {None: float(shown)}
        what = table["splits"].get(split, split)
        found = [run for run in records.runs_of(row, table, record) if run["column"] == column]
        try:
            return {run["seed"]: records.value_of(run, what) for run in found}
        except (KeyError, AttributeError, ValueError, IndexError):
            raise ValueNameError(f"a run of {name} has no {split!r}; splits are {', '.join(known[2])}") from None

    def compute(terms: tuple[tuple[str, ...], ...]) -> Sample:
        first = read(*(term[0] for term in terms))
        return _difference(first, read(*(term[-1] for term in terms))) if any(len(t) > 1 for t in terms) else first

    return [(join, compute(terms)) for join, terms in _spread(words)]


def _table(name: str) -> dict[str, Any]:
    if name not in records.table_names():
        raise ValueNameError(f"there is no table {name!r}; tables are {', '.join(records.table_names())}")
    return records.load_table(name)


def _terms(text: str, kind: str, known: list[str]) -> list[tuple[str, tuple[str, ...]]]:
    """Split a part into its names, each with the word before it. A name is (A,), or (A, B) for the difference A - B."""
    if text == "*":
        shown = [name for name in known if not name.startswith("paper, ") and name != MEAN]
        return [(" / " if i else "", (name,)) for i, name in enumerate(shown)]
    if (found := _name(text, kind, known)) is not None:
        return [("", (found,))]
    words = re.split(JOINS, text)
    joins = ["", *(f" {join} " for join in words[1::2])]
    return [
        (join, tuple(_known(name, kind, known) for name in term.split(" - ")))
        for join, term in zip(joins, words[::2], strict=True)
    ]


def _name(text: str, kind: str, known: list[str]) -> str | None:
    if text in known or (kind == "split" and re.fullmatch(r"\w+(\.\w+)?(@\w+)?", text)):
        return text
    short = [name for name in known if name.startswith(f"{text} (")]
    return short[0] if len(short) == 1 else None


def _known(text: str, kind: str, known: list[str]) -> str:
    found = _name(text.strip(), kind, known)
    if found is None:
        raise ValueNameError(f"there is no {kind} {text.strip()!r}; {kind}s are {', '.join(map(repr, known))}")
    return found


def _difference(first: Sample, second: Sample) -> Sample:
    """Subtract seed by seed, over the seeds that both have. The paper's values are the same for every seed."""
    if None in second:
        return {seed: value - second[None] for seed, value in first.items()}
    if None in first:
        return {seed: first[None] - value for seed, value in second.items()}
    return {seed: first[seed] - second[seed] for seed in first if seed in second}


def _statistics(text: str) -> list[tuple[str, str]]:
    if text == "interval":
        return [("", "lower"), (" to ", "upper")]
    words = re.split(JOINS, text)
    return list(zip(["", *(f" {join} " for join in words[1::2])], words[::2], strict=True))


def _statistic(name: str, found: Sample) -> float | None:
    if seed := re.fullmatch(r"seed (\d+)", name):
        return found.get(int(seed[1]))
    if name not in STATISTICS:
        raise ValueNameError(
            f"there is no statistic {name!r}; statistics are {', '.join(STATISTICS)}, interval, seed N"
        )
    return STATISTICS[name](found) if found or name == "seeds" else None


def _spread(fields: list[list[tuple[str, Any]]]) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Combine the names of all parts, the last part fastest, each with the word that stands before it."""
    if not fields:
        yield "", ()
        return
    first, *rest = fields
    for join, term in first:
        for inner, (join_inside, terms) in enumerate(_spread(rest)):
            yield (join_inside if inner else join), (term, *terms)


def _of_path(parts: list[str]) -> list[Value]:
    path, *rest = parts
    percent = "percent" in rest
    statistics = [part for part in rest if part != "percent"]
    file, _, inside = path.partition(".json:")
    head, tail = re.fullmatch(r"(.*\.)?((?:[^.\[\]]|\[[^\]]*\])*)", inside).groups("")  # type: ignore[union-attr]
    values = []
    for join, name in _statistics(tail):
        numbers = _numbers(f"{file}.json:{head}{name}", percent)
        if not statistics and len(numbers) != 1:
            raise ValueNameError(f"{path!r} leads to {len(numbers)} numbers and needs a statistic")
        for i, (word, statistic) in enumerate(_statistics(statistics[0] if statistics else "mean")):
            values.append(Value(word if i else join, _statistic(statistic, dict(enumerate(numbers)))))
    return values


def _numbers(place: str, percent: bool) -> list[float]:
    """Return the numbers at `FILE.json: PATH`, or the sums and differences of paths."""
    file, _, inside = place.partition(".json:")
    if not records.record_path(file.strip()).exists():
        known = sorted(record.stem for record in (records.HERE / "records").glob("*.json"))
        raise ValueNameError(f"there is no record {file.strip()!r}; records are {', '.join(known)}")
    content = json.loads(records.record_path(file.strip()).read_text(encoding="utf-8"))
    first, *others = re.split(r" ([-+]) ", inside.strip())
    found = [float(number) for number in _walk(content, first)]
    for sign, path in zip(others[::2], others[1::2], strict=True):
        found = [a + (b if sign == "+" else -b) for a, b in zip(found, _walk(content, path), strict=True)]
    return [100 * number for number in found] if percent else found


def _walk(content: Any, path: str) -> list[Any]:
    """Follow a path of keys, [number], [key] and [key=value] through plain values. Its end may be a list of numbers."""
    found = [content]
    for step, inside in re.findall(r"([^.\[\]]+)|\[([^\]]+)\]", path):
        key = step or inside
        if step and all(isinstance(item, list) for item in found):
            found = [one for item in found for one in item]
        if all(isinstance(item, dict) and key in item for item in found):
            found = [item[key] for item in found]
        elif inside and re.fullmatch(r"-?\d+", inside) and all(isinstance(item, list) for item in found):
            found = [item[int(inside)] for item in found]
        elif "=" in inside or COUNTS in inside:
            each = [one for item in found for one in (item if isinstance(item, list) else [item])]
            found = [one for one in each if _has(one, inside)]
        else:
            known = ", ".join(found[0]) if isinstance(found[0], dict) else f"a {type(found[0]).__name__}"
            raise ValueNameError(f"{path!r}: there is no {key!r}; there is {known}")
        if not found:
            raise ValueNameError(f"{path!r}: nothing has {key}")
    return [number for item in found for number in (item if isinstance(item, list) else [item])]


def _has(item: dict[str, Any], wanted: str) -> bool:
    """Say whether an item has `key=value`, itself or in its settings. `key!=value` is the opposite.

    `key counts in TABLE` asks whether the value is a column that counts in the means of the table.
    """
    if COUNTS in wanted:
        key, _, name = wanted.partition(COUNTS)
        table = _table(name)
        return item.get(key) in table["columns"] and item.get(key) not in table.get("left_out", [])
    if "!=" in wanted:
        return not _has(item, wanted.replace("!=", "="))
    key, _, value = wanted.partition("=")
    inside = [item, *(some for some in item.values() if isinstance(some, dict))]
    return any(str(some.get(key)) == value for some in inside) or any(
        wanted in some for some in item.values() if isinstance(some, list)
    )
