"""The rules of the baselines' authors, as plain loops over samples, classes and groups.

They share nothing with `sitar.functional`. A network is only ever asked for its outputs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor, nn

Network = Callable[[Tensor], Tensor]


def losses_of(logits: Tensor, y: Sequence[int]) -> list[Tensor]:
    """The cross-entropy of every sample, from the definition of the softmax."""
    return [
        torch.log(sum(torch.exp(score) for score in row)) - row[label] for row, label in zip(logits, y, strict=True)
    ]


def mean(values: Sequence[Tensor]) -> Tensor:
    return sum(values[1:], start=values[0]) / len(values)


class LfF:
    """Nam et al. (2020): two networks, and a running mean of each one's loss for every sample."""

    def __init__(self, biased: Network, debiased: Network, y: Tensor, q: float, decay: float) -> None:
        self.networks, self.y, self.q, self.decay = (biased, debiased), y.tolist(), q, decay
        self.tables: tuple[dict[int, float], dict[int, float]] = ({}, {})
        self.outside = 0  # how often the largest loss of a class was that of a sample outside the batch
        self.weights: list[float] = []

    def __call__(self, x: Tensor, index: list[int]) -> Tensor:
        both = [losses_of(network(x), [self.y[i] for i in index]) for network in self.networks]
        relative: list[list[float]] = []
        for table, losses in zip(self.tables, both, strict=True):
            for i, loss in zip(index, losses, strict=True):
                table[i] = self.decay * table[i] + (1 - self.decay) * loss.item() if i in table else loss.item()
            relative.append([table[i] / self._largest(table, i, index) for i in index])
        self.weights = [b / (b + d + 1e-8) for b, d in zip(*relative, strict=True)]
        parts = []
        for loss_b, loss_d, weight in zip(*both, self.weights, strict=True):
            p = math.exp(-loss_b.item())
            parts.append(self.q * p**self.q * loss_b + weight * loss_d)
        return mean(parts)

    def _largest(self, table: dict[int, float], i: int, index: list[int]) -> float:
        of_class = {j: loss for j, loss in table.items() if self.y[j] == self.y[i]}
        largest = max(of_class, key=lambda j: of_class[j])
        self.outside += largest not in index
        return of_class[largest]


class JTT:
    """Liu et al. (2021): what the first model gets wrong while its last epoch runs is seen more often by the second."""

    def __init__(self, copies: int) -> None:
        self.copies = copies
        self.wrong: dict[int, bool] = {}

    def first(self, network: Network, x: Tensor, y: list[int], index: list[int]) -> Tensor:
        logits = network(x)
        for row, label, i in zip(logits.tolist(), y, index, strict=True):
            self.wrong[i] = row.index(max(row)) != label
        return mean(losses_of(logits, y))

    def second_samples(self) -> list[int]:
        """The training set, and every error `copies` times more."""
        samples = sorted(self.wrong)
        for i in sorted(self.wrong):
            if self.wrong[i]:
                samples += [i] * self.copies
        return samples


class GroupDRO:
    """Sagawa et al. (2020), Algorithm 1: every group has a weight, which grows with its loss."""

    def __init__(self, network: Network, sizes: dict[int, int], step_size: float, adjustment: float) -> None:
        self.network, self.sizes, self.step_size, self.adjustment = network, sizes, step_size, adjustment
        self.q = {g: 1 / len(sizes) for g in sizes}

    def __call__(self, x: Tensor, y: list[int], group: list[int]) -> Tensor:
        losses = losses_of(self.network(x), y)
        risk = {g: mean([loss for loss, of in zip(losses, group, strict=True) if of == g]) for g in sorted(set(group))}
        for g, loss in risk.items():
            self.q[g] *= math.exp(self.step_size * (loss.item() + self.adjustment / math.sqrt(self.sizes[g])))
        total = sum(self.q.values())
        self.q = {g: weight / total for g, weight in self.q.items()}
        return sum((self.q[g] * risk[g] for g in risk), start=torch.zeros((), dtype=x.dtype))


class Invariant:
    """The loop of IRM and V-REx: a penalty whose weight is 1 at first, and a loss that is divided by a larger one."""

    def __init__(self, network: Network, penalty: float, anneal_steps: int) -> None:
        self.network, self.penalty, self.anneal_steps, self.step = network, penalty, anneal_steps, 0

    def __call__(self, x: Tensor, y: list[int], environment: list[int]) -> Tensor:
        logits = self.network(x)
        rows = [[i for i, e in enumerate(environment) if e == one] for one in sorted(set(environment))]
        parts = [(logits[row], [y[i] for i in row]) for row in rows]
        weight = self.penalty if self.step >= self.anneal_steps else 1.0
        self.step += 1
        loss = self.risk(parts) + weight * self.differ(parts)
        return loss / weight if weight > 1 else loss

    def risk(self, parts: list[tuple[Tensor, list[int]]]) -> Tensor:
        return mean([mean(losses_of(*part)) for part in parts])

    def differ(self, parts: list[tuple[Tensor, list[int]]]) -> Tensor:
        raise NotImplementedError


class IRM(Invariant):
    """Arjovsky et al. (2019): the squared derivative of each risk by a scale of the logits."""

    def differ(self, parts: list[tuple[Tensor, list[int]]]) -> Tensor:
        squares = []
        for logits, y in parts:
            scale = torch.ones((), dtype=logits.dtype, requires_grad=True)
            (slope,) = torch.autograd.grad(mean(losses_of(logits * scale, y)), scale, create_graph=True)
            squares.append(slope**2)
        return mean(squares)


class VREx(Invariant):
    """Krueger et al. (2021): the variance of the risks."""

    def differ(self, parts: list[tuple[Tensor, list[int]]]) -> Tensor:
        risks = [mean(losses_of(*part)) for part in parts]
        return mean([(risk - mean(risks)) ** 2 for risk in risks])


class VRExOfTheCode(Invariant):
    """As the code of Krueger et al. has it for ColoredMNIST: two environments, a sum, and a squared difference."""

    def risk(self, parts: list[tuple[Tensor, list[int]]]) -> Tensor:
        one, two = (mean(losses_of(*part)) for part in parts)
        return one + two

    def differ(self, parts: list[tuple[Tensor, list[int]]]) -> Tensor:
        one, two = (mean(losses_of(*part)) for part in parts)
        return (one - two) ** 2


def cvar(losses: list[Tensor], share: float) -> Tensor:
    """Levy et al. (2020): the dual of the worst-case mean, whose threshold eta is found by bisection.

    A loss above eta has the weight 1 / (share n), and the one at eta has what is left of 1.
    """
    values, n = [loss.item() for loss in losses], len(losses)
    low, high = min(values) - 1, max(values)
    for _ in range(100):
        eta = (low + high) / 2
        if sum(value > eta for value in values) > share * n:
            low = eta
        else:
            high = eta
    weights = [1 / (share * n) if value > high + 1e-12 else 0.0 for value in values]
    at_eta = min(range(n), key=lambda i: abs(values[i] - high))
    weights[at_eta] = 1 - sum(weight for i, weight in enumerate(weights) if i != at_eta)
    risk = sum((weight * loss for weight, loss in zip(weights, losses, strict=True)), start=0 * losses[0])
    dual = high + sum(max(value - high, 0) for value in values) / (share * n)
    assert abs(dual - risk.item()) < 1e-9, "the weights do not solve the dual"
    return risk


def afr_weights(logits: Tensor, y: list[int], gamma: float) -> list[float]:
    """Qiu et al. (2023): exp(-gamma p) of every held-out sample, over the size of its class, scaled to sum 1."""
    weights = []
    for row, label in zip(logits.tolist(), y, strict=True):
        p = math.exp(row[label]) / sum(math.exp(score) for score in row)
        weights.append(math.exp(-gamma * p) / y.count(label))
    return [weight / sum(weights) for weight in weights]


class AFR:
    """The last layer of AFR, on features that do not move, pulled to where it starts."""

    def __init__(self, features: Tensor, y: list[int], last: nn.Linear, gamma: float, l2: float) -> None:
        self.features, self.y, self.last, self.l2 = features, y, last, l2
        self.start = [parameter.detach().clone() for parameter in last.parameters()]
        self.weights = afr_weights(last(features).detach(), y, gamma)

    def __call__(self) -> Tensor:
        losses = losses_of(self.last(self.features), self.y)
        hard = sum((w * loss for w, loss in zip(self.weights, losses, strict=True)), start=0 * losses[0])
        for now, before in zip(self.last.parameters(), self.start, strict=True):
            for a, b in zip(now.flatten(), before.flatten(), strict=True):
                hard = hard + self.l2 * (a - b) ** 2
        return hard


def l1_regression(x: np.ndarray, y: np.ndarray, inverse_penalty: float) -> np.ndarray:
    """Minimise |theta|_1 + C sum_i log(1 + exp(-y_i f_i)) by proximal steps. The last entry is the intercept.

    liblinear treats the intercept as the weight of a feature that is always 1, so it is penalised too.
    """
    x, sign = np.column_stack([x, np.ones(len(x))]), np.where(y, 1.0, -1.0)
    rate = 4 / (inverse_penalty * np.linalg.eigvalsh(x.T @ x).max())
    theta = np.zeros(x.shape[1])
    for _ in range(100_000):
        slope = -inverse_penalty * x.T @ (sign / (1 + np.exp(sign * (x @ theta))))
        moved = theta - rate * slope
        before, theta = theta, np.sign(moved) * np.maximum(np.abs(moved) - rate, 0)
        if np.abs(theta - before).max() < 1e-9:
            return theta
    raise AssertionError("no convergence")


def dfr(
    features: np.ndarray, y: np.ndarray, subsets: list[list[int]], inverse_penalty: float
) -> tuple[np.ndarray, np.ndarray]:
    """Kirichenko et al. (2023), for classes 0 and 1: the mean of the regressions on balanced, standardised subsets.

    The result is the weight and the bias of the difference of the two logits, for features that are not standardised.
    """
    centre = np.array([sum(column) / len(column) for column in features.T])
    squares = [sum((value - m) ** 2 for value in column) for column, m in zip(features.T, centre, strict=True)]
    spread = np.array([math.sqrt(total / len(features)) for total in squares])
    fits = []
    for subset in subsets:
        standard = np.array([(features[i] - centre) / spread for i in subset])
        fits.append(l1_regression(standard, y[subset] == 1, inverse_penalty))
    average = sum(fits) / len(fits)
    weight = average[:-1] / spread
    return weight, average[-1] - weight @ centre


def log_normal(z: Tensor, mu: Tensor, log_var: Tensor) -> Tensor:
    """The log-density of one axis of one sample under one posterior."""
    return -((z - mu) ** 2) / (2 * torch.exp(log_var)) - 0.5 * torch.log(2 * math.pi * torch.exp(log_var))


def tc_divergence(z: Tensor, mu: Tensor, log_var: Tensor, num_train: int, beta: float) -> Tensor:
    """Chen et al. (2018): mutual information + beta * total correlation + KL of every axis.

    The density of z_i is the mean of the batch's posteriors at z_i, divided by the number of training samples: this is
    their minibatch weighted sampling. One axis alone is treated the same way.
    """
    m, axes = z.shape
    parts = []
    for i in range(m):
        joint, alone = torch.zeros_like(z[0, 0]), [torch.zeros_like(z[0, 0]) for _ in range(axes)]
        for j in range(m):
            densities = [torch.exp(log_normal(z[i, k], mu[j, k], log_var[j, k])) for k in range(axes)]
            joint = joint + math.prod(densities)
            alone = [total + density for total, density in zip(alone, densities, strict=True)]
        log_joint = torch.log(joint / (num_train * m))
        log_product = sum(torch.log(total / (num_train * m)) for total in alone)
        zero = torch.zeros_like(z[0, 0])
        log_own = sum(log_normal(z[i, k], mu[i, k], log_var[i, k]) for k in range(axes))
        log_prior = sum(log_normal(z[i, k], zero, zero) for k in range(axes))
        information, correlation, rest = log_own - log_joint, log_joint - log_product, log_product - log_prior
        parts.append(information + beta * correlation + rest)
    return mean(parts)


def kl_to_prior(mu: Tensor, log_var: Tensor) -> Tensor:
    """The KL divergence of every posterior to N(0, I), axis by axis."""
    samples = zip(mu, log_var, strict=True)
    return mean([sum((m**2 + torch.exp(v) - v - 1) / 2 for m, v in zip(*sample, strict=True)) for sample in samples])


def factor_correlation(judge: Network, z: Tensor) -> Tensor:
    """Kim and Mnih (2018): the mean of log D(z) - log (1 - D(z)). D is the probability that z was not shuffled."""
    parts = []
    for row in judge(z):
        p = torch.exp(row[0]) / (torch.exp(row[0]) + torch.exp(row[1]))
        parts.append(torch.log(p) - torch.log(1 - p))
    return mean(parts)


def factor_judgement(judge: Network, z: Tensor, orders: Tensor) -> Tensor:
    """The loss of the discriminator: latents are class 0. Latents whose axes come from other samples are class 1."""
    shuffled = [torch.stack([z[orders[i, k], k] for k in range(z.shape[1])]) for i in range(len(z))]
    real = mean(losses_of(judge(z), [0] * len(z)))
    fake = mean(losses_of(judge(torch.stack(shuffled)), [1] * len(z)))
    return 0.5 * (real + fake)


def pearson(a: list[float], b: list[float]) -> float:
    """The correlation of two lists of numbers."""
    centred = [[value - sum(of) / len(of) for value in of] for of in (a, b)]
    product = sum(u * v for u, v in zip(*centred, strict=True))
    return product / math.sqrt(math.prod(sum(value**2 for value in of) for of in centred))


def sitar(classifier: Network, z: Tensor, mu: Tensor, y: list[int], alpha: float, weight: float) -> Tensor:
    """Lines 9 to 12 of Algorithm 1: noise on each axis by its largest correlation with a class, and consistency."""
    noise = torch.randn(z.shape, dtype=z.dtype)
    scores = [
        max(abs(pearson(axis, [float(label == one) for label in y])) for one in sorted(set(y)))
        for axis in mu.detach().T.tolist()
    ]
    clean, noisy = classifier(z), classifier(z + alpha * torch.tensor(scores, dtype=z.dtype) * noise)
    return mean(losses_of(noisy, y)) + weight * mean([((a - b) ** 2).sum() for a, b in zip(clean, noisy, strict=True)])


def squared_distance(x_hat: Tensor, x: Tensor) -> Tensor:
    """The squared error of every image, summed over its pixels."""
    return mean([((a - b) ** 2).sum() for a, b in zip(x_hat, x, strict=True)])


def jacobian_rows(network: Network, image: Tensor) -> list[Tensor]:
    """The gradient of every logit of one image."""
    image = image.clone().requires_grad_()
    return [torch.autograd.grad(logit, image, create_graph=True)[0].flatten() for logit in network(image[None])[0]]


def projected_jacobian(network: Network, x: Tensor, directions: list[Tensor]) -> Tensor:
    """Hoffman et al. (2019): C |u^T J|^2 for a random unit vector u, from the rows of the whole Jacobian."""
    parts = []
    for direction in directions:
        for image, u in zip(x, direction, strict=True):
            length = math.sqrt(sum(value**2 for value in u.tolist()))
            rows = jacobian_rows(network, image)
            pulled = sum(value / length * row for value, row in zip(u.tolist(), rows, strict=True))
            parts.append(len(rows) * (pulled**2).sum())
    return mean(parts)


def frobenius(network: Network, x: Tensor) -> Tensor:
    """The squared norm of the whole Jacobian, averaged over the images."""
    return mean([sum((row**2).sum() for row in jacobian_rows(network, image)) for image in x])


def curvature(network: Network, x: Tensor, y: list[int], step: float) -> Tensor:
    """Moosavi-Dezfooli et al. (2019): |g(x + h z) - g(x)|^2, where z is the sign of g, scaled to length 1."""

    def gradient(image: Tensor, label: int) -> Tensor:
        image = image.detach().requires_grad_()
        (loss,) = losses_of(network(image[None]), [label])
        return torch.autograd.grad(loss, image, create_graph=True)[0]

    parts = []
    for image, label in zip(x, y, strict=True):
        here = gradient(image, label)
        sign = torch.tensor([(g > 0) - (g < 0) for g in here.flatten().tolist()], dtype=x.dtype)
        z = sign / math.sqrt(sum(value**2 for value in sign.tolist()))
        there = gradient(image + step * z.reshape(image.shape), label)
        parts.append(((there - here) ** 2).sum())
    return mean(parts)


def probabilities(logits: Tensor) -> list[Tensor]:
    """The softmax of every row, from its definition."""
    return [torch.exp(row) / sum(torch.exp(score) for score in row) for row in logits]


def divdis(
    source: Sequence[Tensor], target: Sequence[Tensor], y: list[int], diversity: float, marginal: float
) -> Tensor:
    """Lee et al. (2023): the cross-entropy of the heads, the mutual information of each pair on the target, and the
    divergence of each head's mean prediction there from the mean prediction of all heads on the source."""
    fit = mean([mean(losses_of(logits, y)) for logits in source])
    p = [probabilities(logits) for logits in target]
    classes, n = range(len(p[0][0])), len(p[0])
    pairs = []
    for i in range(len(p)):
        for j in range(i + 1, len(p)):
            information = torch.zeros((), dtype=p[0][0].dtype)
            for a in classes:
                for b in classes:
                    joint = sum(p[i][k][a] * p[j][k][b] for k in range(n)) / n
                    apart = mean([row[a] for row in p[i]]) * mean([row[b] for row in p[j]])
                    information = information + joint * torch.log(joint / apart)
            pairs.append(information)
    on_source = [row for logits in source for row in probabilities(logits.detach())]
    divergences = []
    for head in p:
        parts = [(mean([row[c] for row in head]), mean([row[c] for row in on_source])) for c in classes]
        divergences.append(sum(here * torch.log(here / there) for here, there in parts))
    return fit + diversity * mean(pairs) + marginal * mean(divergences)


def dbat(first: Tensor, second: Tensor) -> Tensor:
    """Pagliardini et al. (2023): minus the log of how probably one of two models is for the first one's class, and the
    other against it."""
    parts = []
    for before, after in zip(probabilities(first.detach()), probabilities(second), strict=True):
        best = before.tolist().index(max(before.tolist()))
        p, q = before[best], after[best]
        parts.append(-torch.log(p * (1 - q) + (1 - p) * q + 1e-7))
    return mean(parts)


def ace(first: Tensor, second: Tensor, mix_rate: float, each_pair: bool) -> Tensor:
    """Daniels et al. (2025): pseudo-labels on which two heads disagree, for the inputs where they cost the least."""
    classes, n = range(first.shape[1]), len(first)
    cost = {}
    for a in classes:
        for b in classes:
            if a != b:
                pair = losses_of(first, [a] * n), losses_of(second, [b] * n)
                cost[a, b] = [one + other for one, other in zip(*pair, strict=True)]
    if not each_pair:
        columns = [[min((cost[pair][i] for pair in cost), key=Tensor.item) for i in range(n)]]
    else:
        columns = list(cost.values())
    total = torch.zeros((), dtype=first.dtype)
    for column in columns:
        k = round(n * mix_rate / len(columns))
        if k > 0:
            total = total + mean(sorted(column, key=Tensor.item)[:k])
    return total
