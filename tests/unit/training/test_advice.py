"""Settings that are allowed and known to disappoint are named when a run starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.made_data import image
from sitar.presets import load_config
from sitar.training import advice
from sitar.training.run import train

SMALL, LARGE = (3, 64, 64), (3, 224, 224)
ENCODER = "model.encoder=resnet18.tv_in1k"


def said(preset: str, shape: tuple[int, ...], *overrides: str) -> list[str]:
    return list(advice._advice(load_config(preset, overrides), shape))


def test_an_encoder_on_small_images_is_named() -> None:
    (sentence,) = said("folder/erm", SMALL, ENCODER)
    assert "64x64" in sentence
    assert "data.image_size=224" in sentence
    assert not said("folder/erm", LARGE, ENCODER)
    assert not said("folder/erm", SMALL)
    assert not said("folder/erm", SMALL, ENCODER, "model.encoder_weights=random")
    (sentence,) = said("folder/erm", LARGE, "model.encoder=vit_small_patch14_dinov2.lvd142m")
    assert "518x518" in sentence


@pytest.mark.parametrize("preset", ["folder/sitar_best", "folder/control"])
def test_an_encoder_that_the_vae_would_spoil_is_named(preset: str) -> None:
    (sentence,) = said(preset, LARGE, ENCODER)
    assert "method.vae_scale=mean" in sentence
    assert not said(preset, LARGE, ENCODER, "method.vae_scale=mean")
    assert not said(preset, LARGE, ENCODER, "model.freeze_encoder=true")  # its features are data
    assert not said(preset, LARGE)


@pytest.mark.parametrize("kind", ["folder", "table"])
@pytest.mark.parametrize("method", ["erm", "control", "sitar_best", "diffusion", "vae"])
def test_our_presets_need_no_advice(kind: str, method: str) -> None:
    config = load_config(f"{kind}_pretrained/{method}")
    assert not list(advice._advice(config, (3, config.data.image_size, config.data.image_size)))
    assert config.model.freeze_encoder


def test_a_run_says_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for i in range(20):
        (tmp_path / "data" / "ab"[i % 2]).mkdir(parents=True, exist_ok=True)
        (tmp_path / "data" / "ab"[i % 2] / f"{i}.png").write_bytes(image(i))
    overrides = [f"data.root={tmp_path}/data", "data.image_size=32", "train.epochs=1", "model.latent_dim=4"]
    overrides += ["model.encoder=resnet18.tv_in1k", "model.encoder_weights=random", "train.batch_size=4"]
    train("folder/sitar_best", overrides=overrides, out=tmp_path / "run", device="cpu", progress=False)
    assert caplog.text.count("vae_scale=sum") == 1


def test_data_larger_than_memory_is_named(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(advice, "free_memory", lambda: 5 * 10**9)
    config = load_config("features/erm", ["data.file=x.parquet"])
    advice.warn(config, (512,), 4 * 10**9)
    advice.warn(load_config("features/erm", ["data.file=x.parquet", "train.shuffle=blocks"]), (512,), 6 * 10**9)
    assert not caplog.text
    advice.warn(config, (512,), 6 * 10**9)
    assert "6.0 GB and 5.0 GB of memory are free" in caplog.text
    assert "train.shuffle=blocks" in caplog.text
