"""The loop runs the phases of any method, watches them, and leaves checkpoints from which a run continues exactly."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from sitar.config import LAST, DataOn, RunConfig
from sitar.data.types import Data, EvalSplit, TrainSplit
from sitar.devices import forked_random_state
from sitar.errors import ConfigError, TrainingError
from sitar.evaluation.predict import predict_split
from sitar.evaluation.selection import criterion, watched_metrics
from sitar.methods.base import FitPhase, GradientPhase, Method, Phase
from sitar.models.weights import to_bytes
from sitar.run_folder import RunFolder
from sitar.splits import VAL
from sitar.training.averaging import Average
from sitar.training.checkpoint import State, check_phase, save_state, snapshot, taking_up, to_cpu
from sitar.training.compiling import compiled
from sitar.training.epoch_progress import ProgressBar
from sitar.training.optimise import restore_optimiser
from sitar.training.plan import Plan, plan_phase
from sitar.training.processes import ALONE, Processes
from sitar.training.seeding import INIT, NOISE, seed_everything
from sitar.training.step import CapturedStep, EagerStep, Step
from sitar.training.threads import Rehearsal

logger = logging.getLogger(__name__)
RESIDENT_SHARE = 0.6  # of the free memory of a device that training data may take
GLANCE_SECONDS = 0.5  # between looks at a running epoch
OnEpoch = Callable[[int, dict[str, Any]], None]


class Loop:
    """Runs a method's phases on the device of one process. All that it must remember across a stop is in `state`."""

    def __init__(
        self,
        method: Method,
        data: Data,
        config: RunConfig,
        *,
        folder: RunFolder,
        device: torch.device,
        shown: ProgressBar,
        processes: Processes = ALONE,
        beside: Loop | None = None,  # which holds the same data on the device already
    ) -> None:
        self.method = method.to(device)
        self.config = config
        self.folder = folder
        self.device = device
        self.shown = shown
        self.processes = processes
        if beside is None:
            self.train = _resident(data.train, device, config.train.data_on)
            self.nuisances = None if data.nuisances is None else data.nuisances.to(device)
        else:
            self.train, self.nuisances = beside.train, beside.nuisances
        capturable = device.type == "cuda" and not self.train.draws_from_host
        if config.train.step == "captured" and not capturable:
            needs = "a CUDA device" if device.type != "cuda" else "unlabelled inputs that lie on the device"
            raise ConfigError(f"train.step 'captured' needs {needs}. Use 'auto' or 'eager'.")
        self.captured = capturable and config.train.step != "eager"
        if config.train.compile and processes.count > 1:
            raise ConfigError(
                "train.compile=true is for one process: a compiled loss exchanges no messages. Leave it out."
            )
        watched = {name: data.evaluation[name] for name in config.train.evaluate if name in data.evaluation}
        self.watched = (
            {name: _on(split, device) for name, split in watched.items()} if beside is None else beside.watched
        )
        self.epoch = 0  # of the phase that runs, counted from 1
        self.lines = 0  # of metrics.jsonl
        self.seconds = 0.0  # before the last start
        self.started = self.saved = 0.0  # readings of the clock
        self.selected_epoch: int | None = None
        self.planned: Plan | None = None  # what the step is built for
        self.step: EagerStep | None = None

    def run(self, state: State | None, on_epoch: OnEpoch = lambda step, line: None) -> None:
        """Run every phase, or the rest of them from a checkpoint's `state`.

        `on_epoch` is given every line of metrics.jsonl with its number, counted from 1.
        """
        for turn in self.turns(state, on_epoch):
            self.take(turn)

    def take(self, turn: Turn) -> None:
        """Run the steps of an epoch."""
        if turn.plan is not self.planned:
            began = time.perf_counter()
            self.planned, self.step = turn.plan, self.build_step(turn)
            turn.began += time.perf_counter() - began  # it is no part of the epoch
        assert self.step is not None
        self._epoch(turn, self.step)

    def turns(self, state: State | None, on_epoch: OnEpoch = lambda step, line: None) -> Iterator[Turn]:
        """Do all that `run` does, but the steps: yield each epoch, whose steps the caller runs before it goes on."""
        self.on_epoch = on_epoch
        self.started = self.saved = time.perf_counter()
        first = self._restore(state)
        phases = self.method.phases()
        skipped: list[Phase] = []
        for number in count():
            if state is not None and number == first:  # the code between earlier phases has run again: undo it
                self.method.load_state_dict(state["method"])
            seed_everything(self.config.seed, INIT, number + 1)
            phase = next(phases, None)
            if state is not None and (number == first or (phase is None and number < first)):
                self._check_phase(state, skipped, phase)
            if phase is None:
                break
            if number < first:
                skipped.append(phase)
                continue
            progress = state["progress"] if state is not None and number == first else None
            if state is not None and progress is not None:  # stopped within this phase: undo what opens it
                self.method.load_state_dict(state["method"])
            if isinstance(phase, FitPhase):
                self._fit(phase, number)
            else:
                yield from self._train(phase, number, progress)
            self._save(number + 1, progress=None)

    @contextmanager
    def rehearse(self) -> Iterator[Rehearsal | None]:
        """Lend a step of the first phase to try out, always on the same batch, and put back all that it has changed.

        A first phase without steps lends None.
        """
        with self.first_turn() as turn:
            lent = None if turn is None else rehearsal(self.build_step(turn), [turn])
            if lent is not None and self.config.train.compile:
                lent.step()  # it is compiled in its first step
            yield lent

    @contextmanager
    def first_turn(self) -> Iterator[Turn | None]:
        """Lend the first epoch to try out, with optimisers of its own, and put back all that it has changed.

        A first phase without steps lends None.
        """
        restore = snapshot(self.method, [])
        try:
            with forked_random_state():
                phase = next(self.method.phases(), None)
                if not isinstance(phase, GradientPhase):
                    yield None
                    return
                plan = plan_phase(phase, 0, len(self.train), self.config)
                self.method.train()
                self.method.observe(self.train, self.nuisances)  # a step may read what this finds
                yield Turn(self, plan, plan.optimisers(self.device), 0, time.perf_counter())
        finally:
            self.method.zero_grad(set_to_none=True)
            restore()

    def elapsed(self) -> float:
        """Return the seconds of training, those before a stop included."""
        return self.seconds + time.perf_counter() - self.started

    def _restore(self, state: State | None) -> int:
        """Take up what a checkpoint remembers, drop what was logged after it, and return the phase to run next."""
        if state is not None:
            self.lines, self.seconds = state["lines"], state["seconds"]
            self.selected_epoch = state["selected_epoch"]
            with taking_up(self.folder):
                self.method.load_state_dict(state["method"])
        self.folder.keep_metrics(self.lines)
        return 0 if state is None else state["phase"]

    def _check_phase(self, state: State, skipped: Sequence[Phase], phase: Phase | None) -> None:
        """Refuse a checkpoint that skips other phases than were logged. `phase` is the next one; None: all are done."""
        if not self.processes.is_first:  # the others have no log
            return
        with taking_up(self.folder):
            if state["phase"] > len(skipped):
                raise ValueError(f"it is of phase {state['phase'] + 1}, and there are {len(skipped)}")
            train = self.config.train
            trained = [before for before in skipped if isinstance(before, GradientPhase)]
            done = [before.epochs or train.epochs if train.patience is None else 1 for before in trained]
            check_phase(state, self.folder.metrics()[: self.lines], done, isinstance(phase, GradientPhase))

    def _fit(self, phase: FitPhase, number: int) -> None:
        self.shown.begin_phase(phase.name, 1, 1, 0)
        seed_everything(self.config.seed, NOISE, number, 0)
        self.method.eval()
        self._observe()
        phase.fit(self.train)
        self.processes.same(self.method)

    def _train(self, phase: GradientPhase, number: int, progress: State | None) -> Iterator[Turn]:
        """Train for the epochs of a phase, or for those that are left, and keep the weights of the chosen one."""
        plan = plan_phase(phase, number, len(self.train), self.config)
        optimisers = plan.optimisers(self.device)
        with taking_up(self.folder):
            done, best = _continued(progress, optimisers)
            average = Average(self.config.train.average_epochs, None if progress is None else progress.get("average"))
            average.check(self.method, done)
        self.shown.begin_phase(phase.name, plan.epochs, plan.steps, done)
        for epoch in range(done, plan.epochs):
            if best.is_stale(self.config.train.patience):
                break
            turn = self._begin_epoch(plan, optimisers, epoch)
            yield turn
            line = {"phase": phase.name, "epoch": epoch + 1, **phase.facts, **self._end_epoch(turn)}
            average.add(self.method)
            if plan.is_evaluated(epoch):
                with average.lent(self.method):
                    line |= self._evaluate(phase)
                    self._consider(best, phase, line)
            self._log(line, turn.began)
            if self._checkpoint_is_due(epoch):
                states = [optimiser.state_dict() for optimiser in optimisers]
                saved = {"epoch": epoch + 1, "optimisers": states, "best": vars(best), "average": average.state()}
                self._save(number, saved)
        self.forget_step()
        average.give(self.method)
        if best.weights is not None:
            with taking_up(self.folder):
                self.method.load_state_dict(best.weights)
        self.selected_epoch = best.epoch or plan.epochs

    def _observe(self) -> None:
        """Let the method look at the training data. What the first process has found counts."""
        self.method.observe(self.train, self.nuisances)
        self.processes.same(self.method)

    def forget_step(self) -> None:
        """Have the next epoch build its step anew. The memory of the old one is free again."""
        self.planned = self.step = None

    def build_step(self, turn: Turn) -> EagerStep:
        """Build the step of an epoch, and of those that follow it in its phase."""
        plan, optimisers = turn.plan, turn.optimisers
        sizes = {"batch_size": plan.batch_size, "steps": plan.steps, "device": self.device, "config": self.config.train}
        sizes["processes"] = self.processes
        objectives = plan.phase.objectives
        if self.config.train.compile:
            objectives = compiled(objectives)
        if self.captured:
            restore = snapshot(self.method, optimisers)
            return CapturedStep(objectives, optimisers, self.train, **sizes, restore=restore)
        return EagerStep(objectives, optimisers, self.train, **sizes)

    def _begin_epoch(self, plan: Plan, optimisers: list[Optimizer], epoch: int) -> Turn:
        turn = Turn(self, plan, optimisers, epoch, time.perf_counter())
        self.epoch = epoch + 1
        self.method.train()  # before the step is built: a capture keeps the mode
        self._observe()
        self.method.begin_epoch(epoch)
        return turn

    def _epoch(self, turn: Turn, step: EagerStep) -> None:
        """Run the steps of an epoch, and hand back the sum of each term of the loss."""
        plan, epoch = turn.plan, turn.epoch
        seed_everything(self.config.seed, NOISE, plan.number, epoch)
        step.begin_epoch(plan.order(epoch))
        for _ in glanced_at(step, plan, epoch, self.shown):
            self._check_finite(step.sums["loss"].item())
        turn.sums = step.sums

    def _end_epoch(self, turn: Turn) -> dict[str, Any]:
        """Return the mean of each term of the loss, and the last learning rate."""
        plan = turn.plan
        self._check_finite(turn.sums["loss"].item())
        self.processes.agree(turn.sums)
        terms = {name: (total / plan.steps).tolist() for name, total in turn.sums.items()}
        return {**terms, "learning_rate": plan.rates((turn.epoch + 1) * plan.steps - 1)[0]}

    def _evaluate(self, phase: GradientPhase) -> dict[str, dict[str, float | None]]:
        """Return the metrics of the splits that are watched, as the method predicts them in this phase."""
        self.method.eval()
        logits, size = phase.logits or self.method.logits, self.method.evaluation_batch
        return {
            name: watched_metrics(
                predict_split(
                    logits, split, self.device, size, self.shown.evaluating(name, len(split)), self.processes.over
                )
            )
            for name, split in self.watched.items()
        }

    def _consider(self, best: Best, phase: GradientPhase, line: dict[str, Any]) -> None:
        """Let the rule of selection compare an epoch with the best one so far."""
        rule = self.config.train.selection
        if rule != LAST and phase.select:
            best.consider(criterion(rule, line[VAL]), line["epoch"], self.method)

    def _log(self, line: dict[str, Any], began: float) -> None:
        line["seconds"] = round(time.perf_counter() - began, 4)
        self.folder.append_metrics(line)
        self.lines += 1
        self.shown.epoch(line)
        self.on_epoch(self.lines, line)

    def _checkpoint_is_due(self, epoch: int) -> bool:
        return epoch == 0 or time.perf_counter() - self.saved >= self.config.train.checkpoint_seconds

    def _save(self, phase: int, progress: State | None) -> None:
        """Leave a checkpoint: the next phase to run, and how far it is where it has begun."""
        weights = self.method.state_dict()
        if not all(bool(torch.isfinite(tensor).all()) for tensor in weights.values()):
            self._check_finite(math.nan)
        logged = self.folder.sync_metrics()
        save_state(
            self.folder,
            {
                "phase": phase,
                "progress": progress,
                "method": weights,
                "lines": self.lines,
                "log": logged,
                "seconds": self.elapsed(),
                "selected_epoch": self.selected_epoch,
            },
        )
        chosen = progress["best"]["weights"] if progress is not None else None
        self.folder.write_model(to_bytes(chosen or weights))
        self.saved = time.perf_counter()

    def _check_finite(self, loss: float) -> None:
        if not math.isfinite(loss):
            kept = self.folder.state_file
            last = f"The last good checkpoint is kept in {str(kept)!r}." if kept.exists() else "No checkpoint was made."
            raise TrainingError(
                f"The loss became {loss} in epoch {self.epoch}, so training stopped. {last} A lower "
                "train.learning_rate or a train.gradient_clip usually helps."
            )


def rehearsal(step: Step, turns: Sequence[Turn]) -> Rehearsal:
    """Lend a step of these epochs, always on the same batch."""
    plan = turns[0].plan
    step.begin_epoch(torch.cat([turn.plan.order(0) for turn in turns], 1))

    def again() -> None:
        step.rewind()
        step(plan.rates(0))

    return Rehearsal(again, plan.steps * plan.epochs)


def glanced_at(step: Step, plan: Plan, epoch: int, shown: ProgressBar) -> Iterator[None]:
    """Run the steps of an epoch, and pause now and then for a look at them."""
    glanced = time.perf_counter()
    for i in range(plan.steps):
        step(plan.rates(epoch * plan.steps + i))
        if time.perf_counter() - glanced > GLANCE_SECONDS:
            glanced = time.perf_counter()
            shown.step(epoch, i + 1)
            yield


@dataclass(eq=False)
class Turn:
    """A turn is an epoch of a loop, which is ready for its steps. Who runs them leaves the sums of the terms here."""

    loop: Loop
    plan: Plan
    optimisers: list[Optimizer]
    epoch: int  # counted from 0
    began: float  # reading of the clock
    sums: dict[str, Tensor] = field(default_factory=dict)


@dataclass
class Best:
    """Holds the best epoch so far by the rule of selection, and for how many evaluations nothing has beaten it."""

    value: float | None = None
    epoch: int | None = None
    weights: dict[str, Tensor] | None = None
    stale: int = 0

    def consider(self, value: float, epoch: int, method: Method) -> None:
        """Remember an epoch and its weights if its value is the highest so far."""
        if self.value is None or value > self.value:
            self.value, self.epoch, self.stale = value, epoch, 0
            self.weights = to_cpu(method.state_dict())
        else:
            self.stale += 1

    def is_stale(self, patience: int | None) -> bool:
        """Say whether training has waited long enough for a better epoch."""
        return patience is not None and self.stale >= patience


def _continued(progress: State | None, optimisers: list[Optimizer]) -> tuple[int, Best]:
    """Return how many epochs of a phase are done and the best of them; bring the optimisers to where they were."""
    if progress is None:
        return 0, Best()
    for optimiser, saved in zip(optimisers, progress["optimisers"], strict=True):
        restore_optimiser(optimiser, saved)
    return progress["epoch"], Best(**progress["best"])


def _resident(split: TrainSplit, device: torch.device, where: DataOn) -> TrainSplit:
    """Put a split on the device when it fits. Else only its labels are there, and inputs follow batch by batch."""
    if device.type == "cuda" and where != "device":
        free, _ = torch.cuda.mem_get_info(device)
        if where == "host" or split.input_bytes > RESIDENT_SHARE * free:
            logger.info(
                "The training data (%.1f GB) stays in host memory, and batches are fed to the GPU, which has %.1f GB "
                "free. train.data_on=device puts all of it there.", split.input_bytes / 1e9, free / 1e9,
            )  # fmt: skip
            return split.labels_to(device, x=split.x)
    return split.to(device)


def _on(split: EvalSplit, device: torch.device) -> EvalSplit:
    """Put the inputs of a split on the device when they fit."""
    if device.type == "cuda" and split.x.nbytes > RESIDENT_SHARE * torch.cuda.mem_get_info(device)[0]:
        return split
    return replace(split, x=split.x.to(device))
