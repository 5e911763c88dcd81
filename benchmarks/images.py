"""Decoding and reading images: `python benchmarks/images.py ARCHIVE.zip [--size 64]`.

Preparation: our cache against a plain Pillow loop over the same files, with the same pixels.
Reading: a pass over shuffled batches from the cache against torchvision's ImageFolder in a DataLoader of two workers.
Prints JSON; the best of three for ours and theirs alike.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from sitar.data.base import to_float
from sitar.images.cache import cached_images
from sitar.images.files import Files

BATCH = 128


def best(function: Callable[[], object], repeats: int = 3) -> float:
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def plain(folder: Path, names: list[str], size: int) -> np.ndarray:
    """What a user writes: open, convert, resize, one file after the other."""
    pixels = []
    for name in names:
        with Image.open(folder / name) as image:
            pixels.append(np.asarray(image.convert("RGB").resize((size, size), Image.Resampling.BILINEAR)))
    return np.stack(pixels).transpose(0, 3, 1, 2)


def pass_over_cache(images: torch.Tensor) -> None:
    for index in torch.randperm(len(images)).split(BATCH):
        to_float(images[index])


def pass_over_folder(root: Path, size: int) -> None:
    from torchvision.datasets import ImageFolder
    from torchvision.transforms import v2

    transform = v2.Compose([v2.Resize((size, size)), v2.ToImage(), v2.ToDtype(torch.float32, scale=True)])
    loader = torch.utils.data.DataLoader(ImageFolder(str(root), transform), BATCH, shuffle=True, num_workers=2)
    for _ in loader:
        pass


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("archive", type=Path, help="a zip archive of images")
    parser.add_argument("--size", type=int, default=64)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary)
        with zipfile.ZipFile(options.archive) as archive:
            archive.extractall(root / "images" / "all")
        folder = root / "images" / "all"
        names = sorted(path.name for path in folder.iterdir())
        count = iter(range(100))

        def prepare() -> np.ndarray:
            os.environ["SITAR_CACHE"] = str(root / f"cache{next(count)}")
            return cached_images("benchmark", names, Files([folder]), (options.size, options.size)).images

        theirs, ours = plain(folder, names, options.size), prepare()
        seconds = {
            "plain Pillow loop": best(lambda: plain(folder, names, options.size)),
            "preparation": best(prepare),
            "ImageFolder, two workers": best(lambda: pass_over_folder(root / "images", options.size)),
            "pass over the cache": best(lambda: pass_over_cache(torch.from_numpy(ours))),
        }
    report = {
        "images": len(names),
        "size": options.size,
        "cores": os.cpu_count(),
        "largest difference of a pixel": int(np.abs(theirs.astype(int) - ours).max()),
        "seconds": {name: round(value, 3) for name, value in seconds.items()},
        "preparation, times faster": round(seconds["plain Pillow loop"] / seconds["preparation"], 2),
        "reading, times faster": round(seconds["ImageFolder, two workers"] / seconds["pass over the cache"], 1),
    }
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
