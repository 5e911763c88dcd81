"""Where the data has an attribute, say whether an axis is the attribute or the label."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from sitar.analysis.audit.cues import LEAST_CONFLICTS, likely_class
from sitar.analysis.audit.first_words import apart_in_words
from sitar.analysis.audit.scores import separation, tie
from sitar.analysis.latents import posterior_means
from sitar.analysis.samples import subset
from sitar.data.types import EvalSplit
from sitar.evaluation.trained_model import TrainedModel

ALIKE = 0.05  # difference of two AUCs below which an axis follows both alike


def attribute_scores(model: TrainedModel, most: int) -> dict[str, Any] | None:
    """Compute how well every axis tells attribute and label apart, on the split in which the two are tied least.

    At most so many samples are used. None: no split can tell the two apart.
    """
    ties = {}
    for name, split in model.data.evaluation.items():
        attribute = _attribute(split, len(model.classes))
        if attribute is not None and min(len(attribute.unique()), len(split.y.unique())) > 1:
            ties[name] = round(tie(split.y, attribute), 1)  # a difference by chance is none: then the first one
    if not ties:
        return None
    name = min(ties, key=lambda name: ties[name])
    split = model.data.evaluation[name]
    attribute = _attribute(split, len(model.classes))
    assert attribute is not None
    index = subset(len(split), most)
    mu = posterior_means(model, split.x[index])
    return {
        "name": split.group_names[0].partition(",")[2].rpartition("=")[0],
        "split": name,
        "tie": tie(split.y, attribute),
        "n": len(split),
        "conflicts": _conflicts(split.y, attribute),
        "attribute_auc": separation(mu, attribute[index]),
        "label_auc": separation(mu, split.y[index]),
    }


def attribute_in_words(scores: Mapping[str, Any], axis: int) -> str:
    """Say whether an axis is rather the attribute or rather the label, where this data can tell the two apart."""
    name, own, label = scores["name"], scores["attribute_auc"][axis], scores["label_auc"][axis]
    told = f"On {scores['split']} axis {axis} tells {name} apart with an AUC of {own:.2f}, the label with {label:.2f}"
    if min(scores["conflicts"]) < LEAST_CONFLICTS:
        tied = apart_in_words(name, sum(scores["conflicts"]), scores["n"], scores["split"])
        asked = f"Ask for labels of images in which {name} points to another class than theirs (`sitar ask`)."
        return f"{told}. {tied} {asked}"
    if abs(own - label) < ALIKE:
        return f"{told}: it follows both alike, and which of them it is cannot be told."
    tracks = f"it is rather {name} than the label" if own > label else f"it is rather the label than {name}"
    return f"{told}: {tracks}."


def _conflicts(y: Tensor, attribute: Tensor) -> list[int]:
    """Count, for each class that occurs, the samples whose attribute points to another class."""
    values, labels = attribute.cpu().numpy(), y.cpu().numpy()
    likely = likely_class(values, labels, int(values.max()) + 1, int(labels.max()) + 1)
    return [int((likely[values[labels == c]] != c).sum()) for c in y.unique().tolist()]


def _attribute(split: EvalSplit, num_classes: int) -> Tensor | None:
    """Return the attribute of every sample: a group is label * values + attribute."""
    return None if split.group is None else split.group - split.y * (len(split.group_names) // num_classes)
