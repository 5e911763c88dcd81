"""Choose the noise of the presets for one's own images, on images that no table reports.

In most of the data here the shortcut is the easier cue: the colour of a digit, or the hospital of an X-ray. Elsewhere
there is none. All images, those that decide included, are training images of their data sets: of MNIST, and of the
X-rays of examples/xrays. What faces say of the same settings is in reproduce/targeting_faces.yaml.

Every run is that of the presets `npz/...` with the settings that `folder` and `table` had before this study, at 32x32
pixels. Accuracies are those on images in which the shortcut tells nothing: of the epoch that `val` chooses, and of the
last one. The rows "small" came second. They have two narrow convolutions, 32 axes and a smaller beta, because the VAE
of the first rows uses no axis at all on digits.

    python reproduce/own_presets.py --device cuda    makes what the record does not have, and writes it after every run
    python reproduce/own_presets.py --part 0 15      every 15th run from the first on: side by side with other parts
"""

from __future__ import annotations

import argparse
import io
import json
import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from sitar.data.benchmarks.mnist_files import load_mnist
from sitar.files import write_atomic
from sitar.locks import locked
from sitar.presets import load_config
from sitar.run_folder import RunFolder
from sitar.training.environment import commit
from sitar.training.run import train_config

ROOT = Path(__file__).resolve().parent.parent
RECORD = Path(__file__).parent / "records" / "own_presets.json"
SIDE, TEST, VAL = 32, 400, 0.1
SEEDS = (0, 1, 2)
LIKE_FOLDER = [
    "model.channels=null",
    "model.latent_dim=10",
    "train.evaluate=[val,test]",
    "train.selection=val_class_balanced",
]
BETA, BETA_SMALL = "method.beta=2", "method.beta=0.2"
WIDE = "model.latent_dim=32"
SMALL = ["model.channels=[16,32]", WIDE]
ROWS: dict[str, tuple[str, list[str]]] = {
    "ERM": ("npz/erm", []),
    "control, 10 axes": ("npz/control", [BETA]),
    "direction, alpha 0.1, 10 axes": ("npz/sitar_best", [BETA, "method.noise=direction", "method.alpha=0.1"]),
    "control, 32 axes": ("npz/control", [BETA, WIDE]),
    "axis, alpha 1, 32 axes": ("npz/sitar_best", [BETA, "method.noise=axis", "method.alpha=1", WIDE]),
    "swap, alpha 1, 32 axes": ("npz/sitar_best", [BETA, "method.noise=swap", "method.alpha=1", WIDE]),
    "direction, alpha 1, 32 axes": ("npz/sitar_best", [BETA, "method.noise=direction", "method.alpha=1", WIDE]),
    "axis, alpha 1, 10 axes": ("npz/sitar_best", [BETA, "method.noise=axis", "method.alpha=1"]),
    "small, ERM": ("npz/erm", SMALL),
    "small, control, beta 0.2": ("npz/control", [BETA_SMALL, *SMALL]),
    **{
        f"small, {noise}, alpha 1, beta {beta}":
            ("npz/sitar_best", [f"method.noise={noise}", "method.alpha=1", f"method.beta={beta}", *SMALL])
        for noise, beta in (("direction", 0.2), ("direction", 0.5), ("direction", 0.1), ("swap", 0.2), ("axis", 0.2))
    },
    "small, auto": ("npz/sitar_auto", [BETA_SMALL, "train.selection=last", *SMALL]),
}  # fmt: skip
MEASURES = ("average", "worst_group", "core_auc", "shortcut_auc")
Images = tuple[NDArray[np.uint8], NDArray[np.int64]]


def digits(random: np.random.Generator) -> Images:
    """Return 3,000 training images of MNIST in grey. The class is whether the digit is 5 or more."""
    mnist = load_mnist()
    chosen = random.permutation(len(mnist.train_images))[:3000]
    images = np.pad(mnist.train_images[chosen], ((0, 0), (2, 2), (2, 2)))
    return np.repeat(images[:, None], 3, 1), (mnist.train_digits[chosen] >= 5).astype(np.int64)


def xrays(random: np.random.Generator) -> Images:
    """Return the 1,400 X-rays for training. The class is whether there is pneumonia."""
    with np.load(ROOT / "examples" / "xrays" / "chest_xrays.npz") as file:
        training = random.permutation(np.flatnonzero(file["split"] == "train"))
        images, y = file["x"][training], file["y"][training].astype(np.int64)
    larger = [np.asarray(Image.fromarray(image).resize((SIDE, SIDE), Image.Resampling.BICUBIC)) for image in images]
    return np.repeat(np.stack(larger)[:, None], 3, 1), y


def coloured(images: NDArray[np.uint8], cue: NDArray[np.int64]) -> NDArray[np.uint8]:
    """Colour digits red or green."""
    coloured = images.copy()
    coloured[:, 2] = 0
    coloured[np.arange(len(images)), cue] = 0
    return coloured


def taken_in(images: NDArray[np.uint8], hospital: NDArray[np.int64]) -> NDArray[np.uint8]:
    """Show X-rays as two hospitals would: with another contrast, and a tag in another corner."""
    shown = 128 + np.where(hospital, 1.2, 0.7)[:, None, None, None] * (images.astype(np.float64) - 128)
    corner = SIDE // 8
    shown[hospital == 1, :, :corner, :corner] = 255
    shown[hospital == 0, :, :corner, -corner:] = 0
    return shown.clip(0, 255).astype(np.uint8)


Show = Callable[[NDArray[np.uint8], NDArray[np.int64]], NDArray[np.uint8]]
TASKS: dict[str, tuple[Callable[[np.random.Generator], Images], Show, float, float]] = {
    # images, how the cue shows, share of training images whose cue fits the label, share of labels that are wrong
    "colour = label": (digits, coloured, 1.0, 0.0),
    "hospital = label": (xrays, taken_in, 1.0, 0.0),
    "colour, 95 %": (digits, coloured, 0.95, 0.0),
    "colour, 90 %, wrong labels": (digits, coloured, 0.9, 0.25),
    "hospital, 95 %": (xrays, taken_in, 0.95, 0.0),
    "no shortcut, digits": (digits, coloured, 0.5, 0.0),
    "no shortcut, X-rays": (xrays, taken_in, 0.5, 0.0),
}


def make_data(task: str, path: Path) -> None:
    """Write the images of a task. In the last of them, which are the test, the cue tells nothing."""
    load, show, rho, wrong = TASKS[task]
    random = np.random.default_rng(100)
    images, y = load(random)
    n = len(images)
    y = np.where(random.random(n) < wrong, 1 - y, y)
    part = np.full(n, "train", dtype="U5")
    part[: round(VAL * (n - TEST))], part[-TEST:] = "val", "test"
    cue = np.where(random.random(n) < np.where(part == "test", 0.5, rho), y, 1 - y)
    buffer = io.BytesIO()
    np.savez(buffer, x=show(images, cue), y=y, split=part, attribute=cue)
    write_atomic(path, buffer.getvalue())


def make(task: str, row: str, seed: int, device: str, keep: Path | None) -> dict[str, Any]:
    """Make one run, in a temporary folder if it is not to be kept, and return what is recorded of it."""
    preset, settings = ROWS[row]
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) if keep is None else keep / re.sub(r"\W+", "_", f"{task} {row} {seed}")
        folder.mkdir(parents=True, exist_ok=True)
        make_data(task, folder / "data.npz")
        data = [f"data.file={folder}/data.npz", "data.split_key=split", "data.attribute_key=attribute"]
        run = RunFolder(folder / "run")
        train_config(load_config(preset, [*LIKE_FOLDER, *settings, *data], seed), run, device=device, progress=False)
        result: Any = run.result()
        lines = run.metrics()
        last = {phase: lines[i] for i, phase in enumerate(line["phase"] for line in lines) if "test" in lines[i]}
        kept = {key: result["splits"]["test"].get(key) for key in MEASURES}
        return {
            "task": task, "row": row, "seed": seed, "epoch": result["selected_epoch"], "epochs": len(lines),
            "val": result["splits"]["val"]["class_balanced"], "kept": kept,
            "last": _short(result["splits"] if "auto" in result else lines[-1]), "commit": commit(),
            "device": (run.environment() or {}).get("device"),
            **({} if "auto" not in result else {
                "auto": {key: value for key, value in result["auto"].items() if key != "words"},
                "candidates": {
                    phase: _short(line) | {"val": line["val"]["class_balanced"]} for phase, line in last.items()
                },
            }),
        }  # fmt: skip


def _short(splits: dict[str, Any]) -> dict[str, Any]:
    return {key: splits["test"][key] for key in ("average", "worst_group")}


def todo() -> Iterator[tuple[str, str, int]]:
    """Name the runs, those that matter first."""
    for seed in SEEDS:
        for task in TASKS:
            for row in ROWS:
                yield task, row, seed


def means(runs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the means over seeds of each row on each task."""
    found = []
    for task in TASKS:
        for row in ROWS:
            of = [run for run in runs if (run["task"], run["row"]) == (task, row)]
            if of:
                values = {
                    f"{epoch} {key}": round(mean(run[epoch][key] for run in of), 4)
                    for epoch in ("kept", "last")
                    for key in of[0][epoch]
                }
                found.append({"task": task, "row": row, "seeds": len(of), **values})
    return found


def summary(runs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return for each row what the rule reads: means over the tasks with a shortcut, and over those without one."""
    found = []
    for row in ROWS:
        of = [mean_ for mean_ in means(runs) if mean_["row"] == row]
        if len(of) < len(TASKS):
            continue
        with_one = [mean_ for mean_ in of if TASKS[mean_["task"]][2] > 0.5]
        without = [mean_ for mean_ in of if TASKS[mean_["task"]][2] == 0.5]
        found.append({
            "row": row, "seeds": min(mean_["seeds"] for mean_ in of),
            **{f"{epoch} worst_group": round(mean(m[f"{epoch} worst_group"] for m in with_one), 4)
               for epoch in ("kept", "last")},
            **{f"{epoch} average without a shortcut": round(mean(m[f"{epoch} average"] for m in without), 4)
               for epoch in ("kept", "last")},
        })  # fmt: skip
    return found


def recorded() -> list[dict[str, Any]]:
    return json.loads(RECORD.read_text())["runs"] if RECORD.exists() else []


def write(runs: list[dict[str, Any]]) -> None:
    record = {
        "what": "Accuracies on images in which the shortcut tells nothing; kept: the epoch that val chooses. "
        "reproduce/own_presets.py made it, and explains it.",
        "summary": summary(runs), "means": means(runs), "runs": runs,
    }  # fmt: skip
    write_atomic(RECORD, (json.dumps(record, indent=1) + "\n").encode())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--part", type=int, nargs=2, default=(0, 1), metavar=("I", "N"), help="every N-th run from I on"
    )
    parser.add_argument("--device", default="auto")
    parser.add_argument("--keep", type=Path, help="keep the run folders in this folder")
    options = parser.parse_args()
    i, n = options.part
    torch.set_num_threads(1)
    for what in list(todo())[i::n]:
        if what in {(run["task"], run["row"], run["seed"]) for run in recorded()}:
            continue
        found = make(*what, options.device, options.keep)
        with locked(RECORD.with_suffix(".lock"), wait=True):
            write([*recorded(), found])
        print(*what, {k: round(100 * v, 1) for k, v in found["kept"].items() if v is not None},
              round(100 * found["last"]["worst_group"], 1), flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
