"""Say in words what the scores of an audit mean. The rule was fixed on generated latents (reproduce/audit_rule.py)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from sitar.analysis.audit.scores import Score
from sitar.analysis.latents import ordered

LEAST_SAMPLES = 20  # of each class among the held-out samples
LIFT = 0.4  # how far above chance, of what is possible, an axis alone must predict
GAP = 0.05  # how much more of it than the next axis, to be the only one

Kind = Literal["one", "several", "none", "unclear", "too few", "nothing encoded"]


@dataclass(frozen=True)
class Verdict:
    """A verdict is what an audit concludes. `axes` are those that stand out, the strongest first."""

    kind: Kind
    words: str
    axes: tuple[int, ...] = ()


def too_few(counts: Mapping[str, int]) -> Verdict | None:
    """Return a verdict where a class has too few held-out samples to say anything, else None."""
    name, count = min(counts.items(), key=lambda item: item[1])
    if count >= LEAST_SAMPLES:
        return None
    return Verdict(
        "too few",
        f"Too few samples to say: class {name!r} has {count} held out, and at least {LEAST_SAMPLES} of each class are "
        "needed. Bring more data, or hold out more of it.",
    )


def judge(accuracy: Score, num_classes: int, used: Sequence[int]) -> Verdict:
    """Judge whether an axis alone gives the label away, from the accuracies of single axes and their resamples.

    Only the axes that the VAE uses count. The decoded image does not depend on the others.
    """
    if not used:
        return _posterior_collapse(accuracy, num_classes)
    accuracy = Score(accuracy.value[list(used)], accuracy.draws[:, list(used)])
    chance = 1 / num_classes
    lift = above_chance(accuracy, num_classes)
    low, high = lift.interval()
    order = ordered(lift.value)
    top, best, bar = order[0], used[order[0]], chance + LIFT * (1 - chance)
    bounds = accuracy.interval()
    scored = f"{accuracy.value[top]:.2f} [{bounds[0, top]:.2f}, {bounds[1, top]:.2f}] (chance {chance:.2f})"
    if len(order) > 1:
        scored += f", the next axis with {accuracy.value[order[1]]:.2f}"
    if low[top] >= LIFT:
        if least_lead(lift) >= GAP:
            words = f"Axis {best} alone predicts the label with {scored}: one cheap cue stands out. Look at its "
            return Verdict("one", words + "traversal: is it what the label means?", (best,))
        axes = tuple(used[place] for place in order if low[place] >= LIFT)
        words = f"Axis {best} alone predicts the label with {scored}: a cheap cue is there, and more than one axis "
        return Verdict("several", words + "carries it. Look at their traversals: are they what the label means?", axes)
    if high[top] < LIFT:
        words = f"Nothing stands out: the best axis, {best}, predicts the label with {scored}; "
        return Verdict("none", words + f"a cue counts as cheap from {bar:.2f} on.")
    words = f"Unclear: axis {best} predicts the label with {scored}, and a cue counts as cheap from {bar:.2f} on, "
    return Verdict("unclear", words + "which lies within the range. More held-out samples would decide.", (best,))


def _posterior_collapse(accuracy: Score, num_classes: int) -> Verdict:
    """Judge a VAE that uses no axis. Nothing can be shown, but what an axis predicts is not kept back."""
    words = (
        "The VAE hardly uses its axes: their means are nearly the same for all samples. Train it longer "
        "(train.epochs), with fewer convolutions (model.channels=[16,32]), or with a lower method.beta."
    )
    best = ordered(accuracy.value)[0]
    if above_chance(accuracy, num_classes).value[best] >= LIFT:
        words += f" Axis {best} predicts the label with {accuracy.value[best]:.2f} all the same: this is no all-clear."
    return Verdict("nothing encoded", words)


def above_chance(accuracy: Score, num_classes: int) -> Score:
    """Return the accuracy as a share of the way from chance (0) to certainty (1)."""
    chance = 1 / num_classes
    return Score((accuracy.value - chance) / (1 - chance), (accuracy.draws - chance) / (1 - chance))


def least_lead(lift: Score) -> float:
    """Return the lower bound of how far the best axis is ahead of the next. A single axis is compared with chance."""
    order = ordered(lift.value)
    if len(order) == 1:
        return float(lift.interval()[0, 0])
    best, second = ([axis] for axis in order[:2])
    lead = Score(lift.value[best] - lift.value[second], lift.draws[:, best] - lift.draws[:, second])
    return float(lead.interval()[0, 0])
