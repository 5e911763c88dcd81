"""Every method on features and behind a pretrained encoder, trained with it or frozen."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import torch

import sitar
from helpers.runs import Stop, assert_same_run, predictions, run, toy, weights
from sitar import threads
from sitar.config import RunConfig
from sitar.data import load_data
from sitar.errors import ConfigError
from sitar.evaluation.frozen_encoder import FrozenEncoder
from sitar.models import PretrainedEncoder
from sitar.presets import load_config
from sitar.registry import METHODS
from sitar.run_folder import RunFolder
from sitar.training import loop
from sitar.training.run import train_config

FEATURES = {"name": "toy_blobs", "features": True}
MODEL = {"latent_dim": 4, "hidden": 8}
ENCODER = {**MODEL, "encoder": "test_resnet", "encoder_weights": "random"}
FROZEN = {**ENCODER, "freeze_encoder": True}
SHORT = {"epochs": 2, "batch_size": 25}
NAMES = METHODS.names()
OPTIONS = {"chroma_vae": {"neighbours": 5}}
pytestmark = pytest.mark.usefixtures("_toys", "cache")


def options(name: str) -> dict[str, int]:
    return OPTIONS.get(name, {})


@pytest.mark.parametrize("name", NAMES)
def test_methods_train_on_features(name: str, tmp_path: Path) -> None:
    folder = run(toy(name, data=FEATURES, model=MODEL, train=SHORT, **options(name)), tmp_path / "run")
    model = sitar.load(folder, device="cpu")
    x = model.data.evaluation["val"].x
    assert x.shape == (40, 12)
    np.testing.assert_array_equal(model.logits(x), predictions(folder)["val/logits"])
    assert any(key.endswith("backbone.scale") for key in weights(folder))


@pytest.mark.parametrize("name", [name for name in NAMES if name != "diffusion"])
def test_methods_train_behind_an_encoder(name: str, tmp_path: Path) -> None:
    config = toy(name, model=ENCODER, train={**SHORT, "augment": "crop_flip"}, **options(name))
    folder = run(config, tmp_path / "run")
    model = sitar.load(folder, device="cpu")
    x = model.data.evaluation["val"].x
    np.testing.assert_array_equal(model.logits(x), predictions(folder)["val/logits"])
    moved = [key for key in weights(folder) if key.endswith("backbone.network.layer4.0.conv1.weight")]
    assert len(moved) == {"jtt": 2, "lff": 2, "dbat": 2, "sitar_auto": 4}.get(name, 1)


def test_the_encoder_is_trained_with_the_rest(tmp_path: Path) -> None:
    config = toy("sitar", model=ENCODER, train={"epochs": 1, "learning_rate": 1e-3})
    other = toy("sitar", model=ENCODER, train={"epochs": 1, "learning_rate": 1e-9})
    moved, still = (weights(run(c, tmp_path / f"{i}")) for i, c in enumerate((config, other)))
    key = "vae.backbone.network.conv1.0.weight"
    assert 1e-4 < (moved[key] - still[key]).abs().max() < 0.1


def cut(config: RunConfig, path: Path) -> None:
    """A run that is stopped after its second epoch."""
    original = loop.Loop._save

    def stop(self: loop.Loop, phase: int, progress: object) -> None:
        original(self, phase, progress)  # type: ignore[arg-type]
        if progress is not None and progress["epoch"] == 2:  # type: ignore[index]
            raise Stop

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop.Loop, "_save", stop)
        with pytest.raises(Stop):
            run(config, path)


def test_resume_is_exact_with_views_and_an_encoder(tmp_path: Path) -> None:
    """Random views are drawn from the epoch's seed, and batch statistics are buffers."""
    config = toy("sitar", model=ENCODER, train={"epochs": 3, "augment": "crop_flip"})
    whole = run(config, tmp_path / "whole")
    cut(config, tmp_path / "cut")
    assert_same_run(run(config, tmp_path / "cut", resume=True), whole)


def test_views_differ_between_epochs_and_from_none(tmp_path: Path) -> None:
    plain, viewed = (
        run(toy("erm", train={"epochs": 1, "augment": augment}), tmp_path / augment)
        for augment in ("none", "crop_flip")
    )
    assert not torch.equal(weights(plain)["network.mean.weight"], weights(viewed)["network.mean.weight"])


class TestFrozen:
    def test_features_are_computed_once(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        first = run(toy("sitar", model=FROZEN, train=SHORT), tmp_path / "first")
        assert len(list((tmp_path / "cache" / "features").glob("*.npy"))) == 3
        monkeypatch.setattr(FrozenEncoder, "__call__", lambda *_: pytest.fail("computed again"))
        assert_same_run(run(toy("sitar", model=FROZEN, train=SHORT), tmp_path / "second"), first)

    @pytest.mark.parametrize("chosen", [1, 2])
    def test_many_images_take_the_fastest_number_of_threads(
        self, chosen: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        tried, used = [], []

        def fastest(most: int, rehearsal: threads.Rehearsal) -> int:
            rehearsal.step()
            tried.append((most, rehearsal.steps))
            torch.set_num_threads(most)  # as the last number that it has tried
            return chosen

        monkeypatch.setattr(threads, "users_number", lambda: None)
        monkeypatch.setattr(threads, "fastest", fastest)
        config = toy("erm", model=FROZEN).model
        encoder = FrozenEncoder(config, (3, 8, 8), torch.device("cpu"), RunFolder(tmp_path / "run"))
        encoder.network.register_forward_hook(lambda *_: used.append(torch.get_num_threads()))
        before = torch.get_num_threads()
        for images in (10, 200, 300):
            encoder(torch.zeros(images, 3, 8, 8, dtype=torch.uint8))
        assert used == [before, before, *[chosen] * 5], "few images, a trial, then two batches and three"
        assert tried == [(before, 25)]
        assert torch.get_num_threads() == before

    def test_a_person_sees_that_features_are_computed(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """With a large encoder this is most of the work."""
        monkeypatch.setattr("sitar.progress.PATIENCE_SECONDS", 0)
        config = toy("erm", model=FROZEN, train=SHORT)
        train_config(config, RunFolder(tmp_path / "run"), device="cpu", progress=True)
        assert re.search(r"features of train: \d+/\d+, \d+ s left", capsys.readouterr().err)

    def test_a_run_keeps_its_encoder(self, tmp_path: Path) -> None:
        """Random weights, which cannot be had again: the folder must hold them."""
        folder = run(toy("erm", model=FROZEN, train=SHORT), tmp_path / "run")
        for file in (tmp_path / "cache" / "features").iterdir():
            file.unlink()
        model = sitar.load(folder, device="cpu")
        x = model.data.evaluation["val"].x
        assert x.dtype == torch.uint8
        np.testing.assert_allclose(model.logits(x), predictions(folder)["val/logits"], atol=1e-5)
        assert model.evaluate()["val"]["average"] == folder.result()["splits"]["val"]["average"]

    @pytest.mark.parametrize("name", NAMES)
    def test_methods_train_on_its_features(self, name: str, tmp_path: Path) -> None:
        folder = run(toy(name, model=FROZEN, train={**SHORT, "epochs": 1}, **options(name)), tmp_path / "run")
        model = sitar.load(folder, device="cpu")
        logits = model.logits(model.data.evaluation["val"].x)
        np.testing.assert_allclose(logits, predictions(folder)["val/logits"], rtol=1e-4, atol=1e-4)

    def test_a_resumed_run_keeps_its_encoder(self, tmp_path: Path) -> None:
        file = tmp_path / "weights.pth"
        config = toy("erm", model={**FROZEN, "encoder_weights": str(file)}, train={"epochs": 3})

        def bring(seed: int) -> None:
            torch.manual_seed(seed)
            torch.save(PretrainedEncoder("test_resnet", (3, 8, 8), "random").network.state_dict(), file)

        bring(0)
        whole = run(config, tmp_path / "whole")
        cut(config, tmp_path / "cut")
        bring(1)  # another file under the same name
        assert_same_run(run(config, tmp_path / "cut", resume=True), whole)
        kept = [(tmp_path / name / "checkpoint" / "encoder.safetensors").read_bytes() for name in ("whole", "cut")]
        assert kept[0] == kept[1]

    def test_a_damaged_cache_is_made_again(self, tmp_path: Path) -> None:
        first = run(toy("erm", model=FROZEN, train=SHORT), tmp_path / "first")
        for file in (tmp_path / "cache" / "features").iterdir():
            file.write_bytes(file.read_bytes()[:100])
        assert_same_run(run(toy("erm", model=FROZEN, train=SHORT), tmp_path / "second"), first)

    def test_one_flipped_bit_in_the_cache_is_named_and_never_used(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        first = run(toy("erm", model=FROZEN, train=SHORT), tmp_path / "first")
        files = sorted((tmp_path / "cache" / "features").glob("*.npy"))
        sound = [file.read_bytes() for file in files]
        for file in files:
            features = np.load(file, mmap_mode="r+")
            features.view(np.uint32)[3, 1] ^= 1 << 20
            features.flush()
        assert_same_run(run(toy("erm", model=FROZEN, train=SHORT), tmp_path / "second"), first)
        assert [file.read_bytes() for file in files] == sound
        assert caplog.text.count("such as rows 0 to") == len(files)

    def test_another_seed_is_another_random_encoder(self, tmp_path: Path) -> None:
        for seed in (0, 1):
            run(toy("erm", model=FROZEN, train=SHORT, seed=seed), tmp_path / f"{seed}")
        assert len(list((tmp_path / "cache" / "features").glob("*.npy"))) == 6


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"data": FEATURES, "model": ENCODER}, "holds features already"),
        ({"model": FROZEN, "train": {"augment": "crop_flip"}}, r"train\.augment=none"),
        ({"data": FEATURES, "model": MODEL, "train": {"augment": "crop_flip"}}, r"train\.augment=none"),
    ],
)
def test_settings_that_exclude_each_other(settings: dict, message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        run(toy("erm", **settings), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_the_diffusion_classifier_trains_no_encoder(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"easy to model, and empty.*freeze_encoder=true"):
        run(toy("diffusion", model=ENCODER), tmp_path / "run")


def test_an_encoder_to_freeze_must_be_named() -> None:
    for setting in ({"freeze_encoder": True}, {"stride_in_1x1": True}, {"encoder_weights": "w.safetensors"}):
        with pytest.raises(ConfigError, match=r"set model\.encoder"):
            toy("erm", model={**MODEL, **setting})


def embeddings(n: int = 120) -> tuple[np.ndarray, np.ndarray]:
    """Twenty numbers in units of a thousand that three factors make, one of which says the class."""
    random = np.random.default_rng(0)
    y = np.arange(n) % 2
    factors = random.normal(size=(n, 3))
    factors[:, 0] += 4 * y - 2
    x = factors @ random.normal(size=(3, 20)) + 0.1 * random.normal(size=(n, 20))
    return (1000 * x).astype(np.float32), np.array(["healthy", "ill"])[y]


def npz(folder: Path) -> list[str]:
    """The embeddings as a NumPy file, and the settings that name it."""
    x, y = embeddings()
    np.savez(folder / "data.npz", x=x, y=y)
    return [f"data.file={folder / 'data.npz'}"]


def table(folder: Path) -> list[str]:
    """The embeddings as a table."""
    x, y = embeddings()
    lines = [",".join([*(f"f{i}" for i in range(20)), "label"])]
    lines += [",".join([*map(str, row), label]) for row, label in zip(x.tolist(), y, strict=True)]
    (folder / "data.csv").write_text("\n".join(lines))
    return [f"data.file={folder / 'data.csv'}", "data.feature_columns=f*"]


@pytest.mark.parametrize(
    ("method", "steps"),
    [
        *((method, ["train.least_steps=0"]) for method in ("erm", "control", "sitar_best")),
        ("diffusion", ["train.least_steps=400", "train.evaluate=[]", "train.selection=last", "method.mlp_width=64"]),
        *(pytest.param(name, [], marks=pytest.mark.ci) for name in ("erm", "control", "sitar_best")),
    ],
)
def test_presets_learn_from_embeddings(method: str, steps: list[str], tmp_path: Path) -> None:
    """Also with far fewer steps than the presets ask for on small data: these samples are easy."""
    overrides = [*npz(tmp_path), *steps]
    folder = sitar.train(f"npz/{method}", overrides=overrides, out=tmp_path / "run", device="cpu", progress=False)
    model = sitar.load(folder, device="cpu")
    assert model.classes == ("healthy", "ill")
    if method in ("control", "sitar_best"):
        assert model.method.vae.mean.out_features == 5  # type: ignore[union-attr]
    assert folder.result()["splits"]["train"]["average"] > 0.8


@pytest.mark.parametrize("method", ["erm", "control", "sitar_best", "diffusion"])
def test_a_table_trains_as_a_numpy_file_does(method: str, tmp_path: Path) -> None:
    """The presets of both are the same but for the data, and so are the samples: what one learns, the other does."""
    configs = [
        load_config(f"npz/{method}", npz(tmp_path)),
        load_config(f"features/{method}", table(tmp_path)),
    ]
    assert len({config.model_dump_json(exclude={"data", "preset"}) for config in configs}) == 1
    ours, theirs = (load_data(config.data) for config in configs)
    assert ours.classes == theirs.classes == ("healthy", "ill")
    assert list(ours.evaluation) == list(theirs.evaluation)
    pairs = zip([ours.train, *ours.evaluation.values()], [theirs.train, *theirs.evaluation.values()], strict=True)
    for mine, other in pairs:
        assert torch.equal(mine.x, other.x)
        assert torch.equal(mine.y, other.y)
