"""Write a traced program as a .pt2 file of torch.export, and run such a file."""

from __future__ import annotations

import io
import json
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch.export import ExportedProgram

METADATA = "sitar.json"


def convert(program: ExportedProgram, input_name: str) -> ExportedProgram:
    """Return the program as it is. Its input needs no name."""
    return program


def to_bytes(program: ExportedProgram, description: Mapping[str, Any]) -> bytes:
    """Return the content of the file. The description is the extra file sitar.json in it."""
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.export.save(program, buffer, extra_files={METADATA: json.dumps(dict(description))})
    return buffer.getvalue()


def runner(content: bytes) -> Callable[[np.ndarray], list[np.ndarray]]:
    """Return a function that runs the file with torch alone, and returns its outputs."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = torch.export.load(io.BytesIO(content)).module()

    def run(x: np.ndarray) -> list[np.ndarray]:
        with torch.no_grad():
            return [output.numpy() for output in module(torch.from_numpy(x))]

    return run
