"""Networks: they know shapes, not tasks."""

from sitar.models.classifier import Classifier
from sitar.models.conv import ConvDecoder, ConvEncoder
from sitar.models.discriminator import Discriminator
from sitar.models.network import Network
from sitar.models.vae import VAE

__all__ = ["VAE", "Classifier", "ConvDecoder", "ConvEncoder", "Discriminator", "Network"]
