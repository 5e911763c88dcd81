"""What a run leaves on disk."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml

import sitar
from sitar.errors import RunError, SitarError
from sitar.files import to_json, write_atomic
from sitar.run_folder import RESULT_VERSION, Run, RunFolder, differences

RESULT = {
    "version": RESULT_VERSION,
    "dataset": "d",
    "seed": 1,
    "selection": "last",
    "seconds": 1,
    "splits": {"val": {"n": 3, "average": None}},
}
CONFIG = {"preset": "p", "seed": 1, "data": {"name": "d", "rho": 0.9}}


@pytest.fixture
def folder(tmp_path) -> RunFolder:
    folder = RunFolder(tmp_path / "runs" / "one")
    folder.create(CONFIG)
    return folder


def test_create_writes_the_configuration(folder):
    assert list(yaml.safe_load(folder.config_file.read_text())) == list(CONFIG)
    assert folder.read_config() == CONFIG
    assert not folder.is_done


def test_create_in_an_empty_folder(tmp_path):
    RunFolder(tmp_path).create(CONFIG)
    assert RunFolder(tmp_path).read_config() == CONFIG


def test_create_refuses_a_used_folder(folder):
    before = folder.config_file.read_bytes()
    with pytest.raises(RunError, match=r"already used.*--out.*--resume"):
        folder.create({"preset": "other"})
    assert folder.config_file.read_bytes() == before


def test_create_refuses_a_folder_with_anything_in_it(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(RunError, match="already used"):
        RunFolder(tmp_path).create(CONFIG)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_create_after_a_kill_while_it_was_creating(tmp_path):
    """An unfinished configuration, the temporary file of an atomic write, is not a used folder."""
    (tmp_path / ".config.yaml.x1y2").write_text("pres")
    RunFolder(tmp_path).create(CONFIG)
    assert RunFolder(tmp_path).read_config() == CONFIG


@pytest.mark.parametrize("below", ["", "run", "a/b"])
def test_create_where_nothing_can_be_written(tmp_path, below):
    file = tmp_path / "file"
    file.write_text("not a folder")
    with pytest.raises(RunError, match=r"Cannot write the run folder .*file.*--out"):
        RunFolder(file / below).create(CONFIG)
    assert file.read_text() == "not a folder"


def test_write_atomic(tmp_path):
    file = tmp_path / "a.json"
    write_atomic(file, b"old")
    write_atomic(file, b"new")
    assert file.read_bytes() == b"new"
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]
    assert file.stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize("step", ["replace", "fsync"])
@pytest.mark.parametrize("interruption", [OSError("disk full"), KeyboardInterrupt()])
def test_interrupted_write_leaves_the_old_file(tmp_path, monkeypatch, step, interruption):
    file = tmp_path / "a.json"
    write_atomic(file, b"old")

    def interrupted(*_):
        raise interruption

    monkeypatch.setattr(os, step, interrupted)
    with pytest.raises(type(interruption)):
        write_atomic(file, b"new")
    assert file.read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


def test_metrics_round_trip(folder):
    assert folder.metrics() == []
    lines = [{"phase": "train", "epoch": i, "loss": 1 / (i + 1)} for i in range(4)]
    for line in lines:
        folder.append_metrics(line)
    assert folder.metrics() == lines


@pytest.mark.parametrize("count", [0, 2, 4])
def test_keep_metrics(folder, count):
    for i in range(4):
        folder.append_metrics({"epoch": i})
    folder.keep_metrics(count)
    assert folder.metrics() == [{"epoch": i} for i in range(count)]


def test_keep_metrics_drops_a_line_cut_short(folder):
    folder.append_metrics({"epoch": 0})
    with folder.metrics_file.open("a") as file:
        file.write('{"epo')
    folder.keep_metrics(1)
    folder.append_metrics({"epoch": 1})
    assert folder.metrics() == [{"epoch": 0}, {"epoch": 1}]


def test_keep_metrics_of_nothing(folder):
    folder.keep_metrics(0)
    assert folder.metrics() == []


def test_keep_metrics_refuses_a_file_that_was_cut(folder):
    folder.append_metrics({"epoch": 0})
    with pytest.raises(RunError, match="has 1 lines where the checkpoint remembers 3"):
        folder.keep_metrics(3)
    assert folder.metrics() == [{"epoch": 0}]


def test_result(folder):
    folder.finish(RESULT)
    assert folder.is_done
    assert folder.result() == RESULT


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("splits", []),
        ("splits", {"val": {"n": "3", "average": 1.0}}),
        ("seed", None),
        ("seconds", "1"),
        ("dataset", 3),
    ],
)
def test_result_of_another_shape(folder, key, value):
    folder.finish({**RESULT, key: value})
    with pytest.raises(RunError, match=f"is damaged: {key}"):
        folder.result()


def test_result_with_figures_of_a_later_release(folder):
    later = {**RESULT, "new": 1, "splits": {"val": {"n": 3, "average": 0.5, "newer": 0.5}}}
    folder.finish(later)
    assert folder.result() == later


def test_result_that_is_interrupted_is_not_done(folder, monkeypatch):
    def interrupted(*_):
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", interrupted)
    with pytest.raises(OSError, match="disk full"):
        folder.finish({"version": RESULT_VERSION})
    assert not folder.is_done


def test_result_has_no_nan(folder):
    with pytest.raises(ValueError, match="not JSON compliant"):
        folder.finish({"version": RESULT_VERSION, "average": float("nan")})
    assert not folder.is_done


def test_result_of_an_unfinished_run(folder):
    with pytest.raises(RunError, match=r"not finished.*--resume"):
        folder.result()


@pytest.mark.parametrize(
    "content",
    [
        b'{"version": 2}',
        b'{"version": "1"}',
        b"{}",
        b"[1]",
        b"null",
    ],
)
def test_result_of_another_version(folder, content):
    folder.finish({"version": RESULT_VERSION})
    folder.done_file.write_bytes(b"")  # of a release before there were checksums
    folder.result_file.write_bytes(content)
    with pytest.raises(RunError, match="is not of version 1"):
        folder.result()


@pytest.mark.parametrize("content", [b"", b'{"version": 1', b"\xff\xfe"])
def test_corrupt_result(folder, content):
    folder.finish({"version": RESULT_VERSION})
    folder.done_file.write_bytes(b"")  # of a release before there were checksums
    folder.result_file.write_bytes(content)
    with pytest.raises(RunError, match=r"result\.json.*cannot be read"):
        folder.result()


def test_missing_result(folder):
    folder.finish({"version": RESULT_VERSION})
    folder.result_file.unlink()
    with pytest.raises(RunError, match=r"result\.json.*cannot be read"):
        folder.result()


def test_no_run_folder(tmp_path):
    with pytest.raises(RunError, match="There is no run folder"):
        RunFolder(tmp_path / "nowhere").result()
    with pytest.raises(RunError, match=r"not a run folder: it has no config\.yaml"):
        RunFolder(tmp_path).result()


@pytest.mark.parametrize("content", [b"a: [", b"\xff\xfe\x00", b"- 1", b""])
def test_corrupt_configuration(folder, content):
    folder.config_file.write_bytes(content)
    with pytest.raises(RunError, match=r"config\.yaml"):
        folder.read_config()


def test_to_json_ends_with_a_newline():
    assert json.loads(to_json({"a": None})) == {"a": None}
    assert to_json({}).endswith(b"\n")


def test_differences():
    mine = {"seed": 1, "data": {"rho": 0.9, "name": "d"}, "new": 3}
    theirs = {"seed": 1, "data": {"rho": 0.5, "name": "d"}, "old": None}
    assert list(differences(mine, theirs)) == [
        "data.rho: 0.9 asked for, 0.5 in the folder",
        "new: 3 asked for, None in the folder",
    ]
    assert list(differences(mine, mine)) == []


def test_errors_have_one_root():
    assert issubclass(RunError, SitarError)


@pytest.mark.parametrize("modules", ["sitar.run_folder, sitar.config", "sitar", "sitar.registry, sitar.errors"])
def test_no_torch_needed(modules):
    code = f"import sys, {modules}; assert 'torch' not in sys.modules, 'torch was imported'"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_metrics_of_a_run_that_is_being_written(folder):
    folder.append_metrics({"epoch": 1})
    with folder.metrics_file.open("a") as file:
        file.write('{"epoch": 2, "lo')
    assert folder.metrics() == [{"epoch": 1}]


def test_explanation_of_version_1_is_read_in_the_names_of_today(folder):
    """Releases before called two parts otherwise: their run folders still open."""
    axes = {"axes": [0], "values": [1.0], "v": [0.5]}
    old = {"version": 1, "preset": "p", "seed": 1, "sensitivity": axes, "traversals": None, "gradcam": None}
    old |= {"through": {**axes, "run": "r", "n": 3}, "wrong": {"splits": ["test"]}, "reasons": {"through": "why"}}
    folder.artifacts.mkdir()
    folder.explain_file.write_bytes(to_json(old))
    images = np.zeros((3, 1, 2, 2), np.uint8)
    np.savez(folder.part_file("wrong"), **{"test/index": np.arange(3), "test/images": images})
    folder.finish(RESULT)
    run = Run.read(folder)
    assert run.part("shared_axes") == {**axes, "run": "r", "n": 3}
    assert run.part("mistakes") == {"splits": ["test"]}
    assert run.explanation["reasons"] == {"shared_axes": "why"}
    assert run.part_arrays("mistakes")["test/index"].tolist() == [0, 1, 2]
    arrays = {"test/index": np.arange(2), "test/images": images[:2]}
    folder.write_explanation({**run.explanation}, {"mistakes": arrays})
    assert sorted(path.name for path in folder.artifacts.iterdir()) == ["explain.json", "mistakes.npz"]
    assert Run.read(folder).part_arrays("mistakes")["test/index"].tolist() == [0, 1]


def test_where_files_lie_is_no_difference():
    here = {"data": {"root": "/a", "rho": 0.9}, "model": {"encoder_weights": "/a/weights.pt"}}
    there = {"data": {"root": "/b", "rho": 0.9}, "model": {"encoder_weights": "/b/weights.pt"}}
    assert differences(here, there) == []
    there["model"]["encoder_weights"] = "/b/others.pt"
    (difference,) = differences(here, there)
    assert difference.startswith("model.encoder_weights")


OPENING = {
    "open",
    "read_text",
    "read_bytes",
    "write_text",
    "write_bytes",
    "unlink",
    "exists",
    "is_file",
    "mkdir",
    "glob",
}


def test_no_other_module_opens_a_file_of_a_run():
    """A path of a run folder may be named in a message, and not opened."""
    source = Path(sitar.__file__).parent
    paths = {name for name in dir(RunFolder) if name.endswith("_file") or name == "artifacts"}
    assert len(paths) > 10
    offenders = []
    for file in source.rglob("*.py"):
        if file.parent.name == "run_folder":
            continue
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and node.attr in OPENING:
                named = {part.attr for part in ast.walk(node.value) if isinstance(part, ast.Attribute)}
                offenders += [f"{file.relative_to(source)}:{node.lineno}"] if named & paths else []
            if isinstance(node, ast.Call) and any(
                isinstance(part, ast.Attribute) and part.attr in paths
                for given in node.args
                for part in ast.walk(given)
            ):
                name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
                opens = name in ("open", "load", "write_atomic")
                offenders += [f"{file.relative_to(source)}:{node.lineno}"] if opens else []
    assert not offenders


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="Windows has no such pipes")
def test_a_pipe_in_the_place_of_a_file_is_refused_and_not_waited_for(folder):
    folder.finish({"version": RESULT_VERSION})
    folder.done_file.write_bytes(b"")
    for file in (folder.metrics_file, folder.environment_file, folder.predictions_file):
        file.unlink(missing_ok=True)
        os.mkfifo(file)
    for reads in (folder.metrics, folder.environment, folder.predictions):
        with pytest.raises(RunError, match="not a regular file"):
            reads()


def test_a_file_that_is_too_large_is_refused_with_the_bound(folder, monkeypatch):
    folder.finish({"version": RESULT_VERSION})
    folder.done_file.write_bytes(b"")
    monkeypatch.setattr("sitar.run_folder.checksums.MOST_TEXT", 100)
    folder.result_file.write_bytes(b" " * 101)
    with pytest.raises(RunError, match="has 101 bytes, and at most 100 are read"):
        folder.result()


def test_nothing_is_written_or_removed_where_a_link_leads(folder, tmp_path):
    """A folder from a stranger may hold a link in the place of one of its folders."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "holiday.png").write_bytes(b"mine")
    folder.finish(RESULT)
    folder.artifacts.mkdir()
    (folder.artifacts / "audit").symlink_to(elsewhere)
    (folder.path / "checkpoint").symlink_to(elsewhere)
    for write in (
        lambda: folder.write_audit({"version": 1}, {}),
        lambda: folder.write_audit_figures({"a.png": b""}),
        lambda: folder.write_state(b"state"),
    ):
        with pytest.raises(RunError, match="leads out of the run folder"):
            write()
    assert [file.name for file in elsewhere.iterdir()] == ["holiday.png"]


def test_an_audit_makes_no_folder_where_a_link_leads(folder, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    folder.finish(RESULT)
    folder.artifacts.symlink_to(elsewhere)
    with pytest.raises(RunError, match="leads out of the run folder"):
        folder.write_audit({"version": 1}, {})
    assert not list(elsewhere.iterdir())


def test_a_run_is_carried_without_files_of_others(folder, tmp_path):
    """Neither a pickle nor a copy of a saved estimator takes along what a link leads to."""
    (tmp_path / "key").write_bytes(b"mine")
    folder.finish(RESULT)
    (folder.path / "notes.txt").symlink_to(tmp_path / "key")
    (folder.path / "more").symlink_to(tmp_path)
    carried = folder.files()
    assert "result.json" in carried
    assert not {"notes.txt", "more/key"} & carried.keys()


def test_a_run_that_is_larger_than_a_reader_allows_is_finished(folder, monkeypatch):
    monkeypatch.setattr("sitar.run_folder.checksums.MOST", 10)
    monkeypatch.setattr("sitar.run_folder.checksums.MOST_TEXT", 10**6)
    folder.finish(RESULT, {"a": np.arange(1000)})
    assert folder.is_done


def test_a_file_that_is_written_while_it_is_read_is_not_called_damaged(folder, monkeypatch):
    folder.finish(RESULT)
    new, read = to_json({**RESULT, "seed": 2}), folder._read_bytes
    looks = iter([to_json(RESULT)])  # before another process has written both
    folder._write({folder.result_file: new})
    monkeypatch.setattr(
        RunFolder, "_read_bytes", lambda _, file: next(looks, new) if file == folder.result_file else read(file)
    )
    assert folder.result()["seed"] == 2


def test_files_are_written_into_a_folder_by_one_process(folder, tmp_path):
    folder.finish(RESULT)
    other = RunFolder(tmp_path / "other")
    with other.lock(), pytest.raises(RunError, match="is writing into the run folder"):
        other.write_files(folder.files())
    other.write_files(folder.files())
    assert other.result() == folder.result()
    assert ".lock" not in other.files()


def test_damaged_findings_are_said(folder, caplog):
    folder.finish(RESULT)
    folder.write_explanation({"version": 2}, {})
    folder.explain_file.write_bytes(b"{")
    assert Run.read(folder).explanation is None
    assert "explain.json' cannot be read" in caplog.text
