"""What does this data tempt a model with? The axes of a trained VAE, scored, judged in words, and made visible."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from sitar.analysis.audit import scores
from sitar.analysis.audit.verdict import GAP, LEAST_SAMPLES, LIFT, Verdict, judge, too_few
from sitar.analysis.samples import check_same_data, decodes_images, no_held_out, some
from sitar.analysis.traversal import extremes, traversal
from sitar.config import RunConfig, run_config
from sitar.data.types import EvalSplit, in_batches
from sitar.errors import RunError
from sitar.evaluation.trained_model import TrainedModel
from sitar.findings import AUDIT_VERSION
from sitar.models import VAE
from sitar.presets import preset_names
from sitar.registry import METHODS
from sitar.run_folder import RunFolder

MOST_TRAIN, MOST_HELD_OUT = 20_000, 10_000  # samples whose latents are computed, drawn at random where there are more
USED = 0.01  # variance of an axis's posterior means from which the VAE uses it (Burda et al., 2016)
SHOWN_AXES, MOST_SHOWN = 3, 6  # with pictures: so many at least, and those that stand out
SHOWN_CLASSES = 6  # with more classes, only the two that are furthest apart on an axis

Audit = dict[str, Any]


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


def audit_run(folder: RunFolder, device: str = "auto") -> Audit:
    """Audit the VAE of a finished run; the findings are written into its artifacts/audit and returned."""
    folder.result()  # refuses a run that is not finished
    check_has_axes(run_config(folder.read_config()))
    model = TrainedModel(folder, device)
    check_same_data(model)
    audit, arrays = examine(model)
    folder.write_audit(audit, arrays)
    return audit


def examine(model: TrainedModel) -> tuple[Audit, dict[str, np.ndarray]]:
    """The audit as plain values, and its pictures as uint8 arrays by name."""
    split = model.data.evaluation.get("val")
    if split is None or len(split) == 0:
        raise no_held_out(model, "and the audit is of samples that were not trained on")
    place = some(len(split), MOST_HELD_OUT)
    x, y = split.x[place], split.y[place].cpu()
    counts = dict(zip(model.classes, torch.bincount(y, minlength=len(model.classes)).tolist(), strict=True))
    audit: Audit = {
        "version": AUDIT_VERSION,
        "preset": model.config.preset,
        "seed": model.config.seed,
        "vae_learns": model.method.vae_learns,
        "held_out": {"split": "val", "n": len(y), "of": len(split), "classes": counts},
        "chance": 1 / len(model.classes),
        "rule": {"lift": LIFT, "gap": GAP, "least_samples": LEAST_SAMPLES},
        "notes": _notes(model, len(split)),
        "axes": [],
        "attribute": None,
        "pictures": [],
    }
    verdict = too_few(counts)
    arrays: dict[str, np.ndarray] = {}
    if min(counts.values()) >= 2:  # else some scores do not exist
        mu = _means(model, x)
        found, pairs = _scores(model, mu, y)
        deviation = mu.std(0).tolist()
        used = [axis for axis, size in enumerate(deviation) if size**2 >= USED]
        verdict = verdict or judge(found["accuracy"], len(model.classes), used)
        order = sorted(scores.ordered(found["accuracy"].value), key=lambda axis: axis not in used)
        for axis in order:
            about = {"axis": axis, "used": axis in used, "deviation": deviation[axis]}
            audit["axes"].append(about | _figures(axis, found, [model.classes[c] for c in pairs[axis]]))
        audit["attribute"] = _attribute(model)
        if x.ndim == 4:
            shown = list(dict.fromkeys([*verdict.axes, *order[:SHOWN_AXES]]))[:MOST_SHOWN]
            for axis in sorted(shown, key=order.index):
                classes = list(range(len(counts))) if len(counts) <= SHOWN_CLASSES else sorted(pairs[axis])
                audit["pictures"].append(_pictures(model, x, mu, y, axis, classes, arrays))
    assert verdict is not None
    audit["verdict"] = {"kind": verdict.kind, "words": _words(verdict, audit), "axes": list(verdict.axes)}
    return audit, arrays


def _scores(model: TrainedModel, mu: Tensor, y: Tensor) -> tuple[dict[str, scores.Score], list[tuple[int, int]]]:
    train = model.data.train
    place = some(len(train), MOST_TRAIN)
    train_mu, train_y, classes = _means(model, train.x[place]), train.y[place].cpu(), len(model.classes)
    weight = scores.resample(y)
    distance, pairs = scores.wasserstein(mu, y, weight)
    found = {
        "accuracy": scores.accuracy(train_mu, train_y, mu, y, classes, weight),
        "correlation": scores.correlation(mu, y, classes, weight),
        "wasserstein": distance,
    }
    return found, pairs


def _figures(axis: int, found: dict[str, scores.Score], pair: list[str]) -> dict[str, Any]:
    values = {name: float(score.value[axis]) for name, score in found.items()}
    bounds = {name: score.interval()[:, axis].tolist() for name, score in found.items()}
    return {**values, "intervals": bounds, "furthest_classes": pair}


def _attribute(model: TrainedModel) -> dict[str, Any] | None:
    """How well every axis tells attribute and label apart, on the split in which the two are least tied."""
    ties = {}
    for name, split in model.data.evaluation.items():
        attribute = _attribute_of(split, len(model.classes))
        if attribute is not None and min(len(attribute.unique()), len(split.y.unique())) > 1:
            ties[name] = round(scores.tie(split.y, attribute), 1)  # a difference by chance is none: then the first one
    if not ties:
        return None
    name = min(ties, key=lambda name: ties[name])
    split = model.data.evaluation[name]
    place = some(len(split), MOST_HELD_OUT)
    attribute = _attribute_of(split, len(model.classes))
    assert attribute is not None
    mu = _means(model, split.x[place])
    return {
        "name": split.group_names[0].partition(",")[2].rpartition("=")[0],
        "split": name,
        "tie": scores.tie(split.y, attribute),
        "attribute_auc": scores.separation(mu, attribute[place]),
        "label_auc": scores.separation(mu, split.y[place]),
    }


def _attribute_of(split: EvalSplit, num_classes: int) -> Tensor | None:
    """A group is label * values + attribute."""
    return None if split.group is None else split.group - split.y * (len(split.group_names) // num_classes)


def _words(verdict: Verdict, audit: Audit) -> str:
    """With what the strongest axis is, where the data has an attribute."""
    attribute = audit["attribute"]
    if attribute is None or not verdict.axes:
        return verdict.words
    axis, name = verdict.axes[0], attribute["name"]
    own, label = attribute["attribute_auc"][axis], attribute["label_auc"][axis]
    tracks = f"it is rather {name} than the label" if own > label else f"it is rather the label than {name}"
    told = (
        f"On {attribute['split']} axis {axis} tells {name} apart with an AUC of {own:.2f}, the label with {label:.2f}"
    )
    return f"{verdict.words} {told}: {tracks}."


def _pictures(
    model: TrainedModel, x: Tensor, mu: Tensor, y: Tensor, axis: int, classes: list[int], arrays: dict[str, np.ndarray]
) -> dict[str, Any]:
    """Fills `arrays`, and says what is in them."""
    arrays[f"axis{axis}/extremes"] = extremes(x, mu[:, axis], y, classes).numpy()
    about: dict[str, Any] = {"axis": axis, "classes": [model.classes[c] for c in classes], "values": None}
    if decodes_images(model):
        images, values = traversal(_vae(model), mu, y, axis)
        arrays[f"axis{axis}/traversal"] = images.numpy()
        about["values"] = values.tolist()
    return about


def _notes(model: TrainedModel, held_out: int) -> list[str]:
    """What a reader must know beside the figures: what was left out, and what there are no pictures of."""
    notes = []
    train, most = len(model.data.train), getattr(model.config.method, "max_samples", None)
    if most is not None and most < train:
        notes.append(f"The VAE was shown {most:,} of {train:,} training samples, drawn at random (method.max_samples).")
    if held_out > MOST_HELD_OUT:
        notes.append(f"Scores are of {MOST_HELD_OUT:,} of {held_out:,} held-out samples, drawn at random.")
    if model.method.vae_learns == "with labels":
        notes.append("This VAE was trained together with a classifier: its axes have seen the label.")
    if len(model.data.task.shape) != 3:
        notes.append("There are no pictures: this data holds features, not images.")
    elif not decodes_images(model):
        notes.append("There are no traversals: behind an encoder the VAE decodes features, not images.")
    return notes


def _vae(model: TrainedModel) -> VAE:
    vae = model.method.vae
    assert isinstance(vae, VAE)
    return vae


def _means(model: TrainedModel, x: Tensor) -> Tensor:
    """Posterior means of inputs as a split stores them."""
    x = x if model.encoder is None else model.encoder(x)
    vae = _vae(model)
    return in_batches(lambda chunk: vae.encode(chunk)[0].float(), x, model.device, model.method.evaluation_batch).cpu()
