"""Eq. 2: which axes track the label."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import multiprocessing

from helpers import referees
from helpers.referees import batch, close, listing
from sitar.functional.correlation import label_correlation, label_moments, shortcut_score, without_chance
from sitar.functional.reduce import global_sum

pytestmark = pytest.mark.shapes


@pytest.mark.parametrize(
    "check",
    [
        referees.check_correlation_two_classes,
        referees.check_correlation_many_classes,
        referees.check_correlation_weighted,
        referees.check_correlation_degenerate,
        referees.check_correlation_has_no_gradient,
    ],
)
def test_label_correlation(check):
    check(label_correlation)


def test_shortcut_score():
    referees.check_score(shortcut_score)


def test_two_classes_are_the_papers_listing():
    referees.check_paper_score(lambda mu, y: shortcut_score(label_correlation(mu, y, 2)))


def test_three_classes_take_the_largest_modulus():
    """Class 0 lies low on the first axis: its correlation, the strongest, is negative."""
    y = torch.tensor([0] * 20 + [1] * 40 + [2] * 40)
    mu = torch.where(y == 0, -3.0, 0.0).unsqueeze(1) + torch.linspace(-1, 1, 100).roll(31).unsqueeze(1)
    r = label_correlation(mu, y, 3)
    strongest = np.corrcoef(mu[:, 0].numpy(), y.numpy() == 0)[0, 1]
    assert strongest < -0.8
    assert r.max() < 0.5
    close(shortcut_score(r), [-strongest])


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10_000), n=st.integers(2, 40), scale=st.floats(1e-2, 1e2))
def test_two_classes_are_the_listing_for_any_batch(seed, n, scale):
    random = np.random.default_rng(seed)
    mu, y = (scale * random.normal(size=(n, 3))).astype(np.float32), random.integers(2, size=n)
    found = shortcut_score(label_correlation(torch.tensor(mu), torch.tensor(y), 2))
    close(found, listing(mu.astype(np.float64), y), atol=1e-4)
    assert found.max() <= 1 + 1e-5


def test_weights_repeat_samples():
    mu, y = batch(3, n=60)
    times = torch.randint(0, 4, (60,), generator=torch.Generator().manual_seed(0))
    repeated = label_correlation(mu.repeat_interleave(times, 0), y.repeat_interleave(times), 3)
    close(label_correlation(mu, y, 3, times.float()), repeated.numpy())


def test_equal_weights_do_nothing():
    mu, y = batch(2)
    close(label_correlation(mu, y, 2, torch.full((len(y),), 0.3)), label_correlation(mu, y, 2).numpy())


@pytest.mark.parametrize("classes", [2, 3])
def test_moments_are_numpys(classes):
    mu, y = batch(classes)
    weight = torch.linspace(2.5, 0.2, classes)[y]
    moments = label_moments(mu, y, classes, weight)
    axes, w = mu.double().numpy(), weight.double().numpy()
    close(moments.spread, np.sqrt(np.diag(np.cov(axes.T, aweights=w, ddof=0))))
    for row, c in zip(moments.shared, range(1, 2) if classes == 2 else range(classes), strict=True):
        both = np.cov(axes.T, y.numpy() == c, aweights=w, ddof=0)
        close(row, both[:-1, -1] / np.sqrt(both[-1, -1]), atol=1e-4)
    close(moments.samples, w.sum() ** 2 / (w**2).sum(), rtol=1e-5)
    close(moments.correlation, label_correlation(mu, y, classes, weight).numpy())


def test_without_chance_an_axis_that_knows_nothing_scores_nothing_on_average():
    """v^2 of an axis that does not follow the label is 1/n on average, and its floor takes just that."""
    torch.manual_seed(0)
    n, axes = 64, 20_000
    y = torch.arange(n) % 2
    moments = label_moments(torch.randn(n, axes), y, 2)
    close(moments.correlation.square().mean(), 1 / n, rtol=0.05)
    kept = shortcut_score(without_chance(moments).correlation)
    close(kept.square(), (moments.correlation[0].square() - 1 / n).clamp_min(0).numpy(), atol=1e-5)
    assert (kept == 0).float().mean() > 0.6
    strong = label_moments(y.unsqueeze(1) + 0.1 * torch.randn(n, 1), y, 2)
    close(without_chance(strong).correlation, strong.correlation.numpy(), rtol=0.01)
    assert (without_chance(strong).correlation < strong.correlation).all()


def test_half_precision_is_computed_in_float32():
    mu, y = batch(2)
    r = label_correlation(mu.bfloat16(), y, 2)
    assert r.dtype == torch.float32
    close(r, label_correlation(mu.bfloat16().float(), y, 2).numpy())


def test_one_process_sums_nothing():
    local = torch.tensor([1.0, 2.0])
    assert global_sum(local) is local


def _one_of_two(rank: int, folder: str) -> None:
    """A process that sees its part of the batch only."""
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.set_num_threads(1)
    place, patience = f"file://{folder}/store", timedelta(minutes=2)
    dist.init_process_group("gloo", init_method=place, rank=rank, world_size=2, timeout=patience)
    try:
        found = {"sum": global_sum(torch.tensor([1.0 + rank, 10.0 * rank]))}
        for num_classes in (2, 3):
            mu, y = batch(num_classes)
            mine = slice(0, 100) if rank == 0 else slice(100, None)
            weight = torch.linspace(0.5, 2, num_classes)[y]
            found[f"plain{num_classes}"] = label_correlation(mu[mine], y[mine], num_classes)
            found[f"weighted{num_classes}"] = label_correlation(mu[mine], y[mine], num_classes, weight[mine])
        torch.save(found, Path(folder) / f"{rank}.pt")
    finally:
        dist.destroy_process_group()


def test_two_processes_agree_with_one(tmp_path):
    """This process is one of them."""
    other = multiprocessing.get_context("spawn").Process(target=_one_of_two, args=(1, str(tmp_path)))
    other.start()
    _one_of_two(0, str(tmp_path))
    other.join()
    assert other.exitcode == 0
    for rank in range(2):
        found = torch.load(tmp_path / f"{rank}.pt", weights_only=True)
        close(found["sum"], [3, 10])
        for num_classes in (2, 3):
            mu, y = batch(num_classes)
            weight = torch.linspace(0.5, 2, num_classes)[y]
            close(found[f"plain{num_classes}"], label_correlation(mu, y, num_classes).numpy())
            close(found[f"weighted{num_classes}"], label_correlation(mu, y, num_classes, weight).numpy())
