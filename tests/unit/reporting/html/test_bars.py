"""Bars and their ranges."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.made_runs import make_run
from sitar.reporting.comparison import compare_runs
from sitar.reporting.html.bars import metric_bars, wilson


def test_seeds_of_a_setting_are_one_row(tmp_path: Path) -> None:
    several = [make_run(tmp_path / str(seed), seed=seed, accuracy=0.7, explained=False).path for seed in range(3)]
    (comparison,), _ = compare_runs(several)
    (bar,) = metric_bars(comparison, "ood_test", "average")
    values = [run.result["splits"]["ood_test"]["average"] for run in comparison.runs]
    assert (bar.low, bar.high) == (min(values), max(values))
    assert bar.value == pytest.approx(sum(values) / 3)
    assert [run.label for run in comparison.runs] == [f"sitar, seed {seed}" for seed in range(3)]


@pytest.mark.parametrize(("share", "n"), [(0.0, 10), (0.5, 50), (0.93, 200), (1.0, 3)])
def test_wilsons_interval_is_scipys(share: float, n: int) -> None:
    from scipy.stats import binomtest

    hits = round(share * n)
    expected = binomtest(hits, n).proportion_ci(method="wilson")
    assert wilson(hits / n, n) == pytest.approx((expected.low, expected.high), abs=2e-5)
