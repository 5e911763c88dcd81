"""Look at data for seconds, before any model is trained: how well does each simple cue alone tell the label?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sitar.analysis.audit.columns import written_down
from sitar.analysis.audit.cues import LEAST_CONFLICTS, LEVEL, TELLS, Cue, CueScore, bar, direction, score_cues
from sitar.analysis.audit.first_words import (
    apart_in_words,
    look_in_words,
    question,
    rare_in_words,
    score_in_words,
    twin_in_words,
    twin_question,
)
from sitar.analysis.audit.verdict import LEAST_SAMPLES
from sitar.analysis.samples import subset
from sitar.analysis.thumbnails import thumbnails
from sitar.config import NamedConfig
from sitar.data.image_properties import feature_properties, image_properties
from sitar.data.types import Data, class_counts
from sitar.wording import counted

MOST_SAMPLES = 10_000  # training samples that are looked at, drawn at random where there are more
MOST_SHOWN = 6  # cues with pictures
ENDS = 6  # images at each end of a cue
SHOWN_CLASSES = 6

FirstLook = dict[str, Any]
Arrays = dict[str, np.ndarray]


def first_look(config: NamedConfig, data: Data, features: Sequence[str] = ()) -> tuple[FirstLook, Arrays]:
    """Score every simple cue of the training samples. Return plain values, and pictures as uint8 arrays by name.

    `features` are the names of the features, where they have some.
    """
    train, classes = data.train, data.classes
    index = subset(len(train), MOST_SAMPLES)
    y, of = train.y[index].cpu().numpy(), len(train)
    counts = dict(zip(classes, np.bincount(y, minlength=len(classes)).tolist(), strict=True))
    rare = {name: count for name, count in counts.items() if count < LEAST_SAMPLES}
    if rare and len(counts) - len(rare) >= 2:  # the others have an answer
        kept = [c for c, name in enumerate(classes) if name not in rare]
        rows, of = np.isin(y, kept), sum(class_counts(train.y, len(classes))[c] for c in kept)
        index, y = index[torch.from_numpy(rows)], np.searchsorted(kept, y[rows])
        classes = tuple(classes[c] for c in kept)
        counts = {name: counts[name] for name in classes}
    x = train.x[index]
    look: FirstLook = {
        "n": len(y),
        "of": of,
        "classes": counts,
        "chance": 1 / len(classes),
        "rule": {"tells": TELLS, "level": LEVEL, "bar": bar(len(classes)), "least_conflicts": LEAST_CONFLICTS},
        "cues": [],
        "same_as_label": [],
        "left_out": {},
        "pictures": [],
    }
    name, fewest = min(counts.items(), key=lambda item: item[1])
    if fewest < LEAST_SAMPLES:
        words = (
            f"Too few samples for a first look: class {name!r} has {counted(fewest, 'training sample')}, and at least "
        )
        look["verdict"] = {"kind": "too few", "words": f"{words}{LEAST_SAMPLES} of each class are needed."}
        return look, {}
    columns = written_down(config, data, index.numpy())
    cues = [*columns.cues, *_measured(x, features)]  # of those that tell the same, the first is named first
    scores = score_cues(cues, y, len(classes))
    order = sorted(range(len(cues)), key=lambda i: (-round(scores[i].accuracy, 2), cues[i].kind == "component"))
    ranked = [(cues[i], scores[i]) for i in order]
    look["cues"] = [_entry(cue, score, y, classes) for cue, score in ranked]
    look["same_as_label"] = [
        {
            "name": name,
            "words": twin_in_words(name, len(y), name in data.attributes),
            "question": twin_question(name, class_of),
        }
        for name, class_of in columns.twins.items()
    ]
    look["left_out"] = columns.left_out
    look["verdict"] = look_in_words(ranked, len(classes), len(y), [twin["words"] for twin in look["same_as_label"]])
    if rare:
        look["verdict"]["words"] += f" {rare_in_words(rare, LEAST_SAMPLES)}"
    arrays: Arrays = {}
    if x.ndim == 4:
        telling = [cue for cue, score in ranked if score.strength == "tells"]
        telling.sort(key=lambda cue: cue.kind == "component")  # these come last: the others have a meaning
        for place, cue in enumerate(telling[:MOST_SHOWN]):
            picture, images = _pictures(cue, x, y, classes)
            look["pictures"].append({"array": f"cue{place}/extremes", **picture})
            arrays[f"cue{place}/extremes"] = images
    return look, arrays


def _measured(x: Tensor, names: Sequence[str]) -> list[Cue]:
    """Return the cues that the inputs themselves hold. What is the same for all samples is none."""
    measured, kind = (image_properties(x), "image") if x.ndim == 4 else (feature_properties(x, names), "feature")
    return [
        Cue(name, "component" if name.startswith("principal") else kind, values)
        for name, values in measured.items()
        if float(np.ptp(values, axis=0).max()) > 1e-9
    ]


def _entry(cue: Cue, score: CueScore, y: NDArray[np.int64], classes: Sequence[str]) -> dict[str, Any]:
    """Return what is found of a cue, as plain values."""
    told = score.strength == "tells"
    return {
        "name": cue.name,
        "kind": cue.kind,
        "accuracy": score.accuracy,
        "interval": [score.low, score.high],
        "strength": score.strength,
        "conflicts": dict(zip(classes, score.conflicts, strict=True)),
        "apart": score.apart,
        "words": score_in_words(cue.name, score, len(classes)) if told else None,
        "cannot_tell": apart_in_words(cue.name, sum(score.conflicts), len(y)) if told and not score.apart else None,
        "question": question(cue, y, classes) if told and not score.apart else None,
        "counts": _cross_table(cue, y, classes),
    }


def _cross_table(cue: Cue, y: NDArray[np.int64], classes: Sequence[str]) -> dict[str, dict[str, int]] | None:
    """Count the samples of each class by the word that a cue has for them."""
    if not cue.words:
        return None
    rows = (np.bincount(y[cue.values == i], minlength=len(classes)).tolist() for i in range(len(cue.words)))
    return {word: dict(zip(classes, row, strict=True)) for word, row in zip(cue.words, rows, strict=True)}


def _pictures(cue: Cue, x: Tensor, y: NDArray[np.int64], classes: Sequence[str]) -> tuple[dict[str, Any], np.ndarray]:
    """Return the images (class, end, image, channel, height, width) at both ends of a cue, and how many there are.

    Of words, the ends are the two that differ most in their classes. Where there are fewer images, black ones follow.
    """
    shown = np.argsort(-np.bincount(y, minlength=len(classes)), kind="stable")[:SHOWN_CLASSES]
    shown = sorted(shown.tolist())
    if cue.words:
        share = np.array([(y[cue.values == i] == shown[-1]).mean() for i in range(len(cue.words))])
        low, high = int(share.argmin()), int(share.argmax())
        names = [f"{cue.name} = {cue.words[end]}" for end in (low, high)]
        members = [[np.flatnonzero((y == c) & (cue.values == end)) for end in (low, high)] for c in shown]
    else:
        value = direction(cue, y, len(classes))
        names = ["lowest", "highest"]
        ordered = [(rows := np.flatnonzero(y == c))[value[rows].argsort(kind="stable")] for c in shown]
        members = [[rows[: len(rows) // 2], rows[len(rows) // 2 :][::-1]] for rows in ordered]
    images = torch.zeros(len(shown), 2, ENDS, *thumbnails(x[:1]).shape[1:], dtype=torch.uint8)
    for i, ends in enumerate(members):
        for j, rows in enumerate(ends):
            images[i, j, : len(rows[:ENDS])] = thumbnails(x[torch.from_numpy(rows[:ENDS].copy())])
    counts = [[len(rows[:ENDS]) for rows in ends] for ends in members]
    picture = {"cue": cue.name, "classes": [classes[c] for c in shown], "ends": names, "counts": counts}
    return picture, images.numpy()
