"""What pages of README and docs find in their folder: small files of the kind that their readers have.

A maker is given the folder, and a stack that undoes what it changes elsewhere. The makers are listed in `MAKERS`.
"""

from __future__ import annotations

import csv
import io
import itertools
import json
import tomllib
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
from PIL import Image

from helpers import cli, packages
from helpers.scripts import ROOT

SIZE = 32  # pixels


def picture(random: np.random.Generator, bright: bool) -> Image.Image:
    """Noise, which is brighter for one class than for the other."""
    return Image.fromarray(random.integers(64 * bright, 192 + 64 * bright, (SIZE, SIZE, 3), dtype=np.uint8))


def animals(folder: Path, stack: ExitStack) -> None:
    """A folder for each class."""
    _classes(folder / "animals", ["cat", "dog"])


def photos(folder: Path, stack: ExitStack) -> None:
    """A folder for each class, and outside of it a table of the same images."""
    _classes(folder / "photos", ["cat", "dog"])
    files = sorted((folder / "photos").rglob("*.png"))
    rows = [[file.relative_to(folder / "photos").as_posix(), file.parent.name] for file in files]
    for path in (folder / "samples.csv", folder / "photos" / "new.csv"):
        _csv(path, ["path", "label"], rows)


def scans(folder: Path, stack: ExitStack) -> None:
    """A table of images with scanner and patient, images without labels, and a table of another hospital."""
    random = np.random.default_rng(0)
    root = folder / "scans"
    (root / "images").mkdir(parents=True)
    rows = []
    for i in range(120):
        ill = i % 2
        old = ill if random.random() < 0.8 else 1 - ill
        picture(random, bool(old)).save(root / f"images/{i:03}.png")
        rows.append([f"images/{i:03}.png", ("healthy", "ill")[ill], ("new", "old")[old], f"p{i // 3:02}"])
    _csv(root / "table.csv", ["path", "label", "scanner", "patient_id"], rows)
    _unlabelled(folder / "new_scans")
    _unlabelled(folder / "other_hospital")
    rows = [[f"{i:03}.png", ("healthy", "ill")[i % 2]] for i in range(20)]
    _csv(folder / "other_hospital" / "findings.csv", ["path", "finding"], rows)


def image_array(folder: Path, stack: ExitStack) -> None:
    """A NumPy file of images."""
    random = np.random.default_rng(0)
    y = np.arange(120) % 2
    images = np.stack([np.asarray(picture(random, bool(bright))) for bright in y])
    np.savez(folder / "images.npz", x=images, y=y)


def image_shards(folder: Path, stack: ExitStack) -> None:
    """Images within Parquet files, as Hugging Face's `datasets` writes them, and another such file without labels."""
    random = np.random.default_rng(0)
    struct = pyarrow.struct([("bytes", pyarrow.binary()), ("path", pyarrow.string())])
    notes = {"info": {"features": {"label": {"names": ["healthy", "ill"], "_type": "ClassLabel"}}}}

    def images(bright: list[int]) -> pyarrow.Array:
        buffers = [io.BytesIO() for _ in bright]
        for one, buffer in zip(bright, buffers, strict=True):
            picture(random, bool(one)).save(buffer, "PNG")
        return pyarrow.array([{"bytes": buffer.getvalue(), "path": None} for buffer in buffers], struct)

    def write(path: Path, columns: dict[str, Any]) -> None:
        path.parent.mkdir(exist_ok=True)
        table = pyarrow.table(columns).replace_schema_metadata({"huggingface": json.dumps(notes)})
        pyarrow.parquet.write_table(table, path, row_group_size=20)

    for part in range(3):
        label = [i % 2 for i in range(40)]
        old = [one if random.random() < 0.8 else 1 - one for one in label]
        said = {"label": label, "scanner": [("new", "old")[one] for one in old]}
        patients = [f"p{part}{i // 3:02}" for i in range(40)]
        write(folder / "hospital" / f"part-{part}.parquet", {"image": images(old), **said, "patient_id": patients})
    write(folder / "new_hospital" / "part-0.parquet", {"image": images([i % 2 for i in range(20)])})


def candidates(folder: Path, stack: ExitStack) -> None:
    """Two runs on the scans, and answers about the images of `deployment`."""
    scans(folder, stack)
    _unlabelled(folder / "deployment")
    for method in ("erm", "control"):
        cli.sitar("train", f"table/{method}", "--set", "data.root=scans", "--quiet", "--out", f"runs/{method}")
    rows = [[f"{i:03}.png", ("healthy", "ill")[i % 2]] for i in range(12)]
    _csv(folder / "answers.csv", ["image", "label"], rows)


def placeholders(folder: Path, stack: ExitStack) -> None:
    """What DIR, RUN, NEW_IMAGES and OTHER_HOSPITAL stand for: images by class with a table, a run, other images."""
    _classes(folder / "DIR", ["healthy", "ill"])
    files = sorted((folder / "DIR").rglob("*.png"))
    rows = [[f"{file.parent.name}/{file.name}", file.parent.name, f"p{i // 3}"] for i, file in enumerate(files)]
    _csv(folder / "DIR/table.csv", ["path", "label", "patient_id"], rows)
    cli.sitar("train", "folder/erm", "--set", "data.root=DIR", "--quiet", "--out", "RUN")
    _unlabelled(folder / "NEW_IMAGES")
    _classes(folder / "OTHER_HOSPITAL", ["healthy", "ill"])


def embeddings(folder: Path, stack: ExitStack) -> None:
    """Features in three kinds of files, .npz, Parquet with a column of lists, CSV with a column each, and in shards."""
    random = np.random.default_rng(0)
    y = np.arange(200) % 2
    x = random.normal(size=(200, 8)).astype(np.float32) + y[:, None]
    np.savez(folder / "embeddings.npz", x=x, y=y)
    table = pyarrow.table({"embedding": x.tolist(), "label": y})
    pyarrow.parquet.write_table(table, folder / "embeddings.parquet")
    (folder / "shards").mkdir()
    for part in range(2):
        pyarrow.parquet.write_table(table.slice(100 * part, 100), folder / "shards" / f"part-{part}.parquet")
    _csv(folder / "table.csv", ["label", *(f"f{i}" for i in range(8))], [[y[i], *x[i].tolist()] for i in range(200)])


def runs(folder: Path, stack: ExitStack) -> None:
    """Two methods with two seeds each, in runs/color_mnist/METHOD/seedN."""
    for method, seed in itertools.product(("erm", "sitar_best"), (0, 1)):
        cli.sitar("train", f"color_mnist/{method}", "--seed", seed, "--quiet")


def sitar_mixup(folder: Path, stack: ExitStack) -> None:
    """The package in examples/sitar-mixup, as `pip install` leaves it, until the page ends."""
    example = ROOT / "examples/sitar-mixup"
    project = tomllib.loads((example / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    packages.install(folder / "site", project["name"], project["entry-points"], {}, project["version"])
    stack.enter_context(packages.as_in_a_new_process(folder / "site", example / "src"))


def _classes(root: Path, names: list[str]) -> None:
    random = np.random.default_rng(0)
    for number, name in enumerate(names):
        (root / name).mkdir(parents=True)
        for i in range(40):
            picture(random, bool(number)).save(root / name / f"{i:03}.png")


def _unlabelled(root: Path) -> None:
    random = np.random.default_rng(1)
    root.mkdir()
    for i in range(20):
        picture(random, bool(i % 2)).save(root / f"{i:03}.png")


def tags(folder: Path, stack: ExitStack) -> None:
    """Examples of a concept: images with a bright tag in a corner, and without one."""
    random = np.random.default_rng(2)
    for side in ("with", "without"):
        place = folder / "concepts" / "tag" / side
        place.mkdir(parents=True)
        for i in range(24):
            image = picture(random, bool(i % 2))
            if side == "with":
                image.paste((255, 255, 255), (0, 0, 8, 8))
            image.save(place / f"{i:03}.png")


def _csv(path: Path, head: list[str], rows: list[list[object]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([head, *rows])


MAKERS: dict[str, Callable[[Path, ExitStack], None]] = {
    "animals": animals,
    "candidates": candidates,
    "embeddings": embeddings,
    "image-array": image_array,
    "image-shards": image_shards,
    "photos": photos,
    "placeholders": placeholders,
    "runs": runs,
    "scans": scans,
    "sitar-mixup": sitar_mixup,
    "tags": tags,
}
