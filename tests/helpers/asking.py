"""Pools of images without models, tiny runs to ask about, and the answers of a person who knows the truth."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from helpers.runs import TINY_MODEL, run, settings
from sitar.analysis.answers import Answer, Answers
from sitar.analysis.ask.next_image import Order
from sitar.analysis.ask.pool import Pool
from sitar.run_folder import RunFolder

CLASSES = ("cat", "dog")
SIZE = 16  # pixels of the images of tiny runs


def pool_of(predictions: object, classes: tuple[str, ...] = CLASSES, files: list[Path] | None = None) -> Pool:
    """A pool with these predictions (candidate, image). Images are small arrays unless there are files."""
    array = np.asarray(predictions, dtype=np.int64)
    names = [f"{i:05}.png" for i in range(array.shape[1])]
    labels = [f"candidate {'ABCDEFG'[i]}" for i in range(len(array))]
    pictures = None if files else np.zeros((len(names), 3, 4, 4), np.uint8)
    return Pool([f"runs/{i}" for i in range(len(array))], labels, classes, names, array, files, pictures)


def guesses(random: np.random.Generator, truth: NDArray[np.int64], *accuracies: float) -> NDArray[np.int64]:
    """Predictions of two classes that are right as often as this, independently."""
    return np.stack([np.where(random.random(len(truth)) < accuracy, truth, 1 - truth) for accuracy in accuracies])


def answered(pool: Pool, truth: NDArray[np.int64], n: int, seed: int = 0) -> Answers:
    """What a person answers who is asked so many questions, and knows the truth."""
    order, lines, asked = Order(pool.disagree, seed), [], []
    for number in range(n):
        (question,) = order.next(asked, number, most=1)
        asked.append(question.image)
        name, answer = pool.names[question.image], pool.classes[truth[question.image]]
        lines.append(Answer(name, answer, question.why_asked, question.probability, "2026-01-01T00:00:00+00:00"))
    return Answers(lines)


def save_images(folder: Path, n: int, size: int = 16) -> list[Path]:
    """Random images, which differ from each other."""
    folder.mkdir(parents=True)
    random = np.random.default_rng(7)
    for i in range(n):
        pixels = random.integers(0, 256, (size, size, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{i:05}.png", compress_level=1)
    return sorted(folder.iterdir())


def train(path: Path, data: dict[str, object], seed: int = 0, method: str = "erm") -> RunFolder:
    return run(settings(method, data=data, model=TINY_MODEL, train={"epochs": 1, "batch_size": 16}, seed=seed), path)


def made_folder(root: Path, classes: tuple[str, ...] = ("cat", "dog")) -> dict[str, object]:
    """A folder a class, in splits; images are noise."""
    random = np.random.default_rng(0)
    for split, n in (("train", 12), ("val", 4), ("test", 4)):
        for name in classes:
            (root / split / name).mkdir(parents=True)
            for i in range(n):
                pixels = random.integers(0, 256, (SIZE, SIZE, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(root / split / name / f"{i}.png")
    return {"name": "folder", "root": str(root), "image_size": SIZE}
