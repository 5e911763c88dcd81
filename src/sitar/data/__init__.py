"""A data set owns its splits, its groups, its licence and its checksum."""

from sitar.config import NamedConfig
from sitar.data.base import Dataset
from sitar.data.benchmarks import (  # noqa: F401  (register themselves)
    bar,
    camelyon17,
    celeba,
    color_mnist,
    dominoes,
    planted,
    sites,
    waterbirds,
)
from sitar.data.own_data import feature_table, folder, npz, table  # noqa: F401  (register themselves)
from sitar.data.types import (
    Data,
    EvalSplit,
    GroupBatch,
    GroupSplit,
    GroupTask,
    Task,
    TrainBatch,
    TrainSplit,
    UnlabelledBatch,
    UnlabelledSplit,
)
from sitar.progress import ShownProgress
from sitar.registry import DATASETS

__all__ = [
    "Data",
    "Dataset",
    "EvalSplit",
    "GroupBatch",
    "GroupSplit",
    "GroupTask",
    "Task",
    "TrainBatch",
    "TrainSplit",
    "UnlabelledBatch",
    "UnlabelledSplit",
    "load_data",
]


def load_data(config: NamedConfig, progress: bool = True) -> Data:
    """Load the data that `config`, the `data` section of a run, describes, and check that it can be learned from.

    Images that are decoded for the first time are counted on standard error where that takes more than a moment.
    """
    with ShownProgress(progress) as shown:
        return DATASETS.get(config.name).load(config, shown.watch).checked()
