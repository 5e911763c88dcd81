"""Take the latent of a trained model: its posterior means, and how closely each axis follows the label.

Every command that looks at latents takes them from here.
"""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from sitar.analysis.samples import holds_images
from sitar.data.rows import Stored
from sitar.data.types import in_batches
from sitar.errors import RunError
from sitar.evaluation.trained_model import TrainedModel
from sitar.functional.correlation import label_correlation, shortcut_score
from sitar.methods.base import Bottleneck, Method
from sitar.methods.refit import Refitted
from sitar.models import VAE


def bottleneck_of(model: TrainedModel) -> Bottleneck:
    """Return the latent that a model predicts from. A method without one is refused."""
    return _refuse_none(model.method.bottleneck())


def encoding_of(model: TrainedModel) -> Bottleneck:
    """Return the latent of a model, even if a last layer that was fitted again passes it by and reads the encoder."""
    return _refuse_none(_trained(model).bottleneck())


def vae_of(model: TrainedModel) -> VAE:
    """Return the VAE of a model. A method without one is refused."""
    method = _trained(model)
    bottleneck = method.bottleneck()
    if bottleneck is None or not isinstance(bottleneck.network, VAE):
        raise RunError(method.why_no_vae())
    return bottleneck.network


def _trained(model: TrainedModel) -> Method:
    """Return the method as it was trained."""
    return model.method.base if isinstance(model.method, Refitted) else model.method


def _refuse_none(bottleneck: Bottleneck | None) -> Bottleneck:
    if bottleneck is None:
        raise RunError("This method predicts from no latent.")
    return bottleneck


def decodes_images(model: TrainedModel) -> bool:
    """Return whether a VAE of this run decodes images: not features, nor what an encoder makes of images."""
    return holds_images(model) and model.config.model.encoder is None


def posterior_means(model: TrainedModel, x: Stored) -> Float[Tensor, "sample axis"]:
    """Compute the posterior means of inputs as a split stores them, in float32 on the CPU.

    A plain network has a linear layer of the same size in their place.
    """
    x = x if model.encoder is None else model.encoder(x)
    return in_batches(encoding_of(model).latent, x, model.device, model.method.evaluation_batch).float().cpu()


def shortcut_scores(mu: Float[Tensor, "sample axis"], y: Tensor, num_classes: int) -> Float[Tensor, " axis"]:
    """Compute v of every axis (Eq. 2), over all these samples at once."""
    return shortcut_score(label_correlation(mu, y, num_classes))


def ordered(values: Float[Tensor, " axis"]) -> list[int]:
    """List the axes from the highest value to the lowest."""
    return values.argsort(descending=True, stable=True).tolist()
