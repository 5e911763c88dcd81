"""Camelyon17-WILDS asks whether there is tumour in a patch of lymph node tissue. Hospitals differ in stain and scanner.

Training is on hospitals 0, 3 and 4. `val` is WILDS' `id_val`: other patches of the same hospitals. `val_ood` is
hospital 1 and `test` is hospital 2, which are WILDS' `val` and `test`. `ood_test` pools these two unseen hospitals, as
the paper does. The attribute is the hospital, which is also the environment of methods that are given one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from numpy.typing import NDArray

from sitar.data.image_dataset import PARQUET, WILDS, ImageConfig, ImageDataset
from sitar.data.sample_table import SampleTable, names
from sitar.data.tables import Column, CsvTable, ShardedTable, coded
from sitar.images.files import check_paths, find_text, read_text
from sitar.images.parquet import find_shards
from sitar.registry import DATASETS

HOSPITALS = {str(hospital): hospital for hospital in range(5)}
UNSEEN = {"1": "val_ood", "2": "test"}
SEEN = {"0": "train", "1": "val", "train": "train", "validation": "val", "val": "val"}  # of the CSV file, of Parquet's
BINARY = {"0": 0, "1": 1, "False": 0, "True": 1}
PLACE = ("patient", "node", "x_coord", "y_coord")
PUBLISHED = {"train": 302_436, "val": 33_560, "val_ood": 34_904, "test": 85_054, "ood_test": 119_958}  # of WILDS


class Camelyon17Config(ImageConfig):
    name: Literal["camelyon17"] = "camelyon17"
    refused = dict.fromkeys(
        ("majority_only", "rho"),
        "it needs an attribute of two values, which say what follows the shortcut, and Camelyon17 has five hospitals. "
        "Leave it out",
    )


@DATASETS.register("camelyon17")
class Camelyon17(ImageDataset):
    Config = Camelyon17Config
    title = "Camelyon17-WILDS"
    layout = (
        "metadata.csv and patches/, as WILDS' camelyon17_v1.0 has them, or Parquet files with image, label and center"
    )
    licence = "CC0 1.0, public domain"
    citation = (
        "Bandi et al., From Detection of Individual Metastases to Classification of Lymph Node Status at the Patient "
        "Level, 2018; Koh et al., WILDS: A Benchmark of in-the-Wild Distribution Shifts, ICML 2021"
    )
    homepage = "https://wilds.stanford.edu"
    by_hand = (
        "the folder camelyon17_v1.0 that the wilds package downloads where its host answers, or the Parquet files of "
        "huggingface.co/datasets/wltjr1007/Camelyon17-WILDS"
    )

    @classmethod
    def layout_of(cls, config: Camelyon17Config) -> str | None:
        root = cls.root(config)
        if find_text(root, "metadata.csv"):
            return WILDS
        return PARQUET if find_shards(root) else None

    @classmethod
    def samples(cls, config: Camelyon17Config) -> SampleTable:
        root, layout = cls.root_and_layout(config)
        if layout == PARQUET:
            label = "label"
            table = ShardedTable(root, "Camelyon17's Parquet files", (label, "center"))
            files, split_words = table.files(), table.split_words()
        else:
            label = "tumor"
            table = CsvTable(read_text(root, "metadata.csv"), "Camelyon17's metadata.csv")
            table.check_columns((*PLACE, label, "center", "split"))
            patches = [
                f"patches/patient_{patient}_node_{node}/patch_patient_{patient}_node_{node}_x_{x}_y_{y}.png"
                for patient, node, x, y in zip(*(table.words(name) for name in PLACE), strict=True)
            ]
            files, split_words = check_paths(patches, table.title), table.words("split")
        return SampleTable(
            names(files),
            table.coded(label, BINARY),
            _splits(table.words("center"), split_words, table.title),
            ("normal", "tumour"),
            table.coded("center", HOSPITALS),
            "center",
            tuple(f"hospital {hospital}" for hospital in HOSPITALS),
            pools={"ood_test": tuple(UNSEEN.values())},
        )

    @classmethod
    def published(cls, config: Camelyon17Config) -> dict[str, dict[str, int]] | None:
        return {split: {"total": n} for split, n in PUBLISHED.items()}


def _splits(centers: Sequence[str], split_words: Sequence[str], where: str) -> NDArray:
    """Return the split of every patch. The unseen hospitals are splits of their own, as in WILDS' own code."""
    unseen = {f"hospital {center}": split for center, split in UNSEEN.items()}
    pairs = zip(centers, split_words, strict=True)
    words = [f"hospital {center}" if center in UNSEEN else word for center, word in pairs]
    return coded(Column("split", words), SEEN | unseen, where)
