"""Made-up files of data sets in their real layouts: tiny, and the same in every call.

A maker writes into an empty folder and returns the settings that read it.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
from PIL import Image

from sitar.config import NamedConfig
from sitar.data.benchmarks.bar import BARConfig
from sitar.data.benchmarks.camelyon17 import Camelyon17Config
from sitar.data.benchmarks.celeba import CelebAConfig
from sitar.data.benchmarks.color_mnist import ColorMNISTConfig
from sitar.data.benchmarks.dominoes import FASHION, DominoesConfig
from sitar.data.benchmarks.idx_files import IdxFiles
from sitar.data.benchmarks.sites import SitesConfig
from sitar.data.benchmarks.waterbirds import WaterbirdsConfig
from sitar.data.image_dataset import ImageConfig
from sitar.data.own_data.feature_table import FeaturesConfig
from sitar.data.own_data.folder import FolderConfig
from sitar.data.own_data.npz import NpzConfig
from sitar.data.own_data.table import TableConfig

N = 40  # samples of each data set
SIZE = 16
HF = {0: "train", 1: "validation", 2: "test"}
STRUCT = pyarrow.struct([("bytes", pyarrow.binary()), ("path", pyarrow.string())])


def image(i: int) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(np.random.default_rng(i).integers(0, 256, (12, 10, 3), dtype=np.uint8)).save(buffer, "PNG")
    return buffer.getvalue()


def write(path: Path, content: bytes | str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)


def shard(path: Path, samples: list[int], columns: dict[str, list[Any]], row_group_size: int = 7) -> None:
    """A Parquet file as Hugging Face's `datasets` writes it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    images = [{"bytes": image(i), "path": None} for i in samples]
    table = pyarrow.table({"image": pyarrow.array(images, STRUCT), **columns})
    pyarrow.parquet.write_table(table, path, row_group_size=row_group_size)


def shards(root: Path, split: list[str], column: Callable[[int], dict[str, Any]]) -> None:
    """The samples of each split in two files."""
    for name in dict.fromkeys(split):
        members = [i for i in range(len(split)) if split[i] == name]
        for k, part in enumerate((members[::2], members[1::2])):
            rows = [column(i) for i in part]
            columns = {key: [row[key] for row in rows] for key in rows[0]}
            shard(root / "data" / f"{name}-0000{k}-of-00002.parquet", part, columns)


def in_csv(head: list[str], rows: list[list[Any]]) -> str:
    buffer = io.StringIO()
    csv.writer(buffer).writerows([head, *rows])
    return buffer.getvalue()


# Waterbirds: label i % 2, place i // 2 % 2, split i * 3 // N


def bird(i: int) -> str:
    return f"{i % 3:03}.Bird/bird_{i}.png"


def birds_in_folder(folder: Path) -> None:
    head = ["img_id", "img_filename", "y", "split", "place", "place_filename"]
    rows = [[i + 1, bird(i), i % 2, i * 3 // N, i // 2 % 2, "/o/ocean/1.jpg"] for i in range(N)]
    write(folder / "metadata.csv", in_csv(head, rows))
    for i in range(N):
        write(folder / bird(i), image(i))


def waterbirds_original(root: Path) -> ImageConfig:
    birds_in_folder(root / "waterbird_complete95_forest2water2")
    return WaterbirdsConfig(root=str(root), image_size=SIZE)


def waterbirds_wilds(root: Path) -> ImageConfig:
    birds_in_folder(root / "waterbirds_v1.0")
    write(root / "waterbirds_v1.0" / "RELEASE_v1.0.txt", "")
    return WaterbirdsConfig(root=str(root), image_size=SIZE)


def waterbirds_parquet(root: Path) -> ImageConfig:
    split = [HF[i * 3 // N] for i in range(N)]
    shards(root, split, lambda i: {"label": i % 2, "place": i // 2 % 2, "bird": i % 3})
    return WaterbirdsConfig(root=str(root), image_size=SIZE)


# CelebA: Blond_Hair i % 2, Male i // 2 % 2, Bald never, Smiling i // 4 % 2, Attractive i // 8 % 2


def faces(i: int) -> list[int]:
    return [2 * (i % 2) - 1, 2 * (i // 2 % 2) - 1, -1, 2 * (i // 4 % 2) - 1, 2 * (i // 8 % 2) - 1]


ATTRIBUTES = ["Blond_Hair", "Male", "Bald", "Smiling", "Attractive"]


def lists(ending: str) -> dict[str, str]:
    """The two lists as the authors wrote them (.txt) or as WILDS has them (.csv), by their names."""
    files = [f"{i + 1:06}.jpg" for i in range(N)]
    if ending == "txt":
        lines = [str(N), " ".join(ATTRIBUTES), *(f"{files[i]} " + " ".join(map(str, faces(i))) for i in range(N))]
        attributes = "\r\n".join(lines) + "\r\n"
        partition = "".join(f"{files[i]} {i * 3 // N}\n" for i in range(N))
    else:
        attributes = in_csv(["image_id", *ATTRIBUTES], [[files[i], *faces(i)] for i in range(N)])
        partition = in_csv(["image_id", "partition"], [[files[i], i * 3 // N] for i in range(N)])
    return {f"list_attr_celeba.{ending}": attributes, f"list_eval_partition.{ending}": partition}


def write_lists(folder: Path, ending: str) -> None:
    for name, text in lists(ending).items():
        write(folder / name, text)


def md5_of_lists() -> dict[str, str]:
    """What CelebA's checksums must be for our lists to be taken for the real ones."""
    texts = lists("txt") | {name: text.replace("\r\n", "\n").rstrip("\n") for name, text in lists("csv").items()}
    return {name: hashlib.md5(text.encode()).hexdigest() for name, text in texts.items()}


def celeba_original(root: Path) -> ImageConfig:
    write_lists(root, "txt")
    with zipfile.ZipFile(root / "img_align_celeba.zip", "w") as archive:
        for i in range(N):
            archive.writestr(f"{i + 1:06}.jpg", image(i))
    return CelebAConfig(root=str(root), image_size=SIZE)


def celeba_wilds(root: Path) -> ImageConfig:
    write_lists(root / "celebA_v1.0", "csv")
    for i in range(N):
        write(root / "celebA_v1.0" / "img_align_celeba" / f"{i + 1:06}.jpg", image(i))
    return CelebAConfig(root=str(root), image_size=SIZE)


def celeba_kaggle(root: Path) -> ImageConfig:
    write_lists(root, "csv")
    for i in range(N):
        write(root / "img_align_celeba" / "img_align_celeba" / f"{i + 1:06}.jpg", image(i))
    return CelebAConfig(root=str(root), image_size=SIZE)


def celeba_parquet(root: Path) -> ImageConfig:
    split = [("train", "valid", "test")[i * 3 // N] for i in range(N)]
    shards(
        root / "img_align+identity+attr", split, lambda i: dict(zip(ATTRIBUTES, (v > 0 for v in faces(i)), strict=True))
    )
    return CelebAConfig(root=str(root), image_size=SIZE)


def celeba_parquet_numbers(root: Path) -> ImageConfig:
    split = [HF[i * 3 // N] for i in range(N)]
    shards(root, split, lambda i: dict(zip(ATTRIBUTES, faces(i), strict=True)))
    return CelebAConfig(root=str(root), image_size=SIZE)


# Camelyon17: label i % 2, hospital i % 5; of the seen hospitals every fourth is validation


def patches_in_folder(folder: Path) -> None:
    head = ["", "patient", "node", "x_coord", "y_coord", "tumor", "slide", "center", "split"]
    rows = []
    for i in range(N):
        patient, node = f"{i % 7:03}", i % 3
        rows.append([i, patient, node, 3328 + i, 21792, i % 2, i % 9, i % 5, int(i % 4 == 3)])
        name = f"patient_{patient}_node_{node}"
        write(folder / "patches" / name / f"patch_{name}_x_{3328 + i}_y_21792.png", image(i))
    write(folder / "metadata.csv", in_csv(head, rows))


def camelyon17_wilds(root: Path) -> ImageConfig:
    patches_in_folder(root / "camelyon17_v1.0")
    return Camelyon17Config(root=str(root), image_size=SIZE)


def camelyon17_parquet(root: Path) -> ImageConfig:
    """Hugging Face's copy has hospital 1 in its validation files, beside the validation patches of the others."""
    by_hospital = {1: "validation", 2: "test"}
    split = [by_hospital.get(i % 5) or ("validation" if i % 4 == 3 else "train") for i in range(N)]
    shards(root, split, lambda i: {"label": i % 2, "center": i % 5, "slide": i % 9, "patient": i % 7, "node": i % 3})
    return Camelyon17Config(root=str(root), image_size=SIZE)


# BAR: two of its actions


def bar(root: Path) -> ImageConfig:
    for split in ("train", "test"):
        for i in range(N):
            write(root / split / f"{('climbing', 'pole vaulting')[i % 2]}_{i}.png", image(i))
    return BARConfig(root=str(root), image_size=SIZE)


# Faces of CelebA in the style of sites


def sites_of_faces(root: Path) -> ImageConfig:
    celeba_original(root)
    return SitesConfig(source="celeba", root=str(root), image_size=SIZE)


# Dominoes: Fashion-MNIST's files, with clothes of its ten classes in turn


def fashion_files() -> dict[str, bytes]:
    """The four files as IDX writes them."""
    found = {}
    for part, n, seed in (("train", 240, 1), ("t10k", 40, 2)):
        pixels = np.random.default_rng(seed).integers(0, 256, (n, 28, 28), dtype=np.uint8)
        images = bytes([0, 0, 8, 3]) + b"".join(size.to_bytes(4, "big") for size in pixels.shape) + pixels.tobytes()
        labels = bytes([0, 0, 8, 1]) + n.to_bytes(4, "big") + bytes(i % 10 for i in range(n))
        found |= {f"{part}-images-idx3-ubyte": images, f"{part}-labels-idx1-ubyte": labels}
    return found


def fashion_of_ours() -> IdxFiles:
    """What Fashion-MNIST's checksums must be for our files to be taken for the real ones."""
    return replace(
        FASHION, sha256={name: hashlib.sha256(content).hexdigest() for name, content in fashion_files().items()}
    )


def dominoes(root: Path) -> DominoesConfig:
    for name, content in fashion_files().items():
        write(root / f"{name}.gz", gzip.compress(content))
    return DominoesConfig(root=str(root))


# Your own data: label i % 2, site i // 2 % 2, patient i // 4


def folder(root: Path) -> FolderConfig:
    for i in range(N):
        write(root / "ab"[i % 2] / f"{i}.png", image(i))
    return FolderConfig(root=str(root), image_size=SIZE)


def table(root: Path) -> TableConfig:
    rows = [[f"scans/{i}.png", "ab"[i % 2], i // 2 % 2, i // 4] for i in range(N)]
    write(root / "table.csv", in_csv(["path", "label", "site", "patient"], rows))
    for i in range(N):
        write(root / f"scans/{i}.png", image(i))
    return TableConfig(root=str(root), image_size=SIZE, attribute_column="site", split_by="patient")


def table_in_parquet(root: Path) -> TableConfig:
    for number, part in enumerate((range(N // 3), range(N // 3, N))):
        said = {"label": ["ab"[i % 2] for i in part], "site": [i // 2 % 2 for i in part]}
        shard(root / f"part-{number}.parquet", list(part), said | {"patient": [i // 4 for i in part]})
    return TableConfig(root=str(root), image_size=SIZE, attribute_column="site", split_by="patient")


def npz(root: Path) -> NpzConfig:
    numbers = np.arange(N)
    features = np.random.default_rng(0).normal(size=(N, 6))
    np.savez(root / "data.npz", x=features, y=numbers % 2, site=numbers // 2 % 2)
    return NpzConfig(file=str(root / "data.npz"), attribute_key="site")


def npz_of_images(root: Path) -> NpzConfig:
    images = np.random.default_rng(0).integers(0, 256, (N, 8, 9, 3), dtype=np.uint8)
    np.savez(root / "data.npz", x=images, y=np.arange(N) % 4)
    return NpzConfig(file=str(root / "data.npz"))


def features(root: Path) -> FeaturesConfig:
    values = np.random.default_rng(0).normal(size=(N, 2))
    rows = [["ab"[i % 2], i // 2 % 2, *values[i].tolist()] for i in range(N)]
    write(root / "table.csv", in_csv(["label", "site", "f0", "f1"], rows))
    return FeaturesConfig(file=str(root / "table.csv"), feature_columns="f*", attribute_column="site")


# What ships with the package


def color_mnist(root: Path) -> ColorMNISTConfig:
    return ColorMNISTConfig(train_size=2 * N, eval_size=N)


def sites(root: Path) -> SitesConfig:
    return SitesConfig(train_size=2 * N, eval_size=N)


MAKERS: dict[str, Callable[[Path], NamedConfig]] = {
    "bar": bar,
    "camelyon17": camelyon17_wilds,
    "camelyon17 in parquet": camelyon17_parquet,
    "celeba": celeba_original,
    "celeba in parquet": celeba_parquet,
    "color_mnist": color_mnist,
    "dominoes": dominoes,
    "features": features,
    "folder": folder,
    "npz": npz,
    "npz of images": npz_of_images,
    "sites": sites,
    "sites of faces": sites_of_faces,
    "table": table,
    "table in parquet": table_in_parquet,
    "waterbirds": waterbirds_original,
    "waterbirds in parquet": waterbirds_parquet,
}
"""A maker, or several, of each registered data set. The first word is its name."""
