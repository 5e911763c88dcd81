"""A fit that can hardly have learned is warned of, and others are not."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.datasets import make_classification
from sklearn.exceptions import ConvergenceWarning

from sitar import ShortcutRobustClassifier, SitarClassifier
from sitar.estimator.convergence import FEW

FIXED: dict[str, Any] = {"random_state": 0, "device": "cpu"}


def made(n: int = 120) -> tuple[NDArray[Any], NDArray[Any]]:
    return make_classification(n, 6, n_informative=4, n_redundant=0, class_sep=2.0, random_state=0)


@pytest.mark.parametrize(("epochs", "batch", "steps"), [(FEW - 1, 256, FEW - 1), (33, 40, FEW - 1)])
def test_a_fit_of_few_steps_is_warned_of_where_it_is_called(epochs: int, batch: int, steps: int) -> None:
    model = ShortcutRobustClassifier("erm", max_iter=epochs, batch_size=batch, **FIXED)
    with pytest.warns(ConvergenceWarning, match=f"had {steps} steps of training.*Raise max_iter") as caught:
        model.fit(*made())
    assert [warning.filename for warning in caught] == [__file__]


@pytest.mark.parametrize(("epochs", "batch"), [(FEW, 256), (34, 40), (None, 256)])
def test_other_fits_are_not(epochs: int | None, batch: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ShortcutRobustClassifier("erm", max_iter=epochs, batch_size=batch, **FIXED).fit(*made())


def test_one_class_for_all_training_samples_is_warned_of() -> None:
    x = np.random.RandomState(0).randn(1500, 3)
    y = np.where(np.arange(1500) < 3, "rare", "often")
    model = SitarClassifier(class_weight=None, max_iter=20, **FIXED)
    with pytest.warns(ConvergenceWarning, match="predicts one class, 'often', for all training samples"):
        model.fit(x, y)
    assert set(model.predict(x)) == {"often"}


def test_samples_in_the_order_of_their_classes_have_two() -> None:
    x, y = made(1500)
    order = np.argsort(y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ShortcutRobustClassifier("erm", max_iter=20, **FIXED).fit(x[order], y[order])
