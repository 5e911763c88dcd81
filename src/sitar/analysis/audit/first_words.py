"""Say in words what a first look has found, what this data cannot tell apart, and which question would decide it.

A cue that tells the label may be what the label means. So no sentence calls it a shortcut.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sitar.analysis.audit.cues import Cue, CueScore, bar, likely_class
from sitar.splits import TRAIN

MOST_NAMED = 5


def look_in_words(
    ranked: Sequence[tuple[Cue, CueScore]], num_classes: int, n: int, twins: Sequence[str]
) -> dict[str, str]:
    """Return the verdict of a first look: its kind, and words. `twins` are sentences that come first."""
    told = [(cue, score) for cue, score in ranked if score.strength == "tells"]
    told = [pair for pair in told if pair[0].kind != "component"] or told  # components are named if nothing else is
    sentences = [*twins]
    if not told:
        sentences.append(_nothing(ranked, num_classes))
        return {"kind": "cannot tell" if twins else "nothing", "words": " ".join(sentences)}
    cue, score = told[0]
    sentences.append(score_in_words(cue.name, score, num_classes))
    if others := [f"{other.name} ({percent(s.accuracy)} %)" for other, s in told[1:]]:
        more = f" and {len(others) - MOST_NAMED} more" if len(others) > MOST_NAMED else ""
        sentences.append(f"So do: {', '.join(others[:MOST_NAMED])}{more}. They may be one thing, seen in several ways.")
    if tied := [(other, s) for other, s in told if not s.apart]:
        other, s = tied[0]
        sentences.append(apart_in_words(other.name, sum(s.conflicts), n))
        if len(tied) > 1:
            sentences.append(f"The same holds for {len(tied) - 1} more of them.")
        return {"kind": "cannot tell", "words": " ".join(sentences)}
    has_pictures = any(cue.kind == "image" for cue, _ in ranked)
    sentences.append(f"Is this what the label means? Only you can say{': look at the pictures' * has_pictures}.")
    return {"kind": "cannot tell" if twins else "tells", "words": " ".join(sentences)}


def score_in_words(name: str, score: CueScore, num_classes: int) -> str:
    """Say how well a cue alone tells the label."""
    interval = f"[{percent(score.low)}, {percent(score.high)}]"
    return (
        f"{_capital(name)} tells the label: it alone gets {percent(score.accuracy)} % {interval} where "
        f"chance is {percent(1 / num_classes)} %."
    )


def apart_in_words(name: str, conflicts: int, n: int, split: str = TRAIN) -> str:
    """Say that label and cue cannot be told apart, by the samples of a split."""
    samples = "training samples" if split == TRAIN else f"samples of {split}"
    return f"Cannot tell label and {name} apart in this data: {conflicts:,} of {n:,} {samples} contradict."


def rare_in_words(counts: Mapping[str, int], least: int) -> str:
    """Say which classes were not looked at: most often such a class is a word in two spellings."""
    named = ", ".join(f"{name!r} ({count})" for name, count in list(counts.items())[:MOST_NAMED])
    more = f" and {len(counts) - MOST_NAMED} more" if len(counts) > MOST_NAMED else ""
    return f"Classes with fewer than {least} training samples are left out of this look: {named}{more}."


def twin_in_words(name: str, n: int, is_attribute: bool) -> str:
    """Say what a column means that follows the label one to one. Of an attribute we know that it is not the label."""
    other = (
        "" if is_attribute else " Either it is the label under another name, or this data does not say which is meant."
    )
    return f"{_capital(name)} follows the label one to one.{other} {apart_in_words(name, 0, n)}"


def twin_question(name: str, class_of: Mapping[str, str]) -> str:
    """Return the question that would tell label and column apart."""
    (first, label), (second, other), *_ = class_of.items()
    named = f"of class {label!r} with {name} = {second}, or of class {other!r} with {name} = {first}"
    return f"Ask for labels of images {named}: `sitar ask` shows images from where the model will be used."


def question(cue: Cue, y: NDArray[np.int64], classes: Sequence[str]) -> str:
    """Return the question that would tell label and cue apart."""
    if not cue.words:
        return (
            f"Ask for labels of images in which {cue.name} looks like that of another class. `sitar ask` finds such "
            "images where the model will be used."
        )
    likely = likely_class(cue.values, y, len(cue.words), len(classes))
    counts = {
        (i, c): int(((cue.values == i) & (y == c)).sum()) for i in range(len(cue.words)) for c in range(len(classes))
    }
    missing = sorted((count, i, c) for (i, c), count in counts.items() if likely[i] != c)[:2]
    named = " or ".join(f"of class {classes[c]!r} with {cue.name} = {cue.words[i]}" for _, i, c in missing)
    return f"Ask for labels of images {named}: `sitar ask` shows images from where the model will be used."


def percent(share: float) -> str:
    """Write a share in percent, without decimals. What is not 100 % is not called so."""
    rounded = round(100 * share)
    return str(rounded if share == 1 or rounded < 100 else 99)


def _capital(name: str) -> str:
    return name[:1].upper() + name[1:]


def _nothing(ranked: Sequence[tuple[Any, CueScore]], num_classes: int) -> str:
    needed = f"a cue is said to tell the label if it surely gets {percent(bar(num_classes))} % or more"
    if not ranked:
        return "There is no simple cue in this data: all samples are alike in what the first look measures."
    cue, score = ranked[0]
    chance = percent(1 / num_classes)
    if score.strength == "nothing":
        return f"No simple cue tells the label: none of {len(ranked)} is surely better than chance ({chance} %)."
    return (
        f"No simple cue tells the label well: the best of {len(ranked)}, {cue.name}, gets {percent(score.accuracy)} % "
        f"where chance is {chance} %, and {needed}."
    )
