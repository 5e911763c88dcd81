"""Make a folder of chest X-rays from two hospitals. The X-rays are real, and the hospitals are invented.

    python examples/xrays/plant.py

The hospital `north` has strong contrast and a bright tag in the upper left corner. `south` has weak contrast and a dark
tag in the upper right corner. In training, 95 of 100 images with pneumonia come from the north, and 95 of 100 without
come from the south. So the hospital tells the label. In the test, both hospitals send as many of each class.

    xrays/images/*.png      the images for training, validation and test
    xrays/table.csv         path, label, hospital and split of each
    new/*.png               images from where the model will be used: both hospitals send both classes
    answers.csv             what a radiologist says about 50 of them

NOTICE says where the X-rays come from.
"""

import argparse
import csv
from pathlib import Path

import numpy as np
from PIL import Image

HERE = Path(__file__).parent
LABELS, HOSPITALS = ("normal", "pneumonia"), ("south", "north")
NEW = 200  # of the test images are those from where the model will be used; the others are the test
ANSWERS = 50


def taken_in(hospital: int, pixels: np.ndarray, size: int) -> Image.Image:
    """Show an X-ray as this hospital would: enlarged, with its contrast and its tag."""
    image = np.asarray(Image.fromarray(pixels).resize((size, size), Image.Resampling.BICUBIC), np.float64)
    contrast, bright, left = ((0.7, 0, size - size // 8), (1.2, 255, 0))[hospital]
    image = 128 + contrast * (image - 128)
    image[: size // 8, left : left + size // 8] = bright
    return Image.fromarray(image.clip(0, 255).astype(np.uint8))


def main() -> None:
    parser = argparse.ArgumentParser(description="Make a folder of chest X-rays from two hospitals.")
    parser.add_argument("--out", type=Path, default=Path(), help="folder to write to, default: the working folder")
    parser.add_argument(
        "--rho", type=float, default=0.95, help="share of training images whose hospital fits the label"
    )
    parser.add_argument("--size", type=int, default=128, help="pixels of a side")
    chosen = parser.parse_args()

    with np.load(HERE / "chest_xrays.npz") as file:
        x, y, split = file["x"], file["y"], file["split"]
    random = np.random.default_rng(0)
    order = random.permutation(len(x))
    fits = random.random(len(x)) < np.where(split == "test", 0.5, chosen.rho)
    hospital = np.where(fits, y, 1 - y)
    test = order[split[order] == "test"]
    new, used = test[:NEW], np.concatenate([order[split[order] != "test"], test[NEW:]])

    xrays, new_folder = chosen.out / "xrays", chosen.out / "new"
    (xrays / "images").mkdir(parents=True)
    new_folder.mkdir()
    rows, answers = [], []
    for number, i in enumerate(used):
        path = f"images/{number:04}.png"
        taken_in(hospital[i], x[i], chosen.size).save(xrays / path)
        rows.append([path, LABELS[y[i]], HOSPITALS[hospital[i]], split[i]])
    for number, i in enumerate(new):
        taken_in(hospital[i], x[i], chosen.size).save(new_folder / f"{number:04}.png")
        answers.append([f"{number:04}.png", LABELS[y[i]]])
    write(xrays / "table.csv", ["path", "label", "hospital", "split"], rows)
    write(chosen.out / "answers.csv", ["image", "label"], answers[:ANSWERS])
    print(f"{len(rows)} images and a table in {xrays}, {NEW} new images in {new_folder}")


def write(path: Path, head: list[str], rows: list[list[str]]) -> None:
    """Write a table."""
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([head, *rows])


if __name__ == "__main__":
    main()
