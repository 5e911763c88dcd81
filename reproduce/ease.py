"""Measure how easy each attribute of CelebA is for one fixed linear model, and predict where the noise helps.

The *ease* of an attribute is the balanced accuracy of a logistic regression on the first 20 principal axes of the
pixels. The images have all groups, and none of them is a test image of the exchange benchmark: of the first 10,000
images those with number modulo 20 from 10 to 16 fit the model, and those from 17 to 19 measure it.

The predictions were written before the runs of exchange.yaml. Let d be the ease of the shortcut minus the ease of the
label. Within ± 0.05 nothing is predicted. Outside:

- "sitar over control", in worst group: the targeted noise gains where the shortcut is the easier cue, and loses where
  the label is.
- "control over ERM", in worst group: the VAE keeps what fills many pixels, and so do principal axes. It gains where the
  label is the easier cue, and loses where the shortcut is.

    python reproduce/ease.py --root DIR    writes reproduce/records/ease.json (minutes, on a CPU)
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from exchange_pairs import choose
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import balanced_accuracy_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from sitar.data.benchmarks.celeba import FIRST_10K, CelebA, CelebAConfig, attribute_lists, place_of
from sitar.files import write_atomic

RECORD = Path(__file__).parent / "records" / "ease.json"
AXES, IMAGE_SIZE, BAND = 20, 64, 0.05
FIT, MEASURE = range(10, 17), range(17, 20)  # of the number in the file name modulo 20


def pixels(root: Path, size: int = IMAGE_SIZE) -> tuple[np.ndarray, np.ndarray]:
    """Return the names of the first 10,000 images and their pixels, a row an image."""
    prepared = CelebA.prepare(CelebAConfig(root=str(root), partition="first_10k", image_size=size))
    images = np.asarray(prepared.images.images)
    return prepared.samples.files, images.reshape(len(images), -1)


def ease_of(x: np.ndarray, place: np.ndarray, attributes: dict[str, np.ndarray], axes: int = AXES) -> dict[str, float]:
    """Return the balanced accuracy of the linear model for each attribute."""
    fit, measure = np.isin(place, FIT), np.isin(place, MEASURE)
    return linear_ease(x.astype(np.float32) / 255, fit, measure, attributes, axes)


def linear_ease(
    x: np.ndarray, fit: np.ndarray, measure: np.ndarray, attributes: dict[str, np.ndarray], axes: int = AXES
) -> dict[str, float]:
    """Fit the linear model to some rows, and return its balanced accuracy on others for each attribute."""
    pca = PCA(axes, svd_solver="randomized", random_state=0).fit(x[fit])
    seen, unseen = pca.transform(x[fit]), pca.transform(x[measure])
    found = {}
    for name, y in attributes.items():
        head = make_pipeline(StandardScaler(), LogisticRegression(class_weight="balanced", max_iter=1000))
        found[name] = float(balanced_accuracy_score(y[measure], head.fit(seen, y[fit]).predict(unseen)))
    return found


def predict(label: float, shortcut: float) -> dict[str, Any]:
    """Predict the signs of two gains from the ease of label and shortcut: 1, -1, or 0 for no prediction."""
    difference = shortcut - label
    sign = 0 if abs(difference) <= BAND else 1 if difference > 0 else -1
    return {"difference": round(difference, 4), "sitar over control": sign, "control over ERM": -sign}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument(
        "--root", type=Path, required=True, help="folder with CelebA's lists and its first 10,000 images"
    )
    root = parser.parse_args().root
    files, x = pixels(root)
    _, _, attributes = attribute_lists(root)
    number = np.array([int(file[:6]) for file in files])
    measured = ease_of(x, place_of(files), {name: values[number - 1] for name, values in attributes.items()})
    ease = {name: round(value, 4) for name, value in measured.items()}
    tasks = [
        {"label": label, "attribute": attribute, "tuning": pair.tuning, **predict(ease[label], ease[attribute])}
        for pair in choose(root)
        for label, attribute in (pair[:2], pair[1::-1])
    ]
    lines = ",\n".join(f"    {json.dumps(task)}" for task in tasks)
    about = {"images": FIRST_10K, "image_size": IMAGE_SIZE, "axes": AXES, "band": BAND, "ease": ease}
    head = json.dumps(about, indent=2)[:-2]
    write_atomic(RECORD, f'{head},\n  "predictions": [\n{lines}\n  ]\n}}\n'.encode())
    print(f"Wrote {RECORD}")


if __name__ == "__main__":
    main()
