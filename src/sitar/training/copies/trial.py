"""Try out a step of all copies: whether it computes what single runs compute, and whether it is faster than they are.

Nothing is taken on trust. Before copies are trained together, terms, gradients and buffers of every copy are computed
in both ways on its first batch. Where they differ, or where vmap cannot run the loss, copies are trained one by one.
The comparison leaves out TF32, in which cuDNN rounds a grouped convolution otherwise than single ones. Training may use
it. A captured step is compared with single ones once more, over its first steps and as it will run.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm as BatchNorm

from sitar.errors import ConfigError, first_line
from sitar.functional.precision import in_float64
from sitar.models.global_norm import refuse_dropout
from sitar.threads import Rehearsal, seconds_of_a_step
from sitar.training.attributes import Attributes
from sitar.training.checkpoint import snapshot
from sitar.training.copies.branches import BRANCHES, BranchedStep, CapturedBranches
from sitar.training.copies.convolutions import WAYS
from sitar.training.copies.stack import CapturedStackedStep, Copy, StackedStep
from sitar.training.loop import Loop, Turn, rehearsal
from sitar.training.seeding import NOISE, derive_seed, seed_everything
from sitar.training.step import EagerStep, Step
from sitar.training.tensor_float import kinds, put_back

Together = StackedStep | BranchedStep
Stacking = Literal["auto", "always", "never"]
GAIN = 0.95  # of the time of single steps, which a stacked one may take at most
TOLERANCE = {"cpu": 1e-3, "cuda": 1e-2}  # of the largest value; matrix products of a user may be in TF32
MIXED_TOLERANCE = 0.1  # with bfloat16
FIRST_STEPS = 3  # in which a captured step is compared with single ones
SAME_MOVE = 0.5  # of the way that weights go in these steps
SMALL = 0.01  # of the loss, below which a term is compared with that, and of the largest gradient


class CannotStackError(Exception):
    """Says why copies are not trained as one, in a sentence."""


def choose_way(loops: Sequence[Loop], stacking: Stacking) -> str:
    """Return the way in which the copies are trained together. Raise the reason if there is none.

    It is a way of `convolutions.py` to compute them as one model, or, where steps are captured, branches of one graph.

    With "always" the first way that is right is taken. Else the fastest one is, if it is faster than single steps.
    """
    if stacking == "never":
        raise CannotStackError("You have asked for it.")
    with ExitStack() as stack:
        turns = [stack.enter_context(loop.first_turn()) for loop in loops]
        begun = [turn for turn in turns if turn is not None]
        if len(begun) < len(loops):
            raise CannotStackError("The method begins with a fit to all samples, which has no steps.")
        seconds, wrong = {}, CannotStackError("There is no way.")
        for way in ways(loops[0]):
            try:
                check_alike(begun, way)
                step = build(begun, way)
            except CannotStackError as error:
                wrong = error
                continue
            if stacking == "always":
                return way
            try:
                seconds[way] = _seconds(step, begun)
            except RuntimeError as error:  # such as too little memory
                wrong = CannotStackError(f"Its step fails: {first_line(error)}")
        if not seconds:
            raise wrong
        way = min(seconds, key=lambda way: seconds[way])
        alone = _seconds(loops[0].build_step(begun[0]), begun[:1])
    if seconds[way] > GAIN * len(loops) * alone:
        raise CannotStackError(
            f"Here this is faster: {len(loops)} single steps take {1000 * len(loops) * alone:.1f} ms, and a step of "
            f"all of them together takes {1000 * seconds[way]:.1f} ms."
        )
    return way


def ways(loop: Loop) -> list[str]:
    """Return the ways in which copies of a loop might be trained together."""
    stacked = list(WAYS) if _has_convolutions(loop.method) else list(WAYS)[:1]
    return [*stacked, BRANCHES] if loop.captured else stacked


def check_alike(turns: Sequence[Turn], way: str) -> None:
    """Refuse copies that cannot take a step together in this way, whatever their loss is."""
    first = turns[0]
    if len({shape_of(turn) for turn in turns}) > 1:
        raise CannotStackError("The copies are not in the same phase, or have epochs of different lengths.")
    if any(turn.loop.train is not first.loop.train for turn in turns):
        raise CannotStackError("Each seed has inputs of its own: the frozen encoder has random weights.")
    if way != BRANCHES:
        _check_stackable(turns)
    try:
        refuse_dropout(first.loop.method)
    except ConfigError as error:
        raise CannotStackError("The network has dropout, which draws by itself.") from error


def _check_stackable(turns: Sequence[Turn]) -> None:
    for turn in turns:
        for objective in turn.plan.phase.objectives:
            if not any(getattr(objective.loss, "__self__", None) is part for part in turn.loop.method.modules()):
                raise CannotStackError("A loss is no function of the method, so it may hold tensors of one copy.")
    if any(isinstance(module, BatchNorm) and module.training for module in turns[0].loop.method.modules()):
        raise CannotStackError("The network has batch normalisation, whose statistics are those of one copy.")


def shape_of(turn: Turn) -> tuple[Any, ...]:
    """Return what copies must have in common to take the steps of an epoch together."""
    plan = turn.plan
    losses = tuple(getattr(objective.loss, "__name__", None) for objective in plan.phase.objectives)
    return plan.number, turn.epoch, plan.phase.name, plan.batch_size, plan.steps, plan.epochs, losses


def build(turns: Sequence[Turn], way: str) -> Together:
    """Build the step of these epochs together, once it is known to be right."""
    first = turns[0]
    loop, plan = first.loop, first.plan
    copies = [
        Copy(turn.loop.method, turn.plan.phase.objectives, turn.optimisers, torch.Generator(loop.device))
        for turn in turns
    ]
    sizes = {"batch_size": plan.batch_size, "steps": plan.steps, "device": loop.device, "config": loop.config.train}
    with _left_as_it_is([copy.method for copy in copies]), _convolutions_in_float32(loop.device):
        alone = [_look_alone(turn, sizes) for turn in turns]
    try:
        step = _eager(copies, loop, sizes, way)
        with _left_as_it_is([copy.method for copy in copies]), _convolutions_in_float32(loop.device):
            together = _look_together(step, turns)
            buffers = [_buffers(copy.method) for copy in copies]
    except (RuntimeError, ValueError, NotImplementedError) as error:
        who = "A copy" if way == BRANCHES else "torch.vmap"
        raise CannotStackError(f"{who} cannot run its loss: {first_line(error)}") from error
    for place, (expected, expected_buffers) in enumerate(alone):
        found = [_flat(terms, gradients, place) for terms, gradients in together]
        _compare([*expected, expected_buffers], [*found, buffers[place]], loop)
    for turn in turns:
        turn.loop.forget_step()  # it may have captured where the weights were before
    if not loop.captured:
        return step
    restore = _restoring(turns)
    try:
        captured = _captured(copies, loop, sizes, way, restore)
        singles = [_first_steps(_single(turn, sizes), [turn]) for turn in turns]
        sums, moves = _first_steps(captured, turns)
    except BaseException as error:
        restore()  # the steps before a capture have moved weights, and the copies may be trained one by one now
        if not isinstance(error, RuntimeError):
            raise
        raise CannotStackError(f"Its step cannot be captured: {first_line(error)}") from error
    for place, (of_single, [move]) in enumerate(singles):
        _compare([of_single], [{name: total[place] for name, total in sums.items()}], loop)
        if not _is_same_move(moves[place], move):
            raise CannotStackError("The weights of a copy move otherwise than those of the single run.")
    return captured


def _eager(copies: Sequence[Copy], loop: Loop, sizes: Mapping[str, Any], way: str) -> Together:
    if way == BRANCHES:
        return BranchedStep(copies, loop.train, **sizes)
    return StackedStep(copies, loop.train, **sizes, way=way)


def _captured(
    copies: Sequence[Copy], loop: Loop, sizes: Mapping[str, Any], way: str, restore: Callable[[], None]
) -> Together:
    if way == BRANCHES:
        return CapturedBranches(copies, loop.train, **sizes, restore=restore)
    return CapturedStackedStep(copies, loop.train, **sizes, way=way, restore=restore)


def _restoring(turns: Sequence[Turn]) -> Callable[[], None]:
    """Return a function that puts methods and optimisers of the copies back as they are now."""
    restores = [snapshot(turn.loop.method, turn.optimisers) for turn in turns]

    def restore() -> None:
        for undo in restores:
            undo()

    return restore


def _single(turn: Turn, sizes: Mapping[str, Any]) -> EagerStep:
    return EagerStep(turn.plan.phase.objectives, turn.optimisers, turn.loop.train, **sizes)


def _first_steps(step: Step, turns: Sequence[Turn]) -> tuple[dict[str, Tensor], list[list[Tensor]]]:
    """Run the first steps of an epoch, and undo them. Return the sums of terms, and how the weights of copies moved."""
    plan, restore = turns[0].plan, _restoring(turns)
    before = [_weights(turn) for turn in turns]
    if isinstance(step, StackedStep | BranchedStep):
        seed_generators(step, turns)
    else:
        seed_everything(turns[0].loop.config.seed, NOISE, plan.number, turns[0].epoch)
    step.begin_epoch(torch.cat([turn.plan.order(turn.epoch) for turn in turns], 1))
    for i in range(min(FIRST_STEPS, plan.steps)):
        step(plan.rates(turns[0].epoch * plan.steps + i))
    sums = {name: total.clone() for name, total in step.sums.items()}
    moves = [
        [after - start for after, start in zip(_weights(turn), weights, strict=True)]
        for turn, weights in zip(turns, before, strict=True)
    ]
    restore()
    return sums, moves


def _weights(turn: Turn) -> list[Tensor]:
    objectives = turn.plan.phase.objectives
    moved = [parameter.detach() for objective in objectives for parameter in objective.parameters]
    return [in_float64(parameter).clone() for parameter in moved]


def _is_same_move(move: Sequence[Tensor], of_single: Sequence[Tensor]) -> bool:
    """Say whether weights have moved about the same way, each of them about as far.

    Adam follows the sign of a gradient that is nothing but rounding, too. So a single weight may go another way.
    """
    lengths = torch.stack([tensor.norm() for tensor in move])
    expected = torch.stack([tensor.norm() for tensor in of_single])
    apart = torch.stack([(mine - theirs).norm() for mine, theirs in zip(move, of_single, strict=True)])
    as_far = ((lengths - expected).abs() <= SAME_MOVE * expected).all()
    return bool(as_far) and float(apart.norm()) <= SAME_MOVE * float(expected.norm())


def seed_generators(step: Together, turns: Sequence[Turn]) -> None:
    """Have each copy draw what the single run draws in this epoch."""
    for generator, turn in zip(step.generators, turns, strict=True):
        generator.manual_seed(derive_seed(turn.loop.config.seed, NOISE, turn.plan.number, turn.epoch))


Looked = tuple[list[dict[str, Tensor]], dict[str, Tensor]]


def _look_alone(turn: Turn, sizes: Mapping[str, Any]) -> Looked:
    """Return terms and gradients of a single run on the first batch of the epoch, and the buffers after it."""
    plan, loop = turn.plan, turn.loop
    seed_everything(loop.config.seed, NOISE, plan.number, turn.epoch)
    step = _single(turn, sizes)
    step.begin_epoch(plan.order(turn.epoch))
    return [_flat(*seen) for seen in step.look()], _buffers(loop.method)


def _look_together(step: Together, turns: Sequence[Turn]) -> list[tuple[dict[str, Tensor], list[Tensor | None]]]:
    seed_generators(step, turns)
    step.begin_epoch(torch.cat([turn.plan.order(turn.epoch) for turn in turns], 1))
    attributes = Attributes(turns[0].loop.method)
    seen = step.look()
    if isinstance(step, StackedStep) and (changed := attributes.changed()):
        raise CannotStackError(
            f"The loss changes {', '.join(changed)}, which no buffer holds, so all copies would share it."
        )
    return seen


def _flat(
    terms: Mapping[str, Tensor], gradients: Sequence[Tensor | None], place: int | None = None
) -> dict[str, Tensor]:
    """Return terms and gradients by name, of the copy at a place where they are those of all copies."""
    named = {**terms, **{f"gradient {i}": found for i, found in enumerate(gradients) if found is not None}}
    return {name: (value if place is None else value[place]).detach() for name, value in named.items()}


def _buffers(module: nn.Module) -> dict[str, Tensor]:
    return {f"buffer {name}": tensor.clone() for name, tensor in module.named_buffers()}


def _compare(expected: Sequence[Mapping[str, Tensor]], found: Sequence[Mapping[str, Tensor]], loop: Loop) -> None:
    mixed = loop.config.train.precision == "bfloat16"
    tolerance = MIXED_TOLERANCE if mixed else TOLERANCE.get(loop.device.type, max(TOLERANCE.values()))
    for of_single, of_copy in zip(expected, found, strict=True):
        if of_single.keys() != of_copy.keys():
            raise CannotStackError("A copy has other terms or gradients than the single run.")
        sizes = {name: float(in_float64(value).abs().max()) for name, value in of_single.items() if value.numel()}
        if not all(map(math.isfinite, sizes.values())):
            raise CannotStackError("The first step of a single run is not finite, so nothing can be compared with it.")
        gradients = max((size for name, size in sizes.items() if name.startswith("gradient")), default=0.0)
        small = SMALL * sizes.get("loss", 0.0)  # a term may be a difference that almost vanishes
        for name, value in of_single.items():
            size = max(sizes.get(name, 0.0), SMALL * gradients if name.startswith("gradient") else small)
            bound = tolerance * max(size, 1e-6)
            if not torch.allclose(in_float64(of_copy[name]), in_float64(value), rtol=0, atol=bound, equal_nan=True):
                raise CannotStackError(f"A copy differs from the single run in {name!r}.")


@contextmanager
def _left_as_it_is(modules: Sequence[nn.Module]) -> Iterator[None]:
    restores = [snapshot(module, []) for module in modules]
    try:
        yield
    finally:
        for restore in restores:
            restore()


@contextmanager
def _convolutions_in_float32(device: torch.device) -> Iterator[None]:
    if device.type != "cuda":
        yield
        return
    convolutions = kinds()["convolutions"]
    before, convolutions.fp32_precision = convolutions.fp32_precision, "ieee"
    try:
        yield
    finally:
        put_back(convolutions, before)


def _has_convolutions(method: nn.Module) -> bool:
    return any(isinstance(module, nn.Conv2d | nn.ConvTranspose2d) for module in method.modules())


def _seconds(step: Step, turns: Sequence[Turn]) -> float:
    """Return how long a step takes on the threads of now."""
    device, tried = turns[0].loop.device, rehearsal(step, turns)

    def again() -> None:
        tried.step()
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    if turns[0].loop.config.train.compile:
        again()  # it is compiled in its first step
    # on one thread the time that other programs had the core does not count
    clock = time.process_time if device.type == "cpu" and torch.get_num_threads() == 1 else time.perf_counter
    return seconds_of_a_step(torch.get_num_threads(), Rehearsal(again, tried.steps), clock)
