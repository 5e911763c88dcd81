"""The shapes that functions declare are checked, where the tests are told to."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from jaxtyping import TypeCheckError

from sitar.evaluation.metrics import class_balanced
from sitar.functional.correlation import label_correlation

pytestmark = pytest.mark.shapes


def test_wrong_shapes_are_refused(pytestconfig: pytest.Config) -> None:
    if not pytestconfig.getoption("jaxtyping_packages"):
        pytest.skip("needs --jaxtyping-packages, as make test gives it")
    with pytest.raises(TypeCheckError):
        label_correlation(torch.zeros(3, 2), torch.zeros(4, dtype=torch.long), 2)
    with pytest.raises(TypeCheckError):
        class_balanced(np.ones(3, dtype=bool), np.ones(4, dtype=np.int64))
