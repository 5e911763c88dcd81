"""Waterbirds: land and water birds on land and on water, cut out of CUB and pasted on scenes of Places.

Licence: that of CUB-200-2011 and Places. Citation: Sagawa et al., Distributionally Robust Neural Networks, 2020.
"""

from __future__ import annotations

import csv
from typing import Literal

import numpy as np

from sitar.data.image_data import ImageDataset, ShortcutConfig
from sitar.data.index import Index, names
from sitar.data.severity import with_severity
from sitar.errors import DataError
from sitar.images.files import Files, places, read_text
from sitar.registry import DATASETS

SPLITS = {"0": "train", "1": "val", "2": "test"}
PUBLISHED = {"train": (3498, 184, 56, 1057), "val": (467, 466, 133, 133), "test": (2255, 2255, 642, 642)}
PUBLISHED_MAJORITY = {"train": (3498, 0, 0, 1057), "val": (467, 0, 0, 133), "test": (2255, 2255, 642, 642)}
COLUMNS = ("img_filename", "y", "split", "place")


class WaterbirdsConfig(ShortcutConfig):
    name: Literal["waterbirds"] = "waterbirds"


@DATASETS.register("waterbirds")
class Waterbirds(ImageDataset):
    Config = WaterbirdsConfig
    title = "Waterbirds"
    layout = "metadata.csv and the images in one folder per species, as waterbird_complete95_forest2water2 has them"

    @classmethod
    def index(cls, config: WaterbirdsConfig) -> Index:
        rows = list(csv.DictReader(read_text(cls.root(config), "metadata.csv").splitlines()))
        missing = [column for column in COLUMNS if not rows or column not in rows[0]]
        if missing:
            raise DataError(
                f"Waterbirds' metadata.csv lacks the columns {', '.join(missing)}. Bring the original file."
            )
        index = Index(
            names([row["img_filename"] for row in rows]),
            np.array([int(row["y"]) for row in rows]),
            names([SPLITS[row["split"]] for row in rows]),
            ("landbird", "waterbird"),
            np.array([int(row["place"]) for row in rows]),
            "place",
            ("land", "water"),
            frozenset({(0, 0), (1, 1)}),
        )
        return with_severity(index, config)

    @classmethod
    def files(cls, config: WaterbirdsConfig) -> Files:
        return Files(places(cls.root(config)))

    @classmethod
    def published(cls, config: WaterbirdsConfig) -> dict[str, dict[str, int]] | None:
        if config.rho is not None:
            return None
        cells = [f"label={label},place={value}" for label in (0, 1) for value in (0, 1)]
        counts = PUBLISHED_MAJORITY if config.majority_only else PUBLISHED
        return {split: dict(zip(cells, sizes, strict=True)) for split, sizes in counts.items()}
