"""Planted features are as easy, as bent and as mixed as their settings say."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import norm
from sklearn.linear_model import LogisticRegression

from sitar.config import section_config
from sitar.data import Data, load_data
from sitar.errors import ConfigError


def planted(**settings: Any) -> Data:
    return load_data(section_config("data", {"name": "planted", **settings}), progress=False)  # type: ignore[arg-type]


def arrays(data: Data, split: str = "ood_test") -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return inputs, labels and attributes of a split."""
    part = data.evaluation[split]
    assert part.group is not None
    return np.asarray(part.x), np.asarray(part.y), np.asarray(part.group % 2)


def linear_accuracy(data: Data, of: str) -> float:
    """Fit a linear model to val_ood and score it on ood_test."""
    place = {"label": 1, "attribute": 2}[of]
    seen, unseen = arrays(data, "val_ood"), arrays(data)
    return float(LogisticRegression().fit(seen[0], seen[place]).score(unseen[0], unseen[place]))


@pytest.mark.parametrize("rho", [0.0, 0.8, 1.0])
def test_the_shortcut_follows_the_label_in_a_share_of_training(rho: float) -> None:
    data = planted(rho=rho, train_size=4000)
    assert data.train_groups is not None
    share = float((data.train_groups.group % 2 == data.train.y).float().mean())
    assert share == pytest.approx(rho, abs=0.02)
    for split, expected in (("val", rho), ("id_test", rho), ("val_ood", 0.5), ("ood_test", 0.5)):
        _, y, attribute = arrays(data, split)
        assert float((y == attribute).mean()) == pytest.approx(expected, abs=0.04), split
    follows = {(0, 0), (1, 1)} if rho >= 0.5 else {(0, 1), (1, 0)}
    assert data.evaluation["ood_test"].majority == follows


@pytest.mark.parametrize("settings", [{}, {"core_parts": 3}, {"core_scale": 0.5}, {"mixing": 0.0}], ids=str)
def test_strength_is_what_a_linear_model_can_know(settings: dict[str, Any]) -> None:
    """The best accuracy for two shifts of deviation 1 is Phi(strength), in however many places, sizes and rotations."""
    data = planted(core_strength=1.0, shortcut_strength=2.0, features=12, eval_size=8000, **settings)
    assert linear_accuracy(data, "label") == pytest.approx(float(norm.cdf(1.0)), abs=0.02)
    assert linear_accuracy(data, "attribute") == pytest.approx(float(norm.cdf(2.0)), abs=0.01)


def test_a_bent_cue_is_hidden_from_a_linear_model_and_shows_in_a_product() -> None:
    data = planted(core_strength=2.0, core_bend=1.0, mixing=0.0, features=8, eval_size=8000)
    assert linear_accuracy(data, "label") == pytest.approx(0.5, abs=0.03)
    x, y, _ = arrays(data)
    both = norm.cdf(2.0) ** 2 + norm.cdf(-2.0) ** 2  # both signs right, or both wrong
    assert float(((x[:, 0] * x[:, 1] > 0) == y).mean()) == pytest.approx(float(both), abs=0.02)
    half = planted(core_strength=3.0, core_bend=0.5, mixing=0.0, features=8, eval_size=8000)
    x, y, _ = arrays(half)
    assert float(((x[:, 0] > 0) == y).mean()) == pytest.approx(0.75, abs=0.02), "a quarter is turned round"


def test_wrong_labels_bound_what_the_core_tells() -> None:
    data = planted(core_strength=6.0, label_noise=0.2, rho=0.9)
    assert linear_accuracy(data, "label") == pytest.approx(0.8, abs=0.03)
    assert data.train_groups is not None
    share = float((data.train_groups.group % 2 == data.train.y).float().mean())
    assert share == pytest.approx(0.9, abs=0.02), "the shortcut follows the label as it is given"


def test_mixing_spreads_the_cues_over_all_features_and_keeps_lengths() -> None:
    settings = {"core_strength": 3.0, "shortcut_strength": 3.0, "features": 40}
    apart, mixed = planted(mixing=0.0, **settings), planted(mixing=1.0, **settings)
    assert torch.equal(apart.train.y, mixed.train.y)
    lengths = [torch.as_tensor(np.asarray(data.train.x)).norm(dim=1) for data in (apart, mixed)]
    torch.testing.assert_close(*lengths, rtol=1e-4, atol=1e-4)

    def telling(data: Data) -> np.ndarray:
        x, y, _ = arrays(data)
        return np.abs(np.corrcoef(x.T, y)[-1, :-1])

    assert (telling(apart) > 0.1).tolist() == [True] + [False] * 39
    assert (telling(mixed) > 0.1).sum() > 8
    assert telling(mixed).max() < telling(apart).max() - 0.2
    hardly = telling(planted(mixing=0.05, **settings))
    assert hardly.argmax() == 0
    assert hardly.max() > telling(apart).max() - 0.05


def test_label_and_shortcut_exchange_their_roles() -> None:
    """The samples stay as they are. Where the two always agree in training, so do the training labels."""
    core, shortcut = planted(rho=1.0), planted(rho=1.0, label="shortcut")
    assert torch.equal(core.train.x[:], shortcut.train.x[:])
    assert torch.equal(core.train.y, shortcut.train.y)
    (_, y, attribute), (_, other_y, other_attribute) = arrays(core), arrays(shortcut)
    assert (y == other_attribute).all()
    assert (attribute == other_y).all()
    assert core.attributes == {"shortcut": ("shortcut -", "shortcut +")}
    assert shortcut.attributes == {"core": ("core -", "core +")}


def test_seeds_draw_other_samples_and_another_rotation() -> None:
    one, two = planted(seed=0), planted(seed=1)
    assert one.checksum != two.checksum

    def direction(seed: int) -> np.ndarray:
        x, y, _ = arrays(planted(seed=seed, core_strength=40.0, shortcut_strength=0.0))
        return np.corrcoef(x.T, y)[-1, :-1]

    assert abs(np.corrcoef(direction(0), direction(1))[0, 1]) < 0.9


def test_more_places_than_features_are_refused() -> None:
    with pytest.raises(ConfigError, match="need 10 features, two for each place, and there are 8: set features=10"):
        planted(core_parts=2, shortcut_parts=3, features=8)
