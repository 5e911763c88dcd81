"""What does this data tempt a model with? An audit takes a first look, and then scores and shows the axes of a VAE."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sitar.analysis.audit import scores
from sitar.analysis.audit.advice import advice
from sitar.analysis.audit.attribute import attribute_in_words, attribute_scores
from sitar.analysis.audit.first_look import FirstLook, first_look
from sitar.analysis.audit.verdict import GAP, LEAST_SAMPLES, LIFT, judge, too_few
from sitar.analysis.latents import decodes_images, ordered, posterior_means, vae_of
from sitar.analysis.samples import HELD_OUT, check_held_out, check_same_data, held_out, holds_images, subset
from sitar.analysis.traversal import extremes, traversal
from sitar.config import RunConfig, run_config
from sitar.data import Data, load_data
from sitar.errors import RunError
from sitar.evaluation.trained_model import TrainedModel
from sitar.findings import AUDIT_VERSION
from sitar.methods.vae import USED, BetaVAE
from sitar.presets import preset_names
from sitar.registry import METHODS
from sitar.run_folder import RunFolder
from sitar.training.run import train_keeping_data

MOST_TRAIN, MOST_HELD_OUT = 20_000, 10_000  # samples whose latents are computed, drawn at random where there are more
SHOWN_AXES, MOST_SHOWN = 3, 6  # with pictures: so many at least, and those that stand out
SHOWN_CLASSES = 6  # with more classes, only the two that are furthest apart on an axis

Audit = dict[str, Any]
Arrays = dict[str, np.ndarray]
OnFirstLook = Callable[[FirstLook], None]


def check_has_axes(config: RunConfig) -> None:
    """Refuse a method without a VAE, before it is trained."""
    name = config.method.name
    if METHODS.get(name).vae_learns is None:
        known = [other for other, cls in METHODS.available().items() if cls.vae_learns is not None]
        names, dataset = preset_names(), config.preset.partition("/")[0]
        such = next((f", such as {dataset}/{other}" for other in reversed(known) if f"{dataset}/{other}" in names), "")
        raise RunError(
            f"The audit looks at the latent axes of a VAE, and the method {name!r} has none. Give a run or a preset of "
            f"{', '.join(known)}{such}."
        )


def take_first_look(config: RunConfig, folder: RunFolder, *, progress: bool = True) -> Audit:
    """Take the first look only: no VAE is trained. The findings are written into `folder`."""
    if folder.is_audited and folder.audit()["axes"]:
        raise RunError(f"{str(folder.path)!r} has a whole audit, first look included. Leave --first out.")
    data = load_data(config.data, progress)
    look, arrays = first_look(config.data, data)
    words = "Only the first look was taken: no VAE was trained."
    audit: Audit = {
        "version": AUDIT_VERSION,
        "preset": config.preset,
        "seed": config.seed,
        "first_look": look,
        "notes": [*_first_notes(look), *_advice(look)],
        "axes": [],
        "attribute": None,
        "pictures": [],
        "verdict": {"kind": "not asked", "words": words, "axes": []},
        "data_checksum": data.checksum,  # there may be no run here to say it
    }
    folder.write_audit(audit, arrays)
    return audit


def train_and_audit(
    config: RunConfig,
    folder: RunFolder,
    *,
    overrides: Iterable[str] = (),
    device: str = "auto",
    progress: bool = True,
    on_first_look: OnFirstLook = lambda look: None,
) -> Audit:
    """Take a first look, train a VAE in `folder`, or continue a run that was stopped there, and audit it.

    The settings are parsed and the data is loaded once, for all. `on_first_look` is told before training starts.
    """
    check_has_axes(config)
    looks: list[tuple[FirstLook, Arrays]] = []

    def look(data: Data) -> None:
        looks.append(first_look(config.data, data))
        on_first_look(looks[0][0])
        check_held_out(config, data)

    data = train_keeping_data(
        config, folder, device=device, resume=True, progress=progress, overrides=overrides, on_data=look
    )
    model = TrainedModel(folder, device, config=config, data=data)
    if not looks:
        look(model.data)
    return _audit(model, looks[0])


def audit_run(folder: RunFolder, device: str = "auto", on_first_look: OnFirstLook = lambda look: None) -> Audit:
    """Audit the VAE of a finished run."""
    folder.result()  # refuses a run that is not finished
    config = run_config(folder.read_config())
    check_has_axes(config)
    model = TrainedModel(folder, device, config=config)
    check_same_data(model)
    look = first_look(config.data, model.data)
    on_first_look(look[0])
    return _audit(model, look)


def _audit(model: TrainedModel, look: tuple[FirstLook, Arrays]) -> Audit:
    """Audit a model, and write the findings into its run folder, with those of the first look."""
    check_same_data(model)
    audit, arrays = audit_model(model)
    audit = {**audit, "first_look": look[0], "notes": [*_first_notes(look[0]), *audit["notes"], *_advice(look[0])]}
    model.folder.write_audit(audit, {**look[1], **arrays})
    return audit


def audit_model(model: TrainedModel) -> tuple[Audit, Arrays]:
    """Return the audit of the axes as plain values, and its pictures as uint8 arrays by name."""
    x, y = held_out(model, MOST_HELD_OUT)
    available = len(model.data.evaluation[HELD_OUT])
    counts = dict(zip(model.classes, torch.bincount(y, minlength=len(model.classes)).tolist(), strict=True))
    audit: Audit = {
        "version": AUDIT_VERSION,
        "preset": model.config.preset,
        "seed": model.config.seed,
        "first_look": None,
        "vae_learns": model.method.vae_learns,
        "held_out": {"split": HELD_OUT, "n": len(y), "of": available, "classes": counts},
        "chance": 1 / len(model.classes),
        "rule": {"lift": LIFT, "gap": GAP, "least_samples": LEAST_SAMPLES},
        "notes": _notes(model, available),
        "axes": [],
        "attribute": None,
        "pictures": [],
    }
    verdict = too_few(counts)
    arrays: Arrays = {}
    if min(counts.values()) >= 2:  # else some scores do not exist
        mu = posterior_means(model, x)
        axis_scores, pairs = _scores(model, mu, y)
        deviation = mu.std(0).tolist()
        used = [axis for axis, size in enumerate(deviation) if size**2 >= USED]
        verdict = verdict or judge(axis_scores["accuracy"], len(model.classes), used)
        order = sorted(ordered(axis_scores["accuracy"].value), key=lambda axis: axis not in used)
        for axis in order:
            furthest = [model.classes[label] for label in pairs[axis]]
            size = {"axis": axis, "used": axis in used, "deviation": deviation[axis]}
            audit["axes"].append(size | _figures(axis, axis_scores) | {"furthest_classes": furthest})
        audit["attribute"] = attribute_scores(model, MOST_HELD_OUT)
        if holds_images(model):
            shown = list(dict.fromkeys([*verdict.axes, *order[:SHOWN_AXES]]))[:MOST_SHOWN]
            for axis in sorted(shown, key=order.index):
                classes = list(range(len(counts))) if len(counts) <= SHOWN_CLASSES else sorted(pairs[axis])
                arrays[f"axis{axis}/extremes"] = extremes(x, mu[:, axis], y, classes).numpy()
                values = None
                if decodes_images(model):
                    images, values = traversal(vae_of(model), mu, y, axis)
                    arrays[f"axis{axis}/traversal"] = images.numpy()
                picture = {"axis": axis, "classes": [model.classes[label] for label in classes]}
                audit["pictures"].append(picture | {"values": None if values is None else values.tolist()})
    assert verdict is not None
    words = verdict.words
    if audit["attribute"] is not None and verdict.axes:
        words += f" {attribute_in_words(audit['attribute'], verdict.axes[0])}"
    audit["verdict"] = {"kind": verdict.kind, "words": words, "axes": list(verdict.axes)}
    return audit, arrays


def _scores(model: TrainedModel, mu: Tensor, y: Tensor) -> tuple[dict[str, scores.Score], list[tuple[int, int]]]:
    """Compute the scores of every axis, and the two classes that are furthest apart on each."""
    train, classes = model.data.train, len(model.classes)
    index = subset(len(train), MOST_TRAIN)
    train_mu, train_y = posterior_means(model, train.x[index]), train.y[index].cpu()
    weight = scores.resample(y)
    distance, pairs = scores.wasserstein(mu, y, weight)
    axis_scores = {
        "accuracy": scores.accuracy(train_mu, train_y, mu, y, classes, weight),
        "correlation": scores.correlation(mu, y, classes, weight),
        "wasserstein": distance,
    }
    return axis_scores, pairs


def _figures(axis: int, axis_scores: dict[str, scores.Score]) -> dict[str, Any]:
    """Return the scores of one axis, with their intervals."""
    values = {name: float(score.value[axis]) for name, score in axis_scores.items()}
    bounds = {name: score.interval()[:, axis].tolist() for name, score in axis_scores.items()}
    return {**values, "intervals": bounds}


def _first_notes(look: FirstLook) -> list[str]:
    """Return what a reader must know beside the first look: what was not looked at."""
    notes = []
    if look["n"] < look["of"]:
        notes.append(f"The first look is at {look['n']:,} of {look['of']:,} training samples, drawn at random.")
    return notes + [f"Left out of the first look: {name} {reason}." for name, reason in look["left_out"].items()]


def _advice(look: FirstLook) -> list[str]:
    """Return the advice that goes with the verdict of a first look, as the last note."""
    words = advice(look["verdict"]["kind"])
    return [] if words is None else [words]


def _notes(model: TrainedModel, available: int) -> list[str]:
    """Return what a reader must know beside the figures: what was left out, and what there are no pictures of."""
    notes = []
    shown, train = model.method.samples_shown(), len(model.data.train)
    if shown is not None:
        drawn = "drawn at random (method.max_samples)"
        notes.append(f"The VAE was shown {shown:,} of {train:,} training samples, {drawn}.")
    if isinstance(model.method, BetaVAE) and (starts := model.method.starts()):
        notes.append(starts)
    if available > MOST_HELD_OUT:
        notes.append(f"Scores are of {MOST_HELD_OUT:,} of {available:,} held-out samples, drawn at random.")
    if model.method.vae_learns == "with labels":
        notes.append("This VAE was trained together with a classifier: its axes have seen the label.")
    if not holds_images(model):
        notes.append("There are no pictures: this data holds features, not images.")
    elif not decodes_images(model):
        notes.append("There are no traversals: behind an encoder the VAE decodes features, not images.")
    return notes
