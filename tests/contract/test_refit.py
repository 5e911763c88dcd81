"""`sitar refit` makes a run like any other, of every method with a latent, and says what it cannot use."""

from __future__ import annotations

import csv
import json
import logging
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml

from helpers.cli import sitar, sitar_error
from helpers.runs import TINY_MODEL, Stop, hashes, run, settings, weights, writes
from sitar.analysis.answers import read_answers
from sitar.analysis.ask.choosing import choose
from sitar.analysis.ask.pool import read_pool
from sitar.analysis.explain.explain import explain_runs
from sitar.analysis.refit import refit as module
from sitar.analysis.refit.refit import refit
from sitar.analysis.theory import examine_theory
from sitar.errors import ConfigError, DataError, RunError
from sitar.evaluation.trained_model import load
from sitar.registry import METHODS
from sitar.reporting.comparison import compare_runs, group_runs, read_runs
from sitar.reporting.html.report import write_report
from sitar.reporting.html.sentences import summary
from sitar.reporting.tables.runs import compare_table
from sitar.run_folder import RunFolder

CLASSES = ("digits 0-4", "digits 5-9")
FILES = {
    "config.yaml", "result.json", "predictions.npz", "environment.json", "checkpoint", "checkpoint/model.safetensors",
    "done",
}  # fmt: skip
ENCODER = {**TINY_MODEL, "encoder": "test_resnet", "encoder_weights": "random", "freeze_encoder": True}
TRAIN = {"epochs": 1, "batch_size": 64, "checkpoint_seconds": 0}
WITHOUT_LATENT = {"diffusion"}

Runs = Callable[..., RunFolder]


@pytest.fixture
def images(tmp_path: Path, runs: Runs) -> Path:
    """Images from elsewhere: half of them have a colour that contradicts the label."""
    data = load(runs("erm"), "cpu").data
    x = torch.cat([data.evaluation[split].x for split in ("val", "val_ood")])
    np.savez(tmp_path / "images.npz", x=x.numpy())
    return tmp_path / "images.npz"


@pytest.fixture
def labels(runs: Runs) -> np.ndarray:
    data = load(runs("erm"), "cpu").data
    return np.concatenate([data.evaluation[split].y.numpy() for split in ("val", "val_ood")])


def write_answers(path: Path, labels: Sequence[int], places: Sequence[int], **more: Sequence[Any]) -> Path:
    rows = [[str(place), CLASSES[labels[place]], *(values[i] for values in more.values())]
            for i, place in enumerate(places)]  # fmt: skip
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([["image", "answer", *more], *rows])
    return path


@pytest.fixture
def answers(tmp_path: Path, labels: np.ndarray) -> Path:
    return write_answers(tmp_path / "answers.csv", labels.tolist(), list(range(0, 800, 20)))


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """One penalty is enough where it does not matter which one is chosen."""
    monkeypatch.setattr("sitar.analysis.refit.last_layer.PENALTIES", (0.01,))


def made(runs: Sequence[RunFolder], answers: Path, images: Path, out: Path, **options: Any) -> RunFolder:
    return refit([run.path for run in runs], answers, images, out=out, device="cpu", progress=False, **options)


def test_a_refit_is_a_run_like_any_other(
    runs: Runs, answers: Path, images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "import_options", lambda: ["--import", "mine.py"])  # as after `--import mine.py`
    candidates = [runs("erm"), runs("sitar")]
    before = [hashes(run.path) for run in candidates]
    folder = made(candidates, answers, images, tmp_path / "new")
    assert [hashes(run.path) for run in candidates] == before
    assert set(hashes(folder.path)) == FILES
    result, config = folder.result(), folder.read_config()
    assert config["refit"] == {
        "features": result["refit"]["features"], "answers": 40, "digest": config["refit"]["digest"],
    }  # fmt: skip
    assert result["answers"] == len(result["refit"]["answered"]) == 40
    assert result["refit"]["run"] in {str(run.path) for run in candidates}
    base = RunFolder(Path(result["refit"]["run"]))
    assert {key: value for key, value in config.items() if key != "refit"} == base.read_config()
    assert set(result["splits"]) == set(base.result()["splits"])
    assert folder.environment()["data_checksum"] == base.environment()["data_checksum"]
    assert folder.environment()["command"].startswith("sitar refit ")
    assert folder.environment()["command"].endswith(" --import mine.py")

    model = load(folder, "cpu")
    assert json.loads(json.dumps(model.evaluate())) == result["splits"]
    x = model.data.evaluation["ood_test"].x
    assert (model.logits(x) == folder.predictions()["ood_test/logits"]).all()
    assert (model.logits(x) != load(base, "cpu").logits(x)).any()
    inner = {name.removeprefix("base."): t for name, t in weights(folder).items() if name.startswith("base.")}
    assert all(torch.equal(inner[name], tensor) for name, tensor in weights(base).items())
    assert inner.keys() == weights(base).keys()


def test_it_needs_no_other_folder_and_comes_out_the_same_again(
    runs: Runs, answers: Path, images: Path, tmp_path: Path, quick: None
) -> None:
    copy = RunFolder(Path(shutil.copytree(runs("erm").path, tmp_path / "copy")))
    folder = made([copy], answers, images, tmp_path / "new")
    again = made([runs("erm")], answers, images, tmp_path / "again")
    shutil.rmtree(copy.path)
    x = torch.zeros(1, 3, 14, 14, dtype=torch.uint8)
    assert (load(folder, "cpu").logits(x) == load(again, "cpu").logits(x)).all()


def test_a_stopped_refit_is_made_again_in_its_place(
    runs: Runs, answers: Path, images: Path, labels: np.ndarray, tmp_path: Path, quick: None
) -> None:
    """It is stopped before every change of a file. Another refit does not take the place of one that was begun."""
    whole, count = RunFolder(tmp_path / "whole"), 0
    total = writes(lambda: made([runs("erm")], answers, images, whole.path))
    other = write_answers(tmp_path / "other.csv", labels.tolist(), list(range(0, 800, 40)))
    for stop_at in range(1, total):
        path = tmp_path / str(stop_at)
        with pytest.raises(Stop):
            writes(lambda path=path: made([runs("erm")], answers, images, path), stop_at)
        if (path / "config.yaml").exists():
            count += 1
            with pytest.raises(RunError, match="already used"):
                made([runs("erm")], other, images, path)
        is_done = RunFolder(path).is_done  # then only notes were left to be removed
        again = RunFolder(path) if is_done else made([runs("erm")], answers, images, path)
        assert weights(again).keys() == weights(whole).keys()
        assert all(torch.equal(weights(again)[key], weights(whole)[key]) for key in weights(whole))
        assert {**again.result(), "seconds": 0} == {**whole.result(), "seconds": 0}
    assert count > 3, "none was begun"


@pytest.mark.parametrize("name", [name for name in METHODS.names() if name not in WITHOUT_LATENT])
def test_every_method_with_a_latent_can_be_fitted_again(
    name: str, runs: Runs, answers: Path, images: Path, tmp_path: Path, quick: None
) -> None:
    folder = made([runs(name, train=TRAIN)], answers, images, tmp_path / "new")
    model = load(folder, "cpu")
    assert json.loads(json.dumps(model.evaluate())) == folder.result()["splits"]
    assert folder.result()["needs_groups"] == METHODS.get(name).needs_groups == model.method.needs_groups
    assert model.method.vae_learns == METHODS.get(name).vae_learns


@pytest.mark.parametrize("kind", ["latent", "hidden", "encoder"])
def test_the_new_layer_reads_one_kind_of_features(
    kind: str, runs: Runs, answers: Path, images: Path, tmp_path: Path, quick: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only one kind can be chosen here. Where it passes the latent by, sensitivity to the latent does not exist.

    Hidden units are chosen no more, but runs exist that read them.
    """
    monkeypatch.setattr(module, "KINDS", (kind,))
    folder = made([runs("sitar")], answers, images, tmp_path / "new")
    model, base = load(folder, "cpu"), load(runs("sitar"), "cpu")
    x = model.data.evaluation["val"].x[:9].float() / 255
    vae, classifier = base.method.vae, base.method.classifier
    latent = vae.encode(x)[0]
    features = {"latent": latent, "hidden": classifier.features(latent), "encoder": vae.encoder(x)}[kind]
    torch.testing.assert_close(model.method.logits(x), model.method.head(features))
    assert model.method.head.in_features == features.shape[1]
    bottleneck = model.method.bottleneck()
    assert (bottleneck is None) == (kind == "encoder")
    if bottleneck is not None:
        torch.testing.assert_close(bottleneck.classify(bottleneck.latent(x)), model.method.logits(x))
    (found,) = explain_runs([folder], device="cpu")
    missing = {"sensitivity", "traversals"} if kind == "encoder" else set()
    assert set(found["reasons"]) == missing


def test_the_features_that_tell_the_answers_are_chosen(
    runs: Runs, images: Path, labels: np.ndarray, tmp_path: Path
) -> None:
    """The answers of a rule that only the second candidate's latent follows."""
    erm, vae = runs("erm"), runs("vae")
    latent = load(vae, "cpu").method.vae.encode(torch.from_numpy(np.load(images)["x"]).float() / 255)[0]
    said = (latent[:, 0] > latent[:, 0].median()).long().tolist()
    file = write_answers(tmp_path / "rule.csv", said, list(range(0, 800, 10)))
    folder = made([erm, vae], file, images, tmp_path / "new")
    refitted = folder.result()["refit"]
    assert refitted["run"] == str(vae.path)
    assert refitted["expected"]["accuracy"] > max(before["accuracy"] for before in refitted["before"]) + 0.1


def test_a_frozen_encoder_comes_along(runs: Runs, answers: Path, images: Path, tmp_path: Path, quick: None) -> None:
    base = runs("erm", model=ENCODER, train=TRAIN)
    folder = made([base], answers, images, tmp_path / "new")
    assert folder.encoder() == base.encoder()
    model = load(folder, "cpu")
    assert json.loads(json.dumps(model.evaluate())) == folder.result()["splits"]
    assert model.logits(torch.zeros(2, 3, 14, 14, dtype=torch.uint8)).shape == (2, 2)


def test_many_training_samples_are_drawn_from(
    runs: Runs, answers: Path, images: Path, tmp_path: Path, quick: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    all_of_them = made([runs("erm")], answers, images, tmp_path / "all")
    monkeypatch.setattr(module, "MOST", 100)
    some = made([runs("erm")], answers, images, tmp_path / "some")
    assert not torch.equal(weights(all_of_them)["head.weight"], weights(some)["head.weight"])
    monkeypatch.setattr(module, "MOST", 800)  # as many as there are new images
    assert torch.equal(weights(made([runs("erm")], answers, images, tmp_path / "same"))["head.weight"],
                       weights(all_of_them)["head.weight"])  # fmt: skip


def test_answers_with_probabilities_are_weighted(
    runs: Runs, images: Path, labels: np.ndarray, tmp_path: Path, quick: None
) -> None:
    """Images whose colour contradicts the label (the second half) were asked about nine times as often."""
    places = list(range(0, 800, 20))
    chance = [0.001 if place < 400 else 0.009 for place in places]
    file = write_answers(tmp_path / "weighted.csv", labels.tolist(), places, probability=chance)
    plain = write_answers(tmp_path / "plain.csv", labels.tolist(), places)
    weighted = made([runs("erm")], file, images, tmp_path / "weighted").result()["refit"]
    equal = made([runs("erm")], plain, images, tmp_path / "plain").result()["refit"]
    assert (weighted["weighted"], equal["weighted"]) == (True, False)
    right = load(runs("erm"), "cpu").predict_index(np.load(images)["x"][places]) == labels[places]
    expected = np.average(right, weights=1 / np.array(chance))
    assert weighted["before"][0]["accuracy"] == pytest.approx(expected)
    assert equal["before"][0]["accuracy"] == pytest.approx(right.mean())


def test_accuracies_before_are_those_of_sitar_choose(
    runs: Runs, images: Path, labels: np.ndarray, tmp_path: Path, quick: None
) -> None:
    """Most answers are about disagreements, and no probability says so."""
    candidates = [runs("erm", train={**TRAIN, "epochs": 8}), runs("erm")]
    one, other = (load(run, "cpu").predict_index(np.load(images)["x"]) for run in candidates)
    assert 0 < (one != other).sum() < len(labels), "else there is one stratum"
    places = [*np.flatnonzero(one != other)[:30].tolist(), *np.flatnonzero(one == other)[::80].tolist()]
    answers = write_answers(tmp_path / "answers.csv", labels.tolist(), places)
    before = made(candidates, answers, images, tmp_path / "new").result()["refit"]["before"]
    choice = choose(read_pool([run.path for run in candidates], images, None, "cpu"), read_answers(answers))
    for one, standing in zip(before, choice.standings, strict=True):
        assert one["run"] == standing.run
        assert one["accuracy"] == pytest.approx(standing.accuracy)


class TestMarks:
    """Every table, figure and sentence says which rows were given answers."""

    @pytest.fixture
    def folders(self, runs: Runs, answers: Path, images: Path, tmp_path: Path, quick: None) -> list[RunFolder]:
        base = runs("sitar")
        return [base, made([base], answers, images, tmp_path / "new")]

    def test_tables(self, folders: list[RunFolder]) -> None:
        rows = group_runs(read_runs([folder.path for folder in folders]))
        assert [row.label for row in rows] == ["custom", "custom +40 answers"]
        assert [row.given["answers"] for row in rows] == [0, 40]
        assert "+N answers: its last layer was fitted again" in compare_table(rows).note
        assert "+N answers" not in compare_table(rows[:1]).note
        told = json.loads(sitar("compare", "--json", *(folder.path for folder in folders)).stdout)
        assert [row["answers"] for row in told] == [0, 40]
        assert "+40 answers" in sitar("evaluate", folders[1].path, "--device", "cpu").stdout

    def test_the_report(self, folders: list[RunFolder], tmp_path: Path) -> None:
        (comparison,), left_out = compare_runs([folder.path for folder in folders])
        assert left_out == []
        sentences = " ".join(summary(comparison))
        assert "Given answers about images from where the model will be used" in sentences
        assert "custom +40 answers has the highest" not in sentences
        write_report([folder.path for folder in folders], tmp_path / "report.html")
        assert "+40 answers" in (tmp_path / "report.html").read_text(encoding="utf-8")

    def test_seeds_share_a_row_and_other_answers_do_not(
        self, folders: list[RunFolder], runs: Runs, answers: Path, images: Path, labels: np.ndarray, tmp_path: Path
    ) -> None:
        second = made([runs("sitar", seed=1)], answers, images, tmp_path / "second")
        config = second.read_config()
        config["refit"]["features"] = {"latent": "hidden"}.get(config["refit"]["features"], "latent")
        second.write_config(config)  # each seed chooses its features
        other = write_answers(tmp_path / "other.csv", labels.tolist(), list(range(5, 805, 20)))
        third = made([runs("sitar")], other, images, tmp_path / "third")
        rows = group_runs(read_runs([folder.path for folder in (*folders, second, third)]))
        assert [row.seeds for row in rows] == [[0], [0, 1], [0]]
        assert len({row.label for row in rows}) == 3
        assert all("+40 answers (" in row.label for row in rows[1:])


def test_the_command(runs: Runs, answers: Path, images: Path, tmp_path: Path, quick: None) -> None:
    base = Path(shutil.copytree(runs("erm").path, tmp_path / "runs" / "seed0"))
    options = ("--answers", answers, "--images", images, "--device", "cpu")
    said = sitar("refit", base, *options).stdout
    assert "+40 answers" in said
    assert "Expected accuracy where the images come from" in said
    (new,) = [path for path in base.parent.iterdir() if path != base]
    assert new.name.startswith("seed0-40answers-")
    assert RunFolder(new).is_done
    said = sitar_error("refit", base, *options)
    assert "is already used: it has a finished run. Choose another with --out." in said
    assert "--resume" not in said, "which this command does not have"
    result = json.loads(sitar("refit", base, *options, "--out", tmp_path / "out", "--json").stdout)
    assert result["answers"] == 40
    assert result["run"] == str(tmp_path / "out")


class TestRefused:
    def test_few_answers_and_answers_of_one_class(
        self, runs: Runs, images: Path, labels: np.ndarray, tmp_path: Path
    ) -> None:
        few = write_answers(tmp_path / "few.csv", labels.tolist(), [0, 1, 2, 3])
        with pytest.raises(DataError, match="There are 4 answers, and at least 5"):
            made([runs("erm")], few, images, tmp_path / "new")
        same = write_answers(tmp_path / "same.csv", labels.tolist(), np.flatnonzero(labels == 1)[:9].tolist())
        with pytest.raises(DataError, match="All 9 answers are 'digits 5-9'"):
            made([runs("erm")], same, images, tmp_path / "new")
        assert not (tmp_path / "new").exists()

    def test_an_answer_that_is_no_class(self, runs: Runs, answers: Path, images: Path, tmp_path: Path) -> None:
        answers.write_text(answers.read_text().replace(CLASSES[0], "seven", 1))
        with pytest.raises(DataError, match=r"The answer 'seven' for '\d+' is no class of these runs. They have: dig"):
            made([runs("erm")], answers, images, tmp_path / "new")

    def test_answers_about_other_images(self, runs: Runs, answers: Path, images: Path, tmp_path: Path) -> None:
        answers.write_text(answers.read_text() + "faces/1.png,digits 0-4\n")
        with pytest.raises(DataError, match=r"1 of the 41 answers are about images that are not there, such as 'faces"):
            made([runs("erm")], answers, images, tmp_path / "new")

    def test_images_of_the_test_split(self, runs: Runs, answers: Path, images: Path, tmp_path: Path) -> None:
        x = np.load(images)["x"]
        x[40] = load(runs("erm"), "cpu").data.evaluation["ood_test"].x[3].numpy()
        np.savez(images, x=x)
        with pytest.raises(DataError, match=r"1 of the images are in the split 'ood_test' of .*'40'"):
            made([runs("erm")], answers, images, tmp_path / "new")
        x[[40, 41]] = x[[41, 40]]  # now nobody has answered it, but the layer would learn from it all the same
        np.savez(images, x=x)
        with pytest.raises(DataError, match=r"1 of the images are in the split 'ood_test' of .*'41'"):
            made([runs("erm")], answers, images, tmp_path / "new")

    def test_runs_with_other_classes(self, runs: Runs, answers: Path, images: Path, tmp_path: Path) -> None:
        other = tmp_path / "other.npz"
        np.savez(other, x=np.load(images)["x"][:60], y=np.array(["cat", "dog"] * 30))
        cats = run(settings("erm", data={"name": "npz", "file": str(other)}, train=TRAIN), tmp_path / "cats")
        with pytest.raises(ConfigError, match="The runs have other classes"):
            made([runs("erm"), cats], answers, images, tmp_path / "new")

    def test_runs_without_a_last_layer_are_named_and_the_rest_goes_on(
        self,
        runs: Runs,
        answers: Path,
        images: Path,
        tmp_path: Path,
        quick: None,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        diffusion = runs("diffusion", train=TRAIN)
        with caplog.at_level(logging.WARNING, "sitar"):
            folder = made([diffusion, runs("erm")], answers, images, tmp_path / "new")
        assert f"{str(diffusion.path)!r} is left out: diffusion predicts from no latent" in caplog.text
        assert folder.result()["refit"]["run"] == str(runs("erm").path)
        caplog.clear()
        with pytest.raises(RunError, match="None of these runs has a last layer"):
            made([diffusion, folder], answers, images, tmp_path / "newer")
        assert "was fitted again already" in caplog.text

    def test_a_folder_that_is_used(self, runs: Runs, answers: Path, images: Path, tmp_path: Path) -> None:
        (tmp_path / "new").mkdir()
        (tmp_path / "new" / "notes.txt").write_text("mine")
        with pytest.raises(RunError, match="already used"):
            made([runs("erm")], answers, images, tmp_path / "new")

    def test_what_only_a_trained_run_has(
        self, runs: Runs, answers: Path, images: Path, tmp_path: Path, quick: None
    ) -> None:
        folder = made([runs("sitar")], answers, images, tmp_path / "new")
        with pytest.raises(RunError, match="was fitted again"):
            examine_theory(folder, "cpu")
        file = tmp_path / "again.yaml"
        file.write_text(yaml.safe_dump({k: v for k, v in folder.read_config().items() if k not in ("preset", "seed")}))
        assert "`sitar refit` makes" in sitar_error("train", file, "--out", tmp_path / "again", "--device", "cpu")


def test_images_are_read_as_the_run_reads_its_own(tmp_path: Path, quick: None) -> None:
    """A folder of image files, for candidates that store images in different sizes; a damaged one is no problem."""
    from helpers import made_data

    data = made_data.folder(tmp_path / "data")
    configs = [data.model_dump() | {"image_size": size} for size in (16, 12)]
    bases = [
        run(settings("erm", data=config, model=TINY_MODEL, train=TRAIN), tmp_path / f"run{config['image_size']}")
        for config in configs
    ]
    for i in range(100, 120):
        made_data.write(tmp_path / "new" / f"{i}.png", made_data.image(i))
    made_data.write(tmp_path / "new" / "damaged.png", b"no image")
    lines = [f"{i}.png,{'ab'[i % 2]}" for i in range(100, 120)]
    (tmp_path / "answers.csv").write_text("\n".join(["image,label", *lines]))
    folder = made(bases, tmp_path / "answers.csv", tmp_path / "new", tmp_path / "out")
    assert folder.result()["answers"] == 20
    assert len(folder.result()["refit"]["before"]) == 2
    (tmp_path / "answers.csv").write_text("\n".join(["image,label", *lines, "damaged.png,a"]))
    with pytest.raises(DataError, match=r"'damaged\.png' cannot be read"):
        made(bases, tmp_path / "answers.csv", tmp_path / "new", tmp_path / "out2")
