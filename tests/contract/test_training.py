"""What the loop promises to any method: the steps, the schedules, the choice of an epoch, and what a run leaves."""

from __future__ import annotations

import itertools
import json
import math
import platform
import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml

import sitar
from helpers.runs import (
    TINY_DATA,
    TINY_TRAIN,
    assert_close_runs,
    assert_same_run,
    assert_same_tensors,
    hashes,
    load_data,
    metrics,
    predictions,
    run,
    settings,
    toy,
    weights,
    write_settings,
)
from helpers.toys import Tally
from sitar.config import ModelConfig, TrainConfig, run_config
from sitar.data.types import Data, TrainBatch
from sitar.errors import ConfigError, DataError, RunError, TrainingError
from sitar.registry import METHODS
from sitar.run_folder import RunFolder
from sitar.training.copies.seeds import train_copies
from sitar.training.seeding import INIT, NOISE, derive_seed, epoch_order

pytestmark = pytest.mark.usefixtures("_toys")

SGD = {"optimiser": "sgd", "momentum": 0.0}
ONE_STEP = {**SGD, "batch_size": 64}  # the 50 toy samples in one batch
SPLIT_KEYS = {
    "n", "average", "adjusted_average", "class_balanced", "worst_group", "calibration_error", "groups",
}  # fmt: skip


@pytest.mark.parametrize(("name", "options"), [("erm", {}), ("sitar", {}), ("toy_annealed", {"anneal_epochs": 2})])
def test_training_is_a_plain_loop(name: str, options: dict[str, Any], tmp_path: Path, tiny_data: Data) -> None:
    """The reference is what one would write by hand; 300 samples in batches of 64 leave a last batch to fill."""
    config = settings(name, seed=4, train={**TINY_TRAIN, "epochs": 2}, **options)
    folder = run(config, tmp_path / "run")

    torch.manual_seed(derive_seed(4, INIT, 0))
    method = METHODS.get(name)(config.method, config.model, tiny_data.task)
    optimiser = torch.optim.Adam(method.parameters(), lr=1e-3, fused=True)
    losses = []
    for epoch in range(2):
        method.begin_epoch(epoch)
        torch.manual_seed(derive_seed(4, NOISE, 0, epoch))
        total = torch.zeros(())
        for index in epoch_order(torch.arange(300), 64, seed=4, phase=0, epoch=epoch):
            x = tiny_data.train.x[index].float() / 255
            loss = method.loss(TrainBatch(x, tiny_data.train.y[index], index))["loss"]
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            total += loss.detach()
        losses.append(float(total / 5))
    assert_same_tensors(weights(folder), method.state_dict())
    assert [line["loss"] for line in metrics(folder)] == losses


@pytest.mark.parametrize(("least", "epochs"), [(0, 2), (9, 2), (11, 3), (26, 6)])
def test_small_data_has_more_epochs(least: int, epochs: int, tmp_path: Path) -> None:
    """300 samples in batches of 64 are 5 steps an epoch. The schedule ends with the last of them."""
    train = {**TINY_TRAIN, "epochs": 2, "least_steps": least, "schedule": "linear"}
    folder = run(settings("erm", train=train), tmp_path / "run")
    lines = metrics(folder)
    assert len(lines) == epochs
    assert lines[-1]["learning_rate"] < 1e-3 / (5 * epochs - 1)


@pytest.mark.parametrize(("n", "batch_size"), [(50, 16), (48, 16), (50, 50), (7, 16), (1, 4), (33, 32)])
def test_an_epoch_visits_every_sample_in_batches_of_one_size(n: int, batch_size: int) -> None:
    size = min(n, batch_size)
    indices = torch.arange(100, 100 + n)
    order = epoch_order(indices, size, seed=0, phase=0, epoch=0)
    assert order.shape == (math.ceil(n / size), size)
    visits = torch.bincount(order.flatten() - 100, minlength=n)
    assert visits.min() == 1
    assert visits.max() <= 2
    if n > 10:
        places = [dict.fromkeys(("seed", "phase", "epoch"), 0) | {name: 1} for name in ("epoch", "phase", "seed")]
        orders = [epoch_order(indices, size, **place) for place in places]
        assert not any(torch.equal(order, other) for other in orders)
    assert torch.equal(order, epoch_order(indices, size, seed=0, phase=0, epoch=0))


@pytest.mark.parametrize(("n", "batch_size", "steps"), [(50, 16, 4), (48, 16, 3), (20, 64, 1), (2, 64, 1)])
def test_the_loop_visits_every_sample_in_batches_of_one_size(
    n: int, batch_size: int, steps: int, tmp_path: Path
) -> None:
    """Also where there are fewer samples than a batch holds."""
    config = toy("toy_tally", data={"name": "toy_blobs", "n": n}, train={"epochs": 3, "batch_size": batch_size, **SGD})
    folder = run(config, tmp_path / "run")
    size = min(n, batch_size)
    assert [line["batch"] for line in metrics(folder)] == [size] * 3
    visits = weights(folder)["visits"]
    assert visits.min() >= 3
    assert visits.max() <= 6
    assert visits.sum() == 3 * steps * size


def test_repeated_indices_are_repeated(tmp_path: Path, tiny_data: Data) -> None:
    """A phase's own view of the data: hard samples thrice, in the toy's second phase."""
    indices = torch.tensor([5, 5, 5, 9, 2])
    order = epoch_order(indices, 5, seed=0, phase=1, epoch=0)
    assert sorted(order.flatten().tolist()) == [2, 5, 5, 5, 9]
    lines = metrics(run(toy("toy_relay"), tmp_path / "run"))
    assert [(line["phase"], line["epoch"]) for line in lines] == [
        ("first", 1), ("first", 2), ("second", 1), ("second", 2), ("second", 3),
    ]  # fmt: skip


EPOCHS = 8
RATES = {
    "constant": lambda t: 1.0,
    "linear": lambda t: 1 - t,
    "cosine": lambda t: (1 + math.cos(math.pi * t)) / 2,
}


def steps_taken(folder: RunFolder) -> list[float]:
    """How far w moved in each epoch but the last, from the values logged before each step."""
    w = [line["w"] for line in metrics(folder)]
    return [before - after for before, after in itertools.pairwise(w)]


@pytest.mark.parametrize("schedule", RATES)
@pytest.mark.parametrize("warmup", [0, 3])
def test_schedules_against_closed_forms(schedule: str, warmup: int, tmp_path: Path) -> None:
    """One step an epoch on a loss of slope 1: w falls by exactly the learning rate."""
    train = {**ONE_STEP, "epochs": EPOCHS, "learning_rate": 0.1, "schedule": schedule, "warmup_epochs": warmup}
    folder = run(toy("toy_tally", train=train), tmp_path / "run")
    expected = [
        0.1 * ((t + 1) / (warmup + 1) if t < warmup else RATES[schedule]((t - warmup) / (EPOCHS - warmup)))
        for t in range(EPOCHS)
    ]
    assert steps_taken(folder) == pytest.approx(expected[:-1], rel=1e-4)
    assert float(weights(folder)["w"]) == pytest.approx(-sum(expected), rel=1e-5)
    assert [line["learning_rate"] for line in metrics(folder)] == pytest.approx(expected)
    assert max(expected) == pytest.approx(0.1)  # the warm-up ends at the rate itself


@pytest.mark.parametrize("schedule", RATES)
def test_schedules_move_every_step(schedule: str, tmp_path: Path) -> None:
    """Four steps an epoch: the schedule runs over steps, and a warm-up may be a fraction of an epoch."""
    train = {**SGD, "epochs": 5, "learning_rate": 0.1, "schedule": schedule, "warmup_epochs": 0.5}
    folder = run(toy("toy_tally", train=train), tmp_path / "run")
    rates = [0.1 / 3, 0.2 / 3, *(0.1 * RATES[schedule](t / 18) for t in range(18))]
    assert float(weights(folder)["w"]) == pytest.approx(-sum(rates), rel=1e-5)
    assert [line["learning_rate"] for line in metrics(folder)] == pytest.approx(rates[3::4])


@pytest.mark.parametrize(("clip", "step"), [(None, 10.0), (1.0, 0.1), (1000.0, 10.0)])
def test_gradient_clip_bounds_the_step(clip: float | None, step: float, tmp_path: Path) -> None:
    train = {**ONE_STEP, "learning_rate": 0.1, "gradient_clip": clip}
    folder = run(toy("toy_tally", train=train, slope=100.0), tmp_path / "run")
    assert steps_taken(folder) == pytest.approx([step] * 2, rel=1e-4)


@pytest.mark.parametrize("schedule", ["constant", "linear"])
def test_each_objective_has_its_own_optimiser(schedule: str, tmp_path: Path) -> None:
    train = {"batch_size": 64, "learning_rate": 0.01, "optimiser": "adam", "schedule": schedule, "epochs": 4}
    folder = run(toy("toy_tally", train=train, second_slope=2.0, second_rate=0.5), tmp_path / "run")
    share = sum(RATES[schedule](t / 4) for t in range(4))
    assert float(weights(folder)["w"]) == pytest.approx(-0.01 * share, rel=1e-4)  # Adam's steps forget the slope
    assert float(weights(folder)["second"]) == pytest.approx(-0.5 * 2 * share, rel=1e-4)
    for line in metrics(folder):
        assert line["loss"] == pytest.approx(line["w"] + 2 * line["second"], rel=1e-5)


def test_weight_decay_and_momentum_reach_the_optimiser(tmp_path: Path) -> None:
    train = {"batch_size": 64, "epochs": 3, "learning_rate": 0.1, "optimiser": "sgd", "momentum": 0.5}
    folder = run(toy("toy_tally", train={**train, "weight_decay": 0.2}), tmp_path / "run")
    w = velocity = 0.0
    for _ in range(3):
        velocity = 0.5 * velocity + 1 + 0.2 * w
        w -= 0.1 * velocity
    assert float(weights(folder)["w"]) == pytest.approx(w, rel=1e-5)


HITS = [
    [30, 10, 0, 0],
    [30, 0, 10, 10],  # the best class-balanced accuracy
    [30, 10, 9, 5],  # the best average
    [21, 7, 8, 7],  # the best worst group
    [0, 0, 0, 0],
]
SCRIPT = {"data": {"name": "toy_groups"}}


@pytest.mark.parametrize(
    ("selection", "epoch"),
    [("last", 5), ("val_average", 3), ("val_class_balanced", 2), ("val_worst_group", 4)],
)
def test_each_criterion_keeps_its_epoch(selection: str, epoch: int, tmp_path: Path) -> None:
    train = {"epochs": 5, "selection": selection}
    folder = run(toy("toy_script", train=train, hits=HITS, **SCRIPT), tmp_path / "run")
    assert weights(folder)["epoch"] == epoch - 1  # the toy counts from 0
    result = folder.result()
    assert result["selection"] == selection
    assert result["selected_epoch"] == epoch
    assert result["splits"]["val"]["average"] == pytest.approx(sum(HITS[epoch - 1]) / 60)
    groups = [figures["accuracy"] for figures in result["splits"]["val"]["groups"].values()]
    assert groups == pytest.approx([hit / n for hit, n in zip(HITS[epoch - 1], (30, 10, 10, 10), strict=True)])
    assert [line["val"]["average"] for line in metrics(folder)] == pytest.approx([sum(h) / 60 for h in HITS])


def test_the_first_of_equal_epochs_is_kept(tmp_path: Path) -> None:
    hits = [[1, 1, 1, 1], [2, 2, 2, 2], [2, 2, 2, 2], [1, 1, 1, 1]]
    train = {"epochs": 4, "selection": "val_average"}
    folder = run(toy("toy_script", train=train, hits=hits, **SCRIPT), tmp_path / "run")
    assert folder.result()["selected_epoch"] == 2


@pytest.mark.parametrize(("every", "patience", "stops"), [(1, 2, 4), (1, 3, 5), (2, 1, 4), (2, 2, 6)])
def test_early_stopping_counts_evaluations(every: int, patience: int, stops: int, tmp_path: Path) -> None:
    hits = [[9, 9, 9, 9], [9, 9, 9, 9], *[[1, 1, 1, 1]] * 18]
    train = {"epochs": 20, "selection": "val_average", "patience": patience, "evaluate_every": every}
    if every == 1:
        hits = hits[1:]
        stops -= 1
    folder = run(toy("toy_script", train=train, hits=[*hits, hits[-1]], **SCRIPT), tmp_path / "run")
    assert [line["epoch"] for line in metrics(folder)] == list(range(1, stops + 1))
    assert folder.result()["selected_epoch"] == (1 if every == 1 else 2)


@pytest.mark.parametrize(
    ("every", "splits", "evaluated"),
    [(1, ["val"], [1, 2, 3, 4, 5]), (2, ["val", "ood_test"], [2, 4, 5]), (9, ["ood_test"], [5]), (1, [], [])],
)
def test_splits_are_evaluated_when_asked(every: int, splits: list[str], evaluated: list[int], tmp_path: Path) -> None:
    train = {"epochs": 5, "evaluate_every": every, "evaluate": [*splits, "id_test"]}  # toys have no id_test
    lines = metrics(run(toy("erm", train=train), tmp_path / "run"))
    for split in ("val", "ood_test"):
        expected = evaluated if split in splits else []
        assert [line["epoch"] for line in lines if split in line] == expected
    watched = {"average", "class_balanced", "worst_group", "core_auc"}
    assert all(set(line["val"]) == watched for line in lines if "val" in line)


def test_a_loss_that_is_not_finite_keeps_the_last_good_checkpoint(tmp_path: Path) -> None:
    config = toy("toy_tally", train={"epochs": 6, **SGD}, nan_from=3)
    path = tmp_path / "run"
    for resume in (False, True):  # a second try ends the same way
        with pytest.raises(TrainingError, match=r"epoch 3\b.*state\.pt") as error:
            run(config, path, resume=resume)
        assert "nan" in str(error.value)
        folder = RunFolder(path)
        assert not folder.is_done
        state = torch.load(folder.state_file, weights_only=True)
        assert state["progress"]["epoch"] == 2
        assert all(torch.isfinite(tensor).all() for tensor in state["method"].values())
        assert float(state["method"]["w"]) == pytest.approx(-2 * 4 * 0.01, rel=1e-5)
        assert [line["epoch"] for line in metrics(folder)] == [1, 2]


@pytest.mark.parametrize("name", METHODS.names())
def test_an_absurd_learning_rate_is_said_plainly(name: str, tmp_path: Path) -> None:
    config = toy(name, train={"learning_rate": 1e30, **SGD})
    with pytest.raises(TrainingError, match=r"epoch 1\b.*learning_rate"):
        run(config, tmp_path / "run")
    folder = RunFolder(tmp_path / "run")
    assert not folder.is_done
    assert not folder.state_file.exists()


def test_weights_that_overflow_in_the_last_step_are_caught(tmp_path: Path) -> None:
    """All losses were finite; the fourth step of 1e38 is the one that float32 cannot hold."""
    train = {**ONE_STEP, "epochs": 4, "learning_rate": 1e38, "checkpoint_seconds": 1000.0}
    with pytest.raises(TrainingError, match=r"epoch 4\b"):
        run(toy("toy_tally", train=train), tmp_path / "run")
    folder = RunFolder(tmp_path / "run")
    assert not folder.is_done
    assert math.isfinite(torch.load(folder.state_file, weights_only=True)["method"]["w"])


def test_a_captured_step_needs_a_gpu(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"train\.step 'captured'.*'eager'"):
        run(toy("erm", train={"step": "captured"}), tmp_path / "run")


REFUSED = {
    "captured without a GPU": lambda: toy("erm", train={"step": "captured"}),
    "too many convolutions": lambda: toy("erm", model={"channels": [4] * 6}),
    "a worst group that val cannot show": lambda: settings(
        "erm", data={**TINY_DATA, "rho": 1.0}, train={**TINY_TRAIN, "selection": "val_worst_group"}
    ),
}


@pytest.mark.parametrize("setting", REFUSED)
def test_a_refused_setting_leaves_no_folder(setting: str, tmp_path: Path) -> None:
    """Else the corrected command would be refused as well: the folder is already used."""
    with pytest.raises(ConfigError):
        run(REFUSED[setting](), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_an_unknown_device_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="auto, cpu"):
        run(toy("erm"), tmp_path / "run", device="tpu")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("size", [0, 1])
def test_nothing_to_learn_from_is_refused(size: int, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="empty" if size == 0 else "one class"):
        run(settings("erm", data={**TINY_DATA, "train_size": size}), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", METHODS.names())
def test_bfloat16_runs(name: str, tmp_path: Path) -> None:
    folder = run(toy(name, train={"precision": "bfloat16"}), tmp_path / "bfloat16")
    exact = run(toy(name), tmp_path / "float32")
    for key, tensor in weights(folder).items():
        assert tensor.dtype == weights(exact)[key].dtype  # mixed: weights stay as they are
        assert torch.isfinite(tensor).all()
    assert metrics(folder)[-1]["loss"] != metrics(exact)[-1]["loss"]
    assert metrics(folder)[0]["loss"] == pytest.approx(metrics(exact)[0]["loss"], rel=0.05)


def random_state() -> tuple[Any, ...]:
    return torch.get_rng_state().tolist(), random.getstate(), np.random.get_state()[1].tolist()


@pytest.mark.parametrize("fails", [False, True])
def test_the_callers_random_state_is_not_touched(fails: bool, tmp_path: Path) -> None:
    file = write_settings(toy("toy_tally", nan_from=2 if fails else None), tmp_path / "settings.yaml")
    torch.manual_seed(99)
    before = random_state()
    try:
        sitar.train(str(file), out=tmp_path / "run", device="cpu", progress=False)
    except TrainingError:
        assert fails
    assert random_state() == before


def test_the_random_state_of_the_caller_does_not_matter(tmp_path: Path) -> None:
    torch.manual_seed(1)
    first = run(toy("sitar"), tmp_path / "first")
    torch.manual_seed(2)
    assert_same_run(run(toy("sitar"), tmp_path / "second"), first)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """One tiny real run of SITAR, as a user starts it."""
    overrides = [
        "data.image_size=14", "data.train_size=300", "model.channels=[4]", "model.latent_dim=4", "model.hidden=8",
        "train.epochs=2", "train.batch_size=64", "method.lambda=3",
    ]  # fmt: skip
    return sitar.train(
        "color_mnist/sitar",
        seed=7,
        overrides=overrides,
        out=tmp_path_factory.mktemp("finished") / "run",
        device="cpu",
        progress=False,
    )


def refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is not JSON")


def test_result_keeps_its_contract(finished: RunFolder, tiny_data: Data) -> None:
    result = json.loads(finished.result_file.read_text(), parse_constant=refuse)
    assert set(result) >= {"version", "dataset", "method", "preset", "seed", "selection", "seconds", "splits"}
    assert result["version"] == 1
    assert result["dataset"] == "color_mnist"
    assert result["method"] == "sitar"
    assert result["preset"] == "color_mnist/sitar"
    assert result["seed"] == 7
    assert result["selection"] == "last"
    assert 0 < result["seconds"] < 600
    assert set(result["splits"]) == {"train", "val", "val_ood", "id_test", "ood_test"}
    for name, split in result["splits"].items():
        assert set(split) >= SPLIT_KEYS, name
        assert split["n"] == (300 if name == "train" else 10_000)
        for key in SPLIT_KEYS - {"n", "groups"}:
            assert split[key] is None or 0 <= split[key] <= 1, (name, key)
        assert None not in (split["average"], split["class_balanced"], split["calibration_error"])
        if name == "train":  # groups exist on evaluation splits only
            assert split["groups"] == {}
            assert split["worst_group"] is None
            assert split["adjusted_average"] is None
            continue
        assert list(split["groups"]) == [f"label={label},color={color}" for label in (0, 1) for color in (0, 1)]
        assert sum(group["n"] for group in split["groups"].values()) == 10_000
        assert all(set(group) >= {"n", "accuracy"} for group in split["groups"].values())
        accuracies = [group["accuracy"] for group in split["groups"].values()]
        assert split["worst_group"] == min(accuracies)
        total = sum(group["n"] * group["accuracy"] for group in split["groups"].values())
        assert split["average"] == pytest.approx(total / 10_000)


def test_result_agrees_with_the_predictions(finished: RunFolder) -> None:
    stored = predictions(finished)
    for name, split in load_data(run_config(finished.read_config()).data).evaluation.items():
        assert (stored[f"{name}/y"] == split.y.numpy()).all()
        assert split.group is not None
        assert (stored[f"{name}/group"] == split.group.numpy()).all()
        assert stored[f"{name}/logits"].dtype == np.float32
        correct = stored[f"{name}/logits"].argmax(1) == stored[f"{name}/y"]
        assert finished.result()["splits"][name]["average"] == pytest.approx(correct.mean())
    assert not [name for name in stored if name.startswith("train/")]


def test_environment_says_where(finished: RunFolder) -> None:
    environment = json.loads(finished.environment_file.read_text(), parse_constant=refuse)
    assert set(environment) >= {
        "commit", "python", "platform", "versions", "device", "threads", "seed", "data_checksum",
    }  # fmt: skip
    assert environment["python"] == platform.python_version()
    assert set(environment["versions"]) >= {"sitar", "torch", "numpy"}
    assert environment["versions"]["numpy"] == np.__version__
    assert environment["device"].startswith("cpu")
    assert environment["threads"] == torch.get_num_threads()
    assert environment["seed"] == 7
    assert len(environment["data_checksum"]) == 64
    assert environment["commit"] is None or len(environment["commit"].removesuffix("-dirty")) == 40
    assert "resumed" not in environment


def test_settings_are_written_completely(finished: RunFolder) -> None:
    raw = yaml.safe_load(finished.config_file.read_text())
    assert set(raw["train"]) == set(TrainConfig.model_fields)
    assert set(raw["model"]) == set(ModelConfig.model_fields)
    assert raw["method"]["lambda"] == 3  # as a user writes it
    assert raw["data"]["rho"] == 0.9
    assert raw["seed"] == 7
    config = run_config(raw)
    assert config.to_dict() == raw
    assert run_config(finished.read_config()) == config


def test_the_settings_of_a_run_repeat_it(finished: RunFolder, tmp_path: Path) -> None:
    config = run_config(finished.read_config())
    assert_same_run(run(config, tmp_path / "again"), finished)


def test_metrics_hold_the_terms_of_the_loss(finished: RunFolder) -> None:
    for number, line in enumerate(finished.metrics(), start=1):
        assert line["epoch"] == number
        assert line["seconds"] >= 0
        assert isinstance(line["loss"], float)
        assert len(line["shortcut_score"]) == 4  # v, one value an axis, recorded per epoch
        assert all(0 <= score <= 1 + 1e-6 for score in line["shortcut_score"])
        terms = line["reconstruction"] + 2 * line["kl"] + line["cross_entropy"] + 3 * line["consistency"]
        assert line["loss"] == pytest.approx(terms, rel=1e-4)


def test_default_folders_do_not_collide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    file = str(write_settings(toy("toy_tally"), tmp_path / "mine.yaml"))
    paths = {
        sitar.train(file, seed=seed, overrides=overrides, device="cpu", progress=False).path
        for seed, overrides in ((0, []), (1, []), (0, ["train.epochs=2"]))
    }
    assert len(paths) == 3
    assert all(path.parts[0] == "runs" for path in paths)


def test_a_loaded_run_predicts(finished: RunFolder, tiny_data: Data) -> None:
    model = sitar.load(finished.path, device="cpu")
    x = tiny_data.evaluation["ood_test"].x[:100]
    stored = predictions(finished)["ood_test/logits"][:100]
    np.testing.assert_allclose(model.logits(x), stored, rtol=1e-5, atol=1e-6)
    assert (model.predict_index(x) == stored.argmax(1)).all()
    assert model.predict(x).tolist() == [tiny_data.classes[i] for i in stored.argmax(1)]
    probability = model.predict_proba(x)
    assert probability.shape == (100, 2)
    np.testing.assert_allclose(probability.sum(1), 1, rtol=1e-6)
    np.testing.assert_allclose(probability[:, 1], 1 / (1 + np.exp(stored[:, 0] - stored[:, 1])), rtol=1e-4)
    assert model.classes == tiny_data.classes
    for same in (x.numpy(), x.float() / 255, (x.float() / 255).numpy().astype(np.float64)):
        np.testing.assert_allclose(model.logits(same), stored, rtol=1e-5, atol=1e-6)
    assert model.predict(x[:0]).shape == (0,)


def test_a_result_names_classes_and_values(finished: RunFolder, tiny_data: Data) -> None:
    result = finished.result()
    assert result["classes"] == list(tiny_data.classes)
    assert result["attributes"] == {"color": ["green", "red"]}


def test_a_loaded_run_evaluates_as_it_did(finished: RunFolder) -> None:
    assert sitar.load(finished, device="cpu").evaluate() == finished.result()["splits"]


@pytest.mark.parametrize("shape", [(5, 3, 28, 28), (5, 1, 14, 14), (3, 14, 14), (5, 588), (5,)])
def test_wrong_shapes_are_refused(shape: tuple[int, ...], finished: RunFolder) -> None:
    model = sitar.load(finished.path, device="cpu")
    with pytest.raises(DataError, match=r"\(n, 3, 14, 14\)"):
        model.predict(np.zeros(shape, dtype=np.uint8))


def test_floats_outside_the_unit_interval_are_refused(finished: RunFolder) -> None:
    model = sitar.load(finished.path, device="cpu")
    with pytest.raises(DataError, match="uint8"):
        model.predict_proba(np.full((2, 3, 14, 14), 255.0))


def test_loading_changes_nothing(finished: RunFolder) -> None:
    before = hashes(finished.path)
    sitar.load(finished.path, device="cpu").evaluate()
    assert hashes(finished.path) == before


def test_what_is_no_finished_run_cannot_be_loaded(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="no run folder"):
        sitar.load(tmp_path / "nowhere", device="cpu")
    (tmp_path / "empty").mkdir()
    with pytest.raises(RunError, match=r"config\.yaml"):
        sitar.load(tmp_path / "empty", device="cpu")
    with pytest.raises(TrainingError):
        run(toy("toy_tally", nan_from=2), tmp_path / "stopped")
    with pytest.raises(RunError, match="not finished"):
        sitar.load(tmp_path / "stopped", device="cpu")


def test_damaged_weights_are_refused(tmp_path: Path) -> None:
    folder = run(toy("erm"), tmp_path / "run")
    folder.model_file.write_bytes(folder.model_file.read_bytes()[:100])
    with pytest.raises(RunError, match="safetensors"):
        sitar.load(folder, device="cpu")


COMPILER = pytest.mark.skipif(shutil.which("g++") is None, reason="there is no C++ compiler")


@pytest.mark.ci
@COMPILER
@pytest.mark.filterwarnings("default")
def test_a_compiled_loss_trains_alike(tmp_path: Path) -> None:
    """The same noise, the same weights. Other settings in the same process need no version of the first loss."""
    import torch._dynamo.config as dynamo  # here: slow to import

    with dynamo.patch(recompile_limit=1):
        for alpha in (1.0, 0.5):
            eager = run(settings("sitar", alpha=alpha), tmp_path / f"{alpha} eager")
            config = settings("sitar", alpha=alpha, train={**TINY_TRAIN, "compile": True})
            assert_close_runs(run(config, tmp_path / f"{alpha} compiled"), eager)


def test_a_loss_that_cannot_be_compiled_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def loss(self: Any, batch: TrainBatch) -> dict[str, torch.Tensor]:
        return {"loss": self.w if self.w.detach() > 0 else -self.w}  # asks for a value

    monkeypatch.setattr(Tally, "loss", loss)
    run(toy("toy_tally"), tmp_path / "eager")
    with pytest.raises(TrainingError, match=r"the loss cannot be compiled here: .* Leave it out"):
        run(toy("toy_tally", train={"compile": True}), tmp_path / "compiled")


@pytest.mark.parametrize(
    ("returned", "found"),
    [
        (lambda w: w.sum(), "Tensor"),
        (lambda w: w.expand(3), "Tensor"),
        (lambda w: {"total": w}, "a dict with total"),
        (lambda w: {}, "a dict with no key"),
        (lambda w: None, "NoneType"),
        (lambda w: (w, {}), "tuple"),
    ],
)
@pytest.mark.parametrize("seeds", [(0,), (0, 1)])
def test_a_loss_without_the_term_that_is_minimised_is_named(
    returned: Any, found: str, seeds: tuple[int, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def loss(self: Tally, batch: TrainBatch) -> Any:
        return returned(self.w)

    loss.__qualname__ = "Tally.loss"
    monkeypatch.setattr(Tally, "loss", loss)

    def train() -> None:
        runs = [(toy("toy_tally", seed=seed), RunFolder(tmp_path / f"{seed}")) for seed in seeds]
        for trained in train_copies(runs, device="cpu"):
            raise trained.error or AssertionError("it was trained")

    says = r"^Tally\.loss must return a dict with the key 'loss', such as \{'loss': value\}\. It returned "
    with pytest.raises(TrainingError, match=rf"{says}{found}\.$"):
        train()


GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
VIEWS = {"augment": "crop_flip", "optimiser": "sgd", "learning_rate": 1e-3}  # Adam would enlarge rounding errors
ENCODER = {"latent_dim": 4, "hidden": 8, "encoder": "test_resnet", "encoder_weights": "random"}
CAPTURED = {
    **{name: lambda name=name: settings(name) for name in METHODS.names()},
    "clip, schedule": lambda: settings(
        "toy_annealed",
        train={**TINY_TRAIN, "schedule": "cosine", "warmup_epochs": 0.5, "gradient_clip": 1.0},
        noise="swap",
        class_weight="balanced",
    ),
    "total correlation": lambda: settings("sitar", vae="tc"),
    "discriminator": lambda: settings("sitar", vae="factor"),
    "head": lambda: settings("chroma_vae", head="mlp"),
    "last layer": lambda: settings("afr", last_epochs=2),
    "sgd": lambda: settings("erm", train={**TINY_TRAIN, "optimiser": "sgd", "schedule": "linear"}),
    "two objectives": lambda: toy("toy_tally", second_slope=2.0),
    "phases with dropout": lambda: toy("toy_relay", dropout=0.5),
    "an encoder and views": lambda: toy("sitar", model=ENCODER, train=VIEWS),
    "features": lambda: toy("sitar", data={"name": "toy_blobs", "features": True}),
}


@pytest.mark.gpu
@GPU
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("kind", CAPTURED)
def test_captured_step_equals_eager_step(kind: str, tmp_path: Path) -> None:
    folders = []
    for step in ("eager", "captured"):
        config = CAPTURED[kind]()
        config = config.model_copy(update={"train": config.train.model_copy(update={"step": step})})
        folders.append(run(config, tmp_path / step, device="cuda"))
    assert_close_runs(folders[1], folders[0])


ON_GPU = (pytest.mark.gpu, GPU)


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("method", ["erm", "sitar"])
@pytest.mark.parametrize(
    ("device", "ways"),
    [
        pytest.param("cpu", {"compile": True}, marks=(pytest.mark.ci, COMPILER)),
        pytest.param("cuda", {"step": "captured"}, marks=ON_GPU),
        pytest.param("cuda", {"step": "captured", "compile": True}, marks=ON_GPU),
    ],
    ids=["compiled on a CPU", "captured", "compiled and captured"],
)
def test_the_first_twenty_steps_have_the_losses_of_eager_ones(
    method: str, device: str, ways: dict[str, Any], tmp_path: Path
) -> None:
    """Every epoch is one step here, so the log has the loss of every step."""
    losses = []
    for name, way in {"eager": {"step": "eager"}, "other": ways}.items():
        one_step = {**TINY_TRAIN, "epochs": 20, "batch_size": TINY_DATA["train_size"], "learning_rate": 1e-3, **way}
        folder = run(settings(method, train=one_step), tmp_path / name, device=device)
        losses.append([line["loss"] for line in metrics(folder)])
    assert len(losses[0]) == 20
    assert losses[0][-1] < 0.99 * losses[0][0], "it learns nothing"
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)


@pytest.mark.gpu
@GPU
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("kind", ["erm", "sitar", "two objectives", "phases with dropout"])
def test_compiled_and_captured_step_equals_eager_step(kind: str, tmp_path: Path) -> None:
    folders = []
    for ways in ({"step": "eager"}, {"step": "captured", "compile": True}):
        config = CAPTURED[kind]()
        config = config.model_copy(update={"train": config.train.model_copy(update=ways)})
        folders.append(run(config, tmp_path / ways["step"], device="cuda"))
    assert_close_runs(folders[1], folders[0])


@pytest.mark.gpu
@GPU
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("step", ["eager", "captured"])
@pytest.mark.parametrize("name", METHODS.names())
def test_data_that_does_not_fit_the_gpu_trains_alike(
    name: str, step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = settings(name, train={**TINY_TRAIN, "step": step, "data_on": "host"})
    if step == "captured" and METHODS.get(name).needs_unlabelled:
        with pytest.raises(ConfigError, match="unlabelled inputs that lie on the device"):
            run(config, tmp_path / "fed", device="cuda")
        return
    resident = run(settings(name, train={**TINY_TRAIN, "step": "eager"}), tmp_path / "resident", device="cuda")
    assert_close_runs(run(config, tmp_path / "fed", device="cuda"), resident)
    monkeypatch.setattr("sitar.training.loop.RESIDENT_SHARE", 0.0)
    config = settings(name, train={**TINY_TRAIN, "step": step})
    assert_close_runs(run(config, tmp_path / "does not fit", device="cuda"), resident)


@pytest.mark.gpu
@GPU
@pytest.mark.filterwarnings("default")
def test_a_gpu_captures_by_default_and_agrees_with_the_cpu(tmp_path: Path) -> None:
    config = settings("erm")  # draws no noise, whose stream differs between devices
    assert_close_runs(run(config, tmp_path / "cuda", device="cuda"), run(config, tmp_path / "cpu"), relative=1e-2)


@pytest.mark.gpu
@GPU
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_the_callers_random_state_on_the_gpu_is_not_touched(device: str, tmp_path: Path) -> None:
    torch.manual_seed(99)
    torch.rand(3, device="cuda")
    before = torch.cuda.get_rng_state().tolist(), random_state()
    run(toy("sitar"), tmp_path / "run", device=device)
    assert (torch.cuda.get_rng_state().tolist(), random_state()) == before


@pytest.mark.gpu
@GPU
@pytest.mark.filterwarnings("default")
def test_bfloat16_runs_captured(tmp_path: Path) -> None:
    config = settings("sitar", train={**TINY_TRAIN, "precision": "bfloat16", "step": "captured"})
    folder = run(config, tmp_path / "run", device="cuda")
    assert all(torch.isfinite(tensor).all() for tensor in weights(folder).values())


@pytest.mark.gpu
@GPU
@pytest.mark.filterwarnings("default")
def test_a_run_from_a_gpu_loads_on_the_cpu(tmp_path: Path) -> None:
    folder = run(settings("sitar"), tmp_path / "run", device="cuda")
    assert json.loads(folder.environment_file.read_text())["device"] == torch.cuda.get_device_name()
    x = load_data(settings("sitar").data).evaluation["val"].x[:200]
    on_cpu, on_gpu = (sitar.load(folder, device=device).logits(x) for device in ("cpu", "cuda"))
    np.testing.assert_allclose(on_cpu, on_gpu, rtol=1e-2, atol=1e-3)
