"""Here are the equations. They take tensors and return tensors, and have no state and no settings.

The names below are public: `docs/functional.md` lists them, and a release says when one changes. Everything else in
this folder may change at any time.
"""

from sitar.functional.correlation import (
    LabelMoments,
    label_correlation,
    label_moments,
    pooled_moments,
    shortcut_score,
    without_chance,
)
from sitar.functional.disentangle import kl_parts, permute_axes
from sitar.functional.draws import normal_like, uniform_like
from sitar.functional.expansion import Expansion, Expected, exact, expand
from sitar.functional.losses import consistency, cross_entropy, gaussian_kl, reconstruction, reparameterise
from sitar.functional.noise import NOISES, Noise, axis_noise, direction_noise, swap_noise, unit_noise
from sitar.functional.reduce import batch_sum, gathered, global_mean, own_rows
from sitar.functional.risk import cvar, group_risks, mean_risk, risk_variance
from sitar.functional.smoothness import gradient_change, jacobian_norm

__all__ = [
    "NOISES",
    "Expansion",
    "Expected",
    "LabelMoments",
    "Noise",
    "axis_noise",
    "batch_sum",
    "consistency",
    "cross_entropy",
    "cvar",
    "direction_noise",
    "exact",
    "expand",
    "gathered",
    "gaussian_kl",
    "global_mean",
    "gradient_change",
    "group_risks",
    "jacobian_norm",
    "kl_parts",
    "label_correlation",
    "label_moments",
    "mean_risk",
    "normal_like",
    "own_rows",
    "permute_axes",
    "pooled_moments",
    "reconstruction",
    "reparameterise",
    "risk_variance",
    "shortcut_score",
    "swap_noise",
    "uniform_like",
    "unit_noise",
    "without_chance",
]
