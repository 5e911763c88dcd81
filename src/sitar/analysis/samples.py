"""Choose the samples that a trained model is asked about. They are the same in every call."""

from __future__ import annotations

import torch
from torch import Tensor

from sitar.config import RunConfig
from sitar.data.types import Data, EvalSplit
from sitar.errors import DataError, RunError
from sitar.evaluation.trained_model import TrainedModel
from sitar.registry import DATASETS
from sitar.run_folder import RunFolder
from sitar.splits import DECIDING_SPLITS, VAL, deciding_split

HELD_OUT = VAL


def held_out(model: TrainedModel, most: int, *, least: int = 1, mixed: bool = False) -> tuple[Tensor, Tensor]:
    """Return inputs as the split stores them, and labels, of at most so many held-out samples.

    Data with fewer than `least` of them is refused. All samples of a split keep their order, unless they are `mixed`.
    """
    split = model.data.evaluation.get(HELD_OUT)
    if split is None or len(split) < least:
        raise _no_held_out(model.config, model.data)
    index = permutation(len(split))[:most] if mixed else subset(len(split), most)
    return split.x[index], split.y[index].cpu()


def check_held_out(config: RunConfig, data: Data) -> None:
    """Refuse data without held-out samples, before a model is trained on it."""
    if not len(data.evaluation.get(HELD_OUT, ())):
        raise _no_held_out(config, data)


def _no_held_out(config: RunConfig, data: Data) -> DataError:
    """Say what to do, where the split is one that we make."""
    message = f"This data has no {HELD_OUT} split with samples, and samples that were trained on do not count."
    share = DATASETS.get(config.data.name).val_share(config.data)
    if share is not None:
        message += (
            f" {len(data.train):,} training samples are too few to set a share of {share:g} aside: bring more, "
            "or raise data.val_share."
        )
    return DataError(message)


def trial_split(model: TrainedModel) -> tuple[str, EvalSplit]:
    """Return the split that a model is tried on: the one that decides, of those that have samples."""
    splits = {name: split for name, split in model.data.evaluation.items() if len(split) > 0}
    name = deciding_split(splits)
    if name is None:
        raise DataError(f"This data has no split called {', '.join(DECIDING_SPLITS)}.")
    return name, splits[name]


def subset(size: int, most: int) -> Tensor:
    """Return the indices of at most so many samples: all in their order, or else a fixed random choice."""
    return torch.arange(size) if size <= most else permutation(size)[:most]


def permutation(size: int) -> Tensor:
    """Return a random order of samples, the same in every call. A split may be sorted by class; this order is not."""
    return torch.randperm(size, generator=torch.Generator().manual_seed(0))


def in_turn(y: Tensor) -> Tensor:
    """Return the indices of samples: the first of each class, then the second of each, and so on."""
    rank = torch.zeros_like(y)
    for label in y.unique():
        members = y == label
        rank[members] = torch.arange(int(members.sum()))
    return (rank * (y.max() + 1) + y).argsort()


def holds_images(model: TrainedModel) -> bool:
    """Return whether the data holds images, not features."""
    return len(model.task.shape) == 3


def refuse_features(model: TrainedModel) -> None:
    """Refuse data that holds features."""
    if not holds_images(model):
        raise DataError("This data holds features, not images.")


def data_checksum(folder: RunFolder) -> str:
    """Return the checksum of the data that a run was trained on."""
    environment = folder.environment()
    if environment is None:
        raise RunError(f"{str(folder.environment_file)!r} cannot be read: the run is damaged.")
    return environment["data_checksum"]


def check_same_data(model: TrainedModel) -> None:
    """Refuse a run whose data has changed."""
    if data_checksum(model.folder) != model.data.checksum:
        raise RunError(
            f"The data has changed since the run in {str(model.folder.path)!r} was trained. Bring the data back, or "
            "train anew in another folder, named with --out."
        )
