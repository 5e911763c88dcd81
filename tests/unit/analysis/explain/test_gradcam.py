"""Grad-CAM of networks that can be computed by hand, the layer it looks at, and the mass in a box."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from sitar.analysis.explain.gradcam import covered, last_convolution, mass, mean_mass, saliency_maps
from sitar.data.benchmarks.celeba import CelebA, CelebAConfig
from sitar.errors import RunError
from sitar.methods.base import Bottleneck
from sitar.models import Classifier, Network, PretrainedEncoder


class ByHand(nn.Module):
    """Two 1x1 convolutions of one channel, x and 1 - x; logit 0 reads the sum of the first, logit 1 of the second."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(1, 2, 1)
        with torch.no_grad():
            self.convolution.weight.copy_(torch.tensor([1.0, -1.0]).view(2, 1, 1, 1))
            self.convolution.bias.copy_(torch.tensor([0.0, 1.0]))  # type: ignore[union-attr]

    def forward(self, x: Tensor) -> Tensor:
        return self.convolution(x).sum((2, 3)) * torch.tensor([3.0, 1.0])


def stub(f: nn.Module, batch: int = 16) -> Any:
    method = SimpleNamespace(evaluation_batch=batch)
    return SimpleNamespace(differentiable=f, device=torch.device("cpu"), method=method)


def test_maps_by_hand() -> None:
    """Channel weights are the mean gradients (3 and 0, or 0 and 1): the map is 3 x or 1 - x, then its largest is 1."""
    f = ByHand()
    x = torch.tensor([[[[0.9, 0.6], [0.3, 0.6]]], [[[0.0, 0.1], [0.2, 0.0]]]])
    maps, predicted = saliency_maps(stub(f, batch=8), f.convolution, x)  # one image at a time
    assert predicted.tolist() == [0, 1]
    torch.testing.assert_close(maps[0], x[0, 0] / 0.9)
    torch.testing.assert_close(maps[1], 1 - x[1, 0])


def test_what_speaks_against_the_class_is_not_shown() -> None:
    """A negative weight on one of two channels: where it wins, the map is 0; a map that is 0 everywhere stays 0."""
    f = ByHand()
    with torch.no_grad():
        f.convolution.bias.copy_(torch.tensor([-0.5, -9.0]))  # type: ignore[union-attr]
    x = torch.tensor([[[[0.9, 0.1], [0.7, 0.3]]], [[[0.1, 0.2], [0.3, 0.0]]]])
    maps, predicted = saliency_maps(stub(f), f.convolution, x)
    assert predicted.tolist() == [0, 0]
    torch.testing.assert_close(maps[0], torch.tensor([[1.0, 0.0], [0.5, 0.0]]))
    assert torch.equal(maps[1], torch.zeros(2, 2))
    assert mean_mass(stub(f), f.convolution, x, (0.0, 0.0, 1.0, 0.5)) == (
        pytest.approx(2 / 3),
        1,
    )  # the empty one is not
    assert mean_mass(stub(f), f.convolution, x[1:], (0.0, 0.0, 1.0, 0.5)) == (None, 0)


class Halved(ByHand):
    """The same on a map of half the size."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(nn.functional.avg_pool2d(x, 2))


def test_maps_have_the_size_of_the_image() -> None:
    f, x = Halved(), torch.rand(3, 1, 8, 6, generator=torch.Generator().manual_seed(0)) / 2 + 0.5
    maps, _ = saliency_maps(stub(f), f.convolution, x)
    small = nn.functional.avg_pool2d(x, 2)
    large = nn.functional.interpolate(small, (8, 6), mode="bilinear").squeeze(1)
    torch.testing.assert_close(maps, large / large.amax((1, 2), keepdim=True))


def test_hooks_are_released_and_gradients_left_alone() -> None:
    f = ByHand()
    saliency_maps(stub(f), f.convolution, torch.rand(3, 1, 4, 4))
    for module in f.modules():
        hooks = [name for name, value in vars(module).items() if "_hooks" in name and value]
        assert not hooks
    assert all(parameter.grad is None and parameter.requires_grad for parameter in f.parameters())


def test_hooks_are_released_where_the_model_fails() -> None:
    network = named_network(PretrainedEncoder("test_resnet", (3, 32, 32), "random"))
    with pytest.raises(RuntimeError):
        last_convolution(behind(network), torch.zeros(1, 5, 32, 32))
    assert not any(module._forward_hooks for module in network.modules())


def named_network(backbone: PretrainedEncoder) -> Network:
    encoder = nn.Identity()
    encoder.out_features = backbone.out_features  # type: ignore[assignment]
    return Network(encoder, 4, Classifier(4, 2, hidden=8), backbone).eval()


def behind(network: Network) -> Any:
    method = nn.Module()
    method.network = network
    method.no_slope = None  # type: ignore[assignment]
    method.bottleneck = lambda: Bottleneck(network, network.classifier)  # type: ignore[assignment]
    method.evaluation_batch = 16  # type: ignore[assignment]
    return SimpleNamespace(differentiable=network, device=torch.device("cpu"), method=method, encoder=None)


def without_captum(network: nn.Module, layer: nn.Module, x: Tensor) -> Tensor:
    activations: list[Tensor] = []
    hook = layer.register_forward_hook(lambda _, __, output: activations.append(output.clone()) or activations[0])
    chosen = network(x).amax(1).sum()
    hook.remove()
    (gradient,) = torch.autograd.grad(chosen, activations[0])
    small = (gradient.mean((2, 3), keepdim=True) * activations[0]).sum(1, keepdim=True).relu()
    large = nn.functional.interpolate(small, x.shape[-2:], mode="bilinear").squeeze(1).detach()
    return (large / large.amax((1, 2), keepdim=True)).nan_to_num(0)


@pytest.mark.parametrize(
    ("name", "layer"),
    [
        ("resnet18", "layer4.1.conv2"),
        ("test_efficientnet", "conv_head"),
        ("test_convnext", "stages.3.blocks.1.conv_dw"),
    ],
)
def test_the_last_convolution_of_networks_of_timm(name: str, layer: str) -> None:
    torch.manual_seed(0)
    network = named_network(PretrainedEncoder(name, (3, 64, 64), "random"))
    for norm in network.modules():
        if isinstance(norm, nn.BatchNorm2d):
            nn.init.ones_(norm.weight)  # timm starts the last one of a block at 0, where nothing comes through
    x = torch.rand(2, 3, 64, 64)
    found, module = last_convolution(behind(network), x[:1])
    assert found == f"network.backbone.network.{layer}"
    with torch.no_grad():
        network.classifier.last_layer.bias.mul_(0)
        network.classifier.last_layer.weight[1] = -network.classifier.last_layer.weight[
            0
        ]  # else a logit may be below 0
    maps, _ = saliency_maps(behind(network), module, x)
    torch.testing.assert_close(maps, without_captum(network, module, x))
    assert maps.max() == 1


def test_patches_are_no_map() -> None:
    network = named_network(PretrainedEncoder("test_vit", (3, 160, 160), "random"))
    with pytest.raises(RunError, match="no convolution"):
        last_convolution(behind(network), torch.zeros(1, 3, 160, 160))


def test_mass_by_hand() -> None:
    maps = torch.tensor([[[1.0, 1.0], [1.0, 1.0]], [[0.0, 4.0], [0.0, 0.0]]])
    assert mass(maps, (0.0, 0.0, 1.0, 1.0)).tolist() == [1.0, 1.0]
    assert mass(maps, (0.5, 0.0, 1.0, 0.5)).tolist() == [0.25, 1.0]
    assert mass(maps, (0.0, 0.0, 0.5, 1.0)).tolist() == [0.5, 0.0]  # the left half: x first
    torch.testing.assert_close(mass(maps, (0.25, 0.25, 0.75, 0.75)), torch.tensor([0.25, 0.25]))


def test_a_pixel_that_is_cut_counts_in_part() -> None:
    torch.testing.assert_close(covered(4, (0.125, 0.75)), torch.tensor([0.5, 1.0, 1.0, 0.0]))
    assert covered(3, (0.0, 1.0)).tolist() == pytest.approx([1, 1, 1])


def test_the_box_of_celebas_faces() -> None:
    """Stretched, fractions are those of the file; cropped, the centre is the same and the box is larger."""
    x0, y0, x1, y1 = CelebA.box_of_interest(CelebAConfig())
    for x, y in ((69, 111), (108, 111), (73, 152), (105, 152)):  # eyes and mouth
        assert x0 < x / 178 < x1
        assert y0 < y / 218 < y1
    assert (x0 + x1) / 2 == pytest.approx(0.5)
    left, top, right, bottom = CelebA.box_of_interest(CelebAConfig(crop_pct=1.0))
    assert (left, right) == (pytest.approx(x0), pytest.approx(x1))  # the whole width
    assert (top, bottom) == (pytest.approx((67 - 20) / 178), pytest.approx((180 - 20) / 178))
    assert CelebA.box_of_interest(CelebAConfig(crop_pct=0.5))[3] == 1.0  # what is cut off is not in the box
