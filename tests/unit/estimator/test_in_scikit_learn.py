"""The estimators work inside scikit-learn's own tools."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import sklearn
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import make_classification
from sklearn.ensemble import VotingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import balanced_accuracy_score, make_scorer
from sklearn.model_selection import GridSearchCV, cross_val_predict, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from sitar import ShortcutRobustClassifier, SitarClassifier
from sitar.errors import InputError

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # QUICK is short
X, Y = make_classification(
    150, 6, n_informative=4, n_redundant=0, class_sep=2.0, n_clusters_per_class=1, random_state=0
)
WORDS = np.array(["no", "yes"])[Y]
QUICK: dict[str, Any] = {"max_iter": 25, "learning_rate": 0.02, "random_state": 0, "device": "cpu"}


def test_in_a_pipeline() -> None:
    pipeline = make_pipeline(StandardScaler(), SitarClassifier(**QUICK)).fit(X, WORDS)
    assert pipeline.score(X, WORDS) > 0.75
    weighted = make_pipeline(StandardScaler(), SitarClassifier(**QUICK))
    weighted.fit(X, WORDS, sitarclassifier__sample_weight=np.where(Y == 1, 5.0, 1.0))
    assert (weighted.predict(X) == "yes").mean() >= (pipeline.predict(X) == "yes").mean()


@pytest.mark.ci
def test_in_a_grid_search() -> None:
    search = GridSearchCV(SitarClassifier(**QUICK), {"alpha": [0.0, 1.0], "noise": ["axis", "direction"]}, cv=2)
    search.fit(X, WORDS)
    assert set(search.best_params_) == {"alpha", "noise"}
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert search.predict(X[:3]).shape == (3,)


def test_settings_of_a_method_can_be_searched() -> None:
    grid = {"settings": [{"method.copies": 1}, {"method.copies": 9}]}
    search = GridSearchCV(ShortcutRobustClassifier("jtt", **QUICK), grid, cv=2).fit(X, Y)
    assert search.best_params_["settings"] in grid["settings"]


def test_in_cross_validation() -> None:
    scorer = make_scorer(balanced_accuracy_score)
    scores = cross_val_score(ShortcutRobustClassifier("erm", **QUICK), X, WORDS, cv=3, scoring=scorer)
    assert scores.min() > 0.7
    assert cross_val_predict(SitarClassifier(**QUICK), X, Y, cv=2, method="predict_proba").shape == (150, 2)


@pytest.mark.parametrize("method", ["sigmoid", "isotonic"])
def test_calibrated(method: str) -> None:
    model = CalibratedClassifierCV(SitarClassifier(**QUICK), method=method, cv=2).fit(X, WORDS)
    assert model.score(X, WORDS) > 0.7
    np.testing.assert_allclose(model.predict_proba(X).sum(1), 1)


def test_beside_other_classifiers() -> None:
    votes = VotingClassifier([("sitar", SitarClassifier(**QUICK)), ("linear", LogisticRegression())], voting="soft")
    assert votes.fit(X, WORDS).score(X, WORDS) > 0.8


def test_the_attribute_is_routed() -> None:
    model = ShortcutRobustClassifier("group_dro", **QUICK)
    attribute = np.where(np.arange(150) % 5, Y, 1 - Y)
    with sklearn.config_context(enable_metadata_routing=True):
        asked = model.set_fit_request(attribute=True)
        scores = cross_val_score(asked, X, Y, cv=2, params={"attribute": attribute})
    assert np.isfinite(scores).all()
    with pytest.raises(InputError, match="attribute"):
        cross_val_score(model, X, Y, cv=2, error_score="raise")


@pytest.mark.ci
def test_several_processes() -> None:
    scores = cross_val_score(ShortcutRobustClassifier("erm", **QUICK), X, Y, cv=2, n_jobs=2)
    alone = cross_val_score(ShortcutRobustClassifier("erm", **QUICK), X, Y, cv=2)
    np.testing.assert_allclose(scores, alone)
