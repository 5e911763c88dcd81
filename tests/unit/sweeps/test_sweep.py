"""A whole sweep of tiny real runs, in this process: what is run, what is chosen, and what the record says."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import pytest

from helpers.bits import damaged, flipped, some_bits
from helpers.engines import InProcess
from sitar.errors import ConfigError, RunError
from sitar.integrity import sealed
from sitar.reporting.tables.sweep import sweep_table
from sitar.run_folder import RunFolder
from sitar.sweeps.engines.job import Job, attempt
from sitar.sweeps.engines.local import LocalEngine
from sitar.sweeps.engines.ray import RayEngine
from sitar.sweeps.folder import SweepFolder
from sitar.sweeps.sweep import Sweep, make_engine, make_request, run

TINY = ["data.train_size=200", "data.eval_size=100", "data.image_size=14", "model.channels=[4]", "model.hidden=8"]
TINY += ["train.epochs=2", "train.batch_size=64", "train.learning_rate=0.02"]


def made(out: Path, engine: InProcess | None = None, preset: str = "color_mnist/sitar", **options: Any) -> Sweep:
    options = {"over": ["method.alpha=0,0.5"], "seeds": "0-1", "overrides": TINY, "device": "cpu", **options}
    return run(make_request(preset, out=out, **options), engine or InProcess(), progress=False)


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    return made(tmp_path_factory.mktemp("swept"))


def test_every_run_is_an_ordinary_run_folder(swept: Sweep) -> None:
    folders = sorted(file.parent for file in swept.folder.rglob("result.json"))
    assert [folder.relative_to(swept.folder).as_posix() for folder in folders] == [
        f"method.alpha={alpha}/seed{seed}" for alpha in ("0", "0.5") for seed in (0, 1)
    ]
    for folder in folders:
        config = RunFolder(folder).read_config()
        assert f"method.alpha={config['method']['alpha']:g}" == folder.parent.name
        assert f"seed{config['seed']}" == folder.name


def test_the_record_says_what_the_runs_have(swept: Sweep) -> None:
    record = SweepFolder(swept.folder).record()
    assert record == swept.record
    assert record["version"] == 1
    assert record["over"] == {"method.alpha": [0.0, 0.5]}
    assert (record["unfinished"], record["failed"], record["mixed_data"], record["search"]) == (0, [], False, None)
    for point in record["points"]:
        results = [RunFolder(swept.folder / point["name"] / f"seed{seed}").result() for seed in (0, 1)]
        for split in ("val", "id_test", "ood_test"):
            values = [result["splits"][split]["average"] for result in results]
            assert point["splits"][split]["average"] == {"mean": mean(values), "std": stdev(values), "values": values}
        assert point["score"] == point["splits"]["val"]["average"]["mean"]
    assert [point["control"] for point in record["points"]] == [True, False]


def test_the_best_on_val_is_chosen_and_the_first_of_equals(swept: Sweep) -> None:
    scores = [point["score"] for point in swept.points]
    assert swept.chosen == swept.points[scores.index(max(scores))]
    assert [folder.is_done for folder in swept.chosen_runs] == [True, True]
    lower = made(swept.folder, select="val_calibration_error")
    errors = [point["splits"]["val"]["calibration_error"]["mean"] for point in lower.points]
    assert lower.chosen == lower.points[errors.index(min(errors))], "a calibration error is better if it is lower"


def test_a_finished_sweep_runs_nothing_and_a_larger_one_only_what_is_new(swept: Sweep) -> None:
    before = {file: file.stat().st_mtime_ns for file in swept.folder.glob("*/seed*/*")}
    engine = InProcess()
    assert made(swept.folder, engine).record == swept.record
    assert engine.done == []
    made(swept.folder, engine := InProcess(), over=["method.alpha=0.50,0,1e0"], seeds="0-1")
    assert [Path(job.folder).relative_to(swept.folder).as_posix() for job in engine.done] == [
        "method.alpha=1/seed0",
        "method.alpha=1/seed1",
    ]
    assert before.items() <= {file: file.stat().st_mtime_ns for file in swept.folder.glob("*/seed*/*")}.items()


def test_the_table_shows_val_beside_test_and_marks_choice_and_control(swept: Sweep) -> None:
    table = sweep_table(swept.record)
    assert table.columns[:4] == ["method.alpha", "seeds", "val average", "id_test average"]
    assert "ood_test worst" in table.columns
    names = [point["name"] for point in swept.points]
    marks = [row[-1] for row in table.rows]
    assert "chosen" in marks[names.index(swept.record["chosen"])]
    assert sum("chosen" in mark for mark in marks) == 1
    assert ["control" in mark for mark in marks] == [True, False]
    summary = swept.points[0]["splits"]["val"]["average"]
    assert table.rows[0][:3] == ["0", "0,1", f"{100 * summary['mean']:.1f} ± {100 * summary['std']:.1f}"]
    assert "Chosen by val_average, without a look at a test split." in table.note
    assert "group" not in table.note


def test_a_choice_by_groups_is_made_only_by_name_and_marked(swept: Sweep) -> None:
    by_groups = made(swept.folder, select="val_worst_group")
    assert by_groups.record["select"] == {
        "rule": "val_worst_group", "split": "val", "metric": "worst_group", "reads_groups": True,
    }  # fmt: skip
    table = by_groups.table()
    assert any("chosen ‖" in row[-1] for row in table.rows)
    assert "‖ chosen with the help of groups of val" in table.note
    with pytest.raises(ConfigError, match=r"chooses the epoch of each run by groups.*--select val_worst_group"):
        made(swept.folder / "other", overrides=[*TINY, "train.selection=val_worst_group"])


def test_a_choice_on_val_ood_is_made_only_by_name_and_marked(swept: Sweep) -> None:
    assert "◊" not in swept.table().note
    engine = InProcess()
    by_ood = made(swept.folder, engine, select="val_ood_worst_group")
    assert engine.done == []
    worst = [point["splits"]["val_ood"]["worst_group"]["mean"] for point in by_ood.points]
    assert [point["score"] for point in by_ood.points] == worst
    assert by_ood.chosen == by_ood.points[worst.index(max(worst))]
    table = by_ood.table()
    assert table.columns[2] == "val_ood worst"
    assert "val average" not in table.columns
    assert next(row[-1] for row in table.rows if "chosen" in row[-1]).startswith("chosen ‖ ◊")
    assert "‖ chosen with the help of groups of val_ood" in table.note
    assert "◊ chosen on val_ood: a hint about the test" in table.note
    assert SweepFolder(swept.folder).record() == by_ood.record
    for name in ("average", "worst_group"):
        assert (made(swept.folder, select=f"val_ood_{name}").folder / "sweep.png").exists()


def test_a_record_from_before_val_ood_could_choose_was_chosen_by_val(swept: Sweep) -> None:
    old = swept.record | {"select": {key: swept.record["select"][key] for key in ("rule", "metric", "reads_groups")}}
    assert sweep_table(old) == sweep_table(swept.record)


def test_a_run_that_fails_stops_no_other_and_is_tried_again(tmp_path: Path) -> None:
    def broken(job: Job) -> str | None:
        return "out of luck" if "0.5" in job.folder and job.seed == 1 else attempt(job)

    found = made(tmp_path, InProcess(do=broken))
    (failure,) = found.failed
    assert failure == {
        "name": "method.alpha=0.5",
        "seed": 1,
        "error": "out of luck",
        "log": str(tmp_path / "logs" / "method.alpha=0.5" / "seed1.txt"),
    }
    assert found.record["unfinished"] == 1
    assert found.chosen is not None
    assert found.chosen["name"] == "method.alpha=0", "a point that lacks a seed is not chosen"
    assert "1 run is not finished" in found.table().note
    again = made(tmp_path, engine := InProcess())
    assert [Path(job.folder).name for job in engine.done] == ["seed1"]
    assert again.failed == []
    assert again.record["unfinished"] == 0


def test_a_setting_that_diverges_is_a_failure_with_its_reason(tmp_path: Path) -> None:
    over = {"train.learning_rate": [0.01, 1e30]}
    found = made(tmp_path, preset="color_mnist/erm", over=over, seeds=0, overrides=[*TINY[:-1], "train.optimiser=sgd"])
    (failure,) = found.failed
    assert failure["name"] == "train.learning_rate=1e+30"
    assert "The loss became" in failure["error"]


def test_a_search_runs_its_trials_and_chooses_the_best(tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    options = {"over": {"method.alpha": "0.01..10:log"}, "search": "optuna", "trials": 3, "seeds": "0-1"}
    found = made(tmp_path, engine := InProcess(), **options)
    assert len(engine.done) == 6
    assert found.record["search"] == {"name": "optuna", "trials": 3}
    assert len(found.points) == 3
    assert found.chosen == max(found.points, key=lambda point: point["score"])
    assert made(tmp_path, engine := InProcess(), **options).record == found.record
    assert engine.done == []


def test_a_search_in_which_everything_fails_gives_up(tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    engine = InProcess(do=lambda job: "no disk")
    found = made(tmp_path, engine, over={"method.alpha": "0.01..10:log"}, search="optuna", trials=30, seeds=0)
    assert len(engine.done) == 3
    assert len(found.failed) == 3
    assert found.chosen is None


def test_seeds_alone_are_a_sweep_too(tmp_path: Path) -> None:
    found = made(tmp_path, over=(), seeds="0-1", preset="color_mnist/erm")
    assert (tmp_path / "preset" / "seed1" / "result.json").exists()
    assert found.table().columns[0] == "seeds"
    assert not found.figure.exists()


def test_data_that_changes_between_runs_is_said(tmp_path: Path) -> None:
    made(tmp_path, over=["method.alpha=0"], seeds="0-1")
    folder = RunFolder(tmp_path / "method.alpha=0" / "seed1")
    environment = json.loads(folder.environment_file.read_text())
    folder.write_environment({**environment, "data_checksum": "other"})
    found = made(tmp_path, over=["method.alpha=0"], seeds="0-1")
    assert "The data has changed between these runs" in found.table().note


def test_a_finished_run_whose_data_lies_elsewhere_now_looks_at_the_data(tmp_path: Path) -> None:
    made(tmp_path, over=["method.alpha=0"], seeds=0)
    folder = RunFolder(tmp_path / "method.alpha=0" / "seed0")
    config = folder.read_config()
    folder.write_config({**config, "data": {**config["data"], "root": "where/it/was"}})
    assert made(tmp_path, engine := InProcess(), over=["method.alpha=0"], seeds=0).chosen is not None
    assert len(engine.done) == 1
    assert folder.read_config() == config
    folder.write_config({**config, "data": {**config["data"], "root": "where/it/was"}})
    environment = json.loads(folder.environment_file.read_text())
    folder.write_environment({**environment, "data_checksum": "of other data"})
    changed = made(tmp_path, over=["method.alpha=0"], seeds=0)
    assert "The data has changed" in changed.failed[0]["error"]
    assert changed.chosen is None
    assert changed.record["unfinished"] == 1


def test_a_second_process_is_refused_with_the_owner(tmp_path: Path) -> None:
    code = f"""
import sys
from pathlib import Path
from sitar.sweeps.folder import SweepFolder
with SweepFolder(Path({str(tmp_path)!r})).lock():
    print("locked", flush=True)
    sys.stdin.read()
"""
    with subprocess.Popen([sys.executable, "-c", code], stdin=-1, stdout=-1, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "locked\n"
        with pytest.raises(RunError, match=rf"^Process {other.pid} works on the sweep"):
            made(tmp_path)
        other.kill()
    with SweepFolder(tmp_path).lock():  # a killed process leaves no lock behind
        pass


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"trials": 3}, "--trials is for a search"),
        ({"search": "grid"}, "There is no search 'grid'"),
        ({"search": "optuna", "trials": 0}, "at least one trial"),
        ({"seeds": "4-0"}, "--seeds"),
        ({"select": "ood_test_average"}, "reads ood_test"),
        ({"over": ["method.alhpa=1"]}, "Did you mean"),
    ],
)
def test_what_cannot_be_run_is_refused_before_anything_is_written(
    options: dict[str, Any], says: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=says):
        made(tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


def test_the_engine_has_what_was_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    request = make_request("color_mnist/erm", seeds="0-4", out=tmp_path)
    local = make_engine("local", request, workers=3, device="cpu")
    assert isinstance(local, LocalEngine)
    assert (local.workers, local.gpus) == (3, ())
    assert local.threads is not None
    assert local.together == 1
    few = make_engine("local", make_request("color_mnist/erm", out=tmp_path), workers=8, device="cpu")
    assert isinstance(few, LocalEngine)
    assert (few.workers, few.threads) == (1, None), "no more processes than runs"
    ray = make_engine("ray", request, address="auto", resources={"gpu": 0.25})
    assert isinstance(ray, RayEngine)
    assert (ray.address, ray.resources, ray.workers) == ("auto", {"gpu": 0.25}, None)
    with pytest.raises(ConfigError, match="There is no engine 'slurm'"):
        make_engine("slurm", request)
    with pytest.raises(ConfigError, match="are for --engine ray"):
        make_engine("local", request, address="auto", device="cpu")
    with pytest.raises(ConfigError, match="--workers 0"):
        make_engine("local", request, workers=0, device="cpu")
    with pytest.raises(ConfigError, match="Device 'abacus' cannot be used"):
        make_engine("local", request, device="abacus")


def test_on_a_gpu_the_seeds_of_a_point_are_handed_over_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless --workers asks for runs side by side. They follow each other, point by point."""
    monkeypatch.setattr("sitar.sweeps.sweep.visible_gpus", lambda device: ["0"])
    monkeypatch.setattr("sitar.sweeps.sweep.resolve_device", lambda device: None)
    request = make_request("color_mnist/sitar", over=["method.alpha=0,1"], seeds="0-2", out=tmp_path)
    one = make_engine("local", request)
    assert isinstance(one, LocalEngine)
    assert (one.workers, one.together) == (1, 3)
    monkeypatch.setattr("sitar.sweeps.sweep.visible_gpus", lambda device: list("0123"))
    four = make_engine("local", request)
    assert isinstance(four, LocalEngine)
    assert (four.workers, four.together) == (4, 2), "no GPU has nothing to do"
    many = make_engine("local", request, workers=4)
    assert isinstance(many, LocalEngine)
    assert (many.workers, many.together) == (4, 1)
    engine = InProcess(do=lambda job: "not now")
    engine.together = 3  # type: ignore[attr-defined]
    run(request, engine, progress=False)
    names = [(Path(job.folder).parent.name, job.seed) for job in engine.done]
    assert names == [(f"method.alpha={alpha}", seed) for alpha in (0, 1) for seed in range(3)]


@pytest.mark.parametrize("content", ["", "[]", '{"version": 2}'])
def test_a_record_that_cannot_be_read_says_so(content: str, tmp_path: Path) -> None:
    (tmp_path / "sweep.json").write_text(content)
    with pytest.raises(RunError, match=r"sweep\.json"):
        SweepFolder(tmp_path).record()


@pytest.mark.parametrize(
    ("key", "value"),
    [("points", [{}]), ("points", 3), ("failed", None), ("over", []), ("chosen", 1), ("select", {"rule": "x"}),
     ("select", {"rule": "x", "metric": "nosuch", "reads_groups": False}), ("over", {"method.nosuch": [1]})],
)  # fmt: skip
def test_a_record_with_wrong_values_says_so(key: str, value: Any, swept: Any, tmp_path: Path) -> None:
    record = SweepFolder(swept.folder).record()
    (tmp_path / "sweep.json").write_text(json.dumps(sealed({**record, key: value})))  # its checksum is right
    with pytest.raises(RunError, match=r"sweep\.json' is damaged"):
        SweepFolder(tmp_path).record()


def reads_the_same(damaged: bytes, sound: bytes) -> bool:
    try:
        return json.loads(damaged) == json.loads(sound)
    except ValueError:
        return False


def test_one_flipped_bit_of_a_record_is_named(swept: Any, tmp_path: Path) -> None:
    sound, folder = SweepFolder(swept.folder).record(), SweepFolder(tmp_path)
    content = SweepFolder(swept.folder).record_file.read_bytes()
    folder.record_file.write_bytes(content)
    assert folder.record() == sound
    for bit in some_bits(content, 1500):
        if reads_the_same(flipped(content, bit), content):
            continue  # another last digit of the same float64
        with damaged(folder.record_file, bit), pytest.raises(RunError, match=r"sweep\.json'"):
            folder.record()
