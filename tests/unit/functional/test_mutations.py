"""A wrong copy of each equation is refused by the check that the right one passes."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from sklearn.metrics import average_precision_score, f1_score, roc_auc_score
from torch.nn import functional as F

from helpers import referees
from sitar.evaluation import metrics
from sitar.functional import correlation, losses, noise
from sitar.methods.sitar import SITAR

pytestmark = pytest.mark.shapes

TWO = torch.tensor([[0.8, -0.5, 0.1]])


def label_correlation(
    *,
    detach: bool = True,
    use_weight: bool = True,
    weight_mean: bool = True,
    centre: bool = True,
    root: bool = True,
    guard: bool = True,
    positive: int = 1,
    one_vs_rest: bool = True,
    modulus: bool = False,
    unbiased: bool = False,
):
    """The equation with one thing wrong for each argument that differs from its default."""

    def mutant(mu, y, num_classes, weight=None):
        mu = mu.detach().double() if detach else mu.double()
        if num_classes == 2 or not one_vs_rest:
            target = (y == positive).double().unsqueeze(1) if num_classes == 2 else y.double().unsqueeze(1)
        else:
            target = F.one_hot(y, num_classes).double()
        w = torch.ones_like(mu[:, :1]) if weight is None or not use_weight else weight.detach().double().unsqueeze(1)
        total = w.sum()
        if centre:
            mu = mu - ((w * mu).sum(0) / total if weight_mean else mu.mean(0))
            target = target - ((w * target).sum(0) / total if weight_mean else target.mean(0))
        cov = (w * target).T @ mu / (total - 1 if unbiased else total)
        eps = 1e-8 if guard else 0
        var_mu, var_target = (w * mu**2).sum(0) / total, (w * target**2).sum(0) / total
        scale = var_mu.clamp_min(eps) * (var_target + eps).unsqueeze(1)
        r = cov / (scale.sqrt() if root else scale)
        return r.abs() if modulus else r

    return mutant


def paper_score(correlation_of, score):
    return lambda mu, y: score(correlation_of(mu, y, 2))


def unit_noise(change):
    return lambda like, distribution="gaussian": change(noise.unit_noise(like, distribution), like, distribution)


def rademacher_of_zero_and_one(drawn, like, distribution):
    return (drawn + 1) / 2 if distribution == "rademacher" else drawn


def uniform_without_root_three(drawn, like, distribution):
    return drawn / math.sqrt(3) if distribution == "uniform" else drawn


def axis_noise(scale):
    return lambda z, score, distribution="gaussian": scale(score) * noise.unit_noise(z.detach(), distribution)


def direction_noise(factor, per_axis=False):
    def mutant(z, correlation, distribution="gaussian"):
        if per_axis:
            return correlation.abs().amax(0) * noise.unit_noise(z, distribution)
        rows = correlation * (1 if len(correlation) == 1 else factor)
        return noise.unit_noise(z[:, :1].expand(-1, len(rows)), distribution) @ rows

    return mutant


def swap_noise(*, step=1, sign=1, power=1, half=True, guard=1e-8, detach=True, bound=1.0, white=True):
    def mutant(z, shared):
        z = z.detach() if detach else z
        rows = shared if len(shared) == 1 or not half else shared * math.sqrt(0.5)
        readers = rows @ torch.cov(z.detach().T).inverse() if white else rows
        length = (rows * readers).sum().sqrt()
        inner = readers.T @ rows / (length.clamp_min(guard) ** power * length.clamp_min(bound))
        return sign * (z.roll(step, 0) - z) @ inner

    return mutant


def bootstrap(*, level=0.95, worst=np.nanmin, shift=0.0, times=1):
    """Plain resampling, wrong in one way."""

    def mutant(correct, y, group, resamples=1000):
        random = np.random.default_rng(0)
        rows = []
        for _ in range(resamples):
            i = random.integers(len(y), size=times * len(y))
            hit = correct[i]
            rows.append(
                (
                    hit.mean(),
                    np.mean([hit[y[i] == c].mean() for c in (0, 1)]),
                    worst([hit[group[i] == g].mean() for g in range(4)]),
                )
            )
        tail = (1 - level) / 2
        low, high = np.quantile(np.array(rows) + shift, [tail, 1 - tail], axis=0)
        return {name: [low[k], high[k]] for k, name in enumerate(("average", "class_balanced", "worst_group"))}

    return mutant


def sitar_loss(*, strength=lambda a: a, squared_score=False, consistency_weight=None, robust_on_clean=False, beta=None):
    """Algorithm 1 with one line changed."""

    def mutant(self, batch):
        mu, log_var = self.vae.encode(batch.x)
        z = losses.reparameterise(mu, log_var)
        error = losses.reconstruction(self.vae.decode(z), batch.x)
        kl = losses.gaussian_kl(mu, log_var)
        v = correlation.shortcut_score(correlation.label_correlation(mu, batch.y, 2))
        perturbed = z + strength(self.config.alpha) * noise.axis_noise(z, v**2 if squared_score else v)
        logits, perturbed_logits = self.classifier(z), self.classifier(perturbed)
        robust = losses.cross_entropy(logits if robust_on_clean else perturbed_logits, batch.y)
        change = losses.consistency(logits, perturbed_logits)
        weight = self.config.lambda_ if consistency_weight is None else consistency_weight
        total = error + (beta or self.config.beta) * kl + robust + weight * change
        return {"loss": total, "cross_entropy": robust, "consistency": change, "shortcut_score": v}

    return mutant


def ranking(**changes):
    def mutant(probability, y):
        classes = probability.shape[1]
        truth = np.eye(classes, dtype=int)[y]
        pick = slice(1, 2) if classes == 2 else slice(None)
        found = {
            "auroc": roc_auc_score(truth[:, pick], probability[:, pick]),
            "auprc": average_precision_score(truth[:, pick], probability[:, pick]),
            "f1": f1_score(y, probability.argmax(1), average="binary" if classes == 2 else "macro"),
        }
        return {**found, **{name: change(probability, y) for name, change in changes.items()}}

    return mutant


def calibration(*, bins=15, signed=False, root=False):
    def mutant(probability, correct):
        confidence = probability.max(1)
        index = np.minimum((confidence * bins).astype(int), bins - 1)
        gap = np.bincount(index, weights=confidence - correct, minlength=bins)
        gap = np.square(gap) if root else gap if signed else np.abs(gap)
        return gap.sum() / len(correct)

    return mutant


def empty_is_zero(correct, group, num_groups):
    return [(n, accuracy or 0.0) for n, accuracy in metrics.group_accuracies(correct, group, num_groups)]


def skip_empty(groups, share):
    """The weighted mean of the groups that are there, as if the others did not exist."""
    if share is None or not groups:
        return None
    pairs = [(s, a) for s, (_, a) in zip(share, groups, strict=True) if a is not None]
    return sum(s * a for s, a in pairs) / sum(s for s, _ in pairs)


def by_size(groups, share):
    """The plain average: weighted by the groups' sizes here."""
    if share is None or not groups or any(a is None and s > 0 for s, (_, a) in zip(share, groups, strict=True)):
        return None
    return sum(n * (a or 0) for n, a in groups) / sum(n for n, _ in groups)


REAL = {
    "check_correlation_two_classes": correlation.label_correlation,
    "check_correlation_many_classes": correlation.label_correlation,
    "check_correlation_weighted": correlation.label_correlation,
    "check_correlation_degenerate": correlation.label_correlation,
    "check_correlation_has_no_gradient": correlation.label_correlation,
    "check_score": correlation.shortcut_score,
    "check_paper_score": paper_score(correlation.label_correlation, correlation.shortcut_score),
    "check_unit_noise": noise.unit_noise,
    "check_axis_noise": noise.axis_noise,
    "check_direction_noise": noise.direction_noise,
    "check_swap_noise": noise.swap_noise,
    "check_noise_has_no_gradient": lambda z: noise.swap_noise(z, TWO),
    "check_reparameterise": losses.reparameterise,
    "check_reconstruction": losses.reconstruction,
    "check_gaussian_kl": losses.gaussian_kl,
    "check_cross_entropy": losses.cross_entropy,
    "check_consistency": losses.consistency,
    "check_sitar_loss": SITAR.loss,
    "check_softmax": metrics.softmax,
    "check_group_accuracies": metrics.group_accuracies,
    "check_worst_group": metrics.worst_group,
    "check_adjusted_average": metrics.adjusted_average,
    "check_class_balanced": metrics.class_balanced,
    "check_calibration_error": metrics.calibration_error,
    "check_ranking": referees.ranking_of(metrics),
    "check_bootstrap": metrics.bootstrap_intervals,
}

# the copies from which the mutants below are made, unchanged: they must pass, or a mutant proves nothing
COPIES = {
    "check_correlation_two_classes": label_correlation(),
    "check_correlation_many_classes": label_correlation(),
    "check_correlation_weighted": label_correlation(),
    "check_correlation_degenerate": label_correlation(),
    "check_correlation_has_no_gradient": label_correlation(),
    "check_paper_score": paper_score(label_correlation(), correlation.shortcut_score),
    "check_axis_noise": axis_noise(lambda v: v),
    "check_direction_noise": direction_noise(math.sqrt(0.5)),
    "check_swap_noise": swap_noise(),
    "check_sitar_loss": sitar_loss(),
    "check_calibration_error": calibration(),
    "check_ranking": ranking(),
    "check_bootstrap": bootstrap(),
}

MUTANTS = [
    ("check_correlation_two_classes", "forgot sqrt", label_correlation(root=False)),
    ("check_correlation_two_classes", "not centred", label_correlation(centre=False)),
    ("check_correlation_two_classes", "sign flipped", label_correlation(positive=0)),
    ("check_correlation_two_classes", "sign lost", label_correlation(modulus=True)),
    ("check_correlation_two_classes", "n-1 over n", label_correlation(unbiased=True)),
    ("check_correlation_many_classes", "class index as a number", label_correlation(one_vs_rest=False)),
    ("check_correlation_many_classes", "sign lost", label_correlation(modulus=True)),
    ("check_correlation_many_classes", "no guard for an absent class", label_correlation(guard=False)),
    ("check_correlation_weighted", "class weight ignored", label_correlation(use_weight=False)),
    ("check_correlation_weighted", "means not weighted", label_correlation(weight_mean=False)),
    ("check_correlation_degenerate", "no guard", label_correlation(guard=False)),
    ("check_correlation_has_no_gradient", "gradient not stopped", label_correlation(detach=False)),
    ("check_score", "missing abs", lambda r: r.amax(0)),
    ("check_score", "abs after the maximum", lambda r: r.amax(0).abs()),
    ("check_score", "mean over classes", lambda r: r.abs().mean(0)),
    ("check_score", "smallest", lambda r: r.abs().amin(0)),
    ("check_score", "squared", lambda r: r.square().amax(0)),
    ("check_paper_score", "missing abs", paper_score(label_correlation(), lambda r: r.amax(0))),
    ("check_paper_score", "no clamp", paper_score(label_correlation(guard=False), lambda r: r.abs().amax(0))),
    ("check_unit_noise", "half the variance", unit_noise(lambda e, like, d: e * math.sqrt(0.5))),
    ("check_unit_noise", "shifted", unit_noise(lambda e, like, d: e + 0.05)),
    ("check_unit_noise", "one draw for all axes", unit_noise(lambda e, like, d: e[..., :1].expand_as(e))),
    ("check_unit_noise", "always gaussian", unit_noise(lambda e, like, d: torch.randn_like(like))),
    ("check_unit_noise", "rademacher of 0 and 1", unit_noise(rademacher_of_zero_and_one)),
    ("check_unit_noise", "uniform on [-1, 1]", unit_noise(uniform_without_root_three)),
    ("check_unit_noise", "dtype lost", unit_noise(lambda e, like, d: e.float())),
    ("check_axis_noise", "scaled by v squared", axis_noise(lambda v: v**2)),
    ("check_axis_noise", "scaled by the root of v", axis_noise(lambda v: v**0.5)),
    ("check_axis_noise", "isotropic", axis_noise(torch.ones_like)),
    ("check_axis_noise", "normalised", axis_noise(lambda v: v / v.max())),
    ("check_axis_noise", "one draw for all axes", lambda z, v, d="gaussian": v * noise.unit_noise(z[:, :1], d)),
    (
        "check_axis_noise",
        "one draw for the batch",
        lambda z, v, d="gaussian": v * noise.unit_noise(z[:1], d).expand_as(z),
    ),
    ("check_axis_noise", "multiplies the latent", lambda z, v, d="gaussian": v * z * noise.unit_noise(z, d)),
    ("check_direction_noise", "missing 1/2", direction_noise(1.0)),
    ("check_direction_noise", "1/2 where its root belongs", direction_noise(0.5)),
    ("check_direction_noise", "axis by axis", direction_noise(1.0, per_axis=True)),
    ("check_swap_noise", "next for previous", swap_noise(step=-1)),
    ("check_swap_noise", "no exchange", swap_noise(step=0)),
    ("check_swap_noise", "sign flipped", swap_noise(sign=-1)),
    ("check_swap_noise", "not divided by the length", swap_noise(power=0)),
    ("check_swap_noise", "divided by the squared length", swap_noise(power=2)),
    ("check_swap_noise", "missing 1/2", swap_noise(half=False)),
    ("check_swap_noise", "no guard", swap_noise(guard=0)),
    ("check_swap_noise", "not whitened", swap_noise(white=False)),
    ("check_swap_noise", "more than complete", swap_noise(bound=1e-8)),
    ("check_noise_has_no_gradient", "gradient not stopped", lambda z: swap_noise(detach=False)(z, TWO)),
    ("check_reparameterise", "variance for deviation", lambda m, s: m + s.exp() * torch.randn_like(m)),
    ("check_reparameterise", "log-variance for deviation", lambda m, s: m + s * torch.randn_like(m)),
    ("check_reparameterise", "gradient stopped", lambda m, s: m + (0.5 * s).exp().detach() * torch.randn_like(m)),
    ("check_reparameterise", "no noise", lambda m, s: m + 0 * s),
    ("check_reconstruction", "mean over pixels", lambda a, b: (a - b).square().mean()),
    ("check_reconstruction", "sum over the batch", lambda a, b: (a - b).square().sum()),
    ("check_reconstruction", "1/2", lambda a, b: 0.5 * (a - b).square().flatten(1).sum(1).mean()),
    ("check_reconstruction", "not squared", lambda a, b: (a - b).abs().flatten(1).sum(1).mean()),
    ("check_reconstruction", "length", lambda a, b: (a - b).flatten(1).norm(dim=1).mean()),
    ("check_gaussian_kl", "missing 1/2", lambda m, s: (m**2 + s.exp() - 1 - s).sum(1).mean()),
    ("check_gaussian_kl", "sign flipped", lambda m, s: -0.5 * (m**2 + s.exp() - 1 - s).sum(1).mean()),
    ("check_gaussian_kl", "mean over axes", lambda m, s: 0.5 * (m**2 + s.exp() - 1 - s).mean()),
    ("check_gaussian_kl", "sum over the batch", lambda m, s: 0.5 * (m**2 + s.exp() - 1 - s).sum()),
    ("check_gaussian_kl", "std for variance", lambda m, s: 0.5 * (m**2 + (0.5 * s).exp() - 1 - s).sum(1).mean()),
    ("check_gaussian_kl", "missing -1", lambda m, s: 0.5 * (m**2 + s.exp() - s).sum(1).mean()),
    ("check_cross_entropy", "class weight ignored", lambda f, y, w=None: F.cross_entropy(f, y)),
    ("check_cross_entropy", "sum", lambda f, y, w=None: F.cross_entropy(f, y, w, reduction="sum")),
    (
        "check_cross_entropy",
        "weights not normalised",
        lambda f, y, w=None: F.cross_entropy(f, y, w, reduction="sum") / len(y),
    ),
    ("check_cross_entropy", "bits", lambda f, y, w=None: F.cross_entropy(f, y, w) / math.log(2)),
    ("check_consistency", "mean over classes", lambda a, b: (a - b).square().mean()),
    ("check_consistency", "not squared", lambda a, b: (a - b).norm(dim=1).mean()),
    ("check_consistency", "of probabilities", lambda a, b: (a.softmax(1) - b.softmax(1)).square().sum(1).mean()),
    ("check_consistency", "gradient stopped", lambda a, b: (a.detach() - b).square().sum(1).mean()),
    ("check_sitar_loss", "alpha as variance", sitar_loss(strength=math.sqrt)),
    ("check_sitar_loss", "alpha squared", sitar_loss(strength=lambda a: a**2)),
    ("check_sitar_loss", "noise scaled by v squared", sitar_loss(squared_score=True)),
    ("check_sitar_loss", "lambda ignored", sitar_loss(consistency_weight=1.0)),
    ("check_sitar_loss", "beta ignored", sitar_loss(beta=1.0)),
    ("check_sitar_loss", "cross-entropy on clean latents", sitar_loss(robust_on_clean=True)),
    ("check_softmax", "not normalised by sample", lambda f: np.exp(f - f.max()) / np.exp(f - f.max()).sum()),
    ("check_softmax", "overflows", lambda f: np.exp(f) / np.exp(f).sum(1, keepdims=True)),
    ("check_group_accuracies", "empty group has accuracy 0", empty_is_zero),
    ("check_group_accuracies", "errors", lambda c, g, k: metrics.group_accuracies(~c, g, k)),
    ("check_worst_group", "best", lambda g: max((a for _, a in g if a is not None), default=None)),
    ("check_worst_group", "empty counts as 0", lambda g: min((a or 0.0 for _, a in g), default=None)),
    ("check_worst_group", "smallest group", lambda g: min(g, default=(0, None))[1]),
    ("check_adjusted_average", "empty group left out", skip_empty),
    ("check_adjusted_average", "sizes of the split", by_size),
    ("check_class_balanced", "plain average", lambda c, y: c.mean()),
    ("check_class_balanced", "absent class counts", lambda c, y: sum(c[y == k].mean() for k in set(y)) / (y.max() + 1)),
    ("check_calibration_error", "ten bins", calibration(bins=10)),
    ("check_calibration_error", "missing abs", calibration(signed=True)),
    ("check_calibration_error", "squared gaps", calibration(root=True)),
    ("check_ranking", "class 0 for class 1", ranking(auroc=lambda p, y: roc_auc_score(np.eye(p.shape[1])[y], 1 - p))),
    ("check_ranking", "auroc for auprc", ranking(auprc=metrics.auroc)),
    ("check_ranking", "micro f1", ranking(f1=lambda p, y: f1_score(y, p.argmax(1), average="micro"))),
    ("check_bootstrap", "90 for 95 percent", bootstrap(level=0.9)),
    ("check_bootstrap", "best for worst", bootstrap(worst=np.nanmax)),
    ("check_bootstrap", "draws twice as many samples", bootstrap(times=2)),
    ("check_bootstrap", "off the point", bootstrap(shift=0.05)),
]


def test_every_check_has_a_mutant():
    checks = {name for name in vars(referees) if name.startswith("check_")}
    assert checks == set(REAL) == {check for check, _, _ in MUTANTS}


@pytest.mark.parametrize("check", REAL)
def test_the_real_equation_passes(check):
    getattr(referees, check)(REAL[check])


@pytest.mark.parametrize("check", COPIES)
def test_the_copy_passes(check):
    getattr(referees, check)(COPIES[check])


@pytest.mark.parametrize(("check", "wrong", "mutant"), [pytest.param(*m, id=f"{m[0][6:]}: {m[1]}") for m in MUTANTS])
def test_a_mutation_is_caught(check, wrong, mutant):
    with pytest.raises(AssertionError):
        referees.quiet(getattr(referees, check), mutant)
