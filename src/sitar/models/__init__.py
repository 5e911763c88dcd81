"""These are the networks. They know shapes, not tasks."""

from sitar.models.classifier import Classifier
from sitar.models.conv import ConvDecoder, ConvEncoder
from sitar.models.discriminator import Discriminator
from sitar.models.feature_vae import FeatureDecoder, FeatureEncoder, Standardise
from sitar.models.network import Network
from sitar.models.pretrained import PretrainedEncoder, encoder_features
from sitar.models.vae import VAE

__all__ = [
    "VAE",
    "Classifier",
    "ConvDecoder",
    "ConvEncoder",
    "Discriminator",
    "FeatureDecoder",
    "FeatureEncoder",
    "Network",
    "PretrainedEncoder",
    "Standardise",
    "encoder_features",
]
