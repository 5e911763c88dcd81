"""A card says what run folders say, in the form of the hub, and nothing of this machine."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from huggingface_hub import ModelCard

from helpers.made_runs import leave_audit, make_run
from sitar.errors import ConfigError, RunError
from sitar.reporting.card.card import find_audit, make_card, write_card
from sitar.reporting.html.bars import wilson
from sitar.reporting.html.report import write_report
from sitar.reporting.tables.table import percent, percent_range
from sitar.run_folder import Run, RunFolder


def change(folder: RunFolder, **values: Any) -> None:
    """Write other values into result.json."""
    folder.finish({**folder.result(), **values})


def section(card: str, title: str) -> str:
    return card.partition(f"## {title}\n")[2].partition("\n## ")[0]


def test_the_front_matter_is_what_the_hub_reads(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", explained=False)
    out = write_card([folder.path], tmp_path / "README.md", name="digits", licence="mit")
    data = ModelCard.load(out).data
    assert (data.license, data.library_name, data.pipeline_tag) == ("mit", "sitar", "image-classification")
    assert data.metrics == ["accuracy"]
    assert data.model_name == "digits"
    splits = folder.result()["splits"]
    found = {(one.dataset_split, one.metric_name): one.metric_value for one in data.eval_results or []}
    assert found == {
        (split, name): pytest.approx(splits[split][metric], abs=1e-4)
        for split in ("ood_test", "id_test")
        for name, metric in (("Accuracy", "average"), ("Worst-group accuracy", "worst_group"))
    }


def test_a_worst_group_that_may_be_an_empty_one_is_not_published(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", explained=False)
    splits = folder.result()["splits"]
    splits["ood_test"]["groups"]["label=0,place=1"] = {"n": 0, "accuracy": None}
    change(folder, splits=splits)
    data = ModelCard.load(write_card([folder.path], tmp_path / "README.md")).data
    found = {(one.dataset_split, one.metric_name) for one in data.eval_results or []}
    names = {"Accuracy", "Worst-group accuracy"}
    assert found == {("id_test", name) for name in names} | {("ood_test", "Accuracy")}


@pytest.mark.parametrize(
    ("licence", "written"),
    [
        (None, {"license": "unknown"}),
        ("cc-by-4.0", {"license": "cc-by-4.0"}),
        ("Our House Licence, 2nd", {"license": "other", "license_name": "our-house-licence-2nd"}),
    ],
)
def test_a_licence_is_one_of_the_hub_or_another(licence: str | None, written: dict[str, str], tmp_path: Path) -> None:
    card = make_card([make_run(tmp_path / "run", explained=False).path], licence=licence)
    front = yaml.safe_load(card.split("---\n")[1])
    assert {key: value for key, value in front.items() if key.startswith("license")} == written


def test_every_group_has_its_interval_and_the_worst_is_first(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", explained=False)
    lines = section(make_card([folder.path]), "Results").partition("### Groups of ood_test")[2].splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| ")][1:5]
    groups = folder.result()["splits"]["ood_test"]["groups"]
    expected = [
        [f"{'red' if 'label=0' in name else 'green'}, place {name[-1]}", str(cell["n"]), percent(cell["accuracy"]),
         percent_range(wilson(cell["accuracy"], cell["n"]))]
        for name, cell in sorted(groups.items(), key=lambda item: item[1]["accuracy"])
    ]  # fmt: skip
    assert rows == expected


def test_limits_follow_from_the_record(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", "dfr", accuracy=0.8, explained=False)
    splits = folder.result()["splits"]
    groups = splits["ood_test"]["groups"]
    groups["label=0,place=1"] = {"n": 0, "accuracy": None}
    groups["label=1,place=1"] = {"n": 12, "accuracy": 0.25}
    splits["ood_test"]["worst_group"] = 0.25
    change(folder, splits=splits, answers=40, task={"shape": [3, 28, 28], "class_counts": [80, 0]})
    said = section(make_card([folder.path]), "Limits")
    assert "No sample of ood_test is of red, place 1" in said
    assert "Fewer than 30 samples of ood_test are of green, place 1" in said
    assert "right in 25.0 % of cases, no more than a guess (50.0 %)" in said
    assert "No training sample is of the class green" in said
    assert "trained with group labels" in said
    assert "fitted to 40 answers" in said
    assert "off by 10.0 points" in said
    assert "One seed was trained" in said


@pytest.mark.parametrize(
    ("shape", "said"),
    [
        ([1, 32, 30], " It reads images of 32 x 30 pixels and 1 channel as uint8."),
        ([3, 32, 30], " It reads images of 32 x 30 pixels and 3 channels as uint8."),
        ([1], " It reads 1 feature as float32."),
        (None, ""),
    ],
)
def test_the_first_sentences_say_what_is_told_apart_and_what_is_read(
    shape: list[int] | None, said: str, tmp_path: Path
) -> None:
    folder = make_run(tmp_path / "run", explained=False)
    if shape is not None:
        change(folder, task={"shape": shape, "class_counts": [80, 80]})
    assert f"\n\nThis model tells 2 classes apart: red, green.{said}\n\nIt was" in make_card([folder.path])


def test_a_good_run_has_none_of_these_limits(tmp_path: Path) -> None:
    said = section(make_card([make_run(tmp_path / "run", "erm", accuracy=0.9, explained=False).path]), "Limits")
    for words in ("No sample", "Fewer than", "guess", "group labels", "answers", "no test split", "No groups"):
        assert words not in said


def test_data_without_test_or_groups_says_so(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", explained=False)
    val = {**folder.result()["splits"]["val"], "groups": {}, "worst_group": None}
    change(folder, splits={"val": val})
    said = section(make_card([folder.path]), "Limits")
    assert "There is no test split" in said
    assert "No groups are known" in said
    assert "### Groups" not in make_card([folder.path])


def test_seeds_share_a_card_and_other_settings_do_not(tmp_path: Path) -> None:
    first, second = (make_run(tmp_path / str(seed), seed=seed, explained=False) for seed in (3, 4))
    said = make_card([first.path, second.path])
    rows = [line for line in section(said, "Selection and seeds").splitlines() if line.startswith("| ")]
    assert [row.split("|")[1].strip() for row in rows] == ["seed", "3", "4"]
    assert "This card is about seed 3" in said
    assert "One seed was trained" not in said
    other = make_run(tmp_path / "other", "erm", explained=False)
    with pytest.raises(RunError, match="differ in the seed alone"):
        make_card([first.path, other.path])


def test_the_audit_of_the_run_or_of_one_beside_it_is_told(tmp_path: Path) -> None:
    import numpy as np

    home = tmp_path / "runs" / "made"
    mine = make_run(home / "erm" / "seed0", "erm", explained=False)
    assert "was not audited" in section(make_card([mine.path]), "Audit")
    beside = make_run(home / "vae" / "seed0", "vae", explained=False)
    leave_audit(beside, ["red", "green"], 8, np.random.default_rng(0))
    said = section(make_card([mine.path]), "Audit")
    assert "Top left corner tells the label." in said
    assert "Axis 1 alone predicts the label." in said
    environment = json.loads(beside.environment_file.read_text())
    beside.write_environment({**environment, "data_checksum": "of other data"})
    assert find_audit(Run.read(mine)) is None, "an audit of other data says nothing of this model"
    beside.write_environment(environment)
    shutil.move(home / "erm", tmp_path / "elsewhere")
    assert find_audit(Run.read(RunFolder(tmp_path / "elsewhere" / "seed0"))) is None


def test_a_first_look_beside_the_run_is_told_if_it_is_of_the_same_data(tmp_path: Path) -> None:
    import numpy as np

    mine, looked = make_run(tmp_path / "erm", "erm", explained=False), RunFolder(tmp_path / "audit")
    leave_audit(looked, ["red", "green"], 8, np.random.default_rng(0))
    audit = looked.audit()
    assert find_audit(Run.read(mine)) is None, "nothing says of which data it is"
    for checksum, told in ((Run.read(mine).data_checksum, True), ("of other data", False)):
        looked.audit_file.write_text(json.dumps({**audit, "data_checksum": checksum}))
        assert ("Top left corner tells the label." in section(make_card([mine.path]), "Audit")) == told


def test_the_card_tells_how_to_use_what_is_published(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", explained=False)
    (folder.path / "export").mkdir()
    for name, runtime in (("model.pt2", "torch.export.load"), ("model.onnx", "onnxruntime.InferenceSession")):
        (folder.path / "export" / name).write_bytes(b"")
        whole, alone = (
            section(make_card([folder.path], only_exported=only), "How to use it") for only in (False, True)
        )
        assert runtime in whole
        assert runtime in alone
        assert "sitar predict" in whole
        assert "sitar " not in alone, "the run is not there for it to read"


def test_names_of_users_do_not_break_the_card(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", classes=("a|b <script>", "[x](javascript:1)\n# no"), explained=False)
    change(folder, attributes={"place": ["*in*", "_out_"]})
    card = make_card([folder.path], name="---\nlicense: evil")
    assert "<script>" not in card
    assert "\n# no" not in card
    assert r"a\|b &lt;script&gt;, place \*in\*" in card
    front = yaml.safe_load(card.split("\n---\n")[0].removeprefix("---\n"))
    assert front["license"] == "unknown"
    assert front["model-index"][0]["name"] == "---\nlicense: evil"
    (tmp_path / "card.md").write_text(card)
    assert ModelCard.load(tmp_path / "card.md").data.model_name == "---\nlicense: evil"


def test_no_path_of_this_machine_is_told(tmp_path: Path) -> None:
    place = "/home/somebody/secret/scans"
    folder = make_run(tmp_path / "run", data={"root": place}, explained=False)
    config = folder.read_config() | {
        "preset": "/home/somebody/mine.yaml",
        "model": {"encoder_weights": f"{place}/w.pt"},
    }
    folder.write_config(config)
    change(folder, preset="/home/somebody/mine.yaml")
    environment = json.loads(folder.environment_file.read_text())
    folder.write_environment({**environment, "command": f"sitar train x --set data.root={place}", "imports": [place]})
    card = make_card([folder.path])
    assert "/home" not in card
    assert "secret" not in card
    assert str(tmp_path) not in card
    assert "made: scans" in card
    assert "mine.yaml" in card
    assert "w.pt" in card


def test_a_run_of_an_early_release_has_a_card(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", explained=False)
    result = {key: value for key, value in folder.result().items() if key not in ("classes", "method", "preset")}
    folder.finish(result)
    folder.environment_file.unlink()
    card = make_card([folder.path])
    assert "class 0, class 1" in card
    assert "Checksum: not recorded" in card


def test_what_is_refused(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", explained=False)
    out = tmp_path / "README.md"
    write_card([folder.path], out)
    before = out.read_bytes()
    with pytest.raises(RunError, match="already there"):
        write_card([folder.path], out)
    assert out.read_bytes() == before
    write_card([folder.path], out, name="other", force=True)
    assert out.read_bytes() != before
    with pytest.raises(ConfigError, match=r"ends in \.md"):
        write_card([folder.path], tmp_path / "card.txt")
    with pytest.raises(RunError, match="There is no folder"):
        write_card([folder.path], tmp_path / "no" / "README.md")
    (folder.path / "done").unlink()
    with pytest.raises(RunError, match="is not finished"):
        write_card([folder.path], tmp_path / "other.md")
    assert not (tmp_path / "other.md").exists()


def test_a_run_that_is_damaged_in_another_way_costs_a_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = make_run(tmp_path / "run", explained=False)
    monkeypatch.setattr("sitar.reporting.card.card.limits", lambda *_: {}["not there"])
    with pytest.raises(RunError, match=r"/run'\. It is damaged: KeyError: 'not there'"):
        make_card([folder.path])


def test_odd_names_of_groups_and_checksums_are_shown(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", explained=False)
    splits = folder.result()["splits"]
    splits["ood_test"]["groups"] = {"label=" + "1" * 5000: {"n": 3, "accuracy": 0.5}}
    change(folder, splits=splits)
    environment = json.loads(folder.environment_file.read_text())
    folder.environment_file.write_text(json.dumps({**environment, "unlabelled_checksum": ["x"]}))
    folder.done_file.write_bytes(b"")
    assert "1" * 5000 in make_card([folder.path])


def test_a_run_that_was_trained_on_everything_has_no_card(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", explained=False)
    change(folder, splits={"train": folder.result()["splits"]["train"]})
    with pytest.raises(RunError, match="no figures but of the samples it was trained on"):
        make_card([folder.path])


@pytest.mark.parametrize(
    ("place", "shown"),
    [
        (r"C:\Users\alice\feat.npz", "made: feat,"),
        ("file:///home/alice/feat.parquet", "made: feat,"),
        ("s3://alice:SECRET@bucket/feat.parquet", "made: feat,"),
        ("s3://alice:SECRET@bucket", "made: bucket,"),
    ],
)
def test_a_card_and_a_report_tell_no_place_and_no_password(place: str, shown: str, tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", data={"file": place, "feature_columns": place}, explained=False)
    attributes = {"place": ["a", "b"], "/home/alice/site": ["/home/alice/x", "b"]}
    change(folder, classes=["/home/alice/cats", "dogs"], attributes=attributes, preset=place)
    card = make_card([folder.path])
    page = write_report([folder.path], tmp_path / "report.html").read_text()
    assert shown in card
    for text in (card, page):
        assert "cats" in text
        assert "alice" not in text
        assert "SECRET" not in text


def test_a_command_in_a_report_tells_no_folder_with_an_apostrophe(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "o'brien" / "runs" / "a", data={"root": str(tmp_path / "o'brien" / "scans")})
    assert "brien" not in write_report([folder.path], tmp_path / "report.html").read_text()
