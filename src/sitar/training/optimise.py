"""Build optimisers, and compute learning rates."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import SGD, Adam, AdamW, Optimizer

from sitar.config import TrainConfig

MOMENTS = ("exp_avg", "exp_avg_sq")  # that Adam keeps of each parameter
GUARDED = ("add_param_group", "zero_grad", "state_dict", "load_state_dict")


def _without_guards(cls: type[Optimizer]) -> type[Optimizer]:
    """Return an optimiser of torch that does not import torch's compiler.

    torch guards methods of its optimisers against compilation. The guards import the compiler, which takes a second in
    every process. We compile losses and no optimisers, so ours have the methods as they are behind the guards.
    """
    methods = {name: inspect.unwrap(getattr(cls, name)) for name in GUARDED}
    return type(cls.__name__, (cls,), {**methods, "step": torch.no_grad()(inspect.unwrap(cls.step))})


OPTIMISERS: dict[str, Callable[..., Optimizer]] = {
    "sgd": _without_guards(SGD),
    "adam": _without_guards(Adam),
    "adamw": _without_guards(AdamW),
}


def build_optimiser(config: TrainConfig, parameters: Sequence[nn.Parameter], device: torch.device) -> Optimizer:
    """Build the optimiser of one objective.

    On a GPU its learning rate is a tensor, so that a captured step reads the current value.
    """
    on_gpu = device.type == "cuda"
    rate = torch.tensor(config.learning_rate, device=device) if on_gpu else config.learning_rate
    own = {"momentum": config.momentum} if config.optimiser == "sgd" else {"capturable": on_gpu}
    return OPTIMISERS[config.optimiser](parameters, lr=rate, weight_decay=config.weight_decay, fused=True, **own)


def set_learning_rate(optimiser: Optimizer, rate: float) -> None:
    for group in optimiser.param_groups:
        if isinstance(group["lr"], torch.Tensor):
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate


def restore_optimiser(optimiser: Optimizer, state: dict[str, Any]) -> None:
    """Load a saved state, but keep this optimiser's own options.

    The run may have been started on another device, and a captured step reads the learning-rate tensor of this
    optimiser.
    """
    options = [{key: value for key, value in group.items() if key != "params"} for group in optimiser.param_groups]
    optimiser.load_state_dict(state)
    for parameter, values in optimiser.state.items():
        shapes: dict[str, object] = dict.fromkeys(
            ("momentum_buffer",) if isinstance(optimiser, SGD) else MOMENTS, parameter.shape
        )
        if not isinstance(optimiser, SGD):
            shapes["step"] = torch.Size()
        found = {name: value.shape if isinstance(value, Tensor) else value for name, value in dict(values).items()}
        if found != shapes:
            raise ValueError(f"an optimiser has {_in_words(found)}, and should have {_in_words(shapes)}")
    for group, own in zip(optimiser.param_groups, options, strict=True):
        group.update(own)


def _in_words(shapes: Mapping[str, object]) -> str:
    return ", ".join(f"{name} {tuple(of) if isinstance(of, torch.Size) else of}" for name, of in shapes.items())


def learning_rate(config: TrainConfig, step: int, steps_per_epoch: int, epochs: int) -> float:
    """Return the learning rate of a step, counted from 0.

    It rises linearly during the warm-up. Then it is constant, or falls to 0 until the end of the phase.
    """
    warmup = config.warmup_epochs * steps_per_epoch
    if step < warmup:
        return config.learning_rate * (step + 1) / (warmup + 1)
    total = epochs * steps_per_epoch
    progress = (step - warmup) / max(1, total - warmup)
    factor = {
        "constant": 1.0,
        "linear": 1 - progress,
        "cosine": 0.5 * (1 + math.cos(math.pi * progress)),
    }[config.schedule]
    return config.learning_rate * factor
