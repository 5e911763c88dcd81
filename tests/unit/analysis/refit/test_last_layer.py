"""The fit is the one that is written down, and what is said of held-out answers is not the best of many tries."""

from __future__ import annotations

import numpy as np
import pytest
import sklearn.metrics
from scipy.optimize import minimize

from sitar.analysis.refit import last_layer
from sitar.analysis.refit.last_layer import (
    ANSWERED,
    FOLDS,
    PENALTIES,
    REPEATS,
    Features,
    Setting,
    balanced,
    choose,
    fits,
    folds_of,
    log_loss,
    number_of_fits,
    self_trained,
)

ALL = np.full(20, True)


def noise(seed: int = 0, width: int = 3, train: int = 60, answers: int = 20) -> tuple[Features, np.ndarray]:
    """Features and answers that know nothing of each other."""
    random = np.random.default_rng(seed)
    y, answered = random.integers(0, 2, train), random.permutation(np.arange(answers) % 2)
    new = random.normal(2, 3, (answers, width))
    return Features(random.normal(2, 3, (train, width)), y, new, new), answered


def informed(features: Features, answers: np.ndarray) -> Features:
    """The same with a last feature that says the class of an answer."""
    told = np.concatenate([features.y, answers]) * 4.0
    train, answered = np.split(told[:, None], [len(features.y)])
    told_answers = np.hstack([features.answered, answered])
    return Features(np.hstack([features.train, train]), features.y, told_answers, told_answers)


def test_a_fit_minimises_the_weighted_log_loss_and_the_penalty() -> None:
    features, answers = noise()
    x, y = np.concatenate([features.train, features.answered]), np.concatenate([features.y, answers])
    shares = ((features.y, 1 - ANSWERED), (answers, ANSWERED))
    weight = np.array([share / (2 * np.sum(part == label)) for part, share in shares for label in part])
    assert weight.sum() == pytest.approx(1)
    mean = np.average(x, axis=0, weights=weight)
    scale = np.sqrt(np.average((x - mean) ** 2, axis=0, weights=weight))
    z, sign = (x - mean) / scale, 2 * y - 1

    def objective(theta: np.ndarray, penalty: float) -> float:
        losses = np.logaddexp(0, -sign * (z @ theta[:-1] + theta[-1]))
        return float(weight @ losses + penalty * np.sum(theta[:-1] ** 2))

    for penalty, layer in zip(PENALTIES, fits(features, answers, ALL, 2), strict=True):
        expected = minimize(objective, np.zeros(4), args=(penalty,), tol=1e-12).x
        logits = layer.logits(x)
        np.testing.assert_allclose(logits[:, 1] - logits[:, 0], z @ expected[:-1] + expected[-1], atol=2e-3)


def test_answers_that_are_not_seen_do_not_count() -> None:
    features, answers = noise()
    seen = np.arange(20) < 15
    other = Features(features.train, features.y, np.where(seen[:, None], features.answered, 99.0), features.new)
    for a, b in zip(fits(features, answers, seen, 2), fits(other, np.where(seen, answers, 0), seen, 2), strict=True):
        np.testing.assert_array_equal(a.weight, b.weight)


def test_classes_that_no_sample_has_are_never_predicted_and_three_classes_are_fitted() -> None:
    features, answers = noise()
    with_two = next(fits(features, answers, ALL, 4)).logits(features.answered)
    assert set(with_two.argmax(1)) <= {0, 1}
    answers = np.arange(20) % 3
    told = Features(features.train, features.y, np.eye(3)[answers] * 5, np.eye(3)[answers] * 5)
    logits = list(fits(told, answers, ALL, 4))[-1].logits(told.answered)
    assert (logits.argmax(1) == answers).all()


def test_a_feature_that_does_not_vary_changes_nothing() -> None:
    features, answers = noise()
    train, new = (np.hstack([x, np.full((len(x), 1), 7.0)]) for x in (features.train, features.new))
    constant = Features(train, features.y, new, new)
    for a, b in zip(fits(features, answers, ALL, 2), fits(constant, answers, ALL, 2), strict=True):
        np.testing.assert_allclose(a.logits(features.answered), b.logits(constant.answered), atol=1e-3)


def test_classes_count_the_same() -> None:
    y = np.array([0, 0, 0, 2])
    np.testing.assert_allclose(balanced(y), [1 / 6, 1 / 6, 1 / 6, 1 / 2])


def test_log_loss_is_that_of_scikit_learn() -> None:
    random = np.random.default_rng(0)
    logits, y = random.normal(0, 3, (2, 9, 3)), np.arange(9) % 3
    for scores, losses in zip(logits, log_loss(logits, y), strict=True):
        probabilities = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
        assert losses.mean() == pytest.approx(sklearn.metrics.log_loss(y, probabilities))


def test_every_class_is_spread_over_the_folds() -> None:
    y = np.array([0] * 23 + [1] * 7 + [2])
    folds = folds_of(y)
    for label in (0, 1):
        counts = np.bincount(folds[y == label], minlength=FOLDS)
        assert counts.max() - counts.min() <= 1
    assert np.bincount(folds, minlength=FOLDS).max() <= 7
    assert (folds != folds_of(y, seed=1)).any()


def test_features_that_know_the_answers_are_chosen() -> None:
    features, answers = noise()
    choice = choose([features, informed(features, answers), features], answers, 2)
    assert choice.setting.features == 1
    assert (choice.held_out.argmax(1) == answers).all()
    assert (choice.layer.logits(informed(features, answers).answered).argmax(1) == answers).all()


def test_where_two_are_equal_the_simpler_one_is_taken() -> None:
    features, answers = noise()
    choice = choose([features, features], answers, 2)
    assert choice.setting.features == 0
    empty = Features(np.zeros((60, 2)), features.y, np.zeros((20, 2)), np.zeros((20, 2)))
    assert choose([empty], answers, 2).setting.penalty == max(PENALTIES)


def test_the_best_of_many_tries_is_not_what_is_said_of_held_out_answers() -> None:
    """With twenty features that know nothing, some setting does well by chance. `held_out` must not follow it."""
    best, said = [], []
    for seed in range(3):
        random = np.random.default_rng(100 + seed)
        answers = random.permutation(np.arange(30) % 2)
        y = random.integers(0, 2, 10)
        many = [Features(random.normal(size=(10, 2)), y, new := random.normal(size=(30, 2)), new) for _ in range(20)]
        choice = choose(many, answers, 2)
        best.append(min(choice.losses.values()))
        said.append((choice.held_out.argmax(1) == answers).mean())
    assert np.mean(best) < np.log(2) - 0.02
    assert np.mean(said) < 0.62


def test_wide_features_are_reduced_and_the_layer_reads_them_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    features, answers = noise(width=12)
    features = informed(features, answers)
    monkeypatch.setattr(last_layer, "MOST_FEATURES", 10)
    monkeypatch.setattr(last_layer, "COMPONENTS", 13)  # all of them: nothing is lost
    choice = choose([features], answers, 2)
    assert choice.layer.weight.shape == (2, 13)
    reduced, axes = last_layer.reduce(features)
    assert axes is not None
    np.testing.assert_allclose(np.cov(reduced.train.T) - np.diag(np.var(reduced.train, axis=0, ddof=1)), 0, atol=1e-8)
    layer = self_trained(reduced, answers, ALL, choice.setting.penalty, 2)
    np.testing.assert_allclose(
        choice.layer.logits(features.answered), layer.logits(features.answered @ axes.T), atol=1e-9
    )
    monkeypatch.setattr(last_layer, "COMPONENTS", 2)
    variances = np.var(last_layer.reduce(features)[0].train, axis=0)
    assert (
        variances[0] >= variances[1] == pytest.approx(np.sort(np.linalg.eigvalsh(np.cov(features.train.T, ddof=0)))[-2])
    )


def conflicts(seed: int) -> tuple[Features, np.ndarray, np.ndarray]:
    """Two cues agree in training and not in new images, where the label is the weaker one. Few have an answer."""
    random = np.random.default_rng(seed)
    y, label, other = random.integers(0, 2, 400), random.integers(0, 2, 600), random.integers(0, 2, 600)
    train = np.stack([2 * y - 1, 3 * (2 * y - 1)], 1) + random.normal(0, 0.5, (400, 2))
    new = np.stack([2 * label - 1, 3 * (2 * other - 1)], 1) + random.normal(0, 0.5, (600, 2))
    return Features(train, y, new[:8], new), label[:8], label


def test_guesses_about_new_images_move_the_layer_to_the_cue_that_answers_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight answers leave a layer between the two cues. The images without an answer settle it."""

    def accuracy(rounds: int, seed: int) -> float:
        monkeypatch.setattr(last_layer, "ROUNDS", rounds)
        features, answers, label = conflicts(seed)
        layer = self_trained(features, answers, np.full(8, True), 0.01, 2)
        return float((layer.logits(features.new).argmax(1) == label).mean())

    before, after = (1 - np.mean([accuracy(rounds, seed) for seed in range(5)]) for rounds in (0, 3))
    assert after < 0.6 * before


def test_guesses_of_one_class_only_are_no_error() -> None:
    features, answers = noise()
    far = Features(features.train, features.y, features.answered, np.full((9, 3), 1e3))
    layer = self_trained(far, answers, ALL, 0.01, 3)
    assert np.isfinite(layer.logits(features.answered)).all()
    assert (layer.logits(features.answered).argmax(1) < 2).all()


def test_the_loss_of_a_setting_is_the_mean_over_several_divisions_into_folds(monkeypatch: pytest.MonkeyPatch) -> None:
    features, answers = noise()
    told: list[int] = []
    together = choose([features], answers, 2, told.append).losses
    assert told == list(range(1, number_of_fits(1) + 1))
    monkeypatch.setattr(last_layer, "REPEATS", 1)
    alone = []
    for repeat in range(REPEATS):
        monkeypatch.setattr(last_layer, "folds_of", lambda y, seed=0, repeat=repeat: folds_of(y, repeat))
        alone.append(choose([features], answers, 2).losses)
    assert (
        len({round(losses[Setting(0, PENALTIES[-1])], 6) for losses in alone}) == REPEATS
    )  # every division is another
    for setting, loss in together.items():
        assert loss == pytest.approx(np.mean([losses[setting] for losses in alone]))
