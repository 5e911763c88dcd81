"""Datasets: one file each. A dataset owns its splits, groups, licence and checksum."""

from sitar.config import Config
from sitar.data import (  # noqa: F401  (register themselves)
    bar,
    camelyon17,
    celeba,
    color_mnist,
    features,
    folder,
    npz,
    sites,
    table,
    waterbirds,
)
from sitar.data.base import Data, EvalSplit, GroupBatch, GroupSplit, GroupTask, Task, TrainBatch, TrainSplit
from sitar.registry import DATASETS

__all__ = [
    "Data",
    "EvalSplit",
    "GroupBatch",
    "GroupSplit",
    "GroupTask",
    "Task",
    "TrainBatch",
    "TrainSplit",
    "load_data",
]


def load_data(config: Config) -> Data:
    """The data that `config` (the `data` section of a run) describes, checked for use."""
    return DATASETS.get(config.name).load(config).checked()  # type: ignore[attr-defined]
