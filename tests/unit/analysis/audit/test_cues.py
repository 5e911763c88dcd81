"""How well a cue alone tells the label, against implementations from outside."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binomtest, norm
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.metrics import balanced_accuracy_score

from sitar.analysis.audit.cues import (
    LEAST_CONFLICTS,
    TELLS,
    Cue,
    bar,
    direction,
    likely_class,
    predict,
    score_cues,
    score_predictions,
    standard_errors,
)  # fmt: skip


def test_the_accuracy_is_balanced_and_the_interval_is_wilsons() -> None:
    random = np.random.default_rng(0)
    y = (random.random(500) < 0.2).astype(int)
    predicted = np.where(random.random(500) < 0.8, y, 1 - y)
    score = score_predictions(predicted, y, 2, 1.96)
    assert score.accuracy == pytest.approx(balanced_accuracy_score(y, predicted))
    assert score.conflicts == tuple(int(((predicted != y) & (y == c)).sum()) for c in (0, 1))
    shares, below, above = [], [], []
    for c in (0, 1):
        right, n = int((predicted == y)[y == c].sum()), int((y == c).sum())
        bounds = binomtest(right, n).proportion_ci(norm.cdf(1.96) * 2 - 1, "wilson")
        shares.append(right / n)
        below.append(right / n - bounds.low)
        above.append(bounds.high - right / n)
    assert score.low == pytest.approx(np.mean(shares) - np.hypot(*below) / 2)
    assert score.high == pytest.approx(np.mean(shares) + np.hypot(*above) / 2)


def test_intervals_are_wider_the_more_cues_there_are() -> None:
    assert standard_errors(1) == pytest.approx(norm.ppf(0.975))
    assert standard_errors(40) == pytest.approx(norm.ppf(1 - 0.05 / 80))


@pytest.mark.parametrize(("agree", "strength"), [(0.5, "nothing"), (0.62, "a little"), (0.85, "tells")])
def test_what_an_accuracy_is_called(agree: float, strength: str) -> None:
    y = np.arange(4000) % 2
    predicted = np.where(np.arange(4000) // 2 % 1000 < 1000 * agree, y, 1 - y)
    assert score_predictions(predicted, y, 2, 3.0).strength == strength
    assert bar(2) == 0.5 + TELLS / 2


@pytest.mark.parametrize(("conflicts", "apart"), [(LEAST_CONFLICTS - 1, False), (LEAST_CONFLICTS, True)])
def test_the_class_with_the_fewest_conflicts_decides(conflicts: int, apart: bool) -> None:
    y = np.repeat([0, 1], 200)
    predicted = y.copy()
    predicted[:conflicts] = 1
    predicted[200:260] = 0
    assert score_predictions(predicted, y, 2, 2.0).apart == apart


def test_samples_are_predicted_by_models_that_have_not_seen_them() -> None:
    """Of noise a tree remembers something, and out of its fold it knows nothing."""
    random = np.random.default_rng(0)
    y = np.arange(2000) % 2
    cues = [Cue("noise", "image", random.normal(size=(2000, 5))), Cue("words", "column", random.integers(0, 9, 2000),
            tuple("abcdefghi"))]  # fmt: skip
    for predicted in predict(cues, y, 2):
        assert abs((predicted == y).mean() - 0.5) < 0.04
    assert [score.strength for score in score_cues(cues, y, 2)] == ["nothing", "nothing"]


def test_numbers_need_not_rise_with_the_label_and_may_be_missing() -> None:
    random = np.random.default_rng(0)
    y = np.arange(600) % 2
    middle = np.where(y == 1, random.normal(0, 0.5, 600), random.choice([-4, 4], 600) + random.normal(0, 0.5, 600))
    missing = np.where(y == 1, np.nan, random.normal(size=600))
    scores = score_cues([Cue("middle", "column", middle[:, None]), Cue("missing", "column", missing[:, None])], y, 2)
    assert [score.strength for score in scores] == ["tells", "tells"]


def test_a_word_stands_for_the_class_with_the_largest_share_of_its_samples() -> None:
    values, y = np.array([0] * 90 + [1] * 10 + [0] * 4 + [1] * 6), np.array([0] * 100 + [1] * 10)
    assert likely_class(values, y, 2, 2).tolist() == [0, 1]  # most of the rare class, though fewer samples


def test_the_direction_of_a_cue_is_fishers() -> None:
    random = np.random.default_rng(0)
    y = np.arange(400) % 2
    x = random.normal(size=(400, 3)) * [1, 5, 1] + y[:, None] * [2, 0, -1]
    ours = direction(Cue("colour", "image", x), y, 2)
    theirs = LinearDiscriminantAnalysis().fit(x, y).decision_function(x)
    assert np.corrcoef(ours, theirs)[0, 1] == pytest.approx(1)
    assert ours[y == 1].mean() > ours[y == 0].mean()


def test_no_word_stands_for_a_class_without_samples() -> None:
    """Of a value that is rare everywhere, one more for each value says most about the class that has none."""
    values, y = np.array([0] * 90 + [1] * 2), np.array([0] * 46 + [1] * 46)
    assert 2 not in likely_class(values, y, 2, 3)
