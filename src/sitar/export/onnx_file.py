"""Write a traced program as an ONNX file, and run such a file with onnxruntime."""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, cast

import numpy as np
import torch
from torch.export import ExportedProgram

from sitar.errors import ExportError, first_line
from sitar.export.description import OUTPUTS

LARGEST = 2**31 - 2**24  # bytes of weights: a file holds 2 GB, and the network takes some of it
MISSING = 'ONNX files need onnx, onnxscript and onnxruntime ({}). Run `pip install "sitar[onnx]"`.'


def check_packages() -> None:
    """Refuse to start without the packages that write and check a file."""
    try:
        import onnx  # noqa: F401
        import onnxruntime  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise ExportError(MISSING.format(error)) from error


def convert(program: ExportedProgram, input_name: str) -> Any:
    """Convert a traced program. What the exporter notes of the source is left out."""
    size = sum(weight.nbytes for weight in program.state_dict.values())
    if size > LARGEST:
        raise ExportError(
            f"An ONNX file holds at most 2 GB, and this model has {size / 1e9:.1f} GB. Use --format torch."
        )
    try:
        with _quietly():
            exported = torch.onnx.export(
                program, input_names=[input_name], output_names=list(OUTPUTS), dynamo=True, verbose=False
            )
        assert exported is not None
        model = exported.model_proto
    except Exception as error:  # an operation that ONNX does not have; the exporter raises many kinds
        reason = first_line(error.__cause__ or error)
        raise ExportError(f"This model cannot be written as ONNX ({reason}). Use --format torch.") from error
    for part in (model, model.graph, *model.graph.node, *model.graph.initializer, *model.graph.value_info):
        del part.metadata_props[:]
        part.doc_string = ""
    return model


def to_bytes(model: Any, description: Mapping[str, Any]) -> bytes:
    """Return the content of the file. Each value of the description is an entry of its metadata, written as JSON."""
    model.producer_name, model.producer_version = "sitar", str(description["exported_by"])
    del model.metadata_props[:]
    for name, value in description.items():
        model.metadata_props.add(key=name, value=json.dumps(value))
    return model.SerializeToString()


def runner(content: bytes) -> Callable[[np.ndarray], list[np.ndarray]]:
    """Return a function that runs the file with onnxruntime, and returns its outputs."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # errors
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    return lambda x: cast("list[np.ndarray]", session.run(list(OUTPUTS), {name: x}))


@contextmanager
def _quietly() -> Iterator[None]:
    """Keep what the exporter says of its own steps from the user."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript", "onnx_ir")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
