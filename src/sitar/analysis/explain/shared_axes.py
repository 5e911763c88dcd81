"""Models side by side on the same axes: one VAE's, whose decoder turns a step on an axis into a change of image."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from sitar.analysis.explain.sensitivity import MOST, gradient_batch, means, scores, sizes, slopes
from sitar.analysis.samples import check_same_data, data_checksum, decodes_images, held_out
from sitar.config import run_config
from sitar.errors import DataError, RunError
from sitar.evaluation.trained_model import TrainedModel
from sitar.methods.base import Bottleneck
from sitar.models import VAE
from sitar.registry import METHODS
from sitar.run_folder import RunFolder


@dataclass(frozen=True)
class Ruler:
    """The axes of one VAE and the held-out samples that stand on them."""

    folder: RunFolder
    preset: str
    seed: int
    checksum: str
    vae: VAE
    x: Tensor
    y: Tensor
    mu: Tensor
    v: Tensor

    @classmethod
    def of(cls, model: TrainedModel) -> Ruler:
        check_same_data(model)
        vae, classes = model.method.vae, len(model.classes)
        assert isinstance(vae, VAE)
        x, y = held_out(model, MOST)
        mu = means(model, Bottleneck(vae, vae.decode), x)
        about = model.config.preset, model.config.seed, model.data.checksum
        return cls(model.folder, *about, vae, x, y, mu, scores(mu, y, classes))

    def fits(self, checksum: str, x: Tensor, y: Tensor) -> bool:
        """Whether these are its samples: where the source is the same, settings such as the severity may differ."""
        return (
            checksum == self.checksum and x.shape == self.x.shape and torch.equal(y, self.y) and torch.equal(x, self.x)
        )

    def measure(self, model: TrainedModel) -> dict[str, Any]:
        """How fast a model's logits change with the decoded image, at the means and along the axes of this VAE."""
        mu = self.mu.to(model.device)
        jacobian = slopes(lambda z: model.differentiable(self.vae.decode(z)), mu, gradient_batch(model)).cpu()
        return {
            "run": str(self.folder.path),
            "preset": self.preset,
            "seed": self.seed,
            "n": len(mu),
            "axes": list(range(mu.shape[1])),
            "values": sizes(jacobian, self.mu.std(0)).tolist(),
            "v": self.v.tolist(),
        }


class Rulers:
    """Which VAE a run is measured with: the one that was named, or the first of the given runs on the same data."""

    def __init__(self, runs: Sequence[RunFolder], named: RunFolder | None, device: str) -> None:
        self.named, self.device = named, device
        self.candidates = [run for run in ([named] if named else runs) if has_decoder(run)]
        self.made: dict[RunFolder, Ruler | None] = {}
        if named and not (self.candidates and self.ruler(named)):
            raise RunError(f"The run in {str(named.path)!r} has no VAE that decodes images. Name another with --axes.")

    def through(self, model: TrainedModel) -> dict[str, Any]:
        """The figures of `model` on its ruler, or the reason why there are none."""
        if model.method.no_slope is not None:
            raise RunError(model.method.no_slope)
        if len(model.data.task.shape) != 3:
            raise DataError("This data holds features, not images.")
        x, y = held_out(model, MOST)
        for folder in self.candidates:
            if data_checksum(folder) == model.data.checksum:
                ruler = self.ruler(folder)
                if ruler is not None and ruler.fits(model.data.checksum, x, y):
                    return ruler.measure(model)
        if self.named is not None:
            raise DataError(f"This run is on other data than the VAE in {str(self.named.path)!r}.")
        raise RunError("None of these runs has a VAE that decodes images of this run's data. Name one with --axes.")

    def ruler(self, folder: RunFolder) -> Ruler | None:
        """Made once; None where the VAE decodes features."""
        if folder not in self.made:
            model = TrainedModel(folder, self.device)
            self.made[folder] = Ruler.of(model) if decodes_images(model) else None
        return self.made[folder]


def has_decoder(folder: RunFolder) -> bool:
    """Whether a finished run may have a VAE that decodes images, by its settings: the data could still be features."""
    folder.result()
    config = run_config(folder.read_config())
    return METHODS.get(config.method.name).vae_learns is not None and config.model.encoder is None
