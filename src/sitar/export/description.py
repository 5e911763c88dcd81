"""Describe an exported model to the program that runs it: what goes in, what comes out, and where it comes from."""

from __future__ import annotations

from typing import Any

from sitar import __version__
from sitar.data.image_dataset import ImageConfig
from sitar.evaluation.trained_model import TrainedModel
from sitar.given import given_to
from sitar.registry import DATASETS
from sitar.run_folder import preset_name

VERSION = 1
PACKAGE = "sitar"
IMAGES, FEATURES = "images", "features"  # the name of the input, which says its kind
OUTPUTS = ("probabilities", "logits")
COLOURS = {1: "gray", 3: "RGB"}
AS_STORED = "as in the training data"


def describe(model: TrainedModel, *, floats: bool = False, licence: str | None = None) -> dict[str, Any]:
    """Return plain values about a model, for the metadata of a file. None of them is a path on this machine."""
    environment = model.folder.environment() or {}
    result = model.result
    return {
        "version": VERSION,
        "classes": list(model.classes),
        "input": describe_input(model, floats),
        "outputs": {name: ["batch", len(model.classes)] for name in OUTPUTS},
        "method": model.config.method.name,
        "preset": preset_name(model.config.preset),
        "seed": result["seed"],
        **given_to(result),
        "dataset": result["dataset"],
        "data_checksum": environment.get("data_checksum"),
        "data_licence": DATASETS.get(result["dataset"]).licence,
        "licence": licence,
        "commit": environment.get("commit"),
        "trained_by": (environment.get("versions") or {}).get(PACKAGE),
        "exported_by": __version__,
    }


def describe_input(model: TrainedModel, floats: bool = False) -> dict[str, Any]:
    """Say what one input is, and how an image file becomes one."""
    shape, config = model.task.shape, model.config.data
    if len(shape) == 1:
        columns = {"columns": list(model.feature_columns)} if model.feature_columns else {}
        return {"name": FEATURES, "shape": ["batch", *shape], "dtype": "float32", **columns}
    from_files = isinstance(config, ImageConfig)
    return {
        "name": IMAGES,
        "shape": ["batch", *shape],
        "layout": "NCHW",
        "dtype": "float32" if floats else "uint8",
        "range": [0, 1] if floats else [0, 255],
        "colour": COLOURS.get(shape[0], AS_STORED) if from_files else AS_STORED,
        "resize": _resize(config) if from_files else None,
    }


def _resize(config: ImageConfig) -> dict[str, Any]:
    """Say how an image file is brought to the size: stretched, or scaled by its shorter side and cut in the middle."""
    size = [config.image_size, config.image_size]
    how = {"mode": "stretch"} if config.crop_pct is None else {"mode": "crop", "crop_pct": config.crop_pct}
    return {"height_width": size, **how, "filter": "bilinear, as Pillow resizes"}
