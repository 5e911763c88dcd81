"""Export a finished run as one file, and compare the file with the model before it is written."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from torch import Tensor

from sitar.errors import ConfigError, ExportError, first_line
from sitar.evaluation.metrics import softmax
from sitar.evaluation.trained_model import TrainedModel, load
from sitar.export import onnx_file, torch_file
from sitar.export.deployed import deployed, trace
from sitar.export.description import OUTPUTS, describe
from sitar.export.probes import probes
from sitar.files import user_path, write_atomic
from sitar.integrity import checksum, sums_line
from sitar.registry import unknown
from sitar.run_folder import EXPORTS, RunFolder

FORMATS: dict[str, ModuleType] = {"onnx": onnx_file, "torch": torch_file}
LARGEST = 1e-4  # difference between the file and the model that is taken for rounding


@dataclass(frozen=True)
class Exported:
    """An exported file, with its description and how far it is from the model."""

    path: Path
    size: int
    description: dict[str, Any]
    sha256: str


def export(
    run: str | os.PathLike[str] | RunFolder,
    format: str = "onnx",
    out: str | os.PathLike[str] | None = None,
    *,
    force: bool = False,
    floats: bool = False,
    licence: str | None = None,
) -> Exported:
    """Write the model of a finished run as one file: stored inputs in, probabilities and logits out, any batch size.

    Without `out` the file lies in the folder `export` of the run. A file that is there is kept unless `force` is given.
    With `floats`, images go in as floats in [0, 1] and not as uint8. `licence` is that of the model, in your words.
    """
    if format not in FORMATS:
        raise unknown("format", format, FORMATS)
    folder = run if isinstance(run, RunFolder) else RunFolder(Path(run))
    folder.result()  # refuses a run that is not finished
    if format == "onnx":
        onnx_file.check_packages()
    path = folder.export_file(format) if out is None else user_path(out)
    _check_place(path, EXPORTS[format], force, makes_folder=out is None)
    model = load(folder, "cpu")
    if floats and len(model.task.shape) == 1:
        raise ConfigError("--floats is about images, and this model reads features, which are floats already.")
    inputs = probes(model, floats=floats)
    description = describe(model, floats=floats, licence=licence)
    kind = FORMATS[format]
    converted = kind.convert(trace(deployed(model), inputs), description["input"]["name"])
    checked = compare(model, kind.runner(kind.to_bytes(converted, description)), inputs)
    description["checked"] = checked
    if not all(checked[name] <= LARGEST for name in OUTPUTS):  # NaN is not
        raise ExportError(
            f"The exported file does not agree with the model: probabilities differ by {checked['probabilities']:.1e} "
            f"and logits by {checked['logits']:.1e}, where {LARGEST:.0e} is allowed. Nothing was written. Use "
            "`sitar predict`, and please report this."
        )
    content = kind.to_bytes(converted, description)
    try:
        if path.resolve() == folder.export_file(format).resolve():
            folder.write_export(format, content)
        else:
            _write(path, content)
    except OSError as error:
        raise ExportError(f"Cannot write {str(path)!r}: {error.strerror or error}. Choose another --out.") from error
    return Exported(path, len(content), description, checksum(content))


def compare(model: TrainedModel, run: Callable[[np.ndarray], list[np.ndarray]], inputs: Tensor) -> dict[str, Any]:
    """Return the largest differences between a file and the model, over a batch of one and a large batch.

    Logits count relative to the largest one, because rounding grows with it.
    """
    worst = dict.fromkeys(OUTPUTS, 0.0)
    for batch in (inputs[:1], inputs):
        logits = model.logits(batch)
        try:
            found = run(batch.numpy())
        except Exception as error:  # what the two runtimes raise is not specified
            raise ExportError(
                f"The exported file does not take a batch of {len(batch)}: {first_line(error)}."
            ) from error
        scales = (1.0, max(1.0, float(np.abs(logits).max())))
        for name, ours, theirs, scale in zip(worst, (softmax(logits), logits), found, scales, strict=True):
            worst[name] = float(np.maximum(worst[name], np.abs(ours - theirs).max() / scale))  # NaN stays
    return {**worst, "inputs": len(inputs), "batches": [1, len(inputs)], "allowed": LARGEST}


def _check_place(path: Path, ending: str, force: bool, *, makes_folder: bool) -> None:
    """Refuse a place that cannot be written, before any work is done."""
    if path.suffix.lower() != ending:
        raise ConfigError(f"--out {str(path)!r} is no such file: end its name in {ending}.")
    if path.exists() and not force:
        raise ExportError(f"{str(path)!r} is already there. Give another --out, or --force to replace it.")
    if not makes_folder and not path.parent.is_dir():
        raise ExportError(f"There is no folder {str(path.parent)!r} to write {path.name!r} into.")


def _write(path: Path, content: bytes) -> None:
    """Write a file, and its checksum beside it, which `sha256sum -c` reads."""
    beside = RunFolder.sums_of(path)
    beside.unlink(missing_ok=True)  # before the file that it vouches for
    write_atomic(path, content)
    write_atomic(beside, sums_line(path.name, checksum(content)))
