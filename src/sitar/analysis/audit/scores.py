"""The scores say what each latent axis alone tells of the label, on held-out samples, and how sure that is."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
import torch
from sklearn.metrics import roc_auc_score
from torch import Tensor
from torch.nn.functional import one_hot

from sitar.functional.correlation import label_correlation, shortcut_score

RESAMPLES = 1000
LEVEL = 0.95
MOST_BINS = 32
AT_ONCE = 50  # resamples whose correlations are computed together


@dataclass(frozen=True)
class Score:
    """A score has a value for every axis (axis,), and the same in every bootstrap resample (resample, axis)."""

    value: Tensor
    draws: Tensor

    def interval(self) -> Tensor:
        """Return the lower and the upper bound (2, axis): percentiles of the resamples."""
        tail = (1 - LEVEL) / 2
        return torch.quantile(self.draws, torch.tensor([tail, 1 - tail], dtype=self.draws.dtype), dim=0)


class Distance(Score):
    """This score is a distance. Sampling noise inflates distances, so percentiles of resamples would be too large.

    `draws` are therefore the distances between each resample and the samples, as the samples may be from the truth.
    """

    def interval(self) -> Tensor:
        """Return the value ± the 95th percentile of the distance between resample and sample.

        By the triangle inequality the truth is no further away.
        """
        radius = torch.quantile(self.draws, LEVEL, dim=0)
        return torch.stack([(self.value - radius).clamp_min(0), self.value + radius])


def resample(y: Tensor, resamples: int = RESAMPLES, seed: int = 0) -> Tensor:
    """Count how often each sample is drawn in each resample (resample, sample). Every class keeps its size."""
    random = torch.Generator().manual_seed(seed)
    weight = torch.zeros(resamples, len(y), dtype=torch.float64)
    for c in y.unique():
        members = (y == c).nonzero().squeeze(1)
        drawn = torch.randint(len(members), (resamples, len(members)), generator=random)
        places = drawn + len(members) * torch.arange(resamples).unsqueeze(1)
        counts = torch.bincount(places.flatten(), minlength=resamples * len(members))
        weight[:, members] = counts.view(resamples, -1).double()
    return weight


def correlation(mu: Tensor, y: Tensor, num_classes: int, weight: Tensor) -> Score:
    """Compute v of Eq. 2, over all held-out samples at once.

    Resamples keep class and sign, because the largest modulus over all classes would be biased. Where a resample has
    the other sign, its score is 0.
    """
    correlations = label_correlation(mu, y, num_classes)
    largest = correlations.abs().argmax(0, keepdim=True)
    sign = correlations.gather(0, largest).sign()

    def score(w: Tensor) -> Tensor:
        return (sign * label_correlation(mu, y, num_classes, w).gather(0, largest)).squeeze(0).clamp_min(0)

    return Score(shortcut_score(correlations), torch.vmap(score, chunk_size=AT_ONCE)(weight.float()))


def wasserstein(mu: Tensor, y: Tensor, weight: Tensor) -> tuple[Distance, list[tuple[int, int]]]:
    """Compute the distance between the two classes that are furthest apart on each axis, and return these classes.

    Its unit is the axis's standard deviation. Resamples keep pair and unit, because the largest distance over all pairs
    would be biased.
    """
    all_once = torch.ones(1, len(y), dtype=torch.float64)
    values, draws, pairs = [], [], []
    for axis in (mu.double() / mu.double().std(0).clamp_min(1e-12)).T:
        candidates = itertools.combinations(y.unique().tolist(), 2)
        distances = {pair: _distance(axis, y, pair, all_once) for pair in candidates}
        pair = max(distances, key=lambda pair: float(distances[pair]))
        pairs.append(pair)
        values.append(distances[pair][0])
        draws.append(_distance(axis, y, pair, weight - 1))
    return Distance(torch.stack(values), torch.stack(draws, 1)), pairs


def _distance(axis: Tensor, y: Tensor, pair: tuple[int, int], weight: Tensor) -> Tensor:
    """Integrate |F_a - F_b| for each row of weights."""
    keep = ((y == pair[0]) | (y == pair[1])).nonzero().squeeze(1)
    keep = keep[axis[keep].argsort()]
    share = torch.where(y[keep] == pair[0], 1 / (y == pair[0]).sum(), -1 / (y == pair[1]).sum()).double()
    return (weight[:, keep] * share).cumsum(1)[:, :-1].abs() @ axis[keep].diff()


def accuracy(train_mu: Tensor, train_y: Tensor, mu: Tensor, y: Tensor, num_classes: int, weight: Tensor) -> Score:
    """Compute the class-balanced accuracy of predicting the held-out labels from one axis alone: 1 / classes by chance.

    The predictor is a histogram of the training samples with bins of equal counts. In each bin it predicts the class
    that has the largest share of its own samples there, so it need not be monotonous. Every class must be among the
    held-out samples.
    """
    edges, prediction = fit_histogram(train_mu, train_y, num_classes)
    predicted = prediction.gather(1, torch.searchsorted(edges, mu.double().T.contiguous())).T
    share = (predicted == y.unsqueeze(1)).double() / (
        num_classes * torch.bincount(y, minlength=num_classes)[y].unsqueeze(1)
    )
    return Score(share.sum(0), weight @ share)


def fit_histogram(mu: Tensor, y: Tensor, num_classes: int) -> tuple[Tensor, Tensor]:
    """Return the inner edges of the bins of every axis (axis, bin - 1), and the class predicted in each (axis, bin)."""
    sizes = torch.bincount(y, minlength=num_classes)
    bins = min(MOST_BINS, max(2, int(float(sizes[sizes > 0].min()) ** 0.5)))
    levels = torch.arange(1, bins) / bins
    edges = torch.from_numpy(np.quantile(mu.double().numpy(), levels.numpy(), axis=0).T.copy())
    place = torch.searchsorted(edges, mu.double().T.contiguous())
    counts = torch.stack([one_hot(row, bins).T.double() @ one_hot(y, num_classes).double() for row in place])
    return edges, ((counts + 1) / (sizes + bins)).argmax(2)  # one more in each bin, so that an empty one says nothing


def separation(mu: Tensor, target: Tensor) -> list[float]:
    """Compute how well each axis tells the values of `target` apart: the AUC of the best value against the rest.

    The direction of the axis does not matter, so that 0.5 is chance and 1 the most.
    """
    best = np.full(mu.shape[1], 0.5)
    for value in target.unique():
        auc = np.array([roc_auc_score((target == value).numpy(), axis) for axis in mu.double().numpy().T])
        best = np.maximum(best, np.maximum(auc, 1 - auc))
    return best.tolist()


def tie(y: Tensor, attribute: Tensor) -> float:
    """Compute Cramer's V: 0 where label and attribute are independent, 1 where one is known from the other."""
    counts = one_hot(y).double().T @ one_hot(attribute).double()
    counts = counts[counts.sum(1) > 0][:, counts.sum(0) > 0]
    expected = counts.sum(1, keepdim=True) * counts.sum(0, keepdim=True) / counts.sum()
    return float(((counts - expected).square() / expected).sum() / counts.sum() / (min(counts.shape) - 1)) ** 0.5
