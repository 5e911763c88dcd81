"""DFR, deep feature reweighting (Kirichenko et al., 2023), refits the last layer on held-out samples balanced by group.

It needs groups, so it is an upper bound, not a rival.

Departures: the held-out samples are part of the training split, so that every method sees the same data and validation
stays for selection; see docs/methods/dfr.md.
"""

from __future__ import annotations

import logging
import warnings
from typing import Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from sitar.config import ModelConfig
from sitar.data.types import GroupSplit, GroupTask
from sitar.functional.precision import in_float64
from sitar.methods.last_layer import LastLayerConfig, LastLayerMethod
from sitar.registry import METHODS

logger = logging.getLogger(__name__)
NEVER = -1e4  # logit of a class without a held-out sample
FEW = 10  # held-out samples of a group, below which a balanced subset says little


class DFRConfig(LastLayerConfig):
    name: Literal["dfr"] = "dfr"
    subsets: int = Field(default=10, gt=0, description="balanced subsets whose last layers are averaged")
    inverse_penalty: float = Field(default=1.0, gt=0, description="C of scikit-learn's logistic regression, L1 penalty")


@METHODS.register("dfr")
class DFR(LastLayerMethod):
    Config = DFRConfig
    needs_groups = True

    def __init__(self, config: DFRConfig, model: ModelConfig, task: GroupTask) -> None:
        super().__init__(config, model, task)
        for group in task.group.unique():
            members = (task.group == group).nonzero().squeeze(1)
            if not self.held_out[members].any():
                self.held_out[members[0]] = True  # the draw has missed this group

    def fit(self, features: Tensor, index: Tensor, split: GroupSplit) -> tuple[Tensor, Tensor]:
        x, y, group = (t.cpu().numpy() for t in (in_float64(features), split.y[index], split.group[index]))
        smallest = np.unique(group, return_counts=True)[1].min()
        if smallest < FEW:
            logger.warning("DFR: the smallest group has %d held-out samples, and so has every subset of it.", smallest)
        random = np.random.default_rng(int(torch.randint(2**31, ())))
        mean, scale = x.mean(0), x.std(0)
        scale[scale == 0] = 1.0
        subsets = [balanced_subset(group, random) for _ in range(self.config.subsets)]
        fits = [self._one_against_rest((x[chosen] - mean) / scale, y[chosen]) for chosen in subsets]
        weight = np.mean([fit[0] for fit in fits], axis=0) / scale
        bias = np.mean([fit[1] for fit in fits], axis=0) - weight @ mean
        return torch.from_numpy(weight), torch.from_numpy(bias)

    def _one_against_rest(self, features: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Fit a last layer: one logistic regression for each class against the rest. Two classes share one."""
        classes = len(self.network.last_layer.bias)
        weight, bias = np.zeros((classes, features.shape[1])), np.full(classes, NEVER)
        present = np.unique(y)
        if len(present) == 1:
            bias[present] = 0.0
            return weight, bias
        for c in present[1:] if len(present) == 2 else present:
            weight[c], bias[c] = self._regress(features, y == c)
        if len(present) == 2:
            bias[present[0]] = 0.0
        return weight, bias

    def _regress(self, features: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, float]:
        from sklearn.exceptions import ConvergenceWarning  # imported only here: it takes seconds, for every method
        from sklearn.linear_model import LogisticRegression

        model = LogisticRegression(C=self.config.inverse_penalty, solver="liblinear", random_state=0, max_iter=1000)
        renamed = model.get_params()["penalty"] == "deprecated"  # scikit-learn 1.8 has renamed the setting
        model.set_params(**({"l1_ratio": 1} if renamed else {"penalty": "l1"}))
        with warnings.catch_warnings():
            warnings.simplefilter("error", ConvergenceWarning)
            try:
                model.fit(features, y)
            except ConvergenceWarning:
                logger.warning("DFR: the logistic regression did not converge; a lower inverse_penalty may help.")
                warnings.simplefilter("ignore", ConvergenceWarning)
                model.fit(features, y)
        return np.ravel(model.coef_), float(np.ravel(model.intercept_)[0])


def balanced_subset(group: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Draw as many samples of each group as the smallest group has. Groups without samples are left out."""
    members = [np.flatnonzero(group == g) for g in np.unique(group)]
    size = min(map(len, members))
    return np.concatenate([random.choice(m, size, replace=False) for m in members])
