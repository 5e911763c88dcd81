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
from sitar.evaluation.metrics import Predictions, split_metrics


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


SMALL = {"mixing": 0.0, "features": 12, "train_size": 50, "eval_size": 20}  # without a rotation, which rounds


@pytest.mark.parametrize(
    ("settings", "checksum"),
    [
        (
            {"shortcut_parts": 2, "core_bend": 0.4, "label_noise": 0.1},
            "9aefe19aae497f1f2ada729d7476a4f15f8ede29a36d65738fc6ab04d8648c71",
        ),
        ({"label": "shortcut", "rho": 0.3}, "98201042bffa2be5d62c03e0094f235a90f544e69b83504819ff0628f5f364db"),
    ],
)
def test_one_shortcut_is_what_it_was_before_there_could_be_several(settings: dict[str, Any], checksum: str) -> None:
    """The checksums were computed before `shortcuts` was a setting."""
    assert planted(**SMALL, **settings).checksum == checksum
    assert planted(**SMALL, **settings, shortcuts=1).checksum == checksum


def agreements(data: Data, split: str, shortcuts: int) -> np.ndarray:
    """Return which shortcuts (sample, shortcut) agree with the label, from the names of the groups."""
    part = data.evaluation[split]
    assert part.group is not None
    signs = [value.removeprefix("shortcut ") for value in data.attributes["shortcut"]]
    assert [len(of) for of in signs] == [shortcuts] * len(signs)
    attribute = np.asarray(part.group) % len(signs)
    shown = np.array([[sign == "+" for sign in of] for of in signs])[attribute]
    return shown == np.asarray(part.y)[:, None].astype(bool)


@pytest.mark.parametrize("shortcuts", [2, 3])
def test_each_shortcut_follows_the_label_by_its_own_draw(shortcuts: int) -> None:
    """Each agrees in a share rho. Given the label they are independent: pairs agree in the product of the shares."""
    data = planted(shortcuts=shortcuts, rho=0.8, label_noise=0.1, eval_size=20_000)
    for split, rho in (("val", 0.8), ("id_test", 0.8), ("val_ood", 0.5), ("ood_test", 0.5)):
        agree, y = agreements(data, split, shortcuts), np.asarray(data.evaluation[split].y)
        for label in (0, 1):
            of = agree[y == label]
            np.testing.assert_allclose(of.mean(0), rho, atol=0.02)
            covariance = np.cov(of.T)
            np.testing.assert_allclose(covariance[~np.eye(shortcuts, dtype=bool)], 0, atol=0.01)
        assert agree.all(1).mean() == pytest.approx(rho**shortcuts, abs=0.02)
        assert (~agree).all(1).mean() == pytest.approx((1 - rho) ** shortcuts, abs=0.02)


def test_each_shortcut_is_as_strong_as_one_alone_and_has_features_of_its_own() -> None:
    data = planted(shortcuts=3, core_strength=1.0, shortcut_strength=2.0, mixing=0.0, features=12, eval_size=8000)
    x, y, _ = arrays(data)
    agree = agreements(data, "ood_test", 3)
    shown = np.where(agree, y[:, None], 1 - y[:, None])
    told = np.abs(np.corrcoef(x.T, shown.T)[-3:, :12])
    assert told.argmax(1).tolist() == [2, 4, 6], "the core has the first place"
    assert ((told > 0.1).sum(1) == 1).all()
    for shortcut, feature in enumerate((2, 4, 6)):
        assert float(((x[:, feature] > 0) == shown[:, shortcut]).mean()) == pytest.approx(norm.cdf(2.0), abs=0.01)


@pytest.mark.parametrize("rho", [0.9, 0.2])
def test_a_group_is_a_label_and_the_signs_of_all_shortcuts(rho: float) -> None:
    data = planted(shortcuts=2, rho=rho)
    assert data.attributes == {"shortcut": ("shortcut --", "shortcut -+", "shortcut +-", "shortcut ++")}
    part = data.evaluation["ood_test"]
    assert len(part.group_names) == 8
    assert part.majority == ({(0, 0), (1, 3)} if rho >= 0.5 else {(0, 3), (1, 0)})
    assert data.train_groups is not None
    follow = float((data.train_groups.environment == 0).float().mean())
    assert follow == pytest.approx(max(rho, 1 - rho) ** 2, abs=0.02), "all shortcuts follow the label, or all oppose it"
    assert torch.equal(data.train_groups.group // 4, data.train.y)


def test_metrics_know_several_shortcuts() -> None:
    """Who follows all shortcuts has a shortcut AUC of 1 and a group that is all wrong."""
    data = planted(shortcuts=2, rho=0.9)
    part = data.evaluation["ood_test"]
    y, agree = np.asarray(part.y), agreements(data, "ood_test", 2)
    shown = np.where(agree, y[:, None], 1 - y[:, None]).sum(1) - 1.0
    assert part.group is not None
    rest = (np.asarray(part.group), part.group_names, part.group_share, part.majority)
    noise = np.random.default_rng(0).standard_normal(len(y)) * 0.1
    scores = [np.stack([-of, of], 1) for of in (shown + noise, y - 0.5 + noise)]
    followed, known = (split_metrics(Predictions(of, y, *rest), resamples=0) for of in scores)
    assert followed["shortcut_auc"] == 1
    assert followed["core_auc"] == pytest.approx(0.5, abs=0.05)
    assert followed["worst_group"] == 0
    assert (known["core_auc"], known["worst_group"]) == (1, 1)
    assert known["shortcut_auc"] == pytest.approx(0.5, abs=0.05)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (
            {"core_parts": 2, "shortcut_parts": 3, "features": 8},
            "core_parts and shortcut_parts need 10 features, two for each place, and there are 8: set features=10",
        ),
        ({"shortcuts": 4, "shortcut_parts": 3, "features": 16}, "of 4 shortcuts need 26 features"),
        ({"shortcuts": 2, "label": "shortcut"}, "label=shortcut predicts the one shortcut, but shortcuts=2"),
        ({"shortcuts": 0}, "shortcuts"),
        ({"shortcuts": 7}, "shortcuts"),
        ({"shortcuts": 1.5}, "shortcuts"),
    ],
    ids=str,
)
def test_shortcuts_and_places_that_cannot_be_are_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        planted(**settings)
