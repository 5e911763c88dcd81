"""Pretrained encoders, features, and random views."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from sitar.config import ModelConfig, run_config
from sitar.data.types import Task, TrainBatch, TrainSplit
from sitar.errors import ConfigError
from sitar.functional.augment import RATIO, SCALE, crop_and_flip
from sitar.methods import build_method
from sitar.models import FeatureDecoder, FeatureEncoder, PretrainedEncoder, Standardise, encoder_features
from sitar.models.build import build_network, build_vae, with_latent_dim

SHAPE = (3, 32, 32)
MEAN, STD = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])  # of ImageNet
IMAGES = Task((3, 32, 32), 2, 10, (5, 5))


def test_the_feature_vae_has_the_layers_of_the_appendix() -> None:
    encoder = FeatureEncoder(2048)
    linear = [layer for layer in encoder.layers if isinstance(layer, torch.nn.Linear)]
    assert [(layer.in_features, layer.out_features) for layer in linear] == [(2048, 1024), (1024, 512)]
    decoder = FeatureDecoder(512, encoder)
    linear = [layer for layer in decoder.layers if isinstance(layer, torch.nn.Linear)]
    assert [(layer.in_features, layer.out_features) for layer in linear] == [(512, 1024), (1024, 2048)]
    assert decoder(torch.randn(50, 512)).min() < 0  # no sigmoid


def test_one_feature_is_enough() -> None:
    encoder = FeatureEncoder(1)
    assert FeatureDecoder(2, encoder)(torch.zeros(4, 2)).shape == (4, 1)
    assert encoder(torch.zeros(4, 1)).shape == (4, encoder.out_features)


def test_features_are_standardised_by_the_training_split() -> None:
    x = torch.randn(100, 3) * torch.tensor([1e-3, 1.0, 1e4]) + 5
    x[:, 1] = 3.0
    task = TrainSplit(x, torch.arange(100) % 2).task(2)
    assert task.features is not None
    scaled = Standardise(*task.features)(x)
    torch.testing.assert_close(scaled.mean(0), torch.zeros(3), atol=1e-3, rtol=0)
    torch.testing.assert_close(scaled.std(0, correction=0), torch.tensor([1.0, 0.0, 1.0]), atol=1e-3, rtol=0)


def test_a_quarter_of_the_features_are_latent_axes() -> None:
    left = ModelConfig(latent_dim=None)
    assert with_latent_dim(left, Task((768,), 2, 10, (5, 5))).latent_dim == 192
    encoded = with_latent_dim(ModelConfig(latent_dim=None, encoder="resnet50.tv_in1k"), IMAGES)
    assert encoded.latent_dim == 512
    assert with_latent_dim(ModelConfig(latent_dim=7), IMAGES).latent_dim == 7
    assert with_latent_dim(left, IMAGES).latent_dim == 10


def test_the_encoder_normalises_and_can_be_asked_for_its_size() -> None:
    encoder = PretrainedEncoder("resnet18", SHAPE, "random").eval()
    assert encoder_features("resnet18", SHAPE) == encoder.out_features == 512
    x = torch.rand(2, 3, 32, 32)
    expected = encoder.network((x - MEAN[:, None, None]) / STD[:, None, None])
    torch.testing.assert_close(encoder(x), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.data
def test_the_features_are_those_of_torchvision_with_the_stride_moved(test_data: Path) -> None:
    from torchvision.models import resnet50

    file = test_data / "weights" / "resnet50_imagenet_v1stride.safetensors"
    ours = PretrainedEncoder("resnet50.tv_in1k", SHAPE, str(file), stride_in_1x1=True).eval()
    referee = resnet50(weights=None)
    referee.fc = torch.nn.Identity()
    for stage in (referee.layer2, referee.layer3, referee.layer4):
        stage[0].conv1.stride, stage[0].conv2.stride = (2, 2), (1, 1)
    referee.load_state_dict(ours.network.state_dict())
    x = torch.rand(2, 3, 96, 96)
    normal = (x - MEAN[:, None, None]) / STD[:, None, None]
    with torch.no_grad():
        torch.testing.assert_close(ours(x), referee.eval()(normal), atol=1e-4, rtol=1e-4)
        usual = PretrainedEncoder("resnet50.tv_in1k", SHAPE, str(file)).eval()
        assert (usual(x) - ours(x)).abs().max() > 0.1


@pytest.mark.parametrize("name", ["mobilenetv3_small_050", "lcnet_050"])
def test_the_width_is_what_comes_out(name: str) -> None:
    """Of networks with a layer before the head, `num_features` is another number."""
    encoder = PretrainedEncoder(name, SHAPE, "random").eval()
    assert encoder(torch.rand(2, *SHAPE)).shape == (2, encoder.out_features)
    assert encoder_features(name, SHAPE) == encoder.out_features


def test_asking_for_the_size_draws_nothing() -> None:
    before = torch.get_rng_state()
    encoder_features("resnet18", SHAPE)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_file_of_weights_is_read_and_its_head_left_out(tmp_path: Path) -> None:
    source = PretrainedEncoder("resnet18", SHAPE, "random").eval()
    tensors = {key: value.contiguous().half() for key, value in source.network.state_dict().items()}
    tensors["fc.weight"] = torch.zeros(1000, 512)
    save_file(tensors, tmp_path / "w.safetensors")
    torch.save(tensors, tmp_path / "w.pth")
    x = torch.rand(2, 3, 32, 32)
    for name in ("w.safetensors", "w.pth"):
        loaded = PretrainedEncoder("resnet18", SHAPE, str(tmp_path / name)).eval()
        assert next(loaded.parameters()).dtype == torch.float32
        torch.testing.assert_close(loaded(x), source(x), atol=1e-2, rtol=1e-2)


def test_files_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        PretrainedEncoder("resnet18", SHAPE, str(tmp_path / "none.safetensors"))
    (tmp_path / "bad.safetensors").write_bytes(b"no")
    with pytest.raises(ConfigError, match="cannot be read"):
        PretrainedEncoder("resnet18", SHAPE, str(tmp_path / "bad.safetensors"))
    tensors = {
        k: v.contiguous() for k, v in PretrainedEncoder("resnet18", SHAPE, "random").network.state_dict().items()
    }
    save_file({key: value for key, value in tensors.items() if key != "conv1.weight"}, tmp_path / "less.safetensors")
    with pytest.raises(ConfigError, match=r"lacks 1 of .*'conv1\.weight'"):
        PretrainedEncoder("resnet18", SHAPE, str(tmp_path / "less.safetensors"))
    save_file({**tensors, "conv1.weight": torch.zeros(3)}, tmp_path / "other.safetensors")
    with pytest.raises(ConfigError, match=r"another shape.*'conv1\.weight'"):
        PretrainedEncoder("resnet18", SHAPE, str(tmp_path / "other.safetensors"))
    torch.save({"model": tensors}, tmp_path / "nested.pth")
    with pytest.raises(ConfigError, match="holds no state dict"):
        PretrainedEncoder("resnet18", SHAPE, str(tmp_path / "nested.pth"))
    torch.save(Path, tmp_path / "pickle.pth")
    with pytest.raises(ConfigError, match="for safety"):
        PretrainedEncoder("resnet18", SHAPE, str(tmp_path / "pickle.pth"))


def test_encoders_that_do_not_exist_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"'resnet5' is no network of timm.*resnet"):
        PretrainedEncoder("resnet5", SHAPE, "random")
    with pytest.raises(ConfigError, match=r"stride_in_1x1 is for ResNets with bottlenecks"):
        PretrainedEncoder("resnet18", SHAPE, "random", stride_in_1x1=True)
    with pytest.raises(ConfigError, match="three channels, and these have 1"):
        build_network(ModelConfig(encoder="resnet18", encoder_weights="random"), Task((1, 32, 32), 2, 10, (5, 5)))
    with pytest.raises(ConfigError, match=r"cannot read images of 32x32.*data\.image_size=224"):
        PretrainedEncoder("vit_tiny_patch16_224", SHAPE, "random")
    with pytest.raises(ConfigError, match=r"no weights 'nosuch' of resnet18\. It has .*resnet18\.tv_in1k"):
        PretrainedEncoder("resnet18.nosuch", SHAPE, "hub")


def test_the_target_does_not_move_the_encoder() -> None:
    vae = build_vae(ModelConfig(encoder="resnet18", encoder_weights="random"), IMAGES)
    features = vae.backbone(torch.rand(4, 3, 32, 32))
    assert features.requires_grad
    assert not vae.target(features).requires_grad
    torch.testing.assert_close(vae.target(features), features)


@pytest.mark.parametrize(("scale", "size"), [("sum", 1), ("mean", 12)])
def test_the_scale_of_the_vae_is_of_both_its_terms(scale: str, size: int) -> None:
    task = TrainSplit(torch.randn(20, 12), torch.arange(20) % 2).task(2)
    method = build_method(
        run_config(
            {
                "data": {"name": "npz"},
                "method": {"name": "sitar", "vae_scale": scale, "lambda": 3.0},
                "model": {"latent_dim": 4},
                "train": {},
            }
        ),
        task,
    )
    terms = method.loss(TrainBatch(torch.randn(20, 12), torch.arange(20) % 2, torch.arange(20)))  # type: ignore[operator]
    expected = (
        (terms["reconstruction"] + 2.0 * terms["kl"]) / size + terms["cross_entropy"] + 3.0 * terms["consistency"]
    )
    torch.testing.assert_close(terms["loss"], expected)


def ramps(n: int, size: int) -> Tensor:
    """Images whose first channel is x and whose second is y, at the centres of pixels, from -1 to 1."""
    line = (2 * torch.arange(size) + 1) / size - 1
    across, down = line.expand(size, size), line[:, None].expand(size, size)
    return torch.stack([across, down, torch.zeros(size, size)])[None].repeat(n, 1, 1, 1)


def test_random_views_are_boxes_within_the_image() -> None:
    """A ramp stays a ramp under a crop, so the box can be read off the view."""
    torch.manual_seed(0)
    n, size = 4000, 64
    view = crop_and_flip(ramps(n, size))
    slope, height = view[:, 0, 32, 48] - view[:, 0, 32, 16], view[:, 1, 48, 32] - view[:, 1, 16, 32]  # half the image
    width = slope.abs()
    assert (height > 0).all()  # never upside down
    assert (slope < 0).float().mean().item() == pytest.approx(0.5, abs=0.03)
    area, ratio = width * height, width / height
    assert SCALE[0] - 1e-3 <= area.min()
    assert area.max() <= SCALE[1] + 1e-3
    assert area.mean().item() == pytest.approx(sum(SCALE) / 2, abs=0.01)
    assert ratio.max() <= RATIO + 1e-2
    assert ratio.min() >= 1 / RATIO - 1e-2
    assert ratio.log().mean().item() == pytest.approx(0, abs=0.01)
    assert ratio.log().std().item() > 0.05
    assert max(width.max(), height.max()) <= 1 + 1e-3
    centre = view[:, :2, size // 2 - 1 : size // 2 + 1, size // 2 - 1 : size // 2 + 1].mean((2, 3))
    room = torch.stack([1 - width, 1 - height], 1)
    assert (centre.abs() <= room + 1e-3).all()
    assert (centre / room.clamp_min(1e-3))[:, 0].abs().mean().item() == pytest.approx(0.5, abs=0.03)
    assert not torch.equal(view[0], view[1])


def test_random_views_are_those_of_torchvision_for_a_box() -> None:
    from torchvision.transforms.v2.functional import resized_crop

    torch.manual_seed(1)
    x = torch.nn.functional.interpolate(torch.rand(1, 3, 8, 8), size=(64, 64), mode="bicubic")
    place = ramps(1, 64)
    together = crop_and_flip(torch.cat([x, place], 1))
    view, ramp = together[:, :3], together[:, 3:]
    width = (ramp[0, 0, 32, 48] - ramp[0, 0, 32, 16]).item() * 64 / 32 / 2
    height = (ramp[0, 1, 48, 32] - ramp[0, 1, 16, 32]).item() * 64 / 32 / 2
    left = (ramp[0, 0, 0, 16].item() - width * (2 * 16.5 / 64 - 1)) + 1 - abs(width)
    top = (ramp[0, 1, 16, 0].item() - height * (2 * 16.5 / 64 - 1)) + 1 - height
    box = [round(64 * v / 2) for v in (top, left)] + [round(64 * v) for v in (height, abs(width))]
    expected = resized_crop(x, *box, size=[64, 64], antialias=False)
    if width < 0:
        expected = expected.flip(3)
    assert (view - expected).abs().mean() < 0.03  # boxes of torchvision are whole pixels
    assert (x - expected).abs().mean() > 0.03
    assert not math.isclose(width, 1, abs_tol=1e-3)
