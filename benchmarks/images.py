"""Time the decoding and reading of images: `python benchmarks/images.py ARCHIVE.zip [--size 64]`.

Preparation compares our cache with a plain Pillow loop over the same files, which gives the same pixels. Reading
compares a pass over shuffled batches from the cache with torchvision's ImageFolder in a DataLoader of two workers. The
script prints JSON. Both sides take turns and count their best of five, because other programs may be running.
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

from sitar.data.rows import Rows
from sitar.data.types import to_float
from sitar.images.cache import cached_images
from sitar.images.files import Files
from sitar.training.environment import commit

BATCH = 128


def best(functions: dict[str, Callable[[], object]], repeats: int = 5) -> dict[str, dict[str, float]]:
    """Return the shortest time of each function, on the clock and of all processors. The functions take turns."""
    seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in functions}
    for _ in range(repeats):
        for name, function in functions.items():
            clock, processors = time.perf_counter(), sum(os.times()[:4])
            function()
            seconds[name].append((time.perf_counter() - clock, sum(os.times()[:4]) - processors))
    return {
        name: dict(zip(("clock", "processors"), (round(min(s), 3) for s in zip(*pairs, strict=True)), strict=True))
        for name, pairs in seconds.items()
    }


def plain(folder: Path, names: list[str], size: int) -> np.ndarray:
    """Decode as a user would write it: open, convert and resize one file after the other."""
    pixels = []
    for name in names:
        with Image.open(folder / name) as image:
            pixels.append(np.asarray(image.convert("RGB").resize((size, size), Image.Resampling.BILINEAR)))
    return np.stack(pixels).transpose(0, 3, 1, 2)


def pass_over_cache(images: Rows) -> None:
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
        seconds = best(
            {"plain Pillow loop": lambda: plain(folder, names, options.size), "preparation": prepare}
        ) | best(
            {
                "ImageFolder, two workers": lambda: pass_over_folder(root / "images", options.size),
                "pass over the cache": lambda: pass_over_cache(Rows(ours, np.arange(len(ours)))),
            }
        )

    def faster(theirs: str, ours: str) -> float:
        return round(seconds[theirs]["clock"] / seconds[ours]["clock"], 2)

    report = {
        "images": len(names),
        "size": options.size,
        "commit": commit(),
        "cores": os.cpu_count(),
        "largest difference of a pixel": int(np.abs(theirs.astype(int) - ours).max()),
        "seconds": seconds,
        "preparation, times faster": faster("plain Pillow loop", "preparation"),
        "reading, times faster": faster("ImageFolder, two workers", "pass over the cache"),
    }
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
