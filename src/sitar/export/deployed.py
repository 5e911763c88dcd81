"""A deployed model is a trained model as one traced program: stored inputs in, probabilities and logits out.

The program holds what the logits need and nothing else. The weights of a first model that marked errors, or a value
for each training sample, stay in the run folder. Nor does it say where the source lies that it was traced from.
"""

from __future__ import annotations

import warnings
from copy import deepcopy

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from sitar.data.types import to_float
from sitar.errors import ExportError, first_line
from sitar.evaluation.trained_model import TrainedModel

TRACED = 2  # inputs of the batch that is traced: 0 and 1 would be taken for constants
SOURCE = ("stack_trace", "nn_module_stack", "source_fn_stack", "from_node")  # what a node remembers of the source


class Deployed(nn.Module):
    """The module scales the pixels, encodes them if the encoder is frozen, and classifies."""

    def __init__(self, model: TrainedModel) -> None:
        super().__init__()
        self.encoder = nn.Identity() if model.encoder is None else model.encoder.network
        self.method = model.method

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        logits = self.method.logits(self.encoder(to_float(x))).float()
        return logits.softmax(1), logits


def deployed(model: TrainedModel) -> Deployed:
    """Return the module of a trained model that can be exported. One that cannot is refused with the reason."""
    if model.method.no_export is not None:
        raise ExportError(f"The model of {str(model.folder.path)!r} cannot be exported. {model.method.no_export}")
    return Deployed(model).eval()


def trace(module: Deployed, example: Tensor) -> ExportedProgram:
    """Trace the module for batches of any size. `example` has inputs of the right shape and type."""
    program = _trace(module, example)
    used = {str(node.target) for node in program.graph.nodes if node.op == "placeholder" and node.users}
    signature = program.graph_signature
    named = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
    unused = [name for target, name in named.items() if target not in used]
    return _without_source(_trace(_without(module, unused), example) if unused else program)


def _without(module: Deployed, names: list[str]) -> Deployed:
    """Return a copy of the module without some of its parameters and buffers."""
    lean = deepcopy(module)
    for name in names:
        owner, _, last = name.rpartition(".")
        setattr(lean.get_submodule(owner), last, None)
    return lean


def _trace(module: Deployed, example: Tensor) -> ExportedProgram:
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")  # torch warns of its own coming changes
            return torch.export.export(module, (example[:TRACED].clone(),), dynamic_shapes=({0: Dim("batch")},))
    except Exception as error:  # what a network does that cannot be traced is not specified
        raise ExportError(
            f"This model cannot be traced for batches of any size ({type(error).__name__}: {first_line(error)}). Its "
            "method, or its encoder, takes Python branches that depend on the data. `sitar predict` needs no export."
        ) from error


def _without_source(program: ExportedProgram) -> ExportedProgram:
    for node in program.graph.nodes:
        for key in SOURCE:
            node.meta.pop(key, None)
    return program
