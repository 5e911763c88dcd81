"""k nearest neighbours."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

CHUNK = 256  # queries at a time: bounds the memory of the distances


def class_votes(
    query: Float[Tensor, "query feature"],
    points: Float[Tensor, "point feature"],
    classes: Int[Tensor, "point classes"],
    k: int,
) -> Float[Tensor, "query classes"]:
    """How many of the `k` nearest points (Euclidean) are of each class; `classes` is one-hot."""
    centre = points.mean(0)  # distances are exact only for points near the origin
    query, points = query - centre, points - centre
    nearest = [torch.cdist(part, points).topk(k, largest=False).indices for part in query.split(CHUNK)]
    return classes[torch.cat(nearest)].sum(1).to(query.dtype)
