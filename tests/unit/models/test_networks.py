"""Shapes, depths and activations of the networks."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from sitar.config import ModelConfig
from sitar.data.types import Task
from sitar.models import VAE, Classifier, ConvDecoder, ConvEncoder
from sitar.models.build import build_network, build_vae
from sitar.models.conv import default_channels


def vae(shape, channels=None, latent_dim=4) -> VAE:
    encoder = ConvEncoder(shape, channels)
    return VAE(encoder, ConvDecoder(latent_dim, encoder), latent_dim)


@pytest.mark.parametrize(
    ("size", "widths"),
    [
        ((28, 28), (32, 64)),
        ((64, 64), (32, 32, 64, 128)),
        ((14, 14), (32,)),
        ((2, 2), (32,)),
        ((15, 15), (32,)),
        ((16, 16), (32, 64)),
        ((32, 32), (32, 64, 128)),
        ((96, 96), (32, 32, 64, 128)),
        ((128, 128), (32, 32, 32, 64, 128)),
        ((28, 64), (32, 64)),
        ((64, 14), (32,)),
    ],
)
def test_depth_follows_the_shorter_side(size, widths):
    assert default_channels(*size) == widths


@pytest.mark.parametrize(
    ("shape", "features"), [((3, 28, 28), 64 * 7 * 7), ((3, 64, 64), 2048), ((2, 14, 14), 32 * 7 * 7)]
)
def test_features(shape, features):
    encoder = ConvEncoder(shape)
    assert encoder.out_features == features
    assert encoder(torch.zeros(2, *shape)).shape == (2, features)


def test_parameters_of_the_appendix():
    """3 -> 32 -> 32 -> 64 -> 128, kernel 4, stride 2, padding 1; the decoder mirrors it."""
    model = vae((3, 64, 64), latent_dim=10)
    down = [layer for layer in model.encoder.modules() if isinstance(layer, nn.Conv2d)]
    up = [layer for layer in model.decoder.modules() if isinstance(layer, nn.ConvTranspose2d)]
    assert [tuple(layer.weight.shape) for layer in down] == [
        (32, 3, 4, 4),
        (32, 32, 4, 4),
        (64, 32, 4, 4),
        (128, 64, 4, 4),
    ]
    assert [tuple(layer.weight.shape) for layer in up] == [
        (128, 64, 4, 4),
        (64, 32, 4, 4),
        (32, 32, 4, 4),
        (32, 3, 4, 4),
    ]
    assert all((layer.stride, layer.padding) == ((2, 2), (1, 1)) for layer in [*down, *up])
    assert model.mean.weight.shape == model.log_variance.weight.shape == (10, 2048)
    assert model.decoder.project.weight.shape == (2048, 10)
    assert sum(isinstance(layer, nn.ReLU) for layer in model.encoder.modules()) == 4


@pytest.mark.parametrize("channels", [1, 2, 3, 5])
@pytest.mark.parametrize("size", [(28, 28), (14, 14), (7, 7), (17, 33), (3, 2), (31, 8)])
def test_output_has_the_shape_of_the_input(channels, size):
    model, x = vae((channels, *size)), torch.rand(2, channels, *size)
    mu, log_var = model.encode(x)
    assert mu.shape == log_var.shape == (2, 4)
    assert model.decode(mu).shape == x.shape


@settings(max_examples=25, deadline=None)
@given(channels=st.integers(1, 5), height=st.integers(2, 40), width=st.integers(2, 40))
def test_output_has_the_shape_of_any_input(channels, height, width):
    model, x = vae((channels, height, width)), torch.rand(1, channels, height, width)
    assert model.decode(model.encode(x)[0]).shape == x.shape


def test_own_widths():
    model = vae((1, 20, 20), channels=(3, 5, 7))
    assert model.encoder.map_shape == (7, 2, 2)
    assert model.decode(torch.zeros(1, 4)).shape == (1, 1, 20, 20)


def test_empty_batch():
    model = vae((3, 28, 28))
    assert model.decode(model.encode(torch.zeros(0, 3, 28, 28))[0]).shape == (0, 3, 28, 28)


@pytest.mark.parametrize(("shape", "channels"), [((1, 8, 8), (4, 4, 4, 4)), ((1, 1, 1), None), ((3, 28, 1), None)])
def test_too_many_convolutions_are_refused(shape, channels):
    with pytest.raises(ValueError, match=f"too many for an image of {shape[1]}x{shape[2]}"):
        ConvEncoder(shape, channels)


def test_decoder_stays_in_the_unit_interval():
    torch.manual_seed(0)
    out = vae((3, 28, 28)).decode(200 * torch.randn(8, 4))
    assert out.min() >= 0
    assert out.max() <= 1
    assert (out < 0.4).any()
    assert (out > 0.6).any()


def test_mean_and_log_variance_are_separate():
    torch.manual_seed(0)
    model = vae((1, 14, 14))
    mu, log_var = model.encode(torch.rand(2, 1, 14, 14))
    assert not torch.allclose(mu, log_var)
    features = model.encoder(x := torch.rand(2, 1, 14, 14))
    torch.testing.assert_close(model.encode(x)[0], features @ model.mean.weight.T + model.mean.bias)
    torch.testing.assert_close(model.encode(x)[1], features @ model.log_variance.weight.T + model.log_variance.bias)


@pytest.mark.parametrize(
    ("activation", "function"), [("gelu", nn.functional.gelu), ("relu", nn.functional.relu), (None, nn.functional.gelu)]
)
def test_classifier(activation, function):
    torch.manual_seed(0)
    model = Classifier(4, 3) if activation is None else Classifier(4, 3, hidden=16, activation=activation)
    hidden = 128 if activation is None else 16
    first, _, last = model.layers
    assert first.weight.shape == (hidden, 4)
    assert last.weight.shape == (3, hidden)
    z = torch.randn(5, 4)
    torch.testing.assert_close(model(z), last(function(z @ first.weight.T + first.bias)))


@pytest.mark.parametrize("build", [build_vae, build_network])
def test_heads_have_a_hidden_layer_where_it_is_asked_for(build):
    """The paper's appendix has MLP heads in pixel space. In feature space the encoder is an MLP already."""
    inputs = Task((3, 28, 28), 2, 10, (5, 5))
    linear = build(ModelConfig(), inputs)
    assert isinstance(linear.mean, nn.Linear)
    model = build(ModelConfig(head_hidden=256), inputs)
    heads = [model.mean, model.log_variance] if build is build_vae else [model.mean]
    for head in heads:
        first, activation, last = head
        assert (first.in_features, first.out_features, last.in_features, last.out_features) == (3136, 256, 256, 10)
        assert isinstance(activation, nn.ReLU)
    if build is build_vae:
        assert model.mean is not model.log_variance
    features = Task((16,), 2, 10, (5, 5), (torch.zeros(16), torch.ones(16)))
    assert isinstance(build(ModelConfig(head_hidden=256), features).mean, nn.Linear)


@pytest.mark.parametrize("build", [build_vae, build_network])
def test_few_features_may_have_wide_layers(build):
    features = Task((6,), 2, 10, (5, 5), (torch.zeros(6), torch.ones(6)))
    shapes = [tuple(p.shape) for p in build(ModelConfig(), features).encoder.parameters() if p.ndim == 2]
    assert shapes == [(3, 6), (1, 3)]  # the paper's half and quarter
    model = build(ModelConfig(feature_hidden=64), features)
    assert [tuple(p.shape) for p in model.encoder.parameters() if p.ndim == 2] == [(64, 6), (64, 64)]
    if build is build_vae:
        assert [tuple(p.shape) for p in model.decoder.parameters() if p.ndim == 2] == [(64, 10), (6, 64)]
