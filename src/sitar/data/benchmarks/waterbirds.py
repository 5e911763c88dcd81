"""Waterbirds shows land and water birds on land and on water: birds of CUB, cut out and pasted on scenes of Places."""

from __future__ import annotations

from typing import Literal

from sitar.data.image_dataset import PARQUET, WILDS, ImageDataset, ShortcutConfig
from sitar.data.sample_table import SampleTable, names
from sitar.data.severity import with_severity
from sitar.data.splitting import split_words
from sitar.data.tables import CsvTable, ShardedTable
from sitar.images.download import Download
from sitar.images.files import check_paths, find_text, read_text
from sitar.images.parquet import find_shards
from sitar.registry import DATASETS

ARCHIVE = "waterbird_complete95_forest2water2.tar.gz"
SPLITS = {"0": "train", "1": "val", "2": "test"}
BINARY = {"0": 0, "1": 1}
PUBLISHED = {"train": (3498, 184, 56, 1057), "val": (467, 466, 133, 133), "test": (2255, 2255, 642, 642)}
PUBLISHED_MAJORITY = {"train": (3498, 0, 0, 1057), "val": (467, 0, 0, 133), "test": (2255, 2255, 642, 642)}


class WaterbirdsConfig(ShortcutConfig):
    name: Literal["waterbirds"] = "waterbirds"


@DATASETS.register("waterbirds")
class Waterbirds(ImageDataset):
    Config = WaterbirdsConfig
    title = "Waterbirds"
    layout = (
        "metadata.csv and the images in one folder per species, as waterbird_complete95_forest2water2 or WILDS' "
        "waterbirds_v1.0 has them, or Parquet files with image, label and place"
    )
    licence = "non-commercial research and education; the images are CUB-200-2011's and Places'"
    citation = "Sagawa et al., Distributionally Robust Neural Networks for Group Shifts, ICLR 2020"
    homepage = "https://github.com/kohpangwei/group_DRO"
    by_hand = f"{ARCHIVE} from {homepage}, unpacked, or the Parquet files of huggingface.co/datasets/grodino/waterbirds"
    downloads = (
        Download(
            ARCHIVE,
            (
                f"https://nlp.stanford.edu/data/dro/{ARCHIVE}",
                f"https://downloads.cs.stanford.edu/nlp/data/dro/{ARCHIVE}",
            ),
            sha256="56c51b77f7d17283ac97003d973e9107e8af9ceebffcb0c8be14d024f846f951",
        ),
    )

    @classmethod
    def layout_of(cls, config: WaterbirdsConfig) -> str | None:
        root = cls.root(config)
        if path := find_text(root, "metadata.csv"):
            return WILDS if any(path.parent.glob("RELEASE_v*.txt")) else "original"
        return PARQUET if find_shards(root) else None

    @classmethod
    def samples(cls, config: WaterbirdsConfig) -> SampleTable:
        root, layout = cls.root_and_layout(config)
        if layout == PARQUET:
            label = "label"
            table = ShardedTable(root, "Waterbirds' Parquet files", (label, "place"))
            files, split = table.files(), split_words(table.split_words(), f"The names of {table.title}")
        else:
            label = "y"
            table = CsvTable(read_text(root, "metadata.csv"), "Waterbirds' metadata.csv")
            table.check_columns(("img_filename", label, "split", "place"))
            files, split = check_paths(table.words("img_filename"), table.title), table.coded("split", SPLITS)
        samples = SampleTable(
            names(files),
            table.coded(label, BINARY),
            split,
            ("landbird", "waterbird"),
            table.coded("place", BINARY),
            "place",
            ("land", "water"),
            frozenset({(0, 0), (1, 1)}),
        )
        return with_severity(samples, config)

    @classmethod
    def published(cls, config: WaterbirdsConfig) -> dict[str, dict[str, int]] | None:
        if config.rho is not None:
            return None
        cells = [f"label={label},place={value}" for label in (0, 1) for value in (0, 1)]
        counts = PUBLISHED_MAJORITY if config.majority_only else PUBLISHED
        return {split: dict(zip(cells, sizes, strict=True)) for split, sizes in counts.items()}
