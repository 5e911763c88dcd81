"""Trackers: the real packages are told of real runs, and none of them can change or stop a run."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import pytest

import sitar.training.run
from helpers.runs import Stop, assert_same_run, metrics, run, toy
from helpers.toys import entered
from sitar.config import RunConfig
from sitar.errors import ConfigError, RunError
from sitar.presets import load_config
from sitar.run_folder import RunFolder
from sitar.training.loop import Loop
from sitar.training.trackers import tracker
from sitar.training.trackers.tensorboard import TensorBoardTracker

EPOCHS = 5
ALL = ["tensorboard", "wandb", "mlflow"]
pytestmark = pytest.mark.filterwarnings("ignore:.*:DeprecationWarning", "ignore:.*:FutureWarning")


@pytest.fixture(autouse=True)
def _places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """No tracker finds an account, and MLflow keeps its runs beside the test's."""
    for name in ("WANDB_API_KEY", "WANDB_MODE", "MLFLOW_EXPERIMENT_NAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "no-netrc"))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    with entered():
        yield


def tracked(*names: str, method: str = "sitar", **train: Any) -> RunConfig:
    return toy(method, train={"epochs": EPOCHS, "log": list(names), **train})


def stopped(config: RunConfig, path: Path, monkeypatch: pytest.MonkeyPatch, epoch: int) -> None:
    """Stop a run when an epoch is logged and its checkpoint is not yet written."""

    def stop(loop: Loop, number: int) -> bool:
        if number + 1 == epoch:
            raise Stop
        return True

    with monkeypatch.context() as patch:
        patch.setattr(Loop, "_checkpoint_is_due", stop)
        with pytest.raises(Stop):
            run(config, path)


def scalars(folder: RunFolder, name: str) -> list[tuple[int, float]]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder.trackers / "tensorboard"))
    events.Reload()
    return [(event.step, event.value) for event in events.Scalars(name)]


def history(folder: RunFolder, name: str) -> list[tuple[int, float]]:
    from mlflow import MlflowClient

    found = MlflowClient().get_metric_history(folder.tracker_ids()["mlflow"], name)
    return [(metric.step, metric.value) for metric in found]


def logged(folder: RunFolder, *keys: str) -> list[tuple[int, float]]:
    """What metrics.jsonl has under a key, or a key within a key."""
    values = []
    for i, line in enumerate(metrics(folder), 1):
        value = line
        for key in keys:
            value = value[key]
        values.append((i, pytest.approx(value, rel=1e-6)))
    return values


def test_tensorboard_is_told_every_epoch_the_settings_and_the_results(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    folder = run(tracked("tensorboard"), tmp_path / "run")
    assert scalars(folder, "train/loss") == logged(folder, "loss")
    assert scalars(folder, "val/average") == logged(folder, "val", "average")
    result = folder.result()["splits"]["ood_test"]
    assert scalars(folder, "result/ood_test/worst_group") == [(0, pytest.approx(result["worst_group"]))]
    group, found = next(iter(result["groups"].items()))
    assert scalars(folder, f"result/ood_test/group/{group}") == [(0, pytest.approx(found["accuracy"]))]
    events = EventAccumulator(str(folder.trackers / "tensorboard"))
    events.Reload()
    (settings,) = events.Tensors("settings/text_summary")
    assert b"method.alpha: 1.0" in settings.tensor_proto.string_val[0]
    assert "_hparams_/session_start_info" in events.summary_metadata


@pytest.mark.ci
def test_mlflow_is_told_every_epoch_the_settings_and_the_results(tmp_path: Path) -> None:
    from mlflow import MlflowClient

    folder = run(tracked("mlflow"), tmp_path / "run")
    assert history(folder, "train/loss") == logged(folder, "loss")
    found = MlflowClient().get_run(folder.tracker_ids()["mlflow"])
    assert found.info.status == "FINISHED"
    assert found.data.params["method.alpha"] == "1.0"
    assert found.data.metrics["result/ood_test/average"] == folder.result()["splits"]["ood_test"]["average"]
    assert any(name.startswith("result/ood_test/group/label_0_agrees_") for name in found.data.metrics)


@pytest.mark.ci
def test_wandb_is_offline_without_a_key(tmp_path: Path) -> None:
    folder = run(tracked("wandb"), tmp_path / "run")
    (file,) = (folder.trackers / "wandb").rglob("run-*.wandb")
    assert file.parent.name.startswith("offline-run-")
    assert folder.tracker_ids()["wandb"] in file.name
    names = (b"train/loss", b"val/average", b"method.alpha", b"result/ood_test/worst_group")
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and not all(name in file.read_bytes() for name in names):
        time.sleep(0.1)  # a process of wandb's own writes the file
    for name in names:
        assert name in file.read_bytes()


@pytest.mark.ci
def test_trackers_change_nothing(tmp_path: Path) -> None:
    plain = run(tracked(), tmp_path / "plain")
    assert not plain.trackers.exists()
    assert_same_run(plain, run(tracked(*ALL), tmp_path / "tracked"))


@pytest.mark.ci
def test_a_resumed_run_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mlflow import MlflowClient

    config = tracked("tensorboard", "mlflow")
    folder = RunFolder(tmp_path / "run")
    stopped(config, folder.path, monkeypatch, epoch=4)
    first = folder.tracker_ids()
    assert MlflowClient().get_run(first["mlflow"]).info.status == "KILLED"
    run(config, folder.path, resume=True)
    assert folder.tracker_ids() == first
    assert MlflowClient().get_run(first["mlflow"]).info.status == "FINISHED"
    assert scalars(folder, "train/loss") == logged(folder, "loss")  # each epoch once
    assert sorted(set(history(folder, "train/loss"))) == logged(folder, "loss")
    assert_same_run(folder, run(tracked(), tmp_path / "plain"))


@pytest.mark.ci
def test_wandb_goes_on_under_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = RunFolder(tmp_path / "run")
    stopped(tracked("wandb"), folder.path, monkeypatch, epoch=3)
    first = folder.tracker_ids()["wandb"]
    run(tracked("wandb"), folder.path, resume=True)
    files = list((folder.trackers / "wandb").rglob("run-*.wandb"))
    assert {file.name for file in files} == {f"run-{first}.wandb"}
    assert len(files) == 2


def test_trackers_may_be_added_when_a_run_is_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stopped(tracked(), tmp_path / "run", monkeypatch, epoch=3)
    folder = run(tracked("tensorboard"), tmp_path / "run", resume=True)
    assert [step for step, _ in scalars(folder, "train/loss")] == [3, 4, 5]


@pytest.mark.parametrize("error", [RuntimeError("disk full"), SystemExit("gone")])
def test_a_tracker_that_fails_at_night_is_left_out_and_training_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: BaseException
) -> None:
    class Failing(TensorBoardTracker):
        def epoch(self, step: int, values: tracker.Values) -> None:
            if step >= 3:
                raise error
            super().epoch(step, values)

    monkeypatch.setattr("sitar.training.trackers.tensorboard.TensorBoardTracker", Failing)
    folder = run(tracked("tensorboard", "mlflow"), tmp_path / "run")
    (record,) = [record for record in caplog.records if "tracker" in record.getMessage()]
    assert "tensorboard has failed" in record.getMessage()
    assert str(error) in record.getMessage()
    assert len(scalars(folder, "train/loss")) == 2
    assert len(history(folder, "train/loss")) == EPOCHS  # the other one is told everything
    assert_same_run(folder, run(tracked(), tmp_path / "plain"))


def test_a_tracker_that_cannot_start_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "run" / "trackers").mkdir(parents=True)
    (tmp_path / "run" / "trackers" / "tensorboard").write_text("a file in the way")
    monkeypatch.setattr(RunFolder, "refuse_used", lambda folder: None)
    folder = run(tracked("tensorboard"), tmp_path / "run")
    assert "tensorboard has failed" in caplog.text
    assert folder.is_done


@pytest.mark.parametrize("name", ALL)
def test_a_package_that_is_missing_is_said_before_data_is_loaded(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in [key for key in sys.modules if key.split(".")[0] == name or key == "torch.utils.tensorboard"]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setattr(sitar.training.run, "load_data", lambda *_: pytest.fail("data was loaded"))
    with pytest.raises(ConfigError, match=rf"train\.log={name} needs a package.*sitar\[{name}\]"):
        run(tracked(name), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_server_that_does_not_answer_is_said_before_data_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    monkeypatch.setattr(sitar.training.run, "load_data", lambda *_: pytest.fail("data was loaded"))
    began = time.perf_counter()
    with pytest.raises(ConfigError, match=r"train\.log=mlflow cannot be used here"):
        run(tracked("mlflow"), tmp_path / "run")
    assert time.perf_counter() - began < 20  # MLflow's own patience is minutes


def test_one_name_is_a_list_of_one() -> None:
    assert load_config("demo/erm", ["train.log=tensorboard"]).train.log == ("tensorboard",)
    assert load_config("demo/erm", ["train.log=[mlflow, wandb]"]).train.log == ("mlflow", "wandb")
    with pytest.raises(ConfigError, match=r"train\.log.*'tensorbord'.*tensorboard"):
        load_config("demo/erm", ["train.log=tensorbord"])


def test_lines_become_numbers_by_name() -> None:
    line = {
        "phase": "second", "epoch": 2, "loss": 0.5, "bad": float("nan"), "shortcut_score": [0.1, 0.5],
        "val": {"average": 0.75, "worst_group": None},
    }  # fmt: skip
    assert tracker.epoch_values(line) == {
        "second/epoch": 2.0, "second/loss": 0.5, "second/shortcut_score_mean": 0.3, "second/shortcut_score_max": 0.5,
        "val/average": 0.75,
    }  # fmt: skip


@pytest.mark.parametrize("link", ["trackers", "trackers/tensorboard", "trackers/tensorboard/more"])
def test_nothing_is_written_where_a_link_leads_out_of_the_run_folder(
    link: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, path, outside = tracked("tensorboard"), tmp_path / "run", tmp_path / "outside"
    monkeypatch.setattr(TensorBoardTracker, "check", lambda: None)
    stopped(config.model_copy(update={"train": config.train.model_copy(update={"log": ()})}), path, monkeypatch, 3)
    RunFolder(path).write_config(config.to_dict())
    outside.mkdir()
    (path / link).parent.mkdir(parents=True, exist_ok=True)
    (path / link).symlink_to(outside)
    with pytest.raises(RunError, match=f"{link}.* leads out of the run folder"):
        run(config, path, resume=True)
    assert not list(outside.iterdir())


def test_a_run_folder_may_be_a_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tracked("tensorboard", method="erm")
    stopped(config, tmp_path / "disk", monkeypatch, 3)
    (tmp_path / "run").symlink_to(tmp_path / "disk")
    folder = run(config, tmp_path / "run", resume=True)
    assert folder.is_done
    assert list((tmp_path / "disk" / "trackers" / "tensorboard").iterdir())
