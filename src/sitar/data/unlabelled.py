"""Unlabelled inputs come from where a model will be used (`data.unlabelled`). Nothing but the inputs is read.

They are a split of the data set without its labels (`val_ood`), or files of yours: a folder of images, a pattern such
as `new/*.png`, a table, or an .npz file. What is judged later cannot be learned from: test splits are refused, and so
are files that a test split holds.
"""

from __future__ import annotations

import glob
import hashlib
import logging

from sitar.config import NamedConfig
from sitar.data.inputs import Form, Inputs, Source, read_inputs
from sitar.data.overlap import checksums, shared_samples
from sitar.data.rows import Stored
from sitar.data.shards import find_files
from sitar.data.types import Data
from sitar.errors import DataError
from sitar.files import user_path
from sitar.progress import Watch, unwatched
from sitar.splits import EVALUATION_SPLITS, TEST_SPLITS

logger = logging.getLogger(__name__)
SETTING = "unlabelled"


def read_unlabelled(config: NamedConfig, data: Data, watch: Watch = unwatched) -> Stored:
    """Read the inputs that `data.unlabelled` names, as `data` stores its own."""
    where = named_in(config)
    if where is None:
        held_out = [name for name in data.evaluation if name not in TEST_SPLITS]
        splits = f", or a split that is not for testing ({', '.join(held_out)})" if held_out else ""
        raise DataError(
            "This method also learns from unlabelled inputs, from where the model will be used. Name them with "
            f"data.unlabelled: a folder of images, a table or an .npz file{splits}."
        )
    return _of_split(where, data) if where in EVALUATION_SPLITS else _of_files(where, config, data, watch)


def named_in(config: NamedConfig) -> str | None:
    """Return what `data.unlabelled` says. A data set of another package need not have the setting."""
    return getattr(config, SETTING, None)


def checksum(x: Stored) -> str:
    """Return the checksum of unlabelled inputs, so that a run is only ever continued with the same ones."""
    whole = hashlib.blake2b(digest_size=16)
    for one in checksums(x):
        whole.update(one)
    return whole.hexdigest()


def _of_split(name: str, data: Data) -> Stored:
    if name in TEST_SPLITS:
        raise DataError(
            f"data.unlabelled={name} is a test split, by which the model is judged: to learn from its images, even "
            "without labels, would make the figures better than they are. Name other images."
        )
    if name not in data.evaluation or len(data.evaluation[name]) == 0:
        present = [split for split in data.evaluation if split not in TEST_SPLITS]
        raise DataError(
            f"data.unlabelled={name}: this data has no such split with samples. It has {', '.join(present) or 'none'}. "
            f"For a folder of this name write ./{name}."
        )
    return data.evaluation[name].x


def _of_files(where: str, config: NamedConfig, data: Data, watch: Watch) -> Stored:
    try:
        inputs = read_inputs(_source(where), Form(config, data.task.shape, data.feature_columns), watch=watch)
    except DataError as error:
        raise DataError(f"data.unlabelled={where}: {error}") from error
    _check_overlap(inputs, data, where)
    return inputs.x


def _source(where: str) -> Source:
    """Return the path, or all paths that a pattern stands for."""
    path = user_path(where)
    if path.exists() or not glob.has_magic(where):
        return path
    found = find_files(str(path))
    if not found:
        raise DataError("No file has such a name.")
    return found[0] if len(found) == 1 else found


def _check_overlap(inputs: Inputs, data: Data, where: str) -> None:
    """Refuse inputs of the test splits. Say how many are known otherwise."""
    for split, shared in shared_samples(inputs.x, inputs.names, data).items():
        if split in TEST_SPLITS:
            raise DataError(
                f"data.unlabelled={where}: {len(shared):,} of the {len(inputs):,} inputs are in the split {split!r}, "
                f"such as {shared[0]!r}. A model is judged by that split, so it must not learn from it, even without "
                "labels. Take them out."
            )
        logger.warning(
            "%d of the %d unlabelled inputs are in the split %r, such as %s: they tell nothing new.",
            len(shared), len(inputs), split, shared[0],
        )  # fmt: skip
