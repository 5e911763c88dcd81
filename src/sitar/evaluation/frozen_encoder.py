"""A frozen encoder turns images into features once, keeps them in the cache, and they are then data like any other."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from sitar.config import ModelConfig
from sitar.data.types import Data, Task, in_batches
from sitar.files import write_atomic
from sitar.images.cache import cache_root
from sitar.models.pretrained import RANDOM, PretrainedEncoder
from sitar.models.weights import load_weights
from sitar.progress import Watch, unwatched
from sitar.run_folder import RunFolder

BATCH = 128


class FrozenEncoder:
    """A frozen encoder is pretrained and stays as it is. It turns images, as a split stores them, into features."""

    def __init__(self, model: ModelConfig, shape: Sequence[int], device: torch.device, folder: RunFolder) -> None:
        """Take the weights that a run has kept. If it has kept none, take those that the settings name."""
        assert model.encoder is not None
        self.device = device
        kept = folder.encoder()
        source = model.encoder_weights if kept is None else RANDOM
        self.network = PretrainedEncoder(model.encoder, shape, source, stride_in_1x1=model.stride_in_1x1)
        if kept is not None:
            load_weights(kept, self.network, folder.encoder_file)
        self.network.to(device).eval().requires_grad_(False)
        self.key = hashlib.blake2b(f"{model.encoder} {model.stride_in_1x1} {device.type}".encode(), digest_size=16)
        for name, tensor in self.network.state_dict().items():
            self.key.update(name.encode() + tensor.cpu().contiguous().numpy().tobytes())

    def __call__(self, x: Tensor, watch: Callable[[int], None] = lambda _: None) -> Tensor:
        return in_batches(self.network, x, self.device, BATCH, watch).cpu()

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
        train = replace(data.train, x=self.cached(data.train.x, watch("features of train", len(data.train))))
        return replace(data, train=train, evaluation=evaluation)

    def cached(self, x: Tensor, watch: Callable[[int], None]) -> Tensor:
        """Return the features of a split. They are read from the cache, or computed and written to it."""
        key = self.key.copy()
        key.update(f"{tuple(x.shape)} {x.dtype}".encode())
        for chunk in x.split(BATCH):
            key.update(chunk.cpu().contiguous().numpy().tobytes())
        path = cache_root() / "features" / f"{key.hexdigest()}.npy"
        try:
            return torch.from_numpy(np.load(path, allow_pickle=False))
        except (OSError, ValueError, EOFError):  # there is no file yet, or it is damaged
            features = self(x, watch)
        path.parent.mkdir(parents=True, exist_ok=True)
        buffer = io.BytesIO()
        np.save(buffer, features.numpy())
        write_atomic(path, buffer.getvalue())
        return features
