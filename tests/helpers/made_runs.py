"""Run folders made by hand, in the form that training and `sitar explain` leave them, for what only reads folders."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from sitar.findings import AUDIT_VERSION, EXPLAIN_VERSION
from sitar.run_folder import RunFolder

SPLITS = ("train", "val", "id_test", "ood_test")
STEPS = 11


def make_run(
    path: Path,
    method: str = "sitar",
    *,
    seed: int = 0,
    classes: tuple[str, ...] = ("red", "green"),
    axes: int = 6,
    size: int = 28,
    samples: int = 240,
    accuracy: float = 0.8,
    alpha: float = 1.0,
    data: dict[str, Any] | None = None,
    explained: bool = True,
    epochs: int = 5,
) -> RunFolder:
    """A finished run with random predictions of about this accuracy and, if `explained`, random pictures."""
    random = np.random.default_rng(seed + 100 * len(method) + int(1000 * accuracy))
    folder = RunFolder(path)
    path.mkdir(parents=True)
    settings = {"name": method, **({"alpha": alpha, "lambda": 10.0 * bool(alpha)} if method == "sitar" else {})}
    preset = f"made/{method}" if alpha else "made/control"
    config = {"preset": preset, "seed": seed, "data": {"name": "made", **(data or {})}, "method": settings}
    folder.config_file.write_text(yaml.safe_dump(config, sort_keys=False))
    predictions, splits = {}, {}
    for split in SPLITS:
        y = np.arange(samples) % len(classes)
        attribute = np.random.default_rng(len(split)).integers(0, 2, samples)  # the same samples for every run
        right = random.random(samples) < accuracy
        said = np.where(right, y, (y + 1) % len(classes))
        if split != "train":  # of which a run keeps no predictions
            predictions |= {f"{split}/logits": np.eye(len(classes), dtype=np.float32)[said], f"{split}/y": y}
            predictions[f"{split}/group"] = 2 * y + attribute
        groups = {}
        for c in range(len(classes)):
            for a in (0, 1):
                members = (y == c) & (attribute == a)
                groups[f"label={c},place={a}"] = {
                    "n": int(members.sum()), "accuracy": float(right[members].mean()) if members.any() else None,
                }  # fmt: skip
        average, worst = float(right.mean()), min(g["accuracy"] for g in groups.values() if g["accuracy"] is not None)
        splits[split] = {
            "n": samples, "average": average, "adjusted_average": average, "class_balanced": average,
            "worst_group": worst, "calibration_error": 0.1, "groups": groups,
            "intervals": {"average": [average - 0.02, average + 0.02], "worst_group": [worst - 0.05, worst + 0.05]},
        }  # fmt: skip
    np.savez_compressed(folder.predictions_file, **predictions)
    with folder.metrics_file.open("w") as file:
        for epoch in range(1, epochs + 1):
            line: dict[str, Any] = {"phase": "train", "epoch": epoch, "loss": 2.0 / epoch, "cross_entropy": 1.0 / epoch}
            line |= {"val": {"average": accuracy * epoch / epochs}, "seconds": 1.0 * epoch}
            if method == "sitar":
                line["shortcut_score"] = random.random(axes).round(3).tolist()
            file.write(json.dumps(line) + "\n")
    environment = {"commit": "0" * 40, "python": "3.12", "versions": {"sitar": "0", "torch": "2"}, "device": "cpu"}
    environment |= {"data_checksum": "made", "command": f"sitar train {preset} --seed {seed}"}
    folder.environment_file.write_text(json.dumps(environment))
    if explained:
        explain(folder, method, list(classes), axes, size, random, predictions)
        if method == "sitar":
            leave_audit(folder, list(classes), size, random)
    folder.finish(
        {
            "version": 1, "dataset": "made", "method": method, "needs_groups": method == "dfr", "preset": preset,
            "seed": seed, "selection": "last", "selected_epoch": epochs, "seconds": 1.5, "classes": list(classes),
            "splits": splits,
        }
    )  # fmt: skip
    folder.done_file.write_bytes(b"")  # without checksums, since tests change what lies here
    return folder


def leave_audit(folder: RunFolder, classes: list[str], size: int, random: np.random.Generator) -> None:
    """What `sitar audit` leaves: a cue that cannot be told from the label, a column, a weak cue and an axis."""
    counts = {word: dict.fromkeys(classes, 60) for word in ("north", "south")}
    common = {"interval": [0.84, 0.92], "strength": "tells", "conflicts": dict.fromkeys(classes, 3), "apart": False}
    tells = {"words": "It tells the label.", "cannot_tell": "Cannot tell.", "question": "Ask for labels."}
    cues = [
        {"name": "top left corner", "kind": "image", "accuracy": 0.88, "counts": None, **common, **tells},
        {"name": "hospital", "kind": "column", "accuracy": 0.88, "counts": counts, **common, **tells},
        {"name": "brightness", "kind": "image", "accuracy": 0.6, "counts": None, **common, "strength": "a little"},
    ]
    ends = {"hospital": ["hospital = north", "hospital = south"], "top left corner": ["lowest", "highest"]}
    look = {
        "n": 500, "of": 500, "chance": 1 / len(classes), "rule": {"bar": 0.7, "level": 0.95}, "cues": cues,
        "same_as_label": [{"name": "ward", "words": "Ward follows.", "question": "Ask about the ward."}],
        "left_out": {"patient": "has a value of its own"}, "classes": dict.fromkeys(classes, 250),
        "pictures": [
            {"array": f"cue{i}/extremes", "cue": name, "classes": classes[:6], "ends": ends[name],
             "counts": [[6, 0] if i else [6, 6] for _ in classes[:6]]}
            for i, name in enumerate(("top left corner", "hospital"))
        ],
        "verdict": {"kind": "cannot tell", "words": "Top left corner tells the label."},
    }  # fmt: skip
    axis = {"axis": 1, "used": True, "accuracy": 0.8, "intervals": {"accuracy": [0.7, 0.9]}}
    audit = {
        "version": AUDIT_VERSION, "preset": "made", "seed": 0, "first_look": look, "axes": [axis], "chance": 0.5,
        "rule": {"lift": 0.4, "gap": 0.05}, "attribute": None, "notes": ["A note."],
        "pictures": [{"axis": 1, "classes": classes[:6], "values": [-1.0, 0.0, 1.0]}],
        "verdict": {"kind": "one", "words": "Axis 1 alone predicts the label.", "axes": [1]},
    }  # fmt: skip
    shown = len(classes[:6])
    arrays = {f"cue{i}/extremes": random.integers(0, 256, (shown, 2, 6, 3, size, size)) for i in range(2)}
    arrays |= {"axis1/extremes": random.integers(0, 256, (shown, 2, 8, 3, size, size))}
    arrays |= {"axis1/traversal": random.integers(0, 256, (6, 3, 3, size, size))}
    folder.write_audit(audit, {name: array.astype(np.uint8) for name, array in arrays.items()})


def explain(
    folder: RunFolder,
    method: str,
    classes: list[str],
    axes: int,
    size: int,
    random: np.random.Generator,
    predictions: dict[str, np.ndarray],
) -> None:
    """What `sitar explain` leaves, with smooth random pictures."""
    folder.artifacts.mkdir()
    values = [np.linspace(-2.5, 2.5, STEPS).tolist()] * axes
    part = {
        "n": 100,
        "axes": list(range(axes)),
        "values": random.random(axes).tolist(),
        "v": random.random(axes).tolist(),
    }
    has_axes = method == "sitar"
    about = {
        "version": EXPLAIN_VERSION, "preset": "made", "seed": 0, "split_of_axes": "val",
        "traversals": {"axes": list(range(axes)), "starts": [{"label": -1}, {"label": 0}], "values": values}
        if has_axes else None,
        "sensitivity": part, "shared_axes": {**part, "run": "runs/reference", "preset": "made/sitar", "seed": 0},
        "gradcam": {"layer": "3", "split": "ood_test", "n": 50, "mass_in_box": 0.625, "box": [0.2, 0.2, 0.8, 0.8]},
        "mistakes": {"splits": ["id_test", "ood_test"], "most": 200},
        "reasons": {} if has_axes else {"traversals": "A plain network decodes nothing."},
    }  # fmt: skip
    (folder.artifacts / "explain.json").write_text(json.dumps(about))
    if has_axes:
        shade = np.linspace(0, 255, STEPS)[None, None, :, None, None, None]
        images = np.broadcast_to(shade, (2, axes, STEPS, 3, size, size)) * _smooth(random, (2, axes, 1, 3), size)
        chance = np.linspace(0.05, 0.95, STEPS)
        rest = np.full((2, axes, STEPS, len(classes)), 0.0, np.float32)
        rest[..., 0], rest[..., 1] = chance, 1 - chance
        _save(folder.artifacts / "traversals.npz", images=images.astype(np.uint8), probabilities=rest)
    images = (255 * _smooth(random, (6, 3), size)).astype(np.uint8)
    y = np.arange(6) % len(classes)
    maps = _smooth(random, (6,), size).astype(np.float32)
    _save(
        folder.artifacts / "gradcam.npz", images=images, maps=maps, labels=y, predicted=(y + 1) % len(classes), index=y
    )
    mistakes: dict[str, np.ndarray] = {}
    for split in ("id_test", "ood_test"):
        missed = np.flatnonzero(predictions[f"{split}/logits"].argmax(1) != predictions[f"{split}/y"])[:200]
        mistakes |= {
            f"{split}/index": missed,
            f"{split}/images": (255 * _smooth(random, (len(missed), 3), size)).astype(np.uint8),
        }
    _save(folder.artifacts / "mistakes.npz", **mistakes)


def _smooth(random: np.random.Generator, shape: tuple[int, ...], size: int) -> np.ndarray:
    """Waves of random direction in [0, 1]: about as hard to compress as decoded images."""
    y, x = np.mgrid[0:size, 0:size] / size
    slope = random.normal(0, 4, (*shape, 1, 1, 2))
    return 0.5 + 0.5 * np.sin(slope[..., 0] * x + slope[..., 1] * y + random.random((*shape, 1, 1)) * 6)


def _save(path: Path, **arrays: np.ndarray) -> None:
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)  # type: ignore[arg-type]
    path.write_bytes(buffer.getvalue())
