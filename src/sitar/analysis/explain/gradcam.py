"""Where in an image does a model look? Grad-CAM (Selvaraju et al., 2017) on the last convolution, by captum."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from sitar.analysis.explain.sensitivity import gradient_batch, sloped
from sitar.analysis.samples import some, trial_split
from sitar.analysis.traversal import in_turn, to_uint8
from sitar.data.types import to_float
from sitar.errors import RunError
from sitar.evaluation.trained_model import TrainedModel
from sitar.registry import DATASETS

PICTURES = 12
MOST = 1000  # samples over which the mass in a box is averaged

Box = tuple[float, float, float, float]  # left, top, right and bottom as fractions of the image


def gradcam(model: TrainedModel, box: Box | None = None) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Maps of a few test images, and the mean share of a map's mass in a box: the one given, or the dataset's own."""
    sloped(model)
    if len(model.data.task.shape) != 3:
        raise RunError("This data holds features, not images.")
    name, split = trial_split(model)
    layer, module = last_convolution(model, split.x[:1])
    box = box or own_box(model)
    index = in_turn(split.y)[:PICTURES]
    maps, predicted = heat(model, module, split.x[index])
    share, n = (None, 0) if box is None else mean_mass(model, module, split.x[some(len(split), MOST)], box)
    about = {"layer": layer, "split": name, "n": n, "mass_in_box": share, "box": None if box is None else list(box)}
    arrays = {
        "images": to_uint8(split.x[index]).numpy(),
        "maps": maps.numpy(),
        "labels": split.y[index].numpy(),
        "predicted": predicted.numpy(),
        "index": index.numpy(),
    }
    return about, arrays


def own_box(model: TrainedModel) -> Box | None:
    """Where the dataset knows that the face is."""
    dataset = DATASETS.get(model.config.data.name)
    return dataset.box_of_interest(model.config.data)


def last_convolution(model: TrainedModel, x: Tensor) -> tuple[str, nn.Conv2d]:
    """Name and module of the convolution that runs last before the latent and still has a map: more than one place.

    What only pools or gates (squeeze-and-excitation) has one place, and the one convolution of a transformer that cuts
    an image into patches has seen nothing of the rest.
    """
    network = sloped(model).network
    frozen = [] if model.encoder is None else [model.encoder.network]
    parts = [part for root in (*frozen, network.backbone, network.encoder) for part in root.modules()]
    found: list[nn.Conv2d] = []

    def note(module: nn.Module, _: Any, output: Tensor) -> None:
        assert isinstance(module, nn.Conv2d)
        if output.shape[-2] * output.shape[-1] > 1:
            found.append(module)

    hooks = [part.register_forward_hook(note) for part in parts if isinstance(part, nn.Conv2d)]
    try:
        with torch.no_grad():
            model.differentiable(to_float(x.to(model.device)))
    finally:
        for hook in hooks:
            hook.remove()
    if not found or (len(hooks) == 1 and found[0].kernel_size == found[0].stride):
        raise RunError("The encoder has no convolution whose map could be shown.")
    names = {id(part): name for root in (model.method, *frozen) for name, part in root.named_modules()}
    return names[id(found[-1])], found[-1]


def heat(model: TrainedModel, layer: nn.Conv2d, x: Tensor) -> tuple[Float[Tensor, "sample height width"], Tensor]:
    """Grad-CAM of the predicted class of images as a split stores them, each with a largest value of 1, and that class.

    A map without a positive value stays 0.
    """
    from captum.attr import LayerAttribution, LayerGradCam

    cam = LayerGradCam(model.differentiable, layer)
    maps, classes = [], []
    for chunk in x.split(gradient_batch(model)):
        images = to_float(chunk.to(model.device))
        with torch.no_grad():
            classes.append(model.differentiable(images).argmax(1))
        found = cam.attribute(images, target=classes[-1], relu_attributions=True)
        assert isinstance(found, Tensor)
        large = LayerAttribution.interpolate(found.detach(), tuple(images.shape[-2:]), "bilinear").squeeze(1)
        assert isinstance(large, Tensor)
        maps.append(large / large.amax((1, 2), keepdim=True).clamp_min(torch.finfo(large.dtype).tiny))
    return torch.cat(maps).float().cpu(), torch.cat(classes).cpu()


def mean_mass(model: TrainedModel, layer: nn.Conv2d, x: Tensor, box: Box) -> tuple[float | None, int]:
    """Mean share of a map's mass in a box, over the maps that have any; and how many these are."""
    maps, _ = heat(model, layer, x)
    maps = maps[maps.sum((1, 2)) > 0]
    return (float(mass(maps, box).mean()), len(maps)) if len(maps) else (None, 0)


def mass(maps: Float[Tensor, "sample height width"], box: Box) -> Float[Tensor, " sample"]:
    """Share of each map's sum in a box; a pixel that the box cuts counts by the part that is inside."""
    height, width = maps.shape[1:]
    inside = covered(height, box[1::2]).unsqueeze(1) * covered(width, box[::2])
    return (maps * inside).sum((1, 2)) / maps.sum((1, 2))


def covered(pixels: int, bounds: Sequence[float]) -> Float[Tensor, " pixel"]:
    """How much of each pixel in a row lies between two bounds, given as fractions of the row."""
    edges = torch.linspace(0, 1, pixels + 1).clamp(*bounds)
    return edges.diff() * pixels
