"""What benchmarks/compare.py times against each other: each is a process that does a turn of work when it is told to.

A contestant is a function that prepares everything and returns its turn: a function that does `steps` steps and leaves
the device idle. Processes of their own keep settings of threads and memory apart. They take turns, so that whatever
else the machine does slows down all of them alike.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

from sitar.config import RunConfig
from sitar.data.rows import Rows
from sitar.data.types import Data, TrainBatch, TrainSplit
from sitar.devices import resolve_device
from sitar.images.cache import IMAGES, SUMS, new_array
from sitar.integrity import RowSums
from sitar.methods import build_method
from sitar.models.halving import Doubling, Halving
from sitar.presets import load_config
from sitar.run_folder import RunFolder
from sitar.threads import Rehearsal, number_for
from sitar.training.epoch_progress import ProgressBar
from sitar.training.loop import Loop
from sitar.training.tensor_float import allowed

Turn = Callable[[int], None]
PART = 4096  # random images that are made at a time


@dataclass(frozen=True)
class Work:
    """What is trained: a preset, with settings, on random images or features of a shape."""

    preset: str
    shape: tuple[int, ...]
    rows: int
    device: str
    settings: tuple[str, ...] = field(default=())
    cache: str | None = None  # folder of `make_cache`; None: inputs lie in memory

    @property
    def config(self) -> RunConfig:
        return load_config(self.preset, list(self.settings), 0)

    def data(self) -> Data:
        """Make samples whose values are random, and whose label can be learned. Speed does not depend on the values."""
        generator = torch.Generator().manual_seed(0)
        y = torch.arange(self.rows) % 2
        if self.cache is not None:
            x: Tensor | Rows = mapped(Path(self.cache))
        elif len(self.shape) == 1:
            x = torch.randn(self.rows, *self.shape, generator=generator) + 0.1 * y[:, None]
        else:
            x = torch.randint(0, 256, (self.rows, *self.shape), dtype=torch.uint8, generator=generator)
        return Data(TrainSplit(x, y), {}, ("0", "1"), "random")


def make_cache(folder: Path, rows: int, shape: tuple[int, ...]) -> None:
    """Write random images and their checksums as the cache of images has them, where nothing is decoded."""
    images, sums = new_array(folder / IMAGES, (rows, *shape), np.uint8), new_array(folder / SUMS, (rows,), "<u4")
    random = np.random.default_rng(0)
    for start in range(0, rows, PART):
        part = random.integers(0, 256, images[start : start + PART].shape, np.uint8)
        images[start : start + PART] = part
        sums[start : start + PART] = [zlib.crc32(image.data) for image in part]
    images.flush()
    sums.flush()


def mapped(folder: Path) -> Rows:
    """Return all images of a cache, as a training split has those that are many: in their file."""
    images, sums = np.load(folder / IMAGES, mmap_mode="c"), np.load(folder / SUMS)
    return Rows(images, np.arange(len(images)), RowSums(sums, folder))


def synchronise(device: str) -> None:
    if device != "cpu":
        torch.cuda.synchronize()


def one_thread(work: Work) -> Turn:
    """Train as one of several runs that `sitar sweep` makes side by side: on one thread."""
    return ours(work, threads=1)


def ours(work: Work, threads: int | None = None) -> Turn:
    """Train as `sitar train` does, on the number of threads that it would choose, unless one is given."""
    lent = loop_of(work).rehearse()
    rehearsal = lent.__enter__()
    assert rehearsal is not None
    number = threads or (number_for(Rehearsal(rehearsal.step, 10**6)) if work.device == "cpu" else 1)
    steps = repeated(rehearsal.step, work.device)

    def turn(count: int) -> None:
        assert lent, "what was lent stays open as long as the turn"
        torch.set_num_threads(number)
        steps(count)

    return turn


def loop_of(work: Work) -> Loop:
    device = resolve_device(work.device)
    torch.manual_seed(0)
    data, config = work.data(), work.config
    folder, shown = RunFolder(Path(tempfile.mkdtemp())), ProgressBar(False)
    return Loop(build_method(config, data.task), data, config, folder=folder, device=device, shown=shown)


def epochs(work: Work, threads: int | None = None) -> Turn:
    """Train whole epochs as `sitar train` does: every row is gathered, in the epoch's order. A turn is an epoch."""
    loop = loop_of(work)
    if threads is None and work.device == "cpu":
        with loop.rehearse() as rehearsal:
            assert rehearsal is not None
            threads = number_for(Rehearsal(rehearsal.step, 10**6))
    lent = loop.first_turn()
    begun = lent.__enter__()
    assert begun is not None

    def turn(steps: int) -> None:
        assert lent, "what was lent stays open as long as the turn"
        torch.set_num_threads(threads or 1)
        loop.take(begun)
        synchronise(work.device)
        begun.epoch += 1

    turn.steps = begun.plan.steps  # type: ignore[attr-defined]
    return turn


def epochs_on_one_thread(work: Work) -> Turn:
    """Train whole epochs on one thread, so that their processor time is their time on a free machine."""
    return epochs(work, threads=1)


def plain_step(work: Work) -> tuple[nn.Module, Callable[[Tensor, Tensor], None]]:
    """Return a model of torch's own layers and an eager step, as a user writes them."""
    torch.manual_seed(0)
    model = build_method(work.config, work.data().task).to(work.device)
    for layer in model.modules():
        if isinstance(layer, Halving):
            layer.__class__ = nn.Conv2d  # type: ignore[assignment]
        elif isinstance(layer, Doubling):
            layer.__class__ = nn.ConvTranspose2d  # type: ignore[assignment]
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-3)

    def step(x: Tensor, y: Tensor) -> None:
        optimiser.zero_grad()
        loss = model.loss(TrainBatch(x, y, y))["loss"]  # type: ignore[operator]
        loss.backward()
        optimiser.step()

    return model, step


class Images(Dataset[tuple[Tensor, Tensor]]):
    """Stored images, of which each is transformed when it is asked for."""

    def __init__(self, work: Work) -> None:
        split = work.data().train
        stored = split.x.array if isinstance(split.x, Rows) else split.x.numpy()
        self.x, self.y = stored.transpose(0, 2, 3, 1), split.y

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        from torchvision.transforms.functional import to_tensor

        return to_tensor(self.x[index]), self.y[index]


def data_loader(work: Work) -> Turn:
    """Train in an eager loop on a DataLoader with a worker for each core."""
    _, step = plain_step(work)
    on_gpu = work.device != "cpu"
    loader = DataLoader(Images(work), work.config.train.batch_size, shuffle=True, drop_last=True, pin_memory=on_gpu,
                        num_workers=os.cpu_count() or 1, persistent_workers=True)  # fmt: skip

    def forever() -> Iterator[tuple[Tensor, Tensor]]:
        while True:
            yield from loader

    batches = forever()

    def one() -> None:
        x, y = next(batches)
        step(x.to(work.device, non_blocking=True), y.to(work.device, non_blocking=True))

    return repeated(one, work.device)


def on_device(work: Work) -> Turn:
    """Train in an eager loop on one batch that lies on the device: the plain step alone, without any loading."""
    _, step = plain_step(work)
    batch = work.data().train.batch(torch.arange(work.config.train.batch_size))
    x, y = batch.x.to(work.device), batch.y.to(work.device)
    return repeated(lambda: step(x, y), work.device)


def pythae(work: Work) -> Turn:
    """Train pythae's beta-VAE, with encoder and decoder of the same layers, in its own loop. It has no classifier."""
    from pythae.data.datasets import BaseDataset  # type: ignore[import-not-found]
    from pythae.models import BetaVAE, BetaVAEConfig  # type: ignore[import-not-found]
    from pythae.models.base.base_utils import ModelOutput  # type: ignore[import-not-found]
    from pythae.models.nn import BaseDecoder, BaseEncoder  # type: ignore[import-not-found]
    from pythae.trainers import BaseTrainer, BaseTrainerConfig  # type: ignore[import-not-found]

    method, _ = plain_step(work)
    vae: Any = method.vae
    config = work.config

    class Encoder(BaseEncoder):
        def __init__(self) -> None:
            BaseEncoder.__init__(self)
            self.encoder, self.mean, self.log_variance = vae.encoder, vae.mean, vae.log_variance

        def forward(self, x: Tensor) -> ModelOutput:
            hidden = self.encoder(x)
            return ModelOutput(embedding=self.mean(hidden), log_covariance=self.log_variance(hidden))

    class Decoder(BaseDecoder):
        def __init__(self) -> None:
            BaseDecoder.__init__(self)
            self.decoder = vae.decoder

        def forward(self, z: Tensor) -> ModelOutput:
            return ModelOutput(reconstruction=self.decoder(z))

    settings = BetaVAEConfig(input_dim=work.shape, latent_dim=config.model.axes, beta=1.0)
    model = BetaVAE(settings, encoder=Encoder(), decoder=Decoder())
    batch, folder = config.train.batch_size, tempfile.mkdtemp()
    split = work.data().train
    trainers: dict[int, BaseTrainer] = {}

    def turn(steps: int) -> None:
        if steps not in trainers:  # an epoch of its loop is a turn
            rows = torch.arange(steps * batch) % len(split)
            asked = BaseTrainerConfig(output_dir=folder, per_device_train_batch_size=batch, num_epochs=1,
                                      learning_rate=1e-3, no_cuda=work.device == "cpu")  # fmt: skip
            data = BaseDataset(split.x[rows].float() / 255, split.y[rows])
            trainers[steps] = BaseTrainer(model, data, None, asked)
            trainers[steps].prepare_training()
        trainers[steps].train_step(1)
        synchronise(work.device)

    return turn


def features_loader(work: Work) -> Turn:
    """Train on features in an eager loop over a DataLoader of tensors."""
    _, step = plain_step(work)
    split = work.data().train
    loader = DataLoader(TensorDataset(split.x, split.y), work.config.train.batch_size, shuffle=True, drop_last=True)

    def forever() -> Iterator[Sequence[Tensor]]:
        while True:
            yield from loader

    batches = forever()

    def one() -> None:
        x, y = next(batches)
        step(x.to(work.device), y.to(work.device))

    return repeated(one, work.device)


def logistic_regression(work: Work) -> Turn:
    """Fit scikit-learn's logistic regression. A step of it is the share of one batch in one pass over the rows."""
    from sklearn.linear_model import LogisticRegression

    split = work.data().train
    x, y = split.x.numpy(), split.y.numpy()
    passes = math.ceil(LogisticRegression().fit(x, y).n_iter_[0])

    def turn(steps: int) -> None:
        LogisticRegression().fit(x, y)  # a fit is a turn

    turn.steps = passes * len(x) / work.config.train.batch_size  # type: ignore[attr-defined]
    return turn


def repeated(one: Callable[[], object], device: str) -> Turn:
    """Return a turn of steps that are all alike."""

    def turn(steps: int) -> None:
        for _ in range(steps):
            one()
        synchronise(device)

    return turn


def _serve(prepare: Callable[[Work], Turn], work: Work, told: Connection) -> None:
    with allowed(work.config.train.precision):
        _serve_turns(prepare, work, told)


def _serve_turns(prepare: Callable[[Work], Turn], work: Work, told: Connection) -> None:
    try:
        turn = prepare(work)
        turn(2)
    except ImportError as error:
        told.send(error)
        return
    told.send(getattr(turn, "steps", None))
    while (steps := told.recv()) is not None:
        began, processors = time.perf_counter(), _processor_seconds()
        turn(steps)
        told.send((time.perf_counter() - began, _processor_seconds() - processors))


def _processor_seconds() -> float:
    """Return what this process and those that it has started have computed so far."""
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    found = time.process_time()
    for child in children.read_text().split() if children.exists() else ():
        fields = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()
        found += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return found


class Contestant:
    """One process that does turns.

    `milliseconds` has those of a step for each turn, and `processor_milliseconds` those of all processors together,
    which other programs on the machine change less.
    """

    def __init__(self, prepare: Callable[[Work], Turn], work: Work) -> None:
        self.work = work
        self.milliseconds: list[float] = []
        self.processor_milliseconds: list[float] = []
        self.told, theirs = multiprocessing.get_context("spawn").Pipe()
        self.process = multiprocessing.get_context("spawn").Process(target=_serve, args=(prepare, work, theirs))
        self.process.start()
        self.missing: ImportError | None = None
        self.own_steps: float | None = None

    def prepared(self) -> Contestant:
        """Wait until it is ready for its turns, or says that its package is not installed."""
        answer: Any = self.told.recv()
        if isinstance(answer, ImportError):
            self.missing = answer
        else:
            self.own_steps = answer
        return self

    def begin(self, steps: int) -> None:
        self.steps = self.own_steps or steps
        self.told.send(steps)

    def end(self) -> float:
        clock, processors = self.told.recv()
        self.milliseconds.append(1000 * clock / self.steps)
        self.processor_milliseconds.append(1000 * processors / self.steps)
        return self.milliseconds[-1]

    @property
    def best(self) -> float:
        return min(self.milliseconds)

    def close(self) -> None:
        if self.missing is None:
            self.told.send(None)
        self.process.join()


@contextmanager
def contest(entries: dict[str, tuple[Callable[[Work], Turn], Work]]) -> Iterator[dict[str, Contestant]]:
    """Start contestants by name. Those whose package is not installed are left out, with a word on the screen."""
    started = {name: Contestant(*entry).prepared() for name, entry in entries.items()}
    try:
        for name, one in started.items():
            if one.missing is not None:
                print(f"{name} is left out: {one.missing}")
        yield {name: one for name, one in started.items() if one.missing is None}
    finally:
        for one in started.values():
            one.close()


def take_turns(contestants: dict[str, Contestant], turns: int, steps: int) -> None:
    """Let all take turns, one after the other."""
    for _ in range(turns):
        for one in contestants.values():
            one.begin(steps)
            one.end()


def bandwidth(device: str, megabytes: int = 256) -> float:
    """Measure how many bytes a second a copy of a large tensor reads and writes, on the current number of threads."""
    source = torch.ones(megabytes * 2**18, device=device)
    target = torch.empty_like(source)
    return 2 * source.nbytes / _best(lambda: target.copy_(source), device)


def arithmetic_rate(device: str, side: int = 2048) -> float:
    """Measure how many floating-point operations a second a product of large float32 matrices has."""
    a = torch.ones(side, side, device=device)
    return 2 * side**3 / _best(lambda: a @ a, device)


def _best(one: Callable[[], object], device: str, repeats: int = 7) -> float:
    found = []
    for _ in range(repeats):
        synchronise(device)
        began = time.perf_counter()
        one()
        synchronise(device)
        found.append(time.perf_counter() - began)
    return float(np.min(found))
