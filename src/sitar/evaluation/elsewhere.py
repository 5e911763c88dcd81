"""Evaluate a model on labelled samples from elsewhere, such as another hospital, in a form of one's own data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sitar.config import apply_overrides, section_config
from sitar.data.types import Data, EvalSplit
from sitar.errors import ConfigError, DataError
from sitar.evaluation.metrics import Predictions, split_metrics
from sitar.evaluation.trained_model import TrainedModel
from sitar.progress import Watch, unwatched
from sitar.registry import DATASETS, did_you_mean
from sitar.run_folder import Run
from sitar.splits import TRAIN

ALL = "all"  # the name of samples that come without splits
KINDS = {".npz": "npz", ".csv": "table", ".parquet": "table"}  # of data that is not of the run's own kind
OWN = ("folder", "table", "npz", "features")
PLACES = ("root", "table", "file")
HOW_TO_SPLIT = ("split_column", "split_key", "split_by", "split_by_key", "seed", "majority_only", "rho", "unlabelled")


@dataclass(frozen=True)
class Elsewhere:
    """Holds the metrics of every split, and the values of the attribute that the names of groups stand for."""

    splits: dict[str, dict[str, Any]]
    attributes: dict[str, Sequence[str]]


def evaluate_elsewhere(
    model: TrainedModel, place: str, settings: Sequence[str] = (), watch: Watch = unwatched
) -> Elsewhere:
    """Compute the metrics of labelled samples in `place`, which is a folder or a file.

    They are read as the run's own data is, but for `settings` such as `label_column=finding`. Splits that the place
    names are evaluated one by one, and no split is made. Classes are found by their names. An attribute of the same
    name as in training has the values of training first, and metrics compare with the shares of groups there.
    """
    config = _config(model, place, settings)
    data: Data = DATASETS.get(config.name).load(config, watch)
    if (found := tuple(data.train.x.shape[1:])) != model.task.shape:
        raise DataError(f"These samples have the shape {found}, and the model was trained on {model.task.shape}.")
    label = np.array([_place(name, model.classes) for name in data.classes])
    values, known = _attribute(model, data)
    metrics = {}
    for name, split in _splits(data).items():
        y, group = split.y.numpy(), None
        if split.group is not None:
            [own] = data.attributes.values()
            attribute = np.array([values.index(value) for value in own])[split.group.numpy() - y * len(own)]
            group = label[y] * len(values) + attribute
        metrics[name] = split_metrics(Predictions(model.logits(split.x), label[y], group, **known))
    return Elsewhere(metrics, dict.fromkeys(data.attributes, values))


def _config(model: TrainedModel, place: str, settings: Sequence[str]) -> Any:
    """Return the settings of the run's data, with another place and without what made its splits."""
    own = model.config.data
    asked = apply_overrides({"data": {}}, [f"data.{setting.removeprefix('data.')}" for setting in settings])["data"]
    name = str(asked.get("name") or _kind(own.name, place))
    if name not in OWN:
        raise ConfigError(f"data.name is {name!r}. Samples from elsewhere are one of: {', '.join(OWN)}.")
    known = DATASETS.get(name).Config.model_fields
    kept = {
        key: value
        for key, value in own.model_dump().items()
        if key in known and key not in (*PLACES, *HOW_TO_SPLIT, "name")
    }
    if name == "features" and model.feature_columns:
        kept["feature_columns"] = model.feature_columns  # a pattern would find them in the order of another table
    where: Mapping[str, Any] = {"file": place}
    if name in ("folder", "table"):
        is_table = Path(place).suffix.lower() in KINDS or "://" in place
        where = {"table": place, "root": str(Path(place).parent)} if is_table else {"root": place}
    return section_config("data", {**kept, **where, "val_share": 0, "test_share": 0, **asked, "name": name})


def _kind(own: str, place: str) -> str:
    return own if own in OWN else KINDS.get(Path(place).suffix.lower(), "folder")


def _splits(data: Data) -> dict[str, EvalSplit]:
    """Return all samples by split. Those without a split are one."""
    group = None if data.train_groups is None else data.train_groups.group
    train = EvalSplit(data.train.x, data.train.y, group)
    everything = {TRAIN if data.evaluation else ALL: train, **data.evaluation}
    return {name: split for name, split in everything.items() if len(split)}


def _place(name: str, classes: Sequence[str]) -> int:
    if name not in classes:
        raise DataError(
            f"The class {name!r} is none that the model knows.{did_you_mean(name, classes)} It knows: "
            f"{', '.join(classes)}. Name classes as in training, or leave these samples out."
        )
    return classes.index(name)


def _attribute(model: TrainedModel, data: Data) -> tuple[list[str], dict[str, Any]]:
    """Return the values of the attribute, those of training first, and what metrics know of its groups."""
    if not data.attributes:
        return [], {}
    [(key, own)] = data.attributes.items()
    before = list((model.result.get("attributes") or {}).get(key, ()))
    values = [*before, *(value for value in own if value not in before)]
    classes = len(model.classes)
    known: dict[str, Any] = {
        "group_names": tuple(f"label={c},{key}={v}" for c in range(classes) for v in range(len(values)))
    }
    finished = Run.read(model.folder)
    arrays = next((found for split in finished.result["splits"] if (found := finished.predictions(split))), {})
    if before and (share := arrays.get("group_share")) is not None:
        new = ((0, 0), (0, len(values) - len(before)))  # no training sample has the values that are new
        known["group_share"] = tuple(np.pad(share.reshape(classes, len(before)), new).ravel().tolist())
        known["majority"] = frozenset((int(c), int(v)) for c, v in arrays.get("majority", ()))
    return values, known
