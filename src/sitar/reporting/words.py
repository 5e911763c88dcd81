"""What a comparison says, in sentences: what leads and by how much, what breaks, and what the control has to say."""

from __future__ import annotations

from sitar.reporting.charts import Bar, metric_bars
from sitar.reporting.gather import Comparison
from sitar.reporting.tables import Row, percent

MOST_NAMED = 5


def summary(comparison: Comparison) -> list[str]:
    split, metric = comparison.main_split, _metric(comparison)
    name = metric.replace("_", " ")
    bars = [bar for bar in metric_bars(comparison, split, metric) if bar.value is not None]
    said = [_about(comparison)]
    if bars:
        said += _leader(sorted(bars, key=lambda bar: -(bar.value or 0)), split, name)
    said += _falls(comparison)
    said += _controls(comparison, split, metric, name)
    bound = [row.label for row in comparison.rows if row.needs_groups]
    if bound:
        said.append(f"{_list(bound)} was given group labels of the training samples: an upper bound, not a rival.")
    return said


def _metric(comparison: Comparison) -> str:
    """The worst group where every row has one."""
    bars = metric_bars(comparison, comparison.main_split, "worst_group")
    return "worst_group" if bars and all(bar.value is not None for bar in bars) else "average"


def _about(comparison: Comparison) -> str:
    runs, rows = len(comparison.runs), len(comparison.rows)
    of = "one run" if runs == 1 else f"{runs} runs" if runs == rows else f"{runs} runs of {rows} settings"
    return f"{of[0].upper()}{of[1:]} on {comparison.dataset}, {len(comparison.classes)} classes."


def _leader(bars: list[Bar], split: str, name: str) -> list[str]:
    first = bars[0]
    said = f"On {split} {first.label} has the highest {name} accuracy, {percent(first.value)} %{_range(first)}"
    if len(bars) == 1:
        return [said.replace("has the highest", "has") + "."]
    others = ", ".join(f"{bar.label} {percent(bar.value)} %" for bar in bars[1:MOST_NAMED])
    more = f" and {len(bars) - MOST_NAMED} more" if len(bars) > MOST_NAMED else ""
    sentences = [f"{said}; then {others}{more}."]
    second = bars[1]
    if None not in (first.low, second.high) and first.low <= second.high:  # type: ignore[operator]
        sentences.append(f"The ranges of {first.label} and {second.label} overlap: this does not tell them apart.")
    return sentences


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
    return ["; ".join(said) + "."] if said else []


def _controls(comparison: Comparison, split: str, metric: str, name: str) -> list[str]:
    """SITAR against the same VAE without noise: nothing is credited to the noise before."""
    noisy = [row for row in comparison.rows if _noise(comparison, row)]
    quiet = [row for row in comparison.rows if _noise(comparison, row) is False]
    if not noisy:
        return []
    if not quiet:
        missing = "No control (alpha and lambda 0) is among these runs: what the noise does cannot be told"
        return [f"{missing} from what the VAE alone does."]
    control = quiet[0]
    base, said = control.summary(split, metric)["mean"], []
    for row in noisy:
        value = row.summary(split, metric)["mean"]
        if None not in (base, value):
            said.append(f"{row.label} {100 * (value - base):+.1f}")
    if not said:
        return []
    return [f"Against {control.label}, the same VAE without noise, in points of {name} on {split}: {', '.join(said)}."]


def _noise(comparison: Comparison, row: Row) -> bool | None:
    """Whether the latent is shaken; None for methods that do not know how."""
    config = next(run.config["method"] for run in comparison.runs if run.folder is row.folders[0])
    if "alpha" not in config:
        return None
    return bool(config.get("alpha")) or bool(config.get("lambda"))


def _list(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
