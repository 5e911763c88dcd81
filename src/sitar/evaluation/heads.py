"""Judge every head of a method that has several, and say which of them a few answers would choose.

The answers are the labels of the unlabelled images on which the heads differ most (DivDis' active query). They exist
where these images are a split of the data set, and stand for what a person would say. The method never sees them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int

from sitar.data import Data
from sitar.data.types import EvalSplit
from sitar.evaluation.metrics import Predictions, softmax, split_metrics
from sitar.evaluation.predict import predict_split
from sitar.methods import Method
from sitar.methods.several_heads import SeveralHeads

ANSWERS = 16
SHOWN = ("average", "worst_group", "core_auc", "shortcut_auc")


def judge_heads(method: Method, data: Data, unlabelled: str | None, device: torch.device) -> dict[str, Any] | None:
    """Return the figures of each head, which one predicts, and which one answers would choose.

    `unlabelled` is what data.unlabelled says. There is nothing to return for a method with a single head.
    """
    if not isinstance(method, SeveralHeads):
        return None
    method.eval()
    logits = {name: _logits(method, split, device) for name, split in data.evaluation.items()}
    splits = {name: [_figures(of_head) for of_head in of_split] for name, of_split in logits.items()}
    found: dict[str, Any] = {"predicts": method.config.head, "splits": splits}
    if unlabelled in logits:
        probabilities = np.stack([softmax(head.logits) for head in logits[unlabelled]], 1)
        found |= {"answers": ANSWERS, "chosen": chosen_head(probabilities, data.evaluation[unlabelled].y.numpy())}
    return found


def chosen_head(
    probabilities: Float[np.ndarray, "sample head class"], y: Int[np.ndarray, " sample"], answers: int = ANSWERS
) -> int:
    """Return the head that is right most often on the inputs where heads differ most. Of equal ones, take the first."""
    differences = np.abs(probabilities[:, :, None] - probabilities[:, None]).mean((1, 2, 3))
    asked = np.argsort(-differences, kind="stable")[:answers]
    right = probabilities[asked].argmax(2) == y[asked, None]
    return int(right.sum(0).argmax())


def _logits(method: SeveralHeads, split: EvalSplit, device: torch.device) -> list[Predictions]:
    heads = range(method.heads)
    size = method.evaluation_batch
    return [predict_split(lambda x, h=h: method.head_logits(x)[:, h], split, device, size) for h in heads]


def _figures(predictions: Predictions) -> dict[str, Any]:
    metrics = split_metrics(predictions, resamples=0)
    return {name: metrics[name] for name in SHOWN if metrics.get(name) is not None}
