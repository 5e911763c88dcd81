"""Count the k nearest neighbours by class."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import one_hot

CHUNK = 256  # queries at a time: bounds the memory of the distances


def class_votes(
    query: Float[Tensor, "query feature"],
    points: Float[Tensor, "point feature"],
    label: Int[Tensor, " point"],
    num_classes: int,
    k: int,
    class_weight: Float[Tensor, " classes"] | None = None,
) -> Float[Tensor, "query classes"]:
    """Count how many of the `k` nearest points (Euclidean) belong to each class.

    With class weights, a point counts with the weight of its class.
    """
    centre = points.mean(0)  # `cdist` subtracts squares, which loses digits far from the origin
    query, points = query - centre, points - centre
    nearest = [torch.cdist(part, points).topk(k, largest=False).indices for part in query.split(CHUNK)]
    votes = one_hot(label[torch.cat(nearest)], num_classes).sum(1).to(query.dtype)
    return votes if class_weight is None else votes * class_weight
