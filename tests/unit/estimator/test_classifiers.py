"""The estimators do what a user of scikit-learn expects of them."""

from __future__ import annotations

import copy
import json
import pickle
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.datasets import make_classification
from sklearn.exceptions import NotFittedError

import sitar
from helpers.cli import sitar as command
from sitar import ShortcutRobustClassifier, SitarClassifier
from sitar.errors import DataError, InputError, RunError, TrainingError
from sitar.registry import METHODS

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # QUICK is very short
QUICK: dict[str, Any] = {"max_iter": 8, "learning_rate": 0.02, "random_state": 0, "device": "cpu"}
WITHOUT_GROUPS = sorted(
    name for name, cls in METHODS.available().items() if not cls.needs_groups and not cls.needs_unlabelled
)
UNLABELLED = sorted(name for name, cls in METHODS.available().items() if cls.needs_unlabelled)
WITH_GROUPS = sorted(name for name, cls in METHODS.available().items() if cls.needs_groups)
SETTINGS = {"diffusion": {"method.scoring_pairs": 2}}


def features(n: int = 120, classes: int = 2) -> tuple[NDArray[Any], NDArray[Any]]:
    return make_classification(
        n, 6, n_informative=4, n_redundant=0, n_classes=classes, class_sep=2.0, n_clusters_per_class=1, random_state=0
    )


def images(n: int = 60) -> tuple[NDArray[np.uint8], NDArray[np.str_]]:
    """Make images whose brightness tells the class."""
    random = np.random.RandomState(0)
    y = np.arange(n) % 2
    x = random.randint(0, 120, (n, 8, 8, 3)) + 100 * y[:, None, None, None]
    return x.astype(np.uint8), np.array(["dark", "light"])[y]


@pytest.fixture(scope="module")
def fitted() -> SitarClassifier:
    x, y = features()
    return SitarClassifier(**QUICK).fit(x, np.array(["no", "yes"])[y])


def test_a_fit_learns(fitted: SitarClassifier) -> None:
    x, y = features()
    longer = clone(fitted).set_params(max_iter=60).fit(x, y)
    assert longer.score(x, y) > 0.85
    assert longer.loss_curve_[-1] < longer.loss_curve_[0]


def test_fitted_attributes(fitted: SitarClassifier) -> None:
    assert fitted.classes_.tolist() == ["no", "yes"]
    assert fitted.n_features_in_ == 6
    assert fitted.n_iter_ == len(fitted.loss_curve_) == 8
    assert fitted.validation_scores_ is None
    assert fitted.shortcut_scores_.shape == (32,)
    assert ((fitted.shortcut_scores_ >= 0) & (fitted.shortcut_scores_ <= 1)).all()


def test_shortcut_scores_are_correlations_of_the_axes() -> None:
    x, y = features()
    fitted = SitarClassifier(**QUICK, class_weight=None).fit(x, y)
    bottleneck = fitted._model.method.bottleneck()
    assert bottleneck is not None
    mu = bottleneck.latent(torch.tensor(x, dtype=torch.float32)).detach().numpy()
    expected = [abs(np.corrcoef(axis, y)[0, 1]) for axis in mu.T]
    np.testing.assert_allclose(fitted.shortcut_scores_, expected, atol=1e-3)


def test_scores_probabilities_and_classes_agree(fitted: SitarClassifier) -> None:
    x, _ = features()
    probability, decision = fitted.predict_proba(x), fitted.decision_function(x)
    np.testing.assert_allclose(probability.sum(1), 1)
    np.testing.assert_allclose(fitted.predict_log_proba(x), np.log(probability), rtol=1e-9)
    np.testing.assert_allclose(decision, np.log(probability[:, 1] / probability[:, 0]), atol=1e-6)
    assert (fitted.predict(x) == fitted.classes_[(decision > 0).astype(int)]).all()


def test_several_classes_have_a_score_each() -> None:
    x, y = features(classes=3)
    model = SitarClassifier(**QUICK).fit(x, y * 10)
    assert model.decision_function(x).shape == (120, 3)
    assert set(model.predict(x)) <= {0, 10, 20}


def test_the_same_seed_gives_the_same_model() -> None:
    x, y = features()
    first, second, other = (SitarClassifier(**{**QUICK, "random_state": s}).fit(x, y) for s in (3, 3, 4))
    assert (first.predict_proba(x) == second.predict_proba(x)).all()
    assert (first.predict_proba(x) != other.predict_proba(x)).any()


def test_fits_in_threads_are_those_of_one_thread() -> None:
    x, y = features()

    def fitted(_: int) -> NDArray[np.float64]:
        return SitarClassifier(**QUICK).fit(x, y).predict_proba(x)

    alone, state = fitted(0), torch.get_rng_state()
    with ThreadPoolExecutor(2) as threads:
        assert all((found == alone).all() for found in threads.map(fitted, range(4)))
    assert torch.equal(torch.get_rng_state(), state)


def test_the_callers_random_state_is_left_alone() -> None:
    x, y = features()
    torch.manual_seed(5)
    expected = torch.get_rng_state()
    SitarClassifier(**QUICK).fit(x, y)
    assert torch.equal(torch.get_rng_state(), expected)


@pytest.mark.parametrize("method", WITHOUT_GROUPS)
def test_every_method_is_an_estimator(method: str) -> None:
    x, y = features(60)
    model = ShortcutRobustClassifier(method, settings=SETTINGS.get(method), **{**QUICK, "max_iter": 2}).fit(x, y)
    assert model.predict_proba(x).shape == (60, 2)
    again = pickle.loads(pickle.dumps(model))
    assert (again.predict_proba(x) == model.predict_proba(x)).all()
    assert hasattr(model, "shortcut_scores_") == (method != "diffusion")


@pytest.mark.parametrize("method", WITH_GROUPS)
def test_a_method_that_needs_groups_asks_for_the_attribute(method: str) -> None:
    x, y = features(60)
    model = ShortcutRobustClassifier(method, **{**QUICK, "max_iter": 2})
    with pytest.raises(InputError, match=r"fit\(X, y, attribute"):
        model.fit(x, y)
    attribute = np.where(np.arange(60) % 5, y, 1 - y)
    assert model.fit(x, y, attribute=attribute).predict(x).shape == (60,)


@pytest.mark.parametrize("method", UNLABELLED)
def test_a_method_that_needs_unlabelled_inputs_asks_for_them(method: str) -> None:
    x, y = features(60)
    model = ShortcutRobustClassifier(method, **{**QUICK, "max_iter": 2})
    with pytest.raises(InputError, match=r"fit\(X, y, unlabelled"):
        model.fit(x, y)
    new, _ = features(90)
    assert model.fit(x, y, unlabelled=new).predict(x).shape == (60,)
    assert model._model.result["unlabelled"] == 90
    with pytest.raises(ValueError, match="5 features"):
        model.fit(x, y, unlabelled=new[:, :5])


def test_unlabelled_inputs_decide_what_such_a_method_learns() -> None:
    x, y = features(60)
    fits = [ShortcutRobustClassifier("divdis", **QUICK).fit(x, y, unlabelled=new) for new in (x, x, -x)]
    same, again, other = (model.predict_proba(x) for model in fits)
    assert (same == again).all()
    assert (same != other).any()


def test_other_methods_do_not_see_the_attribute() -> None:
    x, y = features()
    plain = ShortcutRobustClassifier("erm", **QUICK).fit(x, y)
    told = ShortcutRobustClassifier("erm", **QUICK).fit(x, y, attribute=1 - y, unlabelled=-x)
    assert (plain.predict_proba(x) == told.predict_proba(x)).all()


def test_settings_reach_the_run() -> None:
    x, y = features()
    settings = {"method.copies": 3, "train.schedule": "cosine", "model.hidden": 16}
    model = ShortcutRobustClassifier("jtt", settings=settings, **QUICK).fit(x, y)
    config = model._model.config
    assert (config.method.copies, config.train.schedule, config.model.hidden) == (3, "cosine", 16)
    assert model.n_iter_ == 1 + 8  # both phases


def test_weights_of_an_encoder_that_are_not_there_are_said_before_training(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = images()
    monkeypatch.setattr("sitar.estimator.base.train_on", lambda *_, **__: pytest.fail("training has begun"))
    settings = {"model.encoder": "resnet18.tv_in1k", "model.encoder_weights": "nothing.safetensors"}
    with pytest.raises(ValueError, match=r"nothing\.safetensors"):
        ShortcutRobustClassifier("erm", settings=settings, **QUICK).fit(x, y)


def test_a_fit_that_is_interrupted_leaves_nothing_of_the_one_before(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = features(40)
    model = SitarClassifier(**{**QUICK, "max_iter": 2}).fit(x, y)
    assert hasattr(model, "shortcut_scores_")

    def interrupt(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("sitar.estimator.base.train_on", interrupt)
    with pytest.raises(KeyboardInterrupt):
        model.fit(x[:, :3], y)
    assert {name for name in vars(model) if name.strip("_") != name} == {"classes_", "n_features_in_"}
    with pytest.raises(NotFittedError):
        model.predict(x[:, :3])


def test_early_stopping_keeps_the_best_epoch() -> None:
    x, y = features(400)
    y = np.where(np.random.RandomState(0).rand(400) < 0.3, 1 - y, y)
    patient = {**QUICK, "max_iter": 60, "early_stopping": True, "n_iter_no_change": 3}
    model = ShortcutRobustClassifier("erm", **patient).fit(x, y)
    scores = model.validation_scores_
    assert scores is not None
    assert model.n_iter_ == len(scores) < 60
    assert max(scores) == max(scores[:-3])  # the last three epochs are no better
    best = model._model.result["selected_epoch"]
    assert best is not None
    assert scores[best - 1] == max(scores)


def test_weights_shift_the_decision() -> None:
    x, y = features(200)
    x = x + 3 * np.random.RandomState(0).randn(*x.shape)
    heavy = ShortcutRobustClassifier("erm", **QUICK).fit(x, y, sample_weight=np.where(y == 1, 5.0, 1.0))
    by_class = ShortcutRobustClassifier("erm", class_weight={0: 1, 1: 5}, **QUICK).fit(x, y)
    plain = ShortcutRobustClassifier("erm", **QUICK).fit(x, y)
    assert heavy.predict_proba(x)[:, 1].mean() > plain.predict_proba(x)[:, 1].mean() + 0.05
    assert (heavy.predict_proba(x) == by_class.predict_proba(x)).all()


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame])
def test_frames_have_names(make: Any) -> None:
    x, y = features()
    frame = make({f"column {i}": x[:, i] for i in range(6)})
    model = SitarClassifier(**QUICK).fit(frame, y)
    assert model.feature_names_in_.tolist() == [f"column {i}" for i in range(6)]
    np.testing.assert_allclose(model.predict_proba(frame), SitarClassifier(**QUICK).fit(x, y).predict_proba(x))
    with pytest.raises(ValueError, match="feature names"):
        model.predict(make({f"other {i}": x[:, i] for i in range(6)}))


def test_labels_of_frames_are_taken() -> None:
    x, y = features()
    words = np.array(["no", "yes"])[y]
    for labels in (pd.Series(words), pl.Series(words), pd.Categorical(words), words.astype(object), words.tolist()):
        assert SitarClassifier(**{**QUICK, "max_iter": 1}).fit(x, labels).classes_.tolist() == ["no", "yes"]


@pytest.mark.parametrize("layout", ["last", "first", "gray", "float"])
def test_images_are_inputs(layout: str) -> None:
    x, y = images()
    x = {"last": x, "first": x.transpose(0, 3, 1, 2), "gray": x[..., 0], "float": x / 255}[layout]
    model = ShortcutRobustClassifier("erm", **{**QUICK, "max_iter": 40, "learning_rate": 0.003}).fit(x, y)
    assert model.score(x, y) > 0.9
    assert model.n_features_in_ == x[0].size
    assert model.predict(x[:3]).shape == (3,)


def test_a_list_of_images_is_an_array_of_them() -> None:
    x, y = images()
    quick = ShortcutRobustClassifier("erm", **{**QUICK, "max_iter": 2})
    expected = quick.fit(x, y).predict_proba(x[:5])
    assert (quick.fit(list(x), y).predict_proba(list(x[:5])) == expected).all()
    with pytest.raises(InputError, match="list of images of different shapes"):
        quick.fit([*x[1:], x[0, :4]], y)


def test_images_of_another_shape_are_refused() -> None:
    x, y = images()
    model = SitarClassifier(**{**QUICK, "max_iter": 1}).fit(x, y)
    for wrong in (x[:, :4], x[..., :1], x[..., 0], np.zeros((2, 3, 9, 9), np.uint8)):
        with pytest.raises(InputError, match=r"fitted to images of shape \(3, 8, 8\)"):
            model.predict(wrong)
    with pytest.raises(InputError, match="expected features"):
        model.predict(np.zeros((2, 192), np.uint8))
    with pytest.raises(InputError, match=r"floats must lie in \[0, 1\]"):
        model.predict(x.astype(float))
    with pytest.raises(InputError, match="int64"):
        model.predict(x.astype(np.int64))
    with pytest.raises(ValueError, match="NaN"):
        model.predict(np.full((1, 8, 8, 3), np.nan))


def test_axes_of_images_that_are_not_clear_are_asked_for() -> None:
    x = np.random.RandomState(0).randint(0, 255, (10, 3, 8, 4)).astype(np.uint8)
    with pytest.raises(InputError, match="Set channels to first or last"):
        SitarClassifier(**QUICK).fit(x, np.arange(10) % 2)
    model = SitarClassifier(**{**QUICK, "max_iter": 1}, channels="last").fit(x, np.arange(10) % 2)
    assert model._model.task.shape == (4, 3, 8)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"alpha": -1.0}, r"^alpha = -1.0 is not allowed"),
        ({"consistency": -1}, r"^consistency = -1 is not allowed"),
        ({"settings": {"method.alpha": -1}}, r"^method.alpha = -1 is not allowed"),
        ({"noise": "axes"}, "did you mean 'axis'"),
        ({"max_iter": 0}, "^max_iter = 0 is not allowed"),
        ({"batch_size": 1}, "^batch_size = 1"),
        ({"device": "tpu"}, "cannot be used here"),
        ({"settings": {"alpha": 1}}, "not of the form section.key"),
        ({"settings": 3}, "give a dict"),
        ({"settings": {"data.name": "celeba"}}, "the data are X and y"),
        ({"settings": {"method.alhpa": 1}}, "Did you mean 'alpha'"),
        ({"settings": {"train.augment": "crop_flip"}}, "train.augment"),
    ],
)
def test_parameters_that_are_not_allowed(change: dict[str, Any], message: str) -> None:
    x, y = features(20)
    with pytest.raises(InputError, match=message):
        SitarClassifier(**{**QUICK, **change}).fit(x, y)


def test_a_method_that_does_not_exist() -> None:
    x, y = features(20)
    for name, meant in {"jt": "jtt", "ERM": "erm"}.items():
        with pytest.raises(InputError, match=f"Did you mean '{meant}'.*of yours, import the file first"):
            ShortcutRobustClassifier(name, **QUICK).fit(x, y)


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (np.full((1, 6), np.nan), "NaN"),
        (np.full((1, 6), np.inf), "infinity"),
        (np.full((1, 6), 1e300), "float32"),
        (np.array([["a"] * 6], dtype=object), "could not convert"),
        (np.zeros((1, 5)), "expecting 6 features"),
        (np.zeros(6), "Expected 2D array"),
        (np.zeros((0, 6)), "0 sample"),
    ],
)
def test_inputs_that_cannot_be_predicted(fitted: SitarClassifier, x: NDArray[Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fitted.predict(x)


def test_data_that_cannot_be_learned_from() -> None:
    x, y = features(20)
    model = SitarClassifier(**QUICK)
    with pytest.raises(ValueError, match="1 sample"):
        model.fit(x[:1], y[:1])
    with pytest.raises(InputError, match="one class"):
        model.fit(x, np.ones(20))
    with pytest.raises(ValueError, match="Unknown label type"):
        model.fit(x, np.linspace(0, 1, 20))
    with pytest.raises(InputError, match="expected features"):
        model.fit(np.zeros((20, 1, 2, 2, 2)), y)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (np.array(["2020", "2021"], "M8[Y]"), r"dates or times.*astype\(str\)"),
        (np.array(["2020", "2021"], "M8[ns]"), "dates or times"),
        (np.array([1, 2], "m8[D]"), "dates or times"),
        (pd.Series(pd.to_datetime(["2020-01-01", "2021-01-01"])), "dates or times"),
        (np.array(["a", 1], dtype=object), "sorted into classes"),
        (np.array([b"a", b"b"]), "sorted into classes"),
    ],
)
def test_labels_that_no_run_can_hold_are_refused(labels: Any, message: str) -> None:
    x, y = features(20)
    with pytest.raises(InputError, match=message):
        SitarClassifier(**QUICK).fit(x, labels[y])


def test_constant_features_say_nothing() -> None:
    x, y = features(40)
    x[:, 2] = 7.0
    model = SitarClassifier(**QUICK).fit(x, y)
    other = x.copy()
    other[:, 2] = -1e6
    assert np.isfinite(model.predict_proba(x)).all()
    assert (model.predict_proba(other) == model.predict_proba(x)).all()
    assert np.isfinite(SitarClassifier(**QUICK).fit(np.ones((40, 3)), y).predict_proba(np.ones((1, 3)))).all()


def test_a_class_that_was_never_seen_counts_as_wrong(fitted: SitarClassifier) -> None:
    x, _ = features()
    assert fitted.score(x, np.full(len(x), "perhaps")) == 0


def test_nothing_is_predicted_before_a_fit() -> None:
    for name in ("predict", "predict_proba", "decision_function", "save"):
        with pytest.raises(NotFittedError):
            getattr(SitarClassifier(), name)(features()[0])


def test_a_fit_that_failed_is_no_fit() -> None:
    x, y = features(20)
    model = SitarClassifier(alpha=-1.0)
    with pytest.raises(InputError):
        model.fit(x, y)
    with pytest.raises(NotFittedError):
        model.predict(x)


def test_a_second_fit_that_failed_leaves_no_model_of_other_classes() -> None:
    x, y = features(20)
    model = SitarClassifier(**{**QUICK, "max_iter": 1}).fit(x, y)
    with pytest.raises(InputError):
        model.set_params(alpha=-1.0).fit(x, np.array(["no", "yes"])[y])
    with pytest.raises(NotFittedError):
        model.predict(x)


def test_a_loss_that_is_not_finite_names_no_folder() -> None:
    x, y = features(20)
    with pytest.raises(TrainingError, match="lower learning_rate") as caught:
        SitarClassifier(**{**QUICK, "learning_rate": 1e30}).fit(x, y)
    assert "checkpoint" not in str(caught.value)


def test_copies_predict_the_same(fitted: SitarClassifier) -> None:
    x, _ = features()
    for other in (pickle.loads(pickle.dumps(fitted)), copy.deepcopy(fitted)):
        assert (other.predict_proba(x) == fitted.predict_proba(x)).all()
        assert other.get_params() == fitted.get_params()


def test_a_pickle_from_a_gpu_works_without_one(fitted: SitarClassifier) -> None:
    elsewhere = copy.deepcopy(fitted)
    elsewhere.device = "cuda:7"
    assert pickle.loads(pickle.dumps(elsewhere))._model.device.type in ("cpu", "cuda")


def test_save_and_load_without_pickle(fitted: SitarClassifier, tmp_path: Path) -> None:
    x, _ = features()
    fitted.save(tmp_path / "model")
    again = SitarClassifier.load(tmp_path / "model", device="cpu")
    assert (again.predict_proba(x) == fitted.predict_proba(x)).all()
    assert again.get_params() == fitted.get_params()
    assert again.classes_.tolist() == fitted.classes_.tolist()
    np.testing.assert_array_equal(again.shortcut_scores_, fitted.shortcut_scores_)
    assert (again.n_iter_, again.loss_curve_) == (fitted.n_iter_, fitted.loss_curve_)
    with pytest.raises(RunError, match=r"already used.*Choose another\. Nothing"):
        fitted.save(tmp_path / "model")


def test_load_keeps_kinds_of_values(tmp_path: Path) -> None:
    x, y = features(30)
    weights = {0: 1.0, 1: 2.0}
    frame = pd.DataFrame(x, columns=list("abcdef"))
    model = ShortcutRobustClassifier("erm", class_weight=weights, settings={"train.evaluate": []}, **QUICK)
    model.fit(frame, y).save(tmp_path / "model")
    again = ShortcutRobustClassifier.load(tmp_path / "model")
    assert again.class_weight == weights
    assert again.feature_names_in_.tolist() == list("abcdef")
    assert again.classes_.dtype == model.classes_.dtype
    assert (again.predict(frame) == model.predict(frame)).all()


def test_what_is_no_estimator_is_not_loaded(fitted: SitarClassifier, tmp_path: Path) -> None:
    fitted.save(tmp_path / "model")
    with pytest.raises(RunError, match=r"holds a SitarClassifier.*sitar\.SitarClassifier\.load"):
        ShortcutRobustClassifier.load(tmp_path / "model")
    with pytest.raises(RunError, match="no run folder"):
        SitarClassifier.load(tmp_path / "nowhere")
    file = tmp_path / "model" / "estimator.json"
    (tmp_path / "model" / "done").write_bytes(b"")  # without checksums
    file.write_text(json.dumps({**json.loads(file.read_text()), "parameters": {"alpha": 1, "omega": 2}}))
    with pytest.raises(RunError, match="omega"):
        SitarClassifier.load(tmp_path / "model")
    file.write_text("{")
    with pytest.raises(RunError, match="damaged"):
        SitarClassifier.load(tmp_path / "model")
    file.unlink()
    with pytest.raises(RunError, match="was not made by an estimator"):
        SitarClassifier.load(tmp_path / "model")


WRONG: dict[str, Any] = {
    "a method": {"fitted": {"predict": "x"}},
    "its attributes": {"fitted": {"__dict__": {"a": 1}}},
    "its model": {"fitted": {"_model": "x"}},
    "a number": {"fitted": {"n_features_in_": "x"}},
    "another array": {"arrays": {"predict": {"dtype": "<f8", "values": [1.0]}}},
    "fewer": {"arrays": {"classes_": {"dtype": "<U3", "values": ["no"]}}},
    "more": {"arrays": {"classes_": {"dtype": "<U3", "values": ["no", "yes", "maybe"]}}},
    "a square": {"arrays": {"classes_": {"dtype": "<i8", "values": [[0, 1], [1, 2]]}}},
    "none": {"arrays": {}},
    "wide words": {"arrays": {"classes_": {"dtype": "<U300000000", "values": ["no", "yes"]}}},
    "wide words below": {"arrays": {"classes_": {"dtype": "<U16000000", "values": [["no", "yes"]]}}},
    "a time": {"arrays": {"classes_": {"dtype": "<M8[ns]", "values": [1, 2]}}},
    "a record": {"arrays": {"classes_": {"dtype": "i4,f4", "values": [1, 2]}}},
    "named fields": {"arrays": {"classes_": {"dtype": [["a", "i4"]], "values": [1, 2]}}},
    "lists": {"arrays": {"classes_": {"dtype": "object", "values": [[1, 2], [3]]}}},
    "too large": {"arrays": {"classes_": {"dtype": "<i8", "values": [10**400, 1]}}},
}


@pytest.mark.parametrize("name", WRONG)
def test_a_description_of_a_stranger_sets_fitted_attributes_alone(
    fitted: SitarClassifier, tmp_path: Path, name: str
) -> None:
    fitted.save(tmp_path / "model")
    (tmp_path / "model" / "done").write_bytes(b"")  # without checksums
    file = tmp_path / "model" / "estimator.json"
    described = json.loads(file.read_text())
    (part,) = WRONG[name]
    described[part] = described[part] | WRONG[name][part] if WRONG[name][part] else {}
    file.write_text(json.dumps(described))
    with pytest.raises(RunError, match="description of the estimator"):
        SitarClassifier.load(tmp_path / "model")


def test_a_saved_estimator_is_a_run(fitted: SitarClassifier, tmp_path: Path) -> None:
    x, _ = features()
    fitted.save(tmp_path / "run")
    model = sitar.load(tmp_path / "run", device="cpu")
    assert model.classes == ("no", "yes")
    np.testing.assert_array_equal(model.logits(x.astype(np.float32)), fitted._model.logits(x.astype(np.float32)))
    np.savez(tmp_path / "new.npz", x=x[:5])
    command("predict", str(tmp_path / "run"), str(tmp_path / "new.npz"), "--out", str(tmp_path / "new.csv"))
    table = pd.read_csv(tmp_path / "new.csv")
    assert table["prediction"].tolist() == fitted.predict(x[:5]).tolist()
    np.testing.assert_allclose(table["p_yes"], fitted.predict_proba(x[:5])[:, 1], atol=1e-6)
    assert "SitarClassifier" in command("compare", str(tmp_path / "run")).stdout
    with pytest.raises(DataError, match="arrays in memory"):
        _ = model.data


def test_an_audit_names_the_column_that_tells_the_label() -> None:
    random = np.random.RandomState(0)
    y = np.arange(400) % 2
    frame = pd.DataFrame({"age": random.randn(400), "scanner": y + 0.2 * random.randn(400), "dose": random.randn(400)})
    audit = SitarClassifier().audit(frame, y)
    assert audit.verdict.startswith("Scanner tells the label")
    assert audit.cues[0]["cue"] == "scanner"
    assert len(pd.DataFrame(audit.cues)) == len(audit.cues)
    assert "scanner" in repr(audit)


def test_an_audit_speaks_of_pictures_only_where_there_are_some() -> None:
    random = np.random.RandomState(0)
    y = np.arange(400) % 2
    bright = np.clip(0.4 + 0.2 * y + 0.1 * random.randn(400), 0, 1)
    of_features = SitarClassifier().audit(np.column_stack([bright, random.randn(400)]), y).verdict
    of_images = SitarClassifier().audit(np.broadcast_to(bright[:, None, None], (400, 8, 8)), y).verdict
    assert of_features.endswith("Only you can say.")
    assert of_images.endswith("Only you can say: look at the pictures.")


def test_an_audit_leaves_a_fitted_estimator_as_it_is(fitted: SitarClassifier) -> None:
    before = set(vars(fitted))
    fitted.audit(np.random.RandomState(0).randn(50, 3), np.arange(50) % 2)
    assert set(vars(fitted)) == before
    assert fitted.n_features_in_ == 6
