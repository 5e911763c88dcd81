"""The report: what it reads, what it says, and that it stands whatever it is given."""

from __future__ import annotations

import base64
import io
import json
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
import yaml
from PIL import Image

from helpers.made_runs import make_run
from sitar.errors import ConfigError, RunError
from sitar.reporting.comparison import compare_runs
from sitar.reporting.html import report as reporting
from sitar.reporting.html.charts import accuracy_curves, line_chart, metric_bars, named_group, split_bars, wilson
from sitar.reporting.html.embed import framed, heated, sheet
from sitar.reporting.html.pictures import cam
from sitar.reporting.html.report import write_report
from sitar.reporting.html.sentences import summary

KINDS = ("average", "worst group")
EVIL = "<script>alert(1)</script>"


class Reader(HTMLParser):
    """Text that a person sees, ids, script contents, and addresses that a page would fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.words: list[str] = []
        self.ids: set[str] = set()
        self.addresses: list[str] = []
        self.data: dict[str, str] = {}
        self.scripts = 0
        self._in: tuple[str, str] | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = {key: value or "" for key, value in attrs}
        self.ids |= {named["id"]} if "id" in named else set()
        self.addresses += [named[key] for key in ("src", "href", "action") if key in named]
        if tag in ("script", "style"):
            self.scripts += tag == "script"
            self._in = (tag, named.get("id", ""))

    def handle_endtag(self, tag: str) -> None:
        self._in = None if tag in ("script", "style") else self._in

    def handle_data(self, data: str) -> None:
        if self._in is None:
            self.words.append(data)
        elif self._in[1]:
            self.data[self._in[1]] = data

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def read(path: Path) -> Reader:
    reader = Reader()
    reader.feed(path.read_text(encoding="utf-8"))
    return reader


def write(tmp_path: Path, *runs: Path) -> Reader:
    return read(write_report(runs, tmp_path / "report.html"))


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    place = tmp_path_factory.mktemp("runs")
    return [
        make_run(place / "erm", "erm", accuracy=0.5).path,
        make_run(place / "control", alpha=0.0, accuracy=0.55).path,
        make_run(place / "sitar", accuracy=0.8).path,
    ]


def test_every_section_is_there_and_nothing_is_fetched(runs: list[Path], tmp_path: Path) -> None:
    page = write(tmp_path, *runs)
    sections = ("summary", "accuracy", "groups", "walks", "sensitivity", "wrong", "gradcam", "training", "scores")
    assert {f"{name}0" for name in sections} <= page.ids
    assert all(address.startswith(("#", "data:")) for address in page.addresses)
    assert "http" not in re.sub(r"http-equiv", "", (tmp_path / "report.html").read_text(encoding="utf-8"))


def test_links_lead_somewhere(runs: list[Path], tmp_path: Path) -> None:
    page = write(tmp_path, *runs)
    assert {address[1:] for address in page.addresses if address.startswith("#")} <= page.ids


def test_the_summary_says_what_leads_what_falls_and_what_the_control_has(runs: list[Path]) -> None:
    (comparison,), left_out = compare_runs(runs)
    words = summary(comparison)
    bars = {bar.label: bar for bar in metric_bars(comparison, "ood_test", "worst_group")}
    gain = 100 * (bars["sitar"].value - bars["control"].value)  # type: ignore[operator]
    assert not left_out
    assert words[0] == "3 runs on made, 2 classes."
    assert words[1].startswith(
        f"On ood_test sitar has the highest worst group accuracy, {100 * bars['sitar'].value:.1f} %"
    )  # type: ignore[operator]
    said = "Against the VAE without noise, the control, in worst group on ood_test:"
    assert f"{said} sitar {gain:+.1f} points over control." in words
    assert any("in distribution to" in sentence for sentence in words)


def test_without_a_control_nothing_is_credited_to_the_noise(runs: list[Path]) -> None:
    (comparison,), _ = compare_runs([runs[0], runs[2]])
    assert any(sentence.startswith("No control (alpha 0) is among these runs") for sentence in summary(comparison))


def test_ranges_that_overlap_are_said_to(tmp_path: Path) -> None:
    same = [make_run(tmp_path / name, name, accuracy=0.8, explained=False).path for name in ("erm", "jtt")]
    (comparison,), _ = compare_runs(same)
    assert any("their order may be chance" in sentence for sentence in summary(comparison))


def test_a_method_with_group_labels_is_an_upper_bound_and_does_not_lead(runs: list[Path], tmp_path: Path) -> None:
    (comparison,), _ = compare_runs([*runs, make_run(tmp_path / "dfr", "dfr", accuracy=0.99, explained=False).path])
    words = summary(comparison)
    assert words[1].startswith("On ood_test sitar has the highest")
    assert words[2].startswith("Given group labels of the training samples, an upper bound and not a rival")


def test_a_control_with_other_settings_is_said_to_be_one(runs: list[Path], tmp_path: Path) -> None:
    control = tmp_path / "control"
    shutil.copytree(runs[1], control)
    config = yaml.safe_load((control / "config.yaml").read_text())
    config["method"] |= {"beta": 4.0, "lambda": 10.0}
    (control / "config.yaml").write_text(yaml.safe_dump(config))
    (comparison,), _ = compare_runs([control, runs[2]])
    assert any("points over control (which also differs in method.beta" in sentence for sentence in summary(comparison))


def test_a_row_without_the_split_is_named(runs: list[Path], tmp_path: Path) -> None:
    run = make_run(tmp_path / "jtt", "jtt", explained=False)
    (comparison,), _ = compare_runs([*runs, run.path])
    for result in comparison.rows[-1].results:
        del result["splits"]["ood_test"]
    assert "No worst group accuracy on ood_test: jtt." in summary(comparison)


def test_one_run_is_a_sentence(runs: list[Path]) -> None:
    (comparison,), _ = compare_runs([runs[0]])
    assert summary(comparison)[1].startswith("On ood_test erm has a worst group accuracy of ")


def test_seeds_of_a_setting_are_one_row(tmp_path: Path) -> None:
    several = [make_run(tmp_path / str(seed), seed=seed, accuracy=0.7, explained=False).path for seed in range(3)]
    (comparison,), _ = compare_runs(several)
    (bar,) = metric_bars(comparison, "ood_test", "average")
    values = [run.result["splits"]["ood_test"]["average"] for run in comparison.runs]
    assert (bar.low, bar.high) == (min(values), max(values))
    assert bar.value == pytest.approx(sum(values) / 3)
    assert [run.label for run in comparison.runs] == [f"sitar, seed {seed}" for seed in range(3)]


def test_the_worst_group_has_its_own_size_and_an_interval_with_a_width(tmp_path: Path) -> None:
    several = []
    for name, right in (("erm", 0.0), ("sitar", 0.05)):
        run = make_run(tmp_path / name, name, explained=False)
        result = json.loads(run.result_file.read_text())
        split = result["splits"]["ood_test"]
        split["groups"]["label=0,place=1"] = {"n": 20, "accuracy": right}
        split |= {"worst_group": right, "average": 1.0, "intervals": {"average": [1, 1], "worst_group": [0.0, right]}}
        run.result_file.write_text(json.dumps(result))
        several.append(run.path)
    (comparison,), _ = compare_runs(several)
    average, worst = (next(b for b in split_bars(comparison) if b.title == f"ood_test, {n}") for n in KINDS)
    assert (average.detail, worst.detail) == ("240 samples", "20 samples")
    assert (worst.bars[0].low, worst.bars[0].high) == wilson(0.0, 20)
    assert (worst.bars[1].low, worst.bars[1].high) == (0.0, 0.05), "the bootstrap's has a width"
    assert average.bars[0].low == wilson(1.0, 240)[0]
    assert any("ranges of sitar and erm overlap" in sentence for sentence in summary(comparison))


def test_runs_may_be_worst_on_different_groups(tmp_path: Path) -> None:
    several = [make_run(tmp_path / str(share), "erm" if share else "jtt", accuracy=share).path for share in (0.0, 0.9)]
    (comparison,), _ = compare_runs(several)
    sizes = set()
    for run in comparison.runs:
        cells = run.result["splits"]["ood_test"]["groups"].values()
        least = min(cell["accuracy"] for cell in cells)
        sizes.add(max(cell["n"] for cell in cells if cell["accuracy"] == least))
    assert split_bars(comparison)[-1].detail == f"{min(sizes)} to {max(sizes)} samples"


def test_what_needs_a_model_is_named_with_its_command_where_it_is_missing(tmp_path: Path) -> None:
    run = make_run(tmp_path / "a run", explained=False)
    page = write(tmp_path, run.path)
    assert f"sitar explain '{run.path}'" in page.text
    assert not {"walks0", "wrong0", "gradcam0", "sensitivity0"} & page.ids
    assert {"accuracy0", "groups0", "training0", "confusion0"} <= page.ids


def test_the_reason_is_given_where_no_command_helps(runs: list[Path], tmp_path: Path) -> None:
    assert (
        "sliders that walk along latent axes, of erm. A plain network decodes nothing." in write(tmp_path, *runs).text
    )


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


@pytest.mark.parametrize(
    ("data", "checksums", "names"),
    [
        ([{"rho": 0.5}, {"rho": 0.9}], "aa", ["made, rho=0.5", "made, rho=0.9"]),
        ([{"root": "x/a"}, {"root": "y/b"}], "ab", ["made, root=a", "made, root=b"]),
        ([{"file": "x/a.npz"}, {"file": "y/b.npz"}], "ab", ["made, file=a.npz", "made, file=b.npz"]),
        ([{"root": "x/a.npz"}, {"root": "y/a.npz"}], "ab", ["made, checksum=a", "made, checksum=b"]),
        ([{}, {}], "ab", ["made, checksum=a", "made, checksum=b"]),
    ],
)
def test_parts_of_different_data_have_different_names(
    data: list[dict[str, object]], checksums: str, names: list[str], tmp_path: Path
) -> None:
    """The last two runs have the same settings and seed, on a file that has changed: neither is left out."""
    several = []
    for place, (settings, checksum) in enumerate(zip(data, checksums, strict=True)):
        run = make_run(tmp_path / str(place), data=settings, explained=False)
        environment = json.loads(run.environment_file.read_text())
        run.environment_file.write_text(json.dumps({**environment, "data_checksum": checksum}))
        several.append(run.path)
    comparisons, left_out = compare_runs(several)
    assert [comparison.name for comparison in comparisons] == names
    assert not left_out
    page = write(tmp_path, *several).text
    assert all(page.count(name) == 2 for name in names), "in the notice and above the part"


def test_names_are_text_whatever_they_hold(tmp_path: Path) -> None:
    names = (EVIL, "a & b </script><b>")
    run = make_run(tmp_path / "run", classes=names, accuracy=0.5)
    plain = write(tmp_path, make_run(tmp_path / "plain", accuracy=0.5).path)
    page = write(tmp_path, run.path)
    assert page.scripts == plain.scripts
    assert EVIL in page.text
    assert json.loads(page.data["walkdata0"])[0]["classes"] == list(names)
    assert json.loads(page.data["wrongdata0"])["classes"] == list(names)


@pytest.mark.parametrize("left", ["nothing", "a brace", "half"])
@pytest.mark.parametrize("name", ["explain.json", "traversals.npz", "mistakes.npz", "gradcam.npz"])
def test_a_damaged_artifact_costs_its_section_only_and_is_named(name: str, left: str, tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", accuracy=0.6)
    file = run.artifacts / name
    content = file.read_bytes()
    file.write_bytes({"nothing": b"", "a brace": b"{", "half": content[: len(content) // 2]}[left])
    page = write(tmp_path, run.path)
    sections = {"traversals": "walks0", "mistakes": "wrong0", "gradcam": "gradcam0", "explain": "sensitivity0"}
    assert sections[file.stem] not in page.ids
    assert "accuracy0" in page.ids
    assert f"sitar explain {run.path}" in page.text
    assert reporting.PARTS.get(file.stem, "Grad-CAM") in page.text


def test_runs_measured_on_different_axes_are_not_put_side_by_side(runs: list[Path], tmp_path: Path) -> None:
    page = write(tmp_path, *runs)
    assert "through0" not in page.text
    assert "as each was measured on other axes" in page.text
    assert f"sitar explain {' '.join(map(str, runs))} --axes {runs[1]}" in page.text, "ERM has no decoder"
    for run in runs:
        explain = json.loads((run / "artifacts/explain.json").read_text())
        explain["shared_axes"]["v"] = [0.5] * 6
        (run / "artifacts/explain.json").write_text(json.dumps(explain))
    assert "decoded by the VAE of runs/ruler" in write(tmp_path, *runs).text


def change(run: Path, **parts: object) -> None:
    """Put something in the place of parts of explain.json."""
    file = run / "artifacts/explain.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | parts))


def test_runs_without_a_decoder_are_measured_again_with_the_vae_that_was_named(tmp_path: Path) -> None:
    plain = [make_run(tmp_path / name, name, accuracy=share).path for name, share in (("erm", 0.5), ("jtt", 0.6))]
    assert "The VAEs whose axes they were are gone" in write(tmp_path, *plain).text
    ruler = make_run(tmp_path / "ruler").path
    through = json.loads((plain[0] / "artifacts/explain.json").read_text())["shared_axes"]
    change(plain[0], through={**through, "run": str(ruler)})
    assert f"sitar explain {plain[0]} {plain[1]} --axes {ruler}" in write(tmp_path, *plain).text


def test_what_is_made_later_is_measured_on_the_axes_of_the_others(tmp_path: Path) -> None:
    erm, sitar = make_run(tmp_path / "erm", "erm").path, make_run(tmp_path / "sitar", "sitar", explained=False).path
    assert f"sitar explain {erm} {sitar} " in write(tmp_path, erm, sitar).text, "the VAE of old is gone: both anew"
    through = json.loads((erm / "artifacts/explain.json").read_text())["shared_axes"]
    change(erm, through={**through, "run": str(sitar)})
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
    gone = {"traversals": {"walks0", "walkdata0"}, "mistakes": {"wrong0", "wrongdata0"}, "gradcam": {"gradcam0"}}
    assert page.ids == rest - gone.get(name, set())
    assert f"Not shown: {reporting.PARTS[name]}, of sitar. This makes it: sitar explain {run}" in page.text


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
    json.loads(page.data["walkdata0"], parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))
    assert "nan" not in re.findall(r'points="([^"]*)"', (tmp_path / "report.html").read_text())[0]


def test_curves_are_of_the_last_phase(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", "jtt", explained=False)
    lines = run.metrics()
    for line in lines[:2]:
        line["phase"] = "first"
    run.metrics_file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    (comparison,), _ = compare_runs([run.path])
    (chart,) = accuracy_curves(comparison)
    assert len(chart.curves[0].points.split()) == 3


def test_only_a_page_is_written(runs: list[Path], tmp_path: Path) -> None:
    before = (runs[0] / "result.json").read_bytes()
    with pytest.raises(ConfigError, match="no page"):
        write_report(runs, runs[0] / "result.json")
    assert (runs[0] / "result.json").read_bytes() == before


def test_names_that_are_no_text_are_shown_as_far_as_they_can_be(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", classes=("good", "caf\udce9"), explained=False)
    assert "caf?" in write(tmp_path, run.path).text


def test_large_pictures_of_grad_cam_are_made_smaller(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", size=224)
    (comparison,), _ = compare_runs([run.path])
    found = cam(comparison.runs[0])
    assert found is not None
    assert max(pixels(found["pictures"][0]["uri"]).shape[:2]) <= 256, "two tiles of at most 128 pixels"
    assert found["area"] == pytest.approx(0.36)


def test_the_box_is_drawn_on_what_is_looked_at() -> None:
    image = np.zeros((3, 10, 20), np.uint8)
    drawn = framed(image, [0.25, 0.2, 0.75, 1.0])
    assert image.max() == 0
    assert (drawn[0] > 0).sum() == 2 * 11 + 2 * 6  # columns 5 to 15, rows 2 to 9 which is the last
    assert drawn[:, 2, 5:16].min() == drawn[:, 9, 5:16].min() == drawn[:, 2:10, [5, 15]].min() == 255


def test_damaged_predictions_cost_what_needs_them_only(runs: list[Path], tmp_path: Path) -> None:
    damaged = make_run(tmp_path / "jtt", "jtt", accuracy=0.6)
    damaged.predictions_file.write_bytes(b"no archive")
    page = write(tmp_path, *runs, damaged.path)
    assert "4 runs on made" in page.text
    assert json.loads(page.data["wrongdata0"])["runs"] == ["erm", "control", "sitar"]


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


@pytest.mark.parametrize(
    ("group", "attributes", "name"),
    [
        ("label=1,place=0", {"place": ["land", "water"]}, "green, place land"),
        ("label=0,Male=0", {"Male": ["not Male", "Male"]}, "red, not Male"),
        ("label=0,a=b=1", {"a=b": ["x", "y"]}, "red, a=b y"),
        ("label=0,place=1", {}, "red, place 1"),
        ("label=0,place=7", {"place": ["land"]}, "red, place 7"),
        ("label=5", {}, "label=5"),
    ],
)
def test_groups_have_the_names_of_class_and_value(group: str, attributes: dict[str, list[str]], name: str) -> None:
    assert named_group(group, ["red", "green"], attributes) == name


def test_values_of_the_attribute_are_named_where_a_run_knows_them(tmp_path: Path) -> None:
    old, run = make_run(tmp_path / "old", "erm", explained=False), make_run(tmp_path / "run", explained=False)
    result = json.loads(run.result_file.read_text())
    run.result_file.write_text(json.dumps({**result, "attributes": {"place": ["land", "sea"]}}))
    assert "red, place sea" in write(tmp_path, old.path, run.path).text
    assert "red, place 1" in write(tmp_path, old.path).text


def test_settings_that_differ_stand_side_by_side(runs: list[Path]) -> None:
    (comparison,), _ = compare_runs(runs)
    settings = reporting._settings(comparison)
    assert settings["rows"] == ["erm", "control", "sitar"]
    assert ("method.alpha", ["–", "0.0", "1.0"]) in settings["lines"]
    assert not any(key in ("seed", "preset", "data.name") for key, _ in settings["lines"])


def test_the_confusion_counts_what_was_said(runs: list[Path]) -> None:
    (comparison,), _ = compare_runs(runs)
    run = comparison.runs[0]
    matrix = reporting._confusion(run, "ood_test")["matrix"]
    y, said = run.labels("ood_test"), run.logits("ood_test").argmax(1)
    assert matrix[0][1][0] == int(((y == 0) & (said == 1)).sum())
    assert matrix[1][1][1] == pytest.approx(float((said[y == 1] == 1).mean()), abs=1e-4)


def test_many_classes_are_listed_by_what_is_confused_most(tmp_path: Path) -> None:
    names = tuple(f"kind {i}" for i in range(100))
    page = write(tmp_path, make_run(tmp_path / "run", classes=names, samples=2000, accuracy=0.7, explained=False).path)
    assert "The most frequent of 100 classes:" in page.text
    assert re.search(r"kind \d+ taken for kind \d+: \d+ of 20", page.text)


def test_images_shown_are_wrong_for_one_run_and_right_for_another(runs: list[Path], tmp_path: Path) -> None:
    data = json.loads(write(tmp_path, *runs).data["wrongdata0"])
    (comparison,), _ = compare_runs(runs)
    right = [run.is_right("ood_test") for run in comparison.runs]
    assert data["items"]
    for item in data["items"]:
        assert {bool(answers[item["index"]]) for answers in right} == {True, False}
        assert [said == item["label"] for said in item["said"]] == [bool(answers[item["index"]]) for answers in right]


def test_axes_are_walked_in_the_order_of_v_with_their_own_pictures(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", axes=4)
    arrays = dict(np.load(run.artifacts / "traversals.npz"))
    for axis in range(4):
        arrays["images"][:, axis] = 60 * axis
        arrays["probabilities"][:, axis] = [0.1 * axis, 1 - 0.1 * axis]
    np.savez(run.artifacts / "traversals.npz", **arrays)
    v = json.loads((run.artifacts / "explain.json").read_text())["sensitivity"]["v"]
    (walk,) = json.loads(write(tmp_path, run.path).data["walkdata0"])
    assert [axis["axis"] for axis in walk["axes"]] == sorted(range(4), key=lambda axis: -v[axis])
    picture = pixels(walk["starts"][0]["sheet"]["uri"])
    for row, axis in enumerate(walk["axes"]):
        height = walk["starts"][0]["sheet"]["pitch"][0]
        assert abs(int(picture[row * height + 4, 4, 0]) - 60 * axis["axis"]) <= 2
        assert walk["starts"][0]["probabilities"][row]["values"][0][0] == pytest.approx(0.1 * axis["axis"])


def pixels(uri: str) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(uri.partition(",")[2]))))


def test_tiles_of_a_sheet_do_not_shine_into_each_other() -> None:
    images = np.zeros((2, 3, 1, 10, 13), np.uint8)
    images[0, 1] = images[1, 2] = 255
    made = sheet(images)
    picture, (tall, wide) = pixels(made.uri), made.pitch
    assert (tall, wide) == (16, 16)
    for i in range(2):
        for j in range(3):
            tile = picture[i * tall : i * tall + 10, j * wide : j * wide + 13]
            assert np.abs(tile.astype(int) - int(images[i, j, 0, 0, 0])).max() <= 2


def test_heat_is_orange() -> None:
    image = np.full((3, 4, 4), 120, np.uint8)
    heat = np.zeros((4, 4), np.float32)
    heat[0, 0] = 1
    made = heated(image, heat).astype(int)
    assert made[0, 0, 0] - made[2, 0, 0] > 100
    assert made[0, 3, 3] == made[2, 3, 3]


@pytest.mark.parametrize(("share", "n"), [(0.0, 10), (0.5, 50), (0.93, 200), (1.0, 3)])
def test_wilsons_interval_is_scipys(share: float, n: int) -> None:
    from scipy.stats import binomtest

    hits = round(share * n)
    expected = binomtest(hits, n).proportion_ci(method="wilson")
    assert wilson(hits / n, n) == pytest.approx((expected.low, expected.high), abs=2e-5)


def test_a_curve_runs_from_left_to_right_and_up_where_values_rise() -> None:
    chart = line_chart("a", [("x", 0, [(1, 0.0), (2, 0.5), (3, 1.0)])], top=1.0)
    points = [tuple(map(float, point.split(","))) for point in chart.curves[0].points.split()]
    assert [x for x, _ in points] == sorted(x for x, _ in points)
    assert [y for _, y in points] == sorted((y for _, y in points), reverse=True)
    assert line_chart("one", [("x", 0, [(1, 0.3)])]).curves[0].points
    assert line_chart("none", []).curves == []


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
    walks = json.loads(read(tmp_path / "r.html").data["walkdata0"])
    assert len(walks) == 10, "every model can be walked"
    assert all(walk["axes"] and walk["starts"] for walk in walks)


def test_a_report_needs_no_torch(runs: list[Path], tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from sitar.reporting.html.report import write_report;"
        f"write_report([Path({str(runs[2])!r})], Path({str(tmp_path / 'r.html')!r})); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
