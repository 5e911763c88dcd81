"""Datasets: one file each. A dataset owns its splits, groups, licence and checksum."""

from sitar.config import NamedConfig
from sitar.data.benchmarks import bar, camelyon17, celeba, color_mnist, sites, waterbirds  # noqa: F401  (register themselves)
from sitar.data.own_data import feature_table, folder, npz, table  # noqa: F401  (register themselves)
from sitar.data.types import Data, EvalSplit, GroupBatch, GroupSplit, GroupTask, Task, TrainBatch, TrainSplit
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


def load_data(config: NamedConfig) -> Data:
    """The data that `config` (the `data` section of a run) describes, checked for use."""
    return DATASETS.get(config.name).load(config).checked()
