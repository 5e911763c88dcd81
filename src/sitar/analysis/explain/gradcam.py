"""Where in an image does a model look? Grad-CAM (Selvaraju et al., 2017) on the last convolution, by captum."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from sitar.analysis.explain.gradients import check_gradient, gradient_batch
from sitar.analysis.explain.subject import Subject
from sitar.analysis.latents import encoding_of
from sitar.analysis.samples import in_turn, refuse_features, subset, trial_split
from sitar.analysis.thumbnails import pixels
from sitar.data.base import Box
from sitar.data.types import to_float
from sitar.errors import RunError
from sitar.evaluation.trained_model import TrainedModel
from sitar.registry import DATASETS

PICTURES = 12
MOST = 1000  # samples over which the mass in a box is averaged


def make(subject: Subject) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return maps of a few test images, and the mean share of a map's mass in a box."""
    model = subject.model
    check_gradient(model)
    refuse_features(model)
    name, split = trial_split(model)
    layer, module = last_convolution(model, split.x[:1])
    box = subject.box or own_box(model)
    index = in_turn(split.y)[:PICTURES]
    maps, predicted = saliency_maps(model, module, split.x[index])
    share, n = (None, 0) if box is None else mean_mass(model, module, split.x[subset(len(split), MOST)], box)
    values = {"layer": layer, "split": name, "n": n, "mass_in_box": share, "box": None if box is None else list(box)}
    arrays = {
        "images": pixels(split.x[index]).numpy(),
        "maps": maps.numpy(),
        "labels": split.y[index].numpy(),
        "predicted": predicted.numpy(),
        "index": index.numpy(),
    }
    return values, arrays


def own_box(model: TrainedModel) -> Box | None:
    """Return where the dataset knows that the label lies."""
    dataset = DATASETS.get(model.config.data.name)
    return dataset.box_of_interest(model.config.data)


def last_convolution(model: TrainedModel, x: Tensor) -> tuple[str, nn.Conv2d]:
    """Return the convolution that runs last before the latent and still has a map: more than one place.

    What only pools or gates (squeeze-and-excitation) has one place. A transformer has one convolution, which cuts an
    image into patches: it has seen nothing of the rest, so it does not count.
    """
    network = encoding_of(model).network
    frozen = [] if model.encoder is None else [model.encoder.network]
    modules = [module for root in (*frozen, network.backbone, network.encoder) for module in root.modules()]
    with_map: list[nn.Conv2d] = []

    def note(module: nn.Module, _: Any, output: Tensor) -> None:
        assert isinstance(module, nn.Conv2d)
        if output.shape[-2] * output.shape[-1] > 1:
            with_map.append(module)

    hooks = [module.register_forward_hook(note) for module in modules if isinstance(module, nn.Conv2d)]
    try:
        with torch.no_grad():
            model.differentiable(to_float(x.to(model.device)))
    finally:
        for hook in hooks:
            hook.remove()
    if not with_map or (len(hooks) == 1 and with_map[0].kernel_size == with_map[0].stride):
        raise RunError("The encoder has no convolution whose map could be shown.")
    names = {id(module): name for root in (model.method, *frozen) for name, module in root.named_modules()}
    return names[id(with_map[-1])], with_map[-1]


def saliency_maps(
    model: TrainedModel, layer: nn.Conv2d, x: Tensor
) -> tuple[Float[Tensor, "sample height width"], Tensor]:
    """Compute Grad-CAM maps of the predicted class, and return that class, for images as a split stores them.

    Each map is scaled to a largest value of 1. A map without a positive value stays 0.
    """
    from captum.attr import LayerAttribution, LayerGradCam

    cam = LayerGradCam(model.differentiable, layer)
    maps, classes = [], []
    for chunk in x.split(gradient_batch(model)):
        images = to_float(chunk.to(model.device))
        with torch.no_grad():
            classes.append(model.differentiable(images).argmax(1))
        small = cam.attribute(images, target=classes[-1], relu_attributions=True)
        assert isinstance(small, Tensor)
        large = LayerAttribution.interpolate(small.detach(), tuple(images.shape[-2:]), "bilinear").squeeze(1)
        assert isinstance(large, Tensor)
        maps.append(large / large.amax((1, 2), keepdim=True).clamp_min(torch.finfo(large.dtype).tiny))
    return torch.cat(maps).float().cpu(), torch.cat(classes).cpu()


def mean_mass(model: TrainedModel, layer: nn.Conv2d, x: Tensor, box: Box) -> tuple[float | None, int]:
    """Return the mean share of a map's mass in a box, over the maps that have any, and how many these are."""
    maps, _ = saliency_maps(model, layer, x)
    maps = maps[maps.sum((1, 2)) > 0]
    return (float(mass(maps, box).mean()), len(maps)) if len(maps) else (None, 0)


def mass(maps: Float[Tensor, "sample height width"], box: Box) -> Float[Tensor, " sample"]:
    """Return the share of each map's sum in a box. A pixel that the box cuts counts by the part that is inside."""
    height, width = maps.shape[1:]
    inside = covered(height, box[1::2]).unsqueeze(1) * covered(width, box[::2])
    return (maps * inside).sum((1, 2)) / maps.sum((1, 2))


def covered(pixels: int, bounds: Sequence[float]) -> Float[Tensor, " pixel"]:
    """Return how much of each pixel in a row lies between two bounds, given as fractions of the row."""
    edges = torch.linspace(0, 1, pixels + 1).clamp(*bounds)
    return edges.diff() * pixels
