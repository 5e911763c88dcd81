"""Say in sentences what a comparison shows: what leads and by how much, what breaks, and what the control shows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sitar.controls import BASELINE, CONTROLS, Control
from sitar.errors import RunError
from sitar.given import ANSWERS, KINDS
from sitar.reporting.against import ONE_SEED, OVER_BOTH, Verdict
from sitar.reporting.against import judge as judge_pairs
from sitar.reporting.comparison import Comparison, Row
from sitar.reporting.groups import MOST_NAMED, empty_groups, small_groups
from sitar.reporting.html.bars import Bar, metric_bars
from sitar.reporting.tables.table import chance, percent
from sitar.run_folder import flat


def summary(comparison: Comparison) -> list[str]:
    """Write the summary of a comparison, on its main split."""
    split, metric = comparison.main_split, _metric(comparison)
    name = metric.replace("_", " ")
    bars = metric_bars(comparison, split, metric)
    known = sorted((bar for bar in bars if bar.value is not None), key=lambda bar: -(bar.value or 0))
    rivals = [bar for bar in known if not comparison.rows[bar.color].was_given_more]
    judge = Judge(split, metric)
    sentences = [_size(comparison), *_unknown_groups(comparison, split)]
    sentences += _leader(rivals, split, name) + _first_two(comparison, rivals, judge)
    for kind in KINDS:  # a row that was given several is named with the first of them
        rows = [bar for bar in known if comparison.rows[bar.color].kinds[:1] == [kind]]
        sentences += _apart(rows, kind.apart, split, name)
    sentences += _against_baseline(comparison, judge, f"in {name} on {split}")
    sentences += _expected(comparison)
    if missing := [bar.label for bar in bars if bar.value is None]:
        sentences.append(f"No {name} accuracy on {split}: {', '.join(missing)}.")
    return (
        sentences
        + _chance(comparison, bars, split, metric)
        + _falls(comparison)
        + _controls(comparison, bars, judge, f"in {name} on {split}")
        + judge.remarks()
    )


@dataclass
class Judge:
    """A judge compares rows in one metric on one split, and remembers what a reader must know of its intervals."""

    split: str
    metric: str
    reasons: list[str] = field(default_factory=list)
    seeds: set[int] = field(default_factory=set)  # how many seeds the differences have

    def __call__(self, pairs: Sequence[tuple[Row, Row]]) -> list[Verdict]:
        """Compare pairs of rows as one family. There is no verdict where they cannot be compared."""
        verdicts = judge_pairs(pairs, self.split, self.metric, self._refused)
        self.seeds |= {len(verdict.seeds) for verdict in verdicts}
        return verdicts

    def _refused(self, error: RunError) -> None:
        self.reasons.append(f"Not compared sample by sample: {error}")

    def remarks(self) -> list[str]:
        about = [OVER_BOTH] if max(self.seeds, default=0) > 1 else []
        return [*dict.fromkeys(self.reasons), *about, *([ONE_SEED] if 1 in self.seeds else [])]


def listed(words: Iterable[str]) -> str:
    """Join words with commas and, before the last one, "and"."""
    *most, last = words
    return f"{', '.join(most)} and {last}" if most else last


def _metric(comparison: Comparison) -> str:
    """Choose the worst group where every row that has the split has one, else the average."""
    results = [result["splits"].get(comparison.main_split) for row in comparison.rows for result in row.results]
    return "worst_group" if all(m.get("worst_group") is not None for m in results if m) else "average"


def _size(comparison: Comparison) -> str:
    """Say how many runs there are, and on which data."""
    runs, rows = len(comparison.runs), len(comparison.rows)
    of = "One run" if runs == 1 else f"{runs} runs" if runs == rows else f"{runs} runs of {rows} settings"
    return f"{of} on {comparison.dataset}, {len(comparison.classes)} classes."


def _leader(bars: list[Bar], split: str, name: str) -> list[str]:
    """Say which row leads, which follow, and whether the order may be chance."""
    if not bars:
        return []
    first, *others = bars
    if not others:
        article = "an" if name == "average" else "a"
        return [f"On {split} {first.label} has {article} {name} accuracy of {percent(first.value)} %{_range(first)}."]
    leads = f"On {split} {first.label} has the highest {name} accuracy, {percent(first.value)} %{_range(first)}"
    then = ", ".join(f"{bar.label} {percent(bar.value)} %" for bar in others[: MOST_NAMED - 1])
    more = f" and {len(bars) - MOST_NAMED} more" if len(bars) > MOST_NAMED else ""
    return [f"{leads}; then {then}{more}."]


def _first_two(comparison: Comparison, bars: list[Bar], judge: Judge) -> list[str]:
    """Say whether the row that leads can be told apart from the next. The baseline is compared with all."""
    first_two = [comparison.rows[bar.color] for bar in bars[:2]]
    if len(first_two) < 2 or any(row is _baseline(comparison) for row in first_two):
        return []
    return [f"{verdict.sentence}." for verdict in judge([(first_two[0], first_two[1])])]


def _against_baseline(comparison: Comparison, judge: Judge, where: str) -> list[str]:
    """Compare all other rows with plain training, where the comparison has one row of it."""
    baseline = _baseline(comparison)
    if baseline is None:
        return []
    verdicts = judge([(row, baseline) for row in comparison.rows if row is not baseline])
    said = [f"{one.row.label} {'is ' if one.told_apart else ''}{one.words}" for one in verdicts[:MOST_NAMED]]
    if len(verdicts) > MOST_NAMED:
        said.append(f"{len(verdicts) - MOST_NAMED} more are in `sitar compare --against {BASELINE}`")
    return [f"Against {baseline.label}, {where}: {'; '.join(said)}."] if said else []


def _baseline(comparison: Comparison) -> Row | None:
    found = [row for row in comparison.rows if row.results[0].get("method") == BASELINE and ANSWERS not in row.kinds]
    return found[0] if len(found) == 1 else None


def _apart(bars: list[Bar], given: str, split: str, name: str) -> list[str]:
    """Name the rows that were given more than the others, such as group labels."""
    if not bars:
        return []
    values = ", ".join(f"{bar.label} {percent(bar.value)} %" for bar in bars)
    return [f"{given}, in {name} on {split}: {values}."]


def _unknown_groups(comparison: Comparison, split: str) -> list[str]:
    """Say first of which groups no number tells what a model does on them, or little."""
    figures = next((m for row in comparison.rows for m in _results(row, split) if m.get("groups")), {})
    about = split, figures, comparison.classes, comparison.attributes
    asking = "`sitar ask` asks about images from where the model will be used."
    return [f"{said} {asking}" for said in empty_groups(*about)] + small_groups(*about)


def _expected(comparison: Comparison) -> list[str]:
    """Say what accuracy answers let expect where the model will be used, beside that of the runs they chose from."""
    sentences = []
    for row in comparison.rows:
        for found in (found for result in row.results if (found := result.get("refit"))):
            before = ", ".join(f"{one['run']} {_accuracy(one)}" for one in found["before"])
            sentences.append(
                f"Where the images come from, {row.label} is expected to have {_accuracy(found['expected'])}; as they "
                f"were: {before}."
            )
    return sentences


def _accuracy(found: Mapping[str, Any]) -> str:
    low, high = found["interval"]
    return f"{percent(found['accuracy'])} % ({percent(low)} to {percent(high)})"


def _results(row: Row, split: str) -> list[Any]:
    return [result["splits"][split] for result in row.results if split in result["splits"]]


def _chance(comparison: Comparison, bars: list[Bar], split: str, metric: str) -> list[str]:
    """Say what a classifier has that knows nothing, and which rows have no more."""
    level = chance(metric, len(comparison.classes)) if comparison.classes else None
    if metric != "worst_group" or level is None:
        return []
    below = [bar.label for bar in bars if bar.value is not None and bar.value <= level]
    who = f"; {listed(below[:MOST_NAMED])}{' and others' if len(below) > MOST_NAMED else ''} " if below else ""
    have = f"{who}{'has' if len(below) == 1 else 'have'} no more on {split}" if below else ""
    return [f"A classifier that knows nothing has {percent(level)} % in every group{have}."]


def _range(bar: Bar) -> str:
    """Write the range of a bar and say what it is, as intervals of differences stand beside it."""
    what = "seeds from" if bar.over_seeds else "95 % interval"
    return "" if bar.low is None else f" ({what} {percent(bar.low)} to {percent(bar.high)})"


def _falls(comparison: Comparison) -> list[str]:
    """Say what unseen conditions cost the row that loses most, and the one that loses least."""
    falls = []
    for row in comparison.rows:
        seen, unseen = (row.summary(split, "average")["mean"] for split in ("id_test", "ood_test"))
        if seen is not None and unseen is not None:
            falls.append((seen - unseen, row.label, seen, unseen))
    falls.sort(reverse=True)
    extremes = [
        f"{label} goes from {percent(seen)} % in distribution to {percent(unseen)} % out of it"
        for _, label, seen, unseen in dict.fromkeys([*falls[:1], *falls[-1:]])
    ]
    return [f"On average {'; '.join(extremes)}."] if extremes else []


def _controls(comparison: Comparison, bars: list[Bar], judge: Judge, where: str) -> list[str]:
    """Compare every row with noise with its control. Nothing is credited to the noise before."""
    settings = [_settings(row) for row in comparison.rows]
    sentences = []
    for method, control in CONTROLS.items():
        rows = [(place, mine) for place, mine in enumerate(settings) if mine["method.name"] == method]
        rows = [(place, mine) for place, mine in rows if ANSWERS not in comparison.rows[place].kinds]
        strengths = {place: mine.get(f"method.{control.strength}") for place, mine in rows}
        noisy = [place for place, strength in strengths.items() if strength]
        quiet = [place for place, strength in strengths.items() if strength == 0]
        if noisy and not quiet:
            labels = listed(bars[place].label for place in noisy)
            sentences.append(
                f"No control ({control.strength} 0) is among these runs: it is not known what the noise contributes in "
                f"{labels}, and what the VAE contributes."
            )
            continue
        others = {(mine, c): _others(settings[mine], settings[c], control) for mine in noisy for c in quiet}
        nearest = {mine: min(quiet, key=lambda other: len(others[mine, other])) for mine in noisy}
        verdicts = judge([(comparison.rows[mine], comparison.rows[other]) for mine, other in nearest.items()])
        words = {verdict.row.label: verdict.sentence for verdict in verdicts}
        gains = [
            (words.get(bars[mine].label) or gain) + _also(others[mine, other])
            for mine, other in nearest.items()
            if (gain := _gain(bars[mine], bars[other])) is not None
        ]
        if gains:
            sentences.append(f"Against the VAE without noise, the control, {where}: {'; '.join(gains)}.")
    return sentences


def _gain(mine: Bar, control: Bar) -> str | None:
    """Say by how many points a row is ahead of its control, where samples do not tell whether that is chance."""
    if mine.value is None or control.value is None:
        return None
    return f"{mine.label} {100 * (mine.value - control.value):+.1f} points over {control.label}"


def _also(others: list[str]) -> str:
    """Say what else may be the cause of a difference."""
    return f" (which also differs in {listed(others)})" if others else ""


def _others(one: dict[str, Any], other: dict[str, Any], control: Control) -> list[str]:
    """Return the settings besides those of the noise in which two rows differ."""
    of_the_noise = {f"method.{setting}" for setting in control.settings}
    return sorted(key for key in (one.keys() | other.keys()) - of_the_noise if one.get(key) != other.get(key))


def _settings(row: Row) -> dict[str, Any]:
    """Return what the model and its training are, whatever the preset is called."""
    config = row.runs[0].config
    return {"method.name": None, **flat({key: config.get(key) or {} for key in ("model", "method", "train")})}
