"""The scripts whose records and pictures the pages show, as they are today: a record itself tests no code."""

from __future__ import annotations

import json
import re
import sys
import zipfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import sitar
from helpers.made_data import celeba_original, md5_of_lists
from helpers.scripts import ROOT, script
from sitar.data.benchmarks import celeba
from sitar.data.types import to_float
from sitar.run_folder import RunFolder

TINY = ["data.train_size=300", "data.eval_size=400", "data.image_size=14", "model.channels=[4]", "train.epochs=1"]


def test_a_row_of_the_record_of_audits_is_what_the_audit_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    audits = script("reproduce/audit_runs.py")

    def train(preset: str, *, overrides: list[str], **options: object) -> RunFolder:
        return sitar.train(preset, overrides=[*overrides, *TINY], device="cpu", progress=False, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(audits, "train", train)
    row = audits.summary("color_mnist", 0.7, 1, tmp_path)
    record = json.loads((ROOT / "reproduce" / "records" / "audit_color_mnist.json").read_text(encoding="utf-8"))
    assert all(list(row) == list(recorded) for recorded in record["runs"])
    run = tmp_path / "rho0.7-seed1"
    assert RunFolder(run).read_config()["data"]["rho"] == row["rho"] == 0.7
    audit = json.loads((run / "artifacts" / "audit" / "audit.json").read_text())
    first, second = audit["axes"][:2]
    assert (row["verdict"], row["axis"]) == (audit["verdict"]["kind"], first["axis"])
    assert (row["accuracy"], row["next_accuracy"]) == (round(first["accuracy"], 3), round(second["accuracy"], 3))
    assert row["attribute_auc"] == round(audit["attribute"]["attribute_auc"][first["axis"]], 3)
    assert row["label_auc"] == round(audit["attribute"]["label_auc"][first["axis"]], 3)


def test_the_picture_of_the_sites_shows_their_styles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Letters may differ with the release of matplotlib, colours may not."""
    picture = script("reproduce/sites_picture.py")
    monkeypatch.setattr(picture, "FOLDER", tmp_path)
    picture.main()
    with Image.open(ROOT / "docs" / "sites.png") as there, Image.open(tmp_path / "sites.png") as again:
        assert again.size == there.size
        difference = np.asarray(again.convert("RGB")).astype(int) - np.asarray(there.convert("RGB"))
    assert np.abs(difference).mean() < 2


@pytest.mark.ci
@pytest.mark.usefixtures("cache")
def test_the_benchmark_of_images_compares_equal_pixels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    benchmark = script("benchmarks/images.py")
    random = np.random.default_rng(0)
    with zipfile.ZipFile(tmp_path / "images.zip", "w") as archive:
        for i in range(40):
            Image.fromarray(random.integers(0, 256, (30, 20, 3), dtype=np.uint8)).save(tmp_path / "x.png")
            archive.write(tmp_path / "x.png", f"{i:02}.png")
    measured = benchmark.best({"nothing": lambda: None}, repeats=2)
    assert measured["nothing"].keys() == {"clock", "processors"}

    def once(functions: dict[str, Callable[[], object]]) -> dict[str, dict[str, float]]:
        for call in functions.values():
            call()
        return {name: dict.fromkeys(measured["nothing"], 1.0) for name in functions}

    monkeypatch.setattr(benchmark, "best", once)
    monkeypatch.setattr(sys, "argv", ["images.py", str(tmp_path / "images.zip"), "--size", "8"])
    benchmark.main()
    report = json.loads(capsys.readouterr().out)
    assert report["images"] == 40
    assert report["largest difference of a pixel"] == 0
    record = json.loads((ROOT / "reproduce/records/images_speed.json").read_text(encoding="utf-8"))
    assert all(report.keys() <= measured.keys() for measured in record["measurements"])


def settings(*values: str) -> list[str]:
    return [word for value in values for word in ("--set", value)]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Run a script with its record and its page in a folder of the test. Return the record and the page."""

    def run(module: ModuleType, *arguments: str) -> tuple[dict[str, Any], str]:
        monkeypatch.setattr(module, "RECORD", tmp_path / "record.json")
        monkeypatch.setattr(module, "PAGE", tmp_path / "page.md")
        monkeypatch.setattr(sys, "argv", [str(module.__file__), *arguments])
        module.main()
        page = module.PAGE.read_text(encoding="utf-8")
        module.PAGE.unlink()
        monkeypatch.setattr(sys, "argv", [str(module.__file__), "--table"])
        module.main()
        assert module.PAGE.read_text(encoding="utf-8") == page  # the record alone makes it
        return json.loads(module.RECORD.read_text(encoding="utf-8")), page

    return run


@pytest.mark.parametrize("name", ["cost", "chroma_z2", "traversal", "dispersion", "planted_features"])
def test_a_measured_page_is_what_its_record_says(name: str) -> None:
    module = script(f"reproduce/{name}.py")
    record = getattr(module, "RECORD", None)
    if record is not None and not record.exists():
        assert not module.PAGE.exists()
        return
    given = () if record is None else (json.loads(record.read_text(encoding="utf-8")),)
    assert module.PAGE.read_text(encoding="utf-8") == module.render(*given)


def test_operations_are_counted() -> None:
    cost = script("reproduce/cost.py")
    x, w = torch.rand(5, 7), torch.rand(7, 3, requires_grad=True)
    assert cost.flops(lambda: x @ w) == 2 * 5 * 7 * 3
    assert cost.flops(lambda: (x @ w).sum().backward()) == 2 * (2 * 5 * 7 * 3)  # x has no gradient


@pytest.mark.ci
def test_the_cost_of_methods(here, monkeypatch: pytest.MonkeyPatch) -> None:
    cost = script("reproduce/cost.py")
    monkeypatch.setattr(cost, "PRESETS", ("color_mnist/sitar", "color_mnist/diffusion"))
    monkeypatch.setattr(cost, "IMAGES", 20)
    small = ["data.train_size=60", "data.eval_size=20", *TINY[2:-1], "model.hidden=8", "train.batch_size=40"]
    record, page = here(cost, "--device", "cpu", "--epochs", "2", *settings(*small))
    ours, diffusion = record["rows"].values()
    width, hidden, axes = 4 * 7 * 7, 256, 10  # the first is what the encoder leaves of 14 x 14 pixels
    linear = 2 * (width * hidden + hidden * axes) + axes * 8 + 8 * 2  # with both heads of the posterior
    assert ours["flops_of_scoring"] == 2 * (7 * 7 * 4 * 3 * 4 * 4 + linear)
    assert ours["flops_of_training"] == 80 * 2 * ours["flops_of_a_step"]
    assert diffusion["flops_of_training"] == 30 * 2 * diffusion["flops_of_a_step"]
    assert diffusion["flops_of_scoring"] > 100 * ours["flops_of_scoring"]
    assert diffusion["images_scored"] == 20
    ratio = diffusion["flops_of_training"] / ours["flops_of_training"]
    assert re.search(rf"\| color_mnist/diffusion \| {ratio:.2f} \|", page)
    assert "data.train_size=60" in page
    with pytest.raises(SystemExit, match="at least 2"):
        here(cost, "--device", "cpu", "--epochs", "1")


def test_dispersion_of_scores() -> None:
    dispersion = script("reproduce/dispersion.py")
    assert dispersion.suspect_axes([0.7, 0, 0, 0]) == pytest.approx(1)
    assert dispersion.suspect_axes([0.2] * 10) == pytest.approx(10)
    assert dispersion.suspect_axes([0.5, 0.5, 0, 0]) == pytest.approx(2)
    assert dispersion.suspect_axes([2, 1]) == pytest.approx(25 / 17)
    assert dispersion.top_share([2, 1]) == pytest.approx(0.8)
    assert dispersion.top_share([0.3] * 4) == pytest.approx(0.25)
    assert dispersion.suspect_axes([0.0, 0.0]) == dispersion.top_share([0.0, 0.0]) == 0
    runs = [
        {"row": "a", "column": "c", "shortcut_score": [1.0, 0.0]},
        {"row": "a", "column": "c", "shortcut_score": [0.5, 0.5]},
        {"row": "a", "column": "d"},
        {"row": "b", "column": "c", "shortcut_score": [0.0, 1.0]},
    ]
    assert dispersion.by_column(runs, "a") == {"c": [[1.0, 0.0], [0.5, 0.5]]}
    assert dispersion.table(runs, "a")[2:] == ["| c | 2 | 1.5 ± 0.7 | 0.75 ± 0.35 | 0.75 ± 0.35 |"]


def test_probes_of_chroma_vae_find_a_colour_that_was_scaled_down() -> None:
    """Latents of which everything is known: the colour has a hundredth of the scale of the rest."""
    chroma = script("reproduce/chroma_z2.py")
    random = np.random.default_rng(0)
    colour = np.arange(2000) % 2
    z = random.normal(size=(2000, 4)) * [1, 1, 1, 0.001]
    z[:, 3] += 0.02 * colour
    found = chroma.scale(z, colour)
    assert found["colour_correlation_z2"] > 0.99
    assert found["colour_axis_deviation_z2"] == pytest.approx(0.01, rel=0.05)
    assert found["other_axes_deviation_z2"] == pytest.approx(1, rel=0.1)
    samples = (z, random.integers(0, 2, 2000), colour)
    assert chroma.score(chroma.probe(), samples, samples, slice(0, None), 2) > 0.99
    assert chroma.score(chroma.probe(), samples, samples, slice(0, 3), 2) < 0.6
    assert chroma.score(chroma.probe(), samples, samples, slice(0, None), 1) < 0.6


def test_what_chroma_vae_keeps_in_z2(here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run is trained by the script, or given to it."""
    chroma = script("reproduce/chroma_z2.py")
    monkeypatch.setattr(chroma, "RHOS", (0.9,))
    monkeypatch.setattr(chroma, "SEEDS", (3,))
    options = ["--out", str(tmp_path), "--device", "cpu"]
    record, page = here(chroma, *options, *settings(*TINY, "method.neighbours=5"))
    run = tmp_path / "rho0.9-seed3"
    assert here(chroma, str(run), "--device", "cpu") == (record, page)
    (row,) = record["runs"]
    assert (row["rho"], row["seed"]) == (0.9, 3)
    model = sitar.load(run, device="cpu")
    accuracy = {name: model.evaluate()[name]["average"] for name in ("id_test", "ood_test")}
    assert row["heads"]["knn"] == pytest.approx(accuracy, abs=0.02)  # ties may fall otherwise
    assert all(name in page for name in (*chroma.NAMES.values(), *chroma.HEADS.values()))
    assert f"{100 * row['colour_in_z2']:.1f}" in page


@pytest.mark.usefixtures("cache")
def test_axes_of_faces_are_judged_by_referees(here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On made-up faces, whose files are laid out as CelebA's. What is trained once is not trained again."""
    traversal = script("reproduce/traversal.py")
    monkeypatch.setattr(celeba, "MD5", md5_of_lists())
    celeba_original(tmp_path / "celeba")
    tiny = [f"data.root={tmp_path / 'celeba'}", "data.partition=official", "data.image_size=8", "train.epochs=1"]
    options = ["--device", "cpu", "--out", str(tmp_path / "runs"), *settings(*tiny, "model.channels=[4]")]
    record, page = here(traversal, *options, "--seeds", "0")
    assert [run["row"] for run in record["runs"]] == list(traversal.ROWS)
    assert record["referees"].keys() == {"male", "blond"}
    assert all(f"| {row} | highest v |" in page for row in traversal.ROWS)
    for run in record["runs"]:
        assert [axis["v"] for axis in run["axes"]] == sorted((axis["v"] for axis in run["axes"]), reverse=True)
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "runs").rglob("result.json")}
    assert len(before) == 5
    here(traversal, *options, "--seeds", "0")
    assert before == {path: path.stat().st_mtime_ns for path in (tmp_path / "runs").rglob("result.json")}

    names = {"model": "celeba-sitar-seed0", "male": "referee-male", "blond": "referee-blond"}
    loaded = {key: sitar.load(tmp_path / "runs" / name, device="cpu") for key, name in names.items()}
    model, referee = loaded.pop("model"), loaded["male"]
    assert (referee.classes[1], model.classes[1]) == ("Male", "Blond_Hair")
    assert len(referee.data.train_groups.group.unique()) == 4  # type: ignore[union-attr]
    x, truth = traversal.balanced(model.data.evaluation["test"])
    counts = Counter(zip(truth["male"].tolist(), truth["blond"].tolist(), strict=True))
    assert counts == dict.fromkeys([(0, 0), (0, 1), (1, 0), (1, 1)], record["runs"][1]["images"] // 4)

    vae = model.method.vae
    with torch.no_grad():
        for module in (vae.decoder, referee.method.network):  # so that an epoch's worth of learning can be seen
            for parameter in module.parameters():  # type: ignore[union-attr]
                parameter.mul_(4)
        top = traversal.measure(model, loaded)["axes"][0]
        mu = vae.encode(to_float(x))[0]  # type: ignore[union-attr, operator]
        ends = []
        for sign in (-1, 1):
            moved = mu.clone()
            moved[:, top["axis"]] = mu[:, top["axis"]].mean() + sign * 2 * mu[:, top["axis"]].std()
            image = (255 * vae.decode(moved).clamp(0, 1)).round() / 255  # type: ignore[union-attr, operator]
            ends.append(referee.predict_proba(image)[:, 1])
    assert top["male_p"] == pytest.approx(float(np.abs(ends[1] - ends[0]).mean()), abs=1e-3)
    assert top["male_p"] > 0.01


def test_what_a_latent_holds_is_asked_of_samples_that_were_not_fitted() -> None:
    traversal = script("reproduce/traversal.py")
    random = np.random.default_rng(0)
    truth = np.arange(200) % 2
    assert traversal.in_latent(random.normal(size=(200, 10)) + 3 * truth[:, None] * np.eye(10)[0], truth) > 0.95
    assert abs(traversal.in_latent(random.normal(size=(200, 60)), truth) - 0.5) < 0.12  # fitted, it would be above 0.8


def test_a_referee_is_measured_at_the_other_attribute_being_equal() -> None:
    """Most of the women are blond, so that a plain difference would be far off."""
    traversal = script("reproduce/traversal.py")
    male, blond = np.array([0, 0, 0, 0, 1, 1]), np.array([1, 1, 1, 0, 0, 1])
    truth = {"male": male, "blond": blond}
    odds = 3.0 * male + 10.0 * blond + 4.0 * male * blond
    assert traversal.difference(odds, truth, "male") == pytest.approx((3 + 7) / 2)
    assert traversal.difference(odds, truth, "blond") == pytest.approx((10 + 14) / 2)


@pytest.mark.parametrize("core", ["moves", "decides"])
def test_planted_features_hold_what_the_page_says(core: str) -> None:
    planted = script("reproduce/planted_features.py")
    (x, y, shortcut), (test_x, test_y, test_shortcut) = planted.data(core, 0.95, 7)
    assert x.shape == (4000, 32)
    assert (y == shortcut).mean() == pytest.approx(0.95, abs=0.01)
    assert (test_y == test_shortcut).mean() == pytest.approx(0.5, abs=0.02)
    mixed = max(abs(np.corrcoef(test_x[:, i], test_shortcut)[0, 1]) for i in range(32))
    assert mixed < 0.9  # no column is the shortcut: alone it would have 0.95
    weights = np.linalg.lstsq(test_x - test_x.mean(0), test_shortcut - test_shortcut.mean(), rcond=None)[0]
    assert np.corrcoef((test_x - test_x.mean(0)) @ weights, test_shortcut)[0, 1] == pytest.approx(0.95, abs=0.01)
