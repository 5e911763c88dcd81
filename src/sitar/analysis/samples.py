"""What a trained model is asked about: held-out samples of the data that it was trained on, the same in every call."""

from __future__ import annotations

import torch
from torch import Tensor

from sitar.data.types import EvalSplit
from sitar.errors import DataError, RunError
from sitar.evaluation.trained_model import TrainedModel
from sitar.registry import DATASETS
from sitar.run_folder import RunFolder

HELD_OUT = "val"


def held_out(model: TrainedModel, most: int) -> tuple[Tensor, Tensor]:
    """Inputs as the split stores them, and labels, of at most so many samples."""
    split = model.data.evaluation.get(HELD_OUT)
    if split is None or len(split) < 2:
        raise no_held_out(model, "and samples that were trained on do not count")
    place = some(len(split), most)
    return split.x[place], split.y[place].cpu()


def no_held_out(model: TrainedModel, reason: str) -> DataError:
    """With what to do, where the split is one that we make."""
    said = f"This data has no {HELD_OUT} split with samples, {reason}."
    share = DATASETS.get(model.config.data.name).val_share(model.config.data)  # type: ignore[attr-defined]
    if share is not None:
        said += (
            f" {len(model.data.train):,} training samples are too few to set a share of {share:g} aside: bring more, "
        )
        said += "or raise data.val_share."
    return DataError(said)


def trial_split(model: TrainedModel) -> tuple[str, EvalSplit]:
    """The split that a model is tried on: out of distribution where there is one, val where there is no test."""
    splits = model.data.evaluation
    for name in ("ood_test", "test", HELD_OUT):
        if name in splits and len(splits[name]) > 0:
            return name, splits[name]
    raise DataError(f"This data has no split called ood_test, test or {HELD_OUT}.")


def some(size: int, most: int) -> Tensor:
    """Indices of at most so many samples, the same in every call."""
    return torch.arange(size) if size <= most else permutation(size)[:most]


def permutation(size: int) -> Tensor:
    """An order of so many samples, the same in every call."""
    return torch.randperm(size, generator=torch.Generator().manual_seed(0))


def decodes_images(model: TrainedModel) -> bool:
    """Whether a VAE of this run decodes images: not features, nor what an encoder makes of images."""
    return len(model.data.task.shape) == 3 and model.config.model.encoder is None


def data_checksum(folder: RunFolder) -> str:
    """Of the data that a run was trained on."""
    environment = folder.environment()
    if environment is None:
        raise RunError(f"{str(folder.environment_file)!r} cannot be read: the run is damaged.")
    return environment["data_checksum"]


def check_same_data(model: TrainedModel) -> None:
    """Refuse a run whose data is not what it was."""
    if data_checksum(model.folder) != model.data.checksum:
        raise RunError(
            f"The data has changed since the run in {str(model.folder.path)!r} was trained. Bring the data back, or "
            "train anew in another folder, named with --out."
        )
