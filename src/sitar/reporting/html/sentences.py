"""What a comparison says, in sentences: what leads and by how much, what breaks, and what the control has to say."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sitar.reporting.comparison import Comparison, Row
from sitar.reporting.html.charts import Bar, metric_bars
from sitar.reporting.tables import percent
from sitar.run_folder import flat

MOST_NAMED = 5
OF_THE_NOISE = tuple(f"method.{name}" for name in ("alpha", "lambda", "noise", "noise_distribution", "objective"))


def summary(comparison: Comparison) -> list[str]:
    split, metric = comparison.main_split, _metric(comparison)
    name = metric.replace("_", " ")
    bars = metric_bars(comparison, split, metric)
    known = sorted((bar for bar in bars if bar.value is not None), key=lambda bar: -(bar.value or 0))
    bounds = {place for place, row in enumerate(comparison.rows) if row.needs_groups}
    said = [_about(comparison)]
    said += _leader([bar for bar in known if bar.color not in bounds], split, name)
    said += _bounds([bar for bar in known if bar.color in bounds], split, name)
    if missing := [bar.label for bar in bars if bar.value is None]:
        said.append(f"No {name} accuracy on {split}: {', '.join(missing)}.")
    return said + _falls(comparison) + _controls(comparison, bars, split, name)


def listed(words: Iterable[str]) -> str:
    *most, last = words
    return f"{', '.join(most)} and {last}" if most else last


def _metric(comparison: Comparison) -> str:
    """The worst group where every row that has the split has one."""
    found = [r["splits"].get(comparison.main_split) for row in comparison.rows for r in row.results]
    return "worst_group" if all(m.get("worst_group") is not None for m in found if m) else "average"


def _about(comparison: Comparison) -> str:
    runs, rows = len(comparison.runs), len(comparison.rows)
    of = "One run" if runs == 1 else f"{runs} runs" if runs == rows else f"{runs} runs of {rows} settings"
    return f"{of} on {comparison.dataset}, {len(comparison.classes)} classes."


def _leader(bars: list[Bar], split: str, name: str) -> list[str]:
    if not bars:
        return []
    first, *others = bars
    if not others:
        article = "an" if name == "average" else "a"
        return [f"On {split} {first.label} has {article} {name} accuracy of {percent(first.value)} %{_range(first)}."]
    then = ", ".join(f"{bar.label} {percent(bar.value)} %" for bar in others[: MOST_NAMED - 1])
    more = f" and {len(bars) - MOST_NAMED} more" if len(bars) > MOST_NAMED else ""
    said = f"On {split} {first.label} has the highest {name} accuracy, {percent(first.value)} %{_range(first)}; then"
    sentences = [f"{said} {then}{more}."]
    if overlap(first, others[0]):
        sentences.append(f"The ranges of {first.label} and {others[0].label} overlap: their order may be chance.")
    return sentences


def overlap(one: Bar, other: Bar) -> bool:
    """Whether two ranges have a value in common; unknown ranges have none."""
    if one.low is None or one.high is None or other.low is None or other.high is None:
        return False
    return one.low <= other.high and other.low <= one.high


def _bounds(bars: list[Bar], split: str, name: str) -> list[str]:
    if not bars:
        return []
    values = ", ".join(f"{bar.label} {percent(bar.value)} %" for bar in bars)
    given = "Given group labels of the training samples, an upper bound and not a rival"
    return [f"{given}, in {name} on {split}: {values}."]


def _range(bar: Bar) -> str:
    return "" if bar.low is None else f" ({percent(bar.low)} to {percent(bar.high)})"


def _falls(comparison: Comparison) -> list[str]:
    """What unseen conditions cost: the row that loses most, and the one that loses least."""
    falls = []
    for row in comparison.rows:
        seen, unseen = (row.summary(split, "average")["mean"] for split in ("id_test", "ood_test"))
        if seen is not None and unseen is not None:
            falls.append((seen - unseen, row.label, seen, unseen))
    falls.sort(reverse=True)
    said = [
        f"{label} goes from {percent(seen)} % in distribution to {percent(unseen)} % out of it"
        for _, label, seen, unseen in dict.fromkeys([*falls[:1], *falls[-1:]])
    ]
    return [f"On average {'; '.join(said)}."] if said else []


def _controls(comparison: Comparison, bars: list[Bar], split: str, name: str) -> list[str]:
    """Rows with noise against the same VAE without: nothing is credited to the noise before."""
    settings = [_settings(comparison, row) for row in comparison.rows]
    noisy = [place for place, found in enumerate(settings) if found.get("method.alpha")]
    quiet = [place for place, found in enumerate(settings) if found.get("method.alpha") == 0]
    if noisy and not quiet:
        labels = listed(bars[place].label for place in noisy)
        return [
            f"No control (alpha 0) is among these runs: what the noise does in {labels} and what the VAE is not known."
        ]
    said = []
    for place in noisy:
        control = min(quiet, key=lambda other: len(_others(settings[place], settings[other])))
        mine, its = bars[place], bars[control]
        if mine.value is not None and its.value is not None:
            gain = f"{mine.label} {100 * (mine.value - its.value):+.1f} points over {its.label}"
            also = (
                [f"which also differs in {listed(names)}"]
                if (names := _others(settings[place], settings[control]))
                else []
            )
            also += ["ranges overlap"] if overlap(mine, its) else []
            said.append(gain + (f" ({'; '.join(also)})" if also else ""))
    return [f"Against the VAE without noise, the control, in {name} on {split}: {', '.join(said)}."] if said else []


def _others(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    """Settings besides the noise in which two rows differ."""
    return sorted(
        key for key in one.keys() | other.keys() if key not in OF_THE_NOISE and one.get(key) != other.get(key)
    )


def _settings(comparison: Comparison, row: Row) -> dict[str, Any]:
    """What the model and its training are, whatever the preset is called."""
    config = row.runs[0].config
    return flat({key: config.get(key) or {} for key in ("model", "method", "train")})
