"""Build the encoder, VAE and classifier that all methods share, from settings, so that comparisons are fair."""

from __future__ import annotations

import math
from typing import Protocol

from torch import Tensor, nn

from sitar.config import ModelConfig
from sitar.errors import ConfigError
from sitar.models.classifier import Classifier
from sitar.models.conv import ConvDecoder, ConvEncoder
from sitar.models.feature_vae import FeatureDecoder, FeatureEncoder, Standardise
from sitar.models.network import Network
from sitar.models.pretrained import PretrainedEncoder, encoder_features
from sitar.models.vae import VAE

PIXEL_AXES = 10  # latent axes in pixel space, where no number is given


class Inputs(Protocol):
    """Inputs tell a network what it must know of the data. Every `Task` has these."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the shape of one input: (channel, height, width) of images, (feature,) of features."""
        ...

    @property
    def num_classes(self) -> int: ...

    @property
    def features(self) -> tuple[Tensor, Tensor] | None:
        """Return the mean and the deviation of each feature over the training split. Images have none."""
        ...


def with_latent_dim(model: ModelConfig, inputs: Inputs) -> ModelConfig:
    """Fill in the number of latent axes if it is left open: a quarter of the features (the paper's rule), or ten."""
    if model.latent_dim is not None:
        return model
    if len(inputs.shape) == 1:
        features = inputs.shape[0]
    elif model.encoder is not None:
        features = encoder_features(model.encoder, inputs.shape)
    else:
        return model.model_copy(update={"latent_dim": PIXEL_AXES})
    return model.model_copy(update={"latent_dim": max(2, features // 4)})


def build_vae(model: ModelConfig, inputs: Inputs) -> VAE:
    """Build the VAE of pixels, of features, or of the features that a pretrained encoder makes of images."""
    backbone, shape = build_backbone(model, inputs)
    encoder, latent_dim = build_encoder(model, shape), model.axes
    features = isinstance(encoder, FeatureEncoder)
    decoder = FeatureDecoder(latent_dim, encoder) if features else ConvDecoder(latent_dim, encoder)
    return VAE(encoder, decoder, latent_dim, backbone, math.prod(shape), _head_hidden(model, shape))


def build_network(model: ModelConfig, inputs: Inputs) -> Network:
    """Build the network that baselines train: the encoder and classifier of SITAR, without decoder and noise."""
    backbone, shape = build_backbone(model, inputs)
    encoder, classifier = build_encoder(model, shape), build_classifier(model, inputs)
    return Network(encoder, model.axes, classifier, backbone, _head_hidden(model, shape))


def _head_hidden(model: ModelConfig, shape: tuple[int, ...]) -> int | None:
    """Return the width of MLP heads. In feature space the encoder is an MLP already, and its heads are linear."""
    return model.head_hidden if len(shape) == 3 else None


def build_backbone(model: ModelConfig, inputs: Inputs) -> tuple[nn.Module | None, tuple[int, ...]]:
    """Build the part in front of the encoder, and return it with the shape of its output.

    Features are brought to one scale. Images go through a pretrained encoder if the settings name one.
    """
    if inputs.features is not None:
        return Standardise(*inputs.features), inputs.shape
    if model.encoder is None:
        return None, inputs.shape
    backbone = PretrainedEncoder(model.encoder, inputs.shape, model.encoder_weights, stride_in_1x1=model.stride_in_1x1)
    return backbone, (backbone.out_features,)


def build_encoder(model: ModelConfig, shape: tuple[int, ...]) -> ConvEncoder | FeatureEncoder:
    """Build the encoder that reads the output of the backbone."""
    if len(shape) == 1:
        return FeatureEncoder(shape[0], model.feature_hidden)
    try:
        return ConvEncoder(shape, model.channels)
    except ValueError as error:
        raise ConfigError(f"model.channels: {error}. Use fewer, or null to derive them from the image.") from error


def build_classifier(model: ModelConfig, inputs: Inputs) -> Classifier:
    """Build the small classifier on the latent."""
    return Classifier(model.axes, inputs.num_classes, model.hidden, model.activation)
