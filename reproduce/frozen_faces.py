"""Make small feature files of tasks of the exchange benchmark, so that they can be trained on a CPU in seconds.

An ImageNet encoder, which no label of ours has touched, reads the first 10,000 faces of CelebA. The first principal
axes of its features, fitted to faces whose number modulo 20 is at least 7, are the inputs. A task has the split and the
classes of `exchange.yaml`, as an .npz file of one's own.

    python reproduce/frozen_faces.py --root DIR --weights FILE --out FOLDER

`--weights` are those of a ResNet-50 with the stride in its first 1x1 convolutions.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch
from records import load_table
from sklearn.decomposition import PCA

from sitar.data.benchmarks.celeba import CelebA, CelebAConfig, place_of
from sitar.models.pretrained import PretrainedEncoder
from sitar.writing import replaced

AXES, IMAGE_SIZE, BATCH = 128, 96, 64
NOT_TEST = range(7, 20)  # of the number in the file name modulo 20


def features(root: str, weights: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the names of the faces and their principal features, a row a face."""
    prepared = CelebA.prepare(CelebAConfig(root=root, partition="first_10k", image_size=IMAGE_SIZE))
    assert prepared.images is not None
    images = np.asarray(prepared.images.images)
    encoder = PretrainedEncoder("resnet50.tv_in1k", (3, IMAGE_SIZE, IMAGE_SIZE), weights, stride_in_1x1=True).eval()
    with torch.inference_mode():
        rows = [encoder(torch.tensor(images[i : i + BATCH]) / 255) for i in range(0, len(images), BATCH)]
    found = torch.cat(rows).numpy()
    names = prepared.samples.files
    fit = np.isin(place_of(names), NOT_TEST)
    return names, PCA(AXES, svd_solver="randomized", random_state=0).fit(found[fit]).transform(found).astype(np.float32)


def write_task(names: np.ndarray, x: np.ndarray, root: str, label: str, attribute: str, path: Path) -> None:
    """Write one task: features, classes, the shortcut and the split of every face."""
    config = CelebAConfig(root=root, label=label, attribute=attribute, partition="exchange", majority_only=True)
    table = CelebA.samples(config)
    table = table.take(np.isin(table.split, ("train", "val", "test")))
    assert table.attribute is not None
    place = {name: i for i, name in enumerate(names.tolist())}
    rows = [place[name] for name in table.files.tolist()]
    with replaced(path) as out:
        np.savez_compressed(out, x=x[rows], y=table.label, attribute=table.attribute, split=table.split)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", required=True, help="folder with CelebA's files")
    parser.add_argument("--weights", required=True, help="file with the weights of the encoder")
    parser.add_argument("--out", required=True, type=Path, help="folder to write")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    names, x = features(options.root, options.weights)
    for task in load_table("exchange")["left_out"]:  # those for tuning
        label, attribute = task.split(" with ")
        write_task(names, x, options.root, label, attribute, options.out / f"{label}_with_{attribute}.npz")


if __name__ == "__main__":
    main()
