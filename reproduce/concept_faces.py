"""Make the folder of a concept from faces of CelebA that a task of the exchange benchmark neither trains nor tests on.

The faces are those of `val_ood` (partition `exchange`). Both sides have as many faces of each class of the task, so
that the sides differ in the concept alone. The labels of the task serve for nothing else.

    python reproduce/concept_faces.py --root DIR --label Smiling --concept Male --out concepts/Smiling_Male
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from sitar.data.benchmarks.celeba import CelebA, CelebAConfig
from sitar.data.concepts import WITH, WITHOUT
from sitar.files import write_atomic

MOST = 300  # faces of each class on each side


def faces(root: str, label: str, concept: str, seed: int = 0) -> dict[str, list[str]]:
    """Return the files of both sides."""
    config = CelebAConfig(root=root, label=label, attribute=concept, partition="exchange", majority_only=True)
    table = CelebA.samples(config)
    table = table.take(table.split == "val_ood")
    assert table.attribute is not None
    has = np.array([name == concept for name in table.attribute_values])[table.attribute]
    cells = [[np.flatnonzero((has == side) & (table.label == c)) for c in (0, 1)] for side in (True, False)]
    each = min(MOST, *(len(cell) for side in cells for cell in side))
    random = np.random.default_rng(seed)
    drawn = [np.concatenate([random.choice(cell, each, replace=False) for cell in side]) for side in cells]
    return {name: sorted(table.files[rows].tolist()) for name, rows in zip((WITH, WITHOUT), drawn, strict=True)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", required=True, help="folder with CelebA's files")
    parser.add_argument("--label", required=True, help="the label of the task")
    parser.add_argument("--concept", required=True, help="the attribute that is the concept")
    parser.add_argument("--out", required=True, type=Path, help="folder to write")
    options = parser.parse_args()
    files = CelebA.files(CelebAConfig(root=options.root))
    for side, names in faces(options.root, options.label, options.concept).items():
        folder = options.out / side
        folder.mkdir(parents=True)
        for name in names:
            write_atomic(folder / name, files.read(name))
        print(f"{folder}: {len(names)} faces")


if __name__ == "__main__":
    main()
