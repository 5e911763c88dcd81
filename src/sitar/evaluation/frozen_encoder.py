"""A frozen encoder turns images into features once, keeps them in the cache, and they are then data like any other."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from sitar.config import ModelConfig
from sitar.data.feature_cache import check_space
from sitar.data.rows import Stored, stored_rows
from sitar.data.types import Data, Task, in_batches
from sitar.errors import DataError
from sitar.files import read_npy, to_npy, write_atomic, write_npy_header
from sitar.images.cache import cache_root
from sitar.integrity import BlockSummer, kept_sums
from sitar.locks import locked
from sitar.models.pretrained import RANDOM, PretrainedEncoder
from sitar.models.weights import load_weights
from sitar.progress import Watch, unwatched
from sitar.run_folder import RunFolder
from sitar.threads import Rehearsal, number_for, threads
from sitar.writing import replaced

logger = logging.getLogger(__name__)
BATCH = 128
SUMS = ".sums"  # ending of the file with the checksum of each block of rows
FEW = 8  # images by which the number of CPU threads is chosen


class FrozenEncoder:
    """A frozen encoder is pretrained and stays as it is. It turns images, as a split stores them, into features."""

    def __init__(self, model: ModelConfig, shape: Sequence[int], device: torch.device, folder: RunFolder) -> None:
        """Take the weights that a run has kept. If it has kept none, take those that the settings name."""
        assert model.encoder is not None
        self.device = device
        self.fastest: int | None = None  # number of CPU threads, once it is known
        kept = folder.encoder()
        source = model.encoder_weights if kept is None else RANDOM
        self.network = PretrainedEncoder(model.encoder, shape, source, stride_in_1x1=model.stride_in_1x1)
        if kept is not None:
            load_weights(kept, self.network, folder.encoder_file)
        self.network.to(device).eval().requires_grad_(False)
        self.key = hashlib.blake2b(f"{model.encoder} {model.stride_in_1x1} {device.type}".encode(), digest_size=16)
        for name, tensor in self.network.state_dict().items():
            self.key.update(name.encode() + tensor.cpu().contiguous().numpy().tobytes())

    def __call__(self, x: Stored, watch: Callable[[int], None] = lambda _: None) -> Tensor:
        with threads(self._threads(x)):
            return in_batches(self.network, x, self.device, BATCH, watch).cpu()

    def is_same(self, other: FrozenEncoder) -> bool:
        """Return whether the other one has the same weights, and so makes the same features."""
        return self.key.digest() == other.key.digest()

    def _threads(self, x: Stored) -> int:
        """Return the number of CPU threads for images `x`: the fastest one, by a few of them, if there are many."""
        if self.device.type != "cpu" or len(x) <= BATCH:
            return torch.get_num_threads()
        if self.fastest is None:
            tried = Rehearsal(lambda: in_batches(self.network, x[:FEW], self.device), len(x) // FEW)
            with threads(torch.get_num_threads()):
                self.fastest = number_for(tried)
        return self.fastest

    def task(self, task: Task) -> Task:
        """Return `task` as a method that reads the features sees it.

        No feature is computed yet, so mean 0 and deviation 1 stand in for their true values.
        """
        features = self.network.out_features
        return replace(task, shape=(features,), features=(torch.zeros(features), torch.ones(features)))

    def data(self, data: Data, watch: Watch = unwatched) -> Data:
        """Return `data` with features in the place of images."""
        evaluation = {
            name: replace(split, x=self.cached(split.x, watch(f"features of {name}", len(split))))
            for name, split in data.evaluation.items()
        }

        def features(x: Stored, name: str) -> Stored:
            return self.cached(x, watch(f"features of {name}", len(x)))

        nuisances = None if data.nuisances is None else data.nuisances.with_inputs(features)
        return replace(data, train=data.train.with_inputs(features), evaluation=evaluation, nuisances=nuisances)

    def cached(self, x: Stored, watch: Callable[[int], None]) -> Stored:
        """Return the features of a split. They are read from the cache, or computed and written to it.

        Many are mapped from the file, so that they need not fit into memory.
        """
        key = self.key.copy()
        key.update(f"{tuple(x.shape)} {x.dtype}".encode())
        for chunk in x.split(BATCH):
            key.update(chunk.cpu().contiguous().numpy().tobytes())
        path = cache_root() / "features" / f"{key.hexdigest()}.npy"
        try:
            return _mapped(path, len(x))
        except FileNotFoundError:
            path.parent.mkdir(parents=True, exist_ok=True)
        except (OSError, ValueError, EOFError, DataError) as error:
            logger.warning("The features in %r are damaged (%s). They are computed again.", str(path), error)
        with locked(path.with_suffix(".lock"), wait=True):  # one process computes, the others wait
            try:
                return _mapped(path, len(x))
            except (OSError, ValueError, EOFError, DataError):
                self._write(path, x, watch)
        return _mapped(path, len(x))

    def _write(self, path: Path, x: Stored, watch: Callable[[int], None]) -> None:
        """Compute the features of a split into a file. It has its name when it is whole."""
        shape, done = (len(x), self.network.out_features), 0
        check_space(path.parent, 4 * shape[0] * shape[1])
        sums = BlockSummer()
        with replaced(path) as file:
            write_npy_header(file, shape, np.dtype(np.float32))
            for chunk in x.split(BATCH):
                features = self(chunk).numpy()
                file.write(features.data.cast("B"))
                sums.add(features)
                done += len(chunk)
                watch(done)
            write_atomic(path.with_suffix(SUMS), to_npy(sums.sums()))


def _mapped(path: Path, rows: int) -> Stored:
    features = read_npy(path)
    if features.ndim != 2 or len(features) != rows:
        raise ValueError(f"it has the shape {features.shape}")
    sums = None
    if (beside := path.with_suffix(SUMS)).is_file():  # a cache of an earlier release has none
        sums = kept_sums(np.array(read_npy(beside)), features, path)
    return stored_rows(features, np.arange(rows), sums)
