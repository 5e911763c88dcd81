"""Where does the noise help, do nothing, cost? `python reproduce/map.py` makes the map of gains from its records.

The runs are in reproduce/records/planted.json (run.py, planted.yaml), and what could have told their outcome beforehand
in reproduce/records/map_measures.json (map_measures.py). The page is docs/results/map.md, the figure
docs/figures/map.svg. Rules are learned from one half of the settings and scored on the other half, and on the exchange
benchmark; reproduce/records/map_rules.json holds them. The quantities, the split and the learner were written before
the runs had ended.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

import numpy as np
import records
import when
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from planted_settings import KNOBS, NUMBERS_SIZE
from scipy.stats import spearmanr
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from sitar.files import write_atomic
from sitar.reporting.figures.style import BLUE, GREY, ORANGE, save

PAGE = records.page_path("map")
FIGURE = records.HERE.parent / "docs" / "figures" / "map.svg"
RULES = records.record_path("map_rules")
SITAR, BEST, CONTROL, ERM = "sitar (axis noise, the paper's)", "sitar_best", "control", "ERM"
METRICS = {"worst group": "worst_group", "core AUC": "core_auc"}
NOTHING = 1.0  # points: a smaller mean gain is none
BAND = 0.05  # of the difference of ease, as in ease.py
SPLIT_SEED = 5  # of the halves of the settings
OTHER_SPLITS = range(100, 150)  # seeds of splits beside the one that was fixed before
RESAMPLES = 2000

Gains = dict[str, list[float]]  # of each seed, by setting
Row = Mapping[str, float]


class Gain(NamedTuple):
    """A gain is the difference of two rows of the table, and of two rows of the exchange benchmark."""

    name: str
    row: str
    reference: str
    exchange: tuple[str, str] | None = None


GAINS = (
    Gain("sitar over control", SITAR, CONTROL, ("sitar, 32 axes", "control, 32 axes")),
    Gain("sitar over ERM", SITAR, ERM, ("sitar, 32 axes", "ERM")),
    Gain("sitar_best over control", BEST, CONTROL),
    Gain("sitar_best over ERM", BEST, ERM),
    Gain("control over ERM", CONTROL, ERM, ("control, 32 axes", "ERM")),
)
OTHERS = tuple(  # in planted_shortcuts alone
    Gain(f"{row} over {reference}", row, reference)
    for reference in (CONTROL, ERM)
    for row in ("JTT", "LfF", "AFR", "CVaR DRO", "Group DRO", "DFR")
)


class Rule(NamedTuple):
    """A rule predicts the sign of a gain from quantities. `given` says what a user must have to measure them."""

    name: str
    quantities: tuple[str, ...]
    given: str


LOOK = ("best cue", "best component", "lead of the best component")
LATENT = ("largest v", "second v", "ERM's val", "control's val")
RULE_SET = (
    Rule("ease, linear model", ("d",), "the attribute"),
    Rule("ease, network", ("D",), "the attribute"),
    Rule("both eases and conflicts", ("d", "D", "conflicts"), "the attribute"),
    Rule("first look", LOOK, "labels alone"),
    Rule("ERM and control, trained", LATENT, "labels alone"),
    Rule("first look, ERM and control", (*LOOK, *LATENT), "labels alone"),
)


def gains(record: Mapping[str, Any], row: str, reference: str, split: str) -> Gains:
    """Return a gain in points, for each seed that both rows have."""
    return when.gains(record, when.Gain("", "", row, reference), split)


def outcome(values: Sequence[float]) -> str:
    """Say what a method did: it helps or costs if the mean is a point or more, and every seed agrees."""
    sign = 1 if mean(values) > 0 else -1
    if abs(mean(values)) < NOTHING or any(sign * value <= 0 for value in values):
        return "nothing"
    return "helps" if sign > 0 else "costs"


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the 95 % bootstrap interval of a mean over settings."""
    random = np.random.default_rng(0)
    means = random.choice(np.asarray(values), (RESAMPLES, len(values))).mean(1)
    low, high = np.quantile(means, [0.025, 0.975])
    return float(low), float(high)


def wilson(right: int, n: int) -> tuple[float, float]:
    """Return the 95 % interval of a share."""
    z, share = 1.96, right / n
    middle, half = share + z * z / (2 * n), z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return (middle - half) / (1 + z * z / n), (middle + half) / (1 + z * z / n)


def of_look(look: Row) -> dict[str, float]:
    """Return the quantities of a first look."""
    lead = look["best component"] - look["second component"]
    return {"best cue": look["best cue"], "best component": look["best component"], LOOK[2]: lead}


def of_runs(runs: Iterable[Mapping[str, Any]], erm: str, control: str) -> dict[str, dict[str, float]]:
    """Return, for each column, what ERM and the control say without groups: accuracy on val, and scores of axes."""
    found: dict[str, dict[str, list[float]]] = {}
    for run in runs:
        if run["row"] not in (erm, control):
            continue
        values = found.setdefault(run["column"], {name: [] for name in LATENT})
        values["ERM's val" if run["row"] == erm else "control's val"].append(run["splits"]["val"]["average"])
        if run["row"] == control:
            first, second, *_ = sorted(run["shortcut_score"], reverse=True)
            values["largest v"].append(first)
            values["second v"].append(second)
    return {
        column: {name: mean(of) for name, of in values.items()}
        for column, values in found.items()
        if all(values.values())
    }


def planted_quantities(record: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """Return all that rules may read, for every setting of the table."""
    measures = json.loads(records.record_path("map_measures").read_text(encoding="utf-8"))["planted"]
    columns, trained = records.load_table("planted")["columns"], of_runs(record["runs"], ERM, CONTROL)
    found = {}
    for name in columns:
        if name in measures and name in trained:
            rho = float(next(w.partition("=")[2] for w in columns[name] if w.startswith("data.rho=")))
            ease = {
                key: measures[name][kind]["shortcut"] - measures[name][kind]["label"]
                for key, kind in (("d", "linear"), ("D", "network"))
            }
            found[name] = {**ease, "conflicts": 1 - rho, **of_look(measures[name]["first look"]), **trained[name]}
    return found


def exchange_quantities(record: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """Return the same of the exchange benchmark's tasks that are not for tuning. No sample conflicts in training."""
    looks = json.loads(records.record_path("map_measures").read_text(encoding="utf-8"))["exchange"]
    network, trained = when.network_ease(record), of_runs(record["runs"], "ERM", "control, 32 axes")
    found = {}
    for task in when.predictions():
        name = when.name_of(task)
        if not task["tuning"]:
            found[name] = {"d": task["difference"], "D": network[name] / 100, "conflicts": 0.0}
            found[name] |= of_look(looks[name]["first look"]) if name in looks else {}
            found[name] |= trained.get(name, {})
    return found


def signs(found: Gains) -> dict[str, int]:
    """Return the sign of every mean gain that is not nothing."""
    means = {name: mean(values) for name, values in found.items()}
    return {name: 1 if value > 0 else -1 for name, value in means.items() if abs(value) >= NOTHING}


def halves(names: Sequence[str], seed: int = SPLIT_SEED) -> tuple[list[str], list[str]]:
    """Split settings at random into those that rules learn from and those that score them."""
    order = np.random.default_rng(seed).permutation(len(names))
    middle = len(names) // 2
    return [names[i] for i in sorted(order[:middle])], [names[i] for i in sorted(order[middle:])]


Predict = Callable[[Row], int]


def learn(rule: Rule, rows: Mapping[str, Row], sign: Mapping[str, int]) -> tuple[Predict, dict[str, Any]]:
    """Fit a logistic regression of the sign. Return it, and its coefficients per unit of each quantity."""
    names = [name for name in rows if name in sign]
    x = np.array([[rows[name][key] for key in rule.quantities] for name in names])
    y = np.array([sign[name] for name in names])
    if len(set(y)) == 1:
        return lambda row: int(y[0]), {"intercept": float(y[0]), "coefficients": dict.fromkeys(rule.quantities, 0.0)}
    model = make_pipeline(StandardScaler(), LogisticRegression()).fit(x, y)
    scaler, head = model[0], model[1]
    weights = head.coef_[0] / scaler.scale_
    start = float(head.intercept_[0] - weights @ scaler.mean_)
    told = {"intercept": start, "coefficients": dict(zip(rule.quantities, weights.tolist(), strict=True))}
    return lambda row: 1 if start + sum(w * row[k] for k, w in told["coefficients"].items()) > 0 else -1, told


def score(predict: Predict, rows: Mapping[str, Row], sign: Mapping[str, int], needs: Sequence[str]) -> dict[str, Any]:
    """Count the signs that a rule predicts right."""
    said = [
        predict(rows[name]) == sign[name] for name in rows if name in sign and all(key in rows[name] for key in needs)
    ]
    if not said:
        return {"n": 0, "right": 0}
    low, high = wilson(sum(said), len(said))
    return {"n": len(said), "right": sum(said), "low": round(low, 3), "high": round(high, 3)}


def scored_rules() -> list[dict[str, Any]]:
    """Learn every rule for every gain and metric, and score it on the other half and on the exchange benchmark."""
    planted, exchange = records.load_record("planted"), records.load_record("exchange")
    rows, tasks = planted_quantities(planted), exchange_quantities(exchange)
    learned, held = halves(list(rows))
    found = []
    for label, metric in METRICS.items():
        for gain in GAINS:
            sign = signs(gains(planted, gain.row, gain.reference, f"ood_test.{metric}"))
            there = signs(gains(exchange, *gain.exchange, f"test.{metric}")) if gain.exchange else {}
            usual = [sign[name] for name in learned if name in sign]
            always = 1 if sum(usual) > 0 else -1
            for rule in (Rule("always the more frequent sign", (), "nothing"), *RULE_SET):
                seen = {name: rows[name] for name in learned}
                predict, told = (
                    learn(rule, seen, sign) if rule.quantities else (lambda row, s=always: s, {"sign": always})
                )
                scores = score(predict, {name: rows[name] for name in held}, sign, ())
                entry = {"metric": label, "gain": gain.name, "rule": rule.name, "given": rule.given, **told}
                entry |= {"scored": scores}
                if gain.exchange:
                    entry["exchange"] = score(predict, tasks, there, rule.quantities)
                found.append(entry)
    return found


def other_splits() -> dict[str, dict[str, float]]:
    """Return the mean share of right signs in worst group over other splits, for every gain and rule.

    `usual` is that of always saying the more frequent sign.
    """
    record = records.load_record("planted")
    rows = planted_quantities(record)
    found: dict[str, dict[str, float]] = {}
    for gain in GAINS:
        sign = signs(gains(record, gain.row, gain.reference, "ood_test.worst_group"))
        shares: dict[str, list[float]] = {}
        for seed in OTHER_SPLITS:
            learned, held = ({name: rows[name] for name in half} for half in halves(list(rows), seed))
            always = 1 if sum(sign[name] for name in learned if name in sign) > 0 else -1
            predictions = {"usual": lambda row, s=always: s} | {r.name: learn(r, learned, sign)[0] for r in RULE_SET}
            for name, predict in predictions.items():
                scores = score(predict, held, sign, ())
                shares.setdefault(name, []).append(scores["right"] / scores["n"])
        found[gain.name] = {name: mean(values) for name, values in shares.items()}
    return found


def write_rules(rules: list[dict[str, Any]], others: Mapping[str, Mapping[str, float]]) -> None:
    shares = [{"gain": gain, "rule": rule, "share": share} for gain, of in others.items() for rule, share in of.items()]
    parts = []
    for name, lines in (("rules", rules), ("other splits", shares)):
        short = json.loads(json.dumps(lines), parse_float=lambda text: round(float(text), 4))
        parts.append(f'  "{name}": [\n' + ",\n".join(f"    {json.dumps(line)}" for line in short) + "\n  ]")
    write_atomic(RULES, ("{\n" + ",\n".join(parts) + "\n}\n").encode())


def recorded_rules() -> tuple[list[dict[str, Any]], dict[str, dict[str, float]]]:
    """Read the rules with their scores, and the shares over other splits by gain and rule."""
    record = json.loads(RULES.read_text(encoding="utf-8"))
    shares: dict[str, dict[str, float]] = {}
    for line in record["other splits"]:
        shares.setdefault(line["gain"], {})[line["rule"]] = line["share"]
    return record["rules"], shares


TEXT = """\
# The map: where the noise helps, does nothing, costs

[Planted features](../data.md#planted-features) have knobs: how strong, how bent, how spread and how large the core and
the [shortcut](../glossary.md#shortcut) are, how they are mixed, how many labels are wrong, how often the shortcut
follows the label (rho), how many features and samples there are. We drew {settings} settings of all knobs at once, by a
rule that fills the space evenly, and committed them before any run (`reproduce/planted.yaml`). `sitar` has the axis
noise and the strength of the paper. `sitar_best` has what a rule chose on other settings: gentle direction noise. Each
method ran on each setting with {seeds} seeds. The test data has all groups, and label and shortcut are independent in
it.

The map has ERM, the control and these two noises, and no other method. The settings of another method would have to be
chosen for these data first, as those of `sitar_best` were. Without that, its losses would say little of the method. Six
other methods are in [one small table](#by-the-number-of-shortcuts), with their default settings.

A gain is the difference to the [control](../glossary.md#control), or to ERM, of the same seed, in points. A head that
knows nothing has half of every [worst group](../glossary.md#worst-group) right, so a gain in worst group may be
forgetting. A gain in [core AUC](../glossary.md#core-auc) is not. A method *helps* or *costs* on a setting if its mean
gain is a point or more and all seeds agree. Else it does *nothing* that can be told.

`python reproduce/map.py` makes this page from the records `planted`, `planted_longer`, `planted_shortcuts`,
`map_measures`, `exchange` and `ease`.
[All cells](planted.md) are on a page of their own.
"""
LEGEND = """\
A blue dot is a setting, and the line through it goes from its lowest seed to its highest. An orange diamond is a task
of the [exchange benchmark](exchange.md), with 32 axes. A horizontal line is the mean over the settings of its part, and
the area around it the interval of this mean. In the grey band label and shortcut are about as easy.
"""
EASE = """\
Here settings are sorted by d, the [ease](../glossary.md#ease) of the shortcut minus the ease of the label, measured as
in [when does the noise help?](when.md): by a linear model, on other data of all groups. "About as easy" is d within
± 0.05. A cell is the mean gain, with a bootstrap interval over the settings (95 %).
"""
RHO = """\
At rho = 0.5 there is no shortcut, and every loss is a price for nothing. At rho = 1 no
training sample contradicts the shortcut.
"""
LONGER_TEXT = """\
## Are the runs too short?

Networks are small (16 axes, 64 hidden units), and runs have about 250 steps. So the first 16 settings were also run
with four times the steps, with one seed ([cells](planted_longer.md)). *Same sign* counts the settings whose gain is a
point or more in both. Other networks and other data may behave in another way.
"""
KNOBS_TEXT = """\
## By knob

Spearman's rank correlation of each knob with the gain, over all settings. In bold are those that chance would exceed in
one of twenty cases, so about one in twenty cells is bold by luck.
"""
NUMBERS_TEXT = """\
## By the number of shortcuts

All settings above have one shortcut. So {settings} other settings, of the same draw with another seed, were run with 1,
2 and 4 shortcuts and {seeds} seeds ([cells](planted_shortcuts.md)). They were committed before any run, and so was what
is read of them. Each shortcut is as strong as a single one, so several tell more together. Each follows the label by
its own draw, so a sample may agree with some and contradict others. A group is a label and the signs of all shortcuts.
With more shortcuts the worst group is the lowest of more groups, and fewer training samples are like it.

A cell is the mean over the settings, with a bootstrap interval over them (95 %) where it is a difference. The last two
columns are the differences to the same settings with one shortcut. The settings are few, so such intervals are too
narrow. The methods from JTT to DFR have their default settings, and Group DRO and DFR are told groups. LfF and AFR give
weight to samples that a first model gets wrong, and here many of these have wrong labels. On the setting with the
fewest wrong labels (5) both know the core nearly as ERM does.
"""
VERDICTS_TEXT = """\
## By what the audit says

What `sitar audit --first` says of the training samples of each setting if it is not given the attribute, and what then
happened in worst group. "Cannot tell" occurs on no setting: no single feature follows the label that closely. A cell
counts the settings on which a method *helps / does nothing / costs*. The [audit](../audit.md) prints the first two
lines as its advice.
"""
RULES_TEXT = """\
## Can it be told beforehand?

A rule predicts the sign of a gain, where the gain is a point or more. It is a logistic regression of a few quantities.
It learns from a random half of the settings, and is scored on the other half. Quantities, split and learner were fixed
before the runs had ended. *Given* says what a user must have: the attribute of some samples of all groups, or labels
alone. A cell is the number of right signs, of all that were said, with the interval of the share in percent. A cell is
bold if its whole interval lies above the share of the rule that always says the more frequent sign, and above a coin.
(The coin was added after a look at first counts. It can only take the bold away.)

- *Ease, linear model*: d. *Ease, network*: D, the same with the core AUC of ERM where groups have one size. This is the
  [second rule](when.md#a-second-rule-written-after-the-runs) of the exchange benchmark. It was found in the results of
  that benchmark, so this is its first test on other data.
- *Conflicts*: the share of training samples that contradict the shortcut.
- *First look*: the accuracies of the best cue and of the best principal component alone, and the lead of the latter
  over the next, as `sitar audit --first` measures them.
- *ERM and control, trained*: their accuracies on `val`, and the two largest [scores](../glossary.md#shortcut-score) v.

*Exchange* scores the same rule, without learning anew, on the tasks of the [exchange benchmark](exchange.md) that are
not for tuning. There the two roles of a pair have the same training images in the same two piles. So a rule that is
given labels alone says the same for both roles. Where the gains have opposite signs, it is right on one of the two.
"""


SPLITS_TEXT = """\
### Other splits

Which half a rule learns from is chance too. Here is the mean share of right signs in worst group, in percent, over 50
other random splits of the same settings. We looked at them after the scores above. They are no independent test, but
they show which of these scores were luck.
"""


def _signed(values: Sequence[float]) -> str:
    low, high = interval(values)
    return f"{mean(values):+.1f} [{low:+.1f}, {high:+.1f}]"


def _in_short(record: Mapping[str, Any], bins: Mapping[str, Sequence[str]], shares: Mapping[str, float]) -> list[str]:
    """Say in a few sentences what the map shows, losses as plainly as gains."""
    gain, lines = GAINS[0], ["## In short", ""]
    for label, metric in METRICS.items():
        words = [outcome(v) for v in gains(record, gain.row, gain.reference, f"ood_test.{metric}").values()]
        helps, nothing, costs = (words.count(word) for word in ("helps", "nothing", "costs"))
        lines.append(
            f"- Of {len(words)} settings, the noise of the paper helps on {helps}, does nothing on {nothing} and costs "
            f"on {costs}, in {label} over the control."
        )
    found = gains(record, gain.row, gain.reference, "ood_test.worst_group")
    for name, members in bins.items():
        values = [mean(found[member]) for member in members]
        low, high = interval(values)
        words = "it gains" if low > 0 else "it costs" if high < 0 else "it cannot be told from nothing"
        lines.append(f"- {name}: {words}, {_signed(values)} points of worst group over the control.")
    for given in ("the attribute", "labels alone"):
        rules = [rule for rule in RULE_SET if rule.given == given]
        best = max(rules, key=lambda rule: shares[rule.name])
        lines.append(
            f"- Given {given}, the best rule (*{best.name}*) says the sign right in {100 * shares[best.name]:.0f} % of "
            f"other settings; always the more frequent sign is right in {100 * shares['usual']:.0f} %."
        )
    return [*lines, ""]


def _by_bin(record: Mapping[str, Any], bins: Mapping[str, Sequence[str]]) -> list[str]:
    """Write the mean gain of every method for each bin of settings."""
    lines = []
    for label, metric in METRICS.items():
        heads = [f"{name} ({len(members)})" for name, members in bins.items()]
        lines += [f"| gain in {label} | {' | '.join(heads)} |", "|---|" + "---|" * len(heads)]
        for gain in GAINS:
            found = gains(record, gain.row, gain.reference, f"ood_test.{metric}")
            cells = [_signed([mean(found[name]) for name in members if name in found]) for members in bins.values()]
            lines.append(f"| {gain.name} | {' | '.join(cells)} |")
        lines.append("")
    return lines


def _outcomes(record: Mapping[str, Any]) -> list[str]:
    """Count the settings on which each method helps, does nothing, costs."""
    heads = [f"{label}: {word}" for label in METRICS for word in ("helps", "nothing", "costs")]
    lines = [f"| | {' | '.join(heads)} |", "|---|" + "---|" * len(heads)]
    for gain in GAINS:
        cells = []
        for metric in METRICS.values():
            words = [outcome(v) for v in gains(record, gain.row, gain.reference, f"ood_test.{metric}").values()]
            cells += [str(words.count(word)) for word in ("helps", "nothing", "costs")]
        lines.append(f"| {gain.name} | {' | '.join(cells)} |")
    return lines


def _knobs(record: Mapping[str, Any]) -> list[str]:
    """Write how the gain goes with each knob."""
    columns = records.load_table("planted")["columns"]
    knobs = {name: dict(word.removeprefix("data.").split("=") for word in words) for name, words in columns.items()}
    shown = [(gain, label) for label in METRICS for gain in GAINS[:3]]
    lines = [
        f"| knob | {' | '.join(f'{gain.name}, {label}' for gain, label in shown)} |",
        "|---|" + "---|" * len(shown),
    ]
    for knob in KNOBS:
        cells = []
        for gain, label in shown:
            found = gains(record, gain.row, gain.reference, f"ood_test.{METRICS[label]}")
            test = spearmanr([float(knobs[name][knob]) for name in found], [mean(v) for v in found.values()])
            cells.append(f"**{test.statistic:+.2f}**" if test.pvalue < 0.05 else f"{test.statistic:+.2f}")
        lines.append(f"| `{knob}` | {' | '.join(cells)} |")
    return [*lines, ""]


def _longer(record: Mapping[str, Any]) -> list[str]:
    """Compare the gains of the noise with those of runs with four times the steps, on the settings that have both."""
    table, longer = records.load_table("planted_longer"), records.load_record("planted_longer")
    runs = [run for run in record["runs"] if run["seed"] in table["seeds"] and run["column"] in table["columns"]]
    lines = [
        "| gain of sitar over control, one seed | about 250 steps | 1,000 steps | same sign |",
        "|---|---|---|---|",
    ]
    for label, metric in METRICS.items():
        split = f"ood_test.{metric}"
        few = {name: v[0] for name, v in gains({"runs": runs}, SITAR, CONTROL, split).items()}
        many = {name: v[0] for name, v in gains(longer, "sitar, 1,000 steps", "control, 1,000 steps", split).items()}
        large = [name for name in many if min(abs(few[name]), abs(many[name])) >= NOTHING]
        same = sum(few[name] * many[name] > 0 for name in large)
        cells = [_signed([values[name] for name in many]) for values in (few, many)]
        lines.append(f"| {label} | {' | '.join(cells)} | {same} of {len(large)} |")
    return [*lines, ""]


def by_number(found: Mapping[str, Sequence[float]]) -> dict[str, dict[str, float]]:
    """Return the mean of each setting, by the number of shortcuts, of columns such as `setting 0, 2 shortcuts`."""
    of: dict[str, dict[str, float]] = {}
    for column, values in found.items():
        setting, _, number = column.partition(", ")
        of.setdefault(number, {})[setting] = mean(values)
    return of


def against_one(of: Mapping[str, Mapping[str, float]]) -> dict[str, list[float]]:
    """Return the differences of several shortcuts to one, setting by setting."""
    one, *more = of
    return {number: [of[number][name] - of[one][name] for name in of[one]] for number in more}


def _numbers() -> list[str]:
    """Say what the number of shortcuts changes, in sentences and in numbers."""
    table, record = records.load_table("planted_shortcuts"), records.load_record("planted_shortcuts")
    said: dict[str, str] = {name: f"- {name}:" for name in (ERM, CONTROL, *(gain.name for gain in GAINS[:4]))}
    lines = []
    for label, metric in METRICS.items():
        split = f"ood_test.{metric}"
        levels = {row: by_number(_cells(record, row, split)) for row in table["rows"]}
        changes = {gain.name: by_number(gains(record, gain.row, gain.reference, split)) for gain in (*GAINS, *OTHERS)}
        one, *more = levels[ERM]
        heads = [one, *more, *(f"{number}, less {one}" for number in more)]
        lines += [f"| {label} | {' | '.join(heads)} |", "|---|" + "---|" * len(heads)]
        for rows, word in ((levels, lambda values: f"{mean(values):.1f}"), (changes, _signed)):
            for name, of in rows.items():
                cells = [word(list(values.values())) for values in of.values()]
                cells += [_signed(values) for values in against_one(of).values()]
                lines.append(f"| {name} | {' | '.join(cells)} |")
        lines.append("")
        for name in said:
            of, sign = (levels[name], "") if name in levels else (changes[name], "+")
            start, end = (f"{mean(of[number].values()):{sign}.1f}" for number in (one, more[-1]))
            low, high = interval(change := against_one(of)[more[-1]])
            words = "It grows" if low > 0 else "It falls" if high < 0 else "Whether it grows cannot be told"
            said[name] += f" {start} in {label} with {one}, and {end} with {more[-1]}. {words}: {_signed(change)}."
    text = NUMBERS_TEXT.format(settings=NUMBERS_SIZE, seeds=len(table["seeds"]))
    return [text, *said.values(), "", *lines]


def _cells(record: Mapping[str, Any], row: str, split: str) -> Gains:
    """Return what a row has in each column, for each seed."""
    found: Gains = {}
    for run in record["runs"]:
        if run["row"] == row:
            found.setdefault(run["column"], []).append(records.value_of(run, split))
    return found


VERDICTS = {"tells": "a cue tells the label", "nothing": "no cue tells the label"}


def by_verdict(record: Mapping[str, Any], gain: Gain) -> dict[str, tuple[int, int, int]]:
    """Count on how many settings a method helps, does nothing and costs in worst group, for each verdict of the audit.

    `sitar audit` says these numbers (analysis/audit/advice.py).
    """
    measures = json.loads(records.record_path("map_measures").read_text(encoding="utf-8"))["planted"]
    found = gains(record, gain.row, gain.reference, "ood_test.worst_group")
    words = {kind: [outcome(v) for name, v in found.items() if measures[name]["verdict"] == kind] for kind in VERDICTS}
    return {kind: (of.count("helps"), of.count("nothing"), of.count("costs")) for kind, of in words.items()}


def _verdicts(record: Mapping[str, Any]) -> list[str]:
    lines = [f"| | {' | '.join(VERDICTS.values())} |", "|---|" + "---|" * len(VERDICTS)]
    for gain in GAINS:
        counts = by_verdict(record, gain)
        lines.append(f"| {gain.name} | {' | '.join(' / '.join(map(str, counts[kind])) for kind in VERDICTS)} |")
    return [*lines, ""]


def beats_chance(rule: Mapping[str, Any], rules: Sequence[Mapping[str, Any]], where: str = "scored") -> bool:
    """Return whether the interval of a rule lies above the share of the rule that reads nothing, and above a coin."""
    plain = next(r for r in rules if not r.get("coefficients") and _same(r, rule) and r["given"] == "nothing")
    scores, base = rule.get(where, {}), plain.get(where, {})
    return bool(scores.get("n") and base.get("n")) and scores["low"] > max(0.5, base["right"] / base["n"])


def _same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return (one["metric"], one["gain"]) == (other["metric"], other["gain"])


def _counted(rule: Mapping[str, Any], rules: Sequence[Mapping[str, Any]], where: str) -> str:
    scores = rule.get(where)
    if not scores or not scores["n"]:
        return "–"
    text = f"{scores['right']} of {scores['n']} [{100 * scores['low']:.0f}, {100 * scores['high']:.0f}]"
    return f"**{text}**" if beats_chance(rule, rules, where) else text


def _rules(rules: Sequence[Mapping[str, Any]]) -> list[str]:
    lines = []
    shown = [gain for gain in GAINS if gain.exchange] + [gain for gain in GAINS if not gain.exchange]
    for label in METRICS:
        heads = [part for gain in shown for part in ([gain.name] + (["exchange"] if gain.exchange else []))]
        lines += [f"### {label}", "", f"| rule | given | {' | '.join(heads)} |", "|---|---|" + "---|" * len(heads)]
        for name in dict.fromkeys(rule["rule"] for rule in rules):
            of = {rule["gain"]: rule for rule in rules if rule["rule"] == name and rule["metric"] == label}
            cells = []
            for gain in shown:
                cells.append(_counted(of[gain.name], rules, "scored"))
                if gain.exchange:
                    cells.append(_counted(of[gain.name], rules, "exchange"))
            lines.append(f"| {name} | {of[shown[0].name]['given']} | {' | '.join(cells)} |")
        lines.append("")
    return lines


def _said(rules: Sequence[Mapping[str, Any]]) -> list[str]:
    """Say plainly which rules hold, and which fail."""
    of_rules = [rule for rule in rules if rule.get("coefficients")]
    cells = sum(bool(rule.get(where, {}).get("n")) for rule in of_rules for where in ("scored", "exchange"))
    bold = sum(beats_chance(rule, rules, where) for rule in of_rules for where in ("scored", "exchange"))
    luck = f"{cells / 40:.0f}"  # an interval of 95 % lies too high by luck in one of 40
    lines = [
        f"{bold} of {cells} cells are bold. Rules that know nothing would have about {luck} by luck. Gain by gain:",
        "",
    ]
    for gain in GAINS:
        for label in METRICS:
            of = [rule for rule in of_rules if (rule["gain"], rule["metric"]) == (gain.name, label)]
            words = f"- {gain.name}, {label}: {_better(of, rules, 'scored')}."
            lines.append(words + (f" Exchange: {_better(of, rules, 'exchange')}." if gain.exchange else ""))
    return lines


def _second_rule(rules: Sequence[Mapping[str, Any]]) -> list[str]:
    """Say whether the second rule of when.py, that the control gains over ERM where D > 0, has the same sign here."""
    wanted = ("ease, network", "control over ERM", "worst group")
    rule = next(rule for rule in rules if (rule["rule"], rule["gain"], rule["metric"]) == wanted)
    same = rule["coefficients"]["D"] > 0
    words = "the same sign" if same else "the opposite sign, so the second rule does not carry over to this data"
    return [f"The second rule says that the control gains over ERM where D > 0. The rule learned here has {words}.", ""]


def _other_splits(shares: Mapping[str, Mapping[str, float]]) -> list[str]:
    lines = [f"| rule | given | {' | '.join(shares)} |", "|---|---|" + "---|" * len(shares)]
    for name, given in (("usual", "nothing"), *((rule.name, rule.given) for rule in RULE_SET)):
        label = "always the more frequent sign" if name == "usual" else name
        lines.append(f"| {label} | {given} | {' | '.join(f'{100 * of[name]:.0f}' for of in shares.values())} |")
    return lines


def _better(of: Sequence[Mapping[str, Any]], rules: Sequence[Mapping[str, Any]], where: str) -> str:
    names = [rule["rule"] for rule in of if beats_chance(rule, rules, where)]
    return f"*{'*, *'.join(names)}*" if names else "no rule is better than the more frequent sign"


def render() -> str:
    """Write the page, from the records alone."""
    record, (rules, shares) = records.load_record("planted"), recorded_rules()
    rows, columns = planted_quantities(record), records.load_table("planted")["columns"]
    ease = {
        "label easier": [name for name in rows if rows[name]["d"] < -BAND],
        "about as easy": [name for name in rows if abs(rows[name]["d"]) <= BAND],
        "shortcut easier": [name for name in rows if rows[name]["d"] > BAND],
    }
    rhos = {name: round(1 - rows[name]["conflicts"], 3) for name in rows}
    severity = {
        "rho 0.5": [name for name in rows if rhos[name] == 0.5],
        "rho 0.7 to 0.9": [name for name in rows if 0.5 < rhos[name] <= 0.9],
        "rho 0.95, 0.98": [name for name in rows if 0.9 < rhos[name] < 1],
        "rho 1": [name for name in rows if rhos[name] == 1],
    }
    seeds = len(records.load_table("planted")["seeds"])
    short = {
        "Where there is no shortcut (rho = 0.5)": severity["rho 0.5"],
        "Where the label is the easier cue": ease["label easier"],
        "Where the shortcut is the easier cue": ease["shortcut easier"],
    }
    return "\n".join(
        [
            TEXT.format(settings=len(columns), seeds=seeds),
            "![Gains against the difference of ease](../figures/map.svg)",
            "",
            LEGEND,
            *_in_short(record, short, shares[GAINS[0].name]),
            "## On how many settings",
            "",
            *_outcomes(record),
            "",
            "## By ease",
            "",
            EASE,
            *_by_bin(record, ease),
            "## By severity",
            "",
            RHO,
            *_by_bin(record, severity),
            KNOBS_TEXT,
            *_knobs(record),
            LONGER_TEXT,
            *_longer(record),
            *_numbers(),
            VERDICTS_TEXT,
            *_verdicts(record),
            RULES_TEXT,
            *_said(rules),
            "",
            *_second_rule(rules),
            *_rules(rules),
            SPLITS_TEXT,
            *_other_splits(shares),
        ]
    ).rstrip() + "\n"  # fmt: skip


def draw() -> Figure:
    """Draw the gains of SITAR and of the control against the difference of ease, beside those of the exchange tasks."""
    record, exchange = records.load_record("planted"), records.load_record("exchange")
    rows = planted_quantities(record)
    there = {when.name_of(task): task["difference"] for task in when.predictions()}
    shown = (GAINS[0], GAINS[1], GAINS[2], GAINS[4])
    figure = Figure(figsize=(13.5, 6.6), layout="constrained")
    plots = figure.subplots(2, len(shown), sharex=True, sharey="row")
    for place, (line, (label, metric)) in enumerate(zip(plots, METRICS.items(), strict=True)):
        for plot, gain in zip(line, shown, strict=True):
            found = gains(record, gain.row, gain.reference, f"ood_test.{metric}")
            plot.axhline(0, color=GREY, linewidth=1)
            plot.axvspan(-BAND, BAND, color=GREY, alpha=0.12, linewidth=0)
            for name, values in found.items():
                if name in rows:
                    d = rows[name]["d"]
                    plot.plot([d, d], [min(values), max(values)], color=BLUE, linewidth=1, alpha=0.35)
                    plot.plot(d, mean(values), "o", color=BLUE, markersize=4, alpha=0.8, linewidth=0)
            if gain.exchange:
                tasks = gains(exchange, *gain.exchange, f"test.{metric}")
                plot.plot([there[n] for n in tasks], [mean(v) for v in tasks.values()], "D", color=ORANGE, markersize=4)
            for low, high in ((-0.5, -BAND), (-BAND, BAND), (BAND, 0.5)):
                inside = [mean(v) for n, v in found.items() if n in rows and low <= rows[n]["d"] <= high]
                if inside:
                    ends = interval(inside)
                    plot.fill_between([low, high], *ends, color=BLUE, alpha=0.2, linewidth=0)
                    plot.plot([low, high], [mean(inside)] * 2, color=BLUE, linewidth=1.5)
            plot.spines[["top", "right"]].set_visible(False)
            if place == 0:
                plot.set_title(gain.name, fontsize=11)
            else:
                plot.set_xlabel("ease of shortcut - ease of label")
        line[0].set_ylabel(f"gain in {label}, points")
    dots = [Line2D([], [], marker=mark, color=color, linewidth=0) for mark, color in (("o", BLUE), ("D", ORANGE))]
    plots[0, 0].legend(dots, ["a planted setting", "a task of the exchange benchmark"], fontsize=8, frameon=False)
    return figure


def save_figure(path: Path = FIGURE) -> None:
    save(draw(), path)
    print(f"Wrote {path}")


def main() -> None:
    write_rules(scored_rules(), other_splits())
    save_figure()
    write_atomic(PAGE, render().encode())
    print(f"Wrote {PAGE}")


if __name__ == "__main__":
    main()
