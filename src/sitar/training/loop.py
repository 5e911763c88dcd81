"""The loop: runs the phases of any method, watches them, and leaves checkpoints from which a run continues exactly."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from itertools import count
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from sitar.config import LAST, RunConfig
from sitar.data.types import Data, EvalSplit, TrainSplit
from sitar.errors import ConfigError, TrainingError
from sitar.evaluation.predict import predict_split
from sitar.evaluation.selection import criterion, watched_metrics
from sitar.methods.base import FitPhase, GradientPhase, Method
from sitar.models.weights import to_bytes
from sitar.run_folder import RunFolder
from sitar.training.checkpoint import State, save_state, snapshot, to_cpu
from sitar.training.epoch_progress import ProgressBar
from sitar.training.optimise import build_optimiser, learning_rate, restore_optimiser
from sitar.training.seeding import INIT, NOISE, epoch_order, seed_everything
from sitar.training.step import CapturedStep, EagerStep

RESIDENT_SHARE = 0.6  # of the free memory of a device that training data may take
GLANCE_SECONDS = 0.5  # between looks at a running epoch


class Loop:
    """Runs a method's phases on one device. All that it must remember across a stop is in `state`."""

    def __init__(
        self,
        method: Method,
        data: Data,
        config: RunConfig,
        folder: RunFolder,
        device: torch.device,
        shown: ProgressBar,
    ) -> None:
        self.method = method.to(device)
        self.config = config
        self.folder = folder
        self.device = device
        self.shown = shown
        self.train = _resident(data.train, device)
        capturable = self.train.x.device.type == "cuda"
        if config.train.step == "captured" and not capturable:
            raise ConfigError(
                "train.step 'captured' needs a CUDA device whose memory holds the training data. Use 'auto' or 'eager'."
            )
        self.captured = capturable and config.train.step != "eager"
        watched = {name: data.evaluation[name] for name in config.train.evaluate if name in data.evaluation}
        self.watched = {name: _on(split, device) for name, split in watched.items()}
        self.epoch = 0  # of the phase that runs, counted from 1
        self.lines = 0  # of metrics.jsonl
        self.seconds = 0.0  # before the last start
        self.started = self.saved = time.perf_counter()
        self.selected_epoch: int | None = None

    def run(self, state: State | None) -> None:
        """Run every phase, or the rest of them from a checkpoint's `state`."""
        first = 0
        if state is not None:
            first, self.lines, self.seconds = state["phase"], state["lines"], state["seconds"]
            self.selected_epoch = state["selected_epoch"]
            self.method.load_state_dict(state["method"])
        self.folder.keep_metrics(self.lines)
        phases = self.method.phases()
        for number in count():
            if state is not None and number == first:  # the code between earlier phases has run again: undo it
                self.method.load_state_dict(state["method"])
            seed_everything(self.config.seed, INIT, number + 1)
            phase = next(phases, None)
            if phase is None:
                break
            if number < first:
                continue
            progress = state["progress"] if state is not None and number == first else None
            if state is not None and progress is not None:  # stopped within this phase: undo what opens it
                self.method.load_state_dict(state["method"])
            if isinstance(phase, FitPhase):
                self._fit(phase, number)
            else:
                self._train(phase, number, progress)
            self._save(number + 1, progress=None)

    def elapsed(self) -> float:
        """Seconds of training, those before a stop included."""
        return self.seconds + time.perf_counter() - self.started

    def _fit(self, phase: FitPhase, number: int) -> None:
        self.shown.begin_phase(phase.name, 1, 1, 0)
        seed_everything(self.config.seed, NOISE, number, 0)
        self.method.eval()
        phase.fit(self.train)

    def _train(self, phase: GradientPhase, number: int, progress: State | None) -> None:
        config = self.config.train
        indices = torch.arange(len(self.train)) if phase.indices is None else phase.indices.cpu()
        batch_size = min(config.batch_size, len(indices))
        steps = math.ceil(len(indices) / batch_size)
        epochs = phase.epochs or max(config.epochs, math.ceil(config.least_steps / steps))

        settings = [config.model_copy(update=dict(objective.settings)) for objective in phase.objectives]
        optimisers = [
            build_optimiser(own, objective.parameters, self.device)
            for own, objective in zip(settings, phase.objectives, strict=True)
        ]
        best = Best() if progress is None else Best(**progress["best"])
        done = 0
        if progress is not None:
            done = progress["epoch"]
            for optimiser, saved in zip(optimisers, progress["optimisers"], strict=True):
                restore_optimiser(optimiser, saved)

        def rates(position: int) -> list[float]:
            return [learning_rate(own, position, steps, epochs) for own in settings]

        self.method.train()  # before the step is built: a capture keeps the mode
        step = self._build_step(phase, optimisers, batch_size, steps)
        self.shown.begin_phase(phase.name, epochs, steps, done)

        for epoch in range(done, epochs):
            if config.patience is not None and best.stale >= config.patience:
                break
            self.epoch = epoch + 1
            began = time.perf_counter()
            self.method.train()
            self.method.begin_epoch(epoch)
            seed_everything(self.config.seed, NOISE, number, epoch)
            step.begin_epoch(epoch_order(indices, batch_size, self.config.seed, number, epoch, phase.sampling))
            self._epoch(step, epoch, steps, rates)
            self._check_finite(step.sums["loss"].item())
            terms = {name: (total / steps).tolist() for name, total in step.sums.items()}

            line: dict[str, Any] = {"phase": phase.name, "epoch": epoch + 1, **phase.facts, **terms}
            line["learning_rate"] = rates((epoch + 1) * steps - 1)[0]
            if (epoch + 1) % config.evaluate_every == 0 or epoch + 1 == epochs:
                line |= {name: self._accuracies(phase, name, split) for name, split in self.watched.items()}
                if config.selection != LAST and phase.select:
                    best.consider(criterion(config.selection, line["val"]), epoch + 1, self.method)
            line["seconds"] = round(time.perf_counter() - began, 4)
            self.folder.append_metrics(line)
            self.lines += 1
            self.shown.epoch(line)
            if epoch == 0 or time.perf_counter() - self.saved >= config.checkpoint_seconds:
                states = [optimiser.state_dict() for optimiser in optimisers]
                self._save(number, {"epoch": epoch + 1, "optimisers": states, "best": vars(best)})

        if best.weights is not None:
            self.method.load_state_dict(best.weights)
        self.selected_epoch = best.epoch or epochs

    def _epoch(self, step: EagerStep, epoch: int, steps: int, rates: Callable[[int], list[float]]) -> None:
        glanced = time.perf_counter()
        for i in range(steps):
            step(rates(epoch * steps + i))
            if time.perf_counter() - glanced > GLANCE_SECONDS:
                glanced = time.perf_counter()
                self.shown.step(epoch, i + 1)
                self._check_finite(step.sums["loss"].item())

    def _build_step(self, phase: GradientPhase, optimisers: list[Optimizer], batch_size: int, steps: int) -> EagerStep:
        config = self.config.train
        arguments = (phase.objectives, optimisers, self.train, batch_size, steps, self.device, config)
        if self.captured:
            return CapturedStep(*arguments, restore=snapshot(self.method, optimisers))
        return EagerStep(*arguments)

    def _accuracies(self, phase: GradientPhase, name: str, split: EvalSplit) -> dict[str, float | None]:
        self.method.eval()
        logits, watch = phase.logits or self.method.logits, self.shown.evaluating(name, len(split))
        return watched_metrics(predict_split(logits, split, self.device, self.method.evaluation_batch, watch))

    def _check_finite(self, loss: float) -> None:
        if not math.isfinite(loss):
            kept = self.folder.state_file
            last = f"The last good checkpoint is kept in {str(kept)!r}." if kept.exists() else "No checkpoint was made."
            raise TrainingError(
                f"The loss became {loss} in epoch {self.epoch}, so training stopped. {last} A lower "
                "train.learning_rate or a train.gradient_clip usually helps."
            )

    def _save(self, phase: int, progress: State | None) -> None:
        weights = self.method.state_dict()
        if not all(bool(torch.isfinite(tensor).all()) for tensor in weights.values()):
            self._check_finite(math.nan)
        self.folder.sync_metrics()
        save_state(
            self.folder,
            {
                "phase": phase,
                "progress": progress,
                "method": weights,
                "lines": self.lines,
                "seconds": self.elapsed(),
                "selected_epoch": self.selected_epoch,
            },
        )
        chosen = progress["best"]["weights"] if progress is not None else None
        self.folder.write_model(to_bytes(chosen or weights))
        self.saved = time.perf_counter()


class Best:
    """The best epoch so far by the selection criterion, and for how many evaluations it has not been beaten."""

    def __init__(
        self,
        value: float | None = None,
        epoch: int | None = None,
        weights: dict[str, Tensor] | None = None,
        stale: int = 0,
    ) -> None:
        self.value, self.epoch, self.weights, self.stale = value, epoch, weights, stale

    def consider(self, value: float, epoch: int, method: Method) -> None:
        if self.value is None or value > self.value:
            self.value, self.epoch, self.stale = value, epoch, 0
            self.weights = to_cpu(method.state_dict())
        else:
            self.stale += 1


def _resident(split: TrainSplit, device: torch.device) -> TrainSplit:
    """On the device when it fits; else only the labels, and inputs follow batch by batch."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        if split.x.nbytes > RESIDENT_SHARE * free:
            return split.labels_to(device, x=split.x.pin_memory())
    return split.to(device)


def _on(split: EvalSplit, device: torch.device) -> EvalSplit:
    if device.type == "cuda" and split.x.nbytes > RESIDENT_SHARE * torch.cuda.mem_get_info(device)[0]:
        return split
    return EvalSplit(split.x.to(device), split.y, split.group, split.group_names, split.group_share)
