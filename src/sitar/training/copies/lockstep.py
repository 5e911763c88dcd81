"""Runs that differ in the seed alone take their epochs together, and do all else by themselves.

Every run is a generator that stops where it needs the steps of an epoch (`Loop.turns`). Those that are furthest behind
and are alike take these steps as one. Evaluation, selection, checkpoints and the run folder are each run's own. So a
run that is done early, or has failed, leaves the others, and one that was stopped earlier than the others catches up.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from contextlib import suppress

import torch

from sitar.errors import SitarError
from sitar.training.copies.trial import CannotStackError, Together, build, check_alike, seed_generators, shape_of
from sitar.training.loop import Turn, glanced_at
from sitar.training.plan import Plan
from sitar.training.run import Making

logger = logging.getLogger(__name__)


class Lockstep:
    """Completes runs together. A run that fails does not stop the others, and its error is kept in `failed`."""

    def __init__(self, runs: Sequence[Making], way: str) -> None:
        self.way = way
        self.works = {run: run.turns() for run in runs}
        self.waiting: dict[Making, Turn] = {}
        self.failed: dict[Making, SitarError] = {}
        self.plans: list[Plan] = []  # of the copies that the step is built for
        self.step: Together | None = None

    def complete(self) -> None:
        try:
            for run in self.works:
                self._advance(run)
            while self.waiting:
                self._take(self._group())
        except BaseException as error:
            for work in self.works.values():
                with suppress(BaseException):
                    work.throw(error)  # which closes all that is open
            raise

    def _advance(self, run: Making, error: SitarError | None = None) -> None:
        """Let a run go on to the next epoch for which it needs steps, or to its end."""
        work = self.works[run]
        self.waiting.pop(run, None)
        try:
            self.waiting[run] = next(work) if error is None else work.throw(error)
        except StopIteration:
            pass
        except SitarError as raised:
            self.failed[run] = raised
            logger.error("Seed %d has failed, and the others go on.", run.config.seed)

    def _group(self) -> list[Making]:
        """Return the runs that are furthest behind and can take their steps together."""
        furthest = min((turn.plan.number, turn.epoch) for turn in self.waiting.values())
        behind = [run for run, turn in self.waiting.items() if (turn.plan.number, turn.epoch) == furthest]
        return [run for run in behind if shape_of(self.waiting[run]) == shape_of(self.waiting[behind[0]])]

    def _take(self, group: Sequence[Making]) -> None:
        turns = [self.waiting[run] for run in group]
        step = self._step_of(turns) if len(turns) > 1 else None
        if step is not None:
            self._take_together(step, turns)
        for run, turn in zip(group, turns, strict=True):
            error = None
            try:
                if step is None:
                    run.loop.take(turn)
                else:
                    run.note_together(len(group))
            except SitarError as raised:
                error = raised
            self._advance(run, error)

    def _take_together(self, step: Together, turns: Sequence[Turn]) -> None:
        first = turns[0]
        seed_generators(step, turns)
        step.begin_epoch(torch.cat([turn.plan.order(turn.epoch) for turn in turns], 1))
        for _ in glanced_at(step, first.plan, first.epoch, first.loop.shown):
            if not bool(step.sums["loss"].isfinite().any()):
                break  # no copy has anything left to learn
        for place, turn in enumerate(turns):
            turn.sums = {name: total[place] for name, total in step.sums.items()}

    def _step_of(self, turns: Sequence[Turn]) -> Together | None:
        """Return the step of these copies together. It is built anew for a new phase, and where a copy has left."""
        plans = [turn.plan for turn in turns]
        if [id(plan) for plan in plans] == [id(plan) for plan in self.plans]:
            return self.step
        began, self.step, self.plans = time.perf_counter(), None, plans
        try:
            check_alike(turns, self.way)
            self.step = build(turns, self.way)
        except CannotStackError as error:
            logger.info("The seeds take the steps of %r one by one. %s", plans[0].phase.name, error)
        for turn in turns:
            turn.began += time.perf_counter() - began
        return self.step
