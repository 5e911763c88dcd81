"""The section of audits: the pictures that decide, and what an audit of an earlier release or a damaged one costs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from helpers.made_runs import make_run
from helpers.pages import pixels, read
from sitar.reporting.comparison import compare_runs
from sitar.reporting.html.report import write_report
from sitar.reporting.html.sections.audit import make
from sitar.run_folder import RunFolder


def section(folder: RunFolder) -> dict | None:
    (comparison,), _ = compare_runs([folder.path])
    return make(comparison, 1)


def test_every_cue_has_its_power_its_sentence_and_the_images_at_its_ends(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run")
    made = section(folder)
    assert made is not None
    (audit,) = made["audits"]
    corner, hospital = audit["first"]["told"]
    assert (corner["name"], corner["accuracy"], corner["low"], corner["high"]) == ("top left corner", 0.88, 0.84, 0.92)
    assert [end["name"] for end in hospital["ends"]] == ["hospital = north", "hospital = south"]
    strip = corner["ends"][0]["strips"][0]
    arrays = folder.audit_arrays()
    shown = pixels(strip["uri"]).astype(int)
    wide = shown.shape[1] // 6
    for place in range(6):
        image = arrays["cue0/extremes"][0, 0, place].transpose(1, 2, 0).astype(int)
        assert abs(shown[:28, place * wide : place * wide + 28] - image).mean() < 25  # as JPEG keeps noise
    assert [strip["uri"] for strip in hospital["ends"][1]["strips"]] == [None, None]  # there is no such image


def test_the_page_shows_all_of_it(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", classes=("<b>cat</b>", "dog"))
    text = read(write_report([folder.path], tmp_path / "report.html")).text
    for words in ("Top left corner tells the label.", "Cannot tell.", "Ask for labels.", "no such image", "<b>cat</b>",
                  "brightness (60.0 %)", "Axis 1 alone predicts", "A note.", "Ask about the ward."):  # fmt: skip
        assert words.replace(" %", "\u00a0%") in text or words in text


def test_an_audit_of_the_first_version_is_still_shown(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run")
    audit = json.loads(folder.audit_file.read_text())
    del audit["first_look"]
    folder.audit_file.write_text(json.dumps({**audit, "version": 1}))
    made = section(folder)
    assert made is not None
    assert made["audits"][0]["first"] is None
    assert "axis 1" in read(write_report([folder.path], tmp_path / "report.html")).text


def test_runs_without_an_audit_have_no_section(tmp_path: Path) -> None:
    assert section(make_run(tmp_path / "run", "erm")) is None


@pytest.mark.parametrize("damage", ["no pictures", "no verdict", "strange cues", "cut"])
def test_a_damaged_audit_costs_its_section_only(damage: str, tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run")
    audit = json.loads(folder.audit_file.read_text())
    if damage == "no pictures":
        (folder.audit_file.parent / "pictures.npz").write_bytes(b"")
    elif damage == "no verdict":
        del audit["verdict"]
    elif damage == "strange cues":
        audit["first_look"]["cues"] = [{"name": 3}, None]
    text = json.dumps(audit)
    folder.audit_file.write_text(text[: len(text) // 2] if damage == "cut" else text)
    page = read(write_report([folder.path], tmp_path / "report.html"))
    assert "audit0" not in page.ids
    assert "accuracy0" in page.ids
