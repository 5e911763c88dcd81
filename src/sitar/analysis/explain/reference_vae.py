"""Several models are measured on the axes of one VAE. Its decoder turns a step on an axis into a change of image."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from sitar.analysis.latents import decodes_images, posterior_means, shortcut_scores, vae_of
from sitar.analysis.samples import check_same_data, data_checksum, held_out
from sitar.config import run_config
from sitar.errors import DataError, RunError
from sitar.evaluation.trained_model import TrainedModel
from sitar.models import VAE
from sitar.registry import METHODS
from sitar.run_folder import RunFolder

MOST = 2000  # held-out samples


@dataclass(frozen=True)
class ReferenceVAE:
    """A reference is the VAE of one run. It comes with its held-out samples and their latents."""

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
    def of(cls, model: TrainedModel) -> ReferenceVAE:
        """Take the VAE of a trained model, on its own held-out samples."""
        check_same_data(model)
        x, y = held_out(model, MOST, least=2)
        mu = posterior_means(model, x)
        return cls(
            folder=model.folder,
            preset=model.config.preset,
            seed=model.config.seed,
            checksum=model.data.checksum,
            vae=vae_of(model),
            x=x,
            y=y,
            mu=mu,
            v=shortcut_scores(mu, y, len(model.classes)),
        )

    def has_samples(self, checksum: str, x: Tensor, y: Tensor) -> bool:
        """Return whether these are its samples. The source may be the same and settings, such as the severity, not."""
        return (
            checksum == self.checksum and x.shape == self.x.shape and torch.equal(y, self.y) and torch.equal(x, self.x)
        )


class ReferenceVAEs:
    """A run may be measured with the VAE that was named, or else with those of the given runs."""

    def __init__(self, runs: Sequence[RunFolder] = (), named: RunFolder | None = None, device: str = "auto") -> None:
        self.named, self.device = named, device
        self.beside: TrainedModel | None = None  # whose data need not be loaded again
        self.candidates = [run for run in ([named] if named else runs) if has_decoder(run)]
        self.loaded: dict[RunFolder, ReferenceVAE | None] = {}
        if named and not (self.candidates and self.load(named)):
            raise RunError(f"The run in {str(named.path)!r} has no VAE that decodes images. Name another with --axes.")

    def choose(self, checksum: str, x: Tensor, y: Tensor) -> ReferenceVAE:
        """Return the first VAE that was trained on the data of these samples. Where there is none, say why."""
        for folder in self.candidates:
            if data_checksum(folder) == checksum:
                reference = self.load(folder)
                if reference is not None and reference.has_samples(checksum, x, y):
                    return reference
        if self.named is not None:
            raise DataError(f"This run is on other data than the VAE in {str(self.named.path)!r}.")
        raise RunError("None of these runs has a VAE that decodes images of this run's data. Name one with --axes.")

    def load(self, folder: RunFolder) -> ReferenceVAE | None:
        """Load the VAE of a run once. None: it decodes features."""
        if folder not in self.loaded:
            model = TrainedModel(folder, self.device, beside=self.beside)
            self.loaded[folder] = ReferenceVAE.of(model) if decodes_images(model) else None
        return self.loaded[folder]


def has_decoder(folder: RunFolder) -> bool:
    """Return whether a finished run may have a VAE that decodes images, by its settings. Its data could be features."""
    folder.result()  # refuses a run that is not finished
    config = run_config(folder.read_config())
    return METHODS.get(config.method.name).vae_learns is not None and config.model.encoder is None
