"""Choose the pairs of CelebA's attributes that exchange their roles. Only the list of attributes is read, no image.

A pair is two tasks: each attribute is once the label and once the shortcut. The rule was fixed before any run:

1. `NAMED` are in, because they were named before. They are the two pairs of the paper, and five that an earlier
   measurement on frozen features used. The paper's pairs and the two others with the smallest groups are the tuning
   pairs: settings may be chosen on them, and they do not count in the score.
2. The others are taken in the order of their size, up to twelve pairs. The size of a pair is the number of test images
   in its smallest group. The two attributes describe different features (`FEATURES`), no other pair has the same two
   features, and an attribute is in at most two of the pairs that are added.

So every group has 500 test images where that is possible with different features.

    python reproduce/exchange_pairs.py --root DIR    prints the pairs with the sizes of their smallest groups
"""

from __future__ import annotations

import argparse
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

import numpy as np

from sitar.data.benchmarks.celeba import FIRST_10K, MAJORITY, attribute_lists

PAPER = (("Blond_Hair", "Male"), ("Attractive", "Smiling"))
NAMED = (
    *PAPER,
    ("Mouth_Slightly_Open", "Wearing_Lipstick"),
    ("Smiling", "Male"),
    ("Wavy_Hair", "High_Cheekbones"),
    ("Black_Hair", "Male"),
    ("Young", "Smiling"),
)
PAIRS, TUNING, MOST = 12, 4, 2
FEATURES = {
    "expression": ("High_Cheekbones", "Mouth_Slightly_Open", "Smiling"),
    "make-up": ("Heavy_Makeup", "Rosy_Cheeks", "Wearing_Lipstick"),
    "lips": ("Big_Lips",),
    "hair": (
        "Bald", "Bangs", "Black_Hair", "Blond_Hair", "Brown_Hair", "Gray_Hair", "Receding_Hairline", "Straight_Hair",
        "Wavy_Hair",
    ),
    "beard": ("5_o_Clock_Shadow", "Goatee", "Mustache", "No_Beard", "Sideburns"),
    "eyes": ("Arched_Eyebrows", "Bags_Under_Eyes", "Bushy_Eyebrows", "Eyeglasses", "Narrow_Eyes"),
    "nose": ("Big_Nose", "Pointy_Nose"),
    "face": ("Chubby", "Double_Chin", "Oval_Face"),
    "skin": ("Pale_Skin",),
    "gender": ("Male",),
    "age": ("Young",),
    "attractiveness": ("Attractive",),
    "things": ("Wearing_Earrings", "Wearing_Hat", "Wearing_Necklace", "Wearing_Necktie"),
    "picture": ("Blurry",),
}  # fmt: skip
FEATURE = {attribute: feature for feature, members in FEATURES.items() for attribute in members}


class Pair(NamedTuple):
    """Two attributes, and the number of test images in the smallest of their four groups."""

    first: str
    second: str
    size: int
    tuning: bool = False

    @property
    def features(self) -> frozenset[str]:
        return frozenset({FEATURE[self.first], FEATURE[self.second]})


def smallest_group(first: np.ndarray, second: np.ndarray, train: np.ndarray, named: bool) -> int:
    """Count the test images of the smallest group, as data.partition=exchange splits them.

    `train` marks the official training images, on which it is decided what follows the shortcut. The paper has named
    this for its own pairs: those that have one attribute and lack the other.
    """
    agree = first == second
    follows = agree if not named and 2 * agree[train].sum() >= train.sum() else ~agree
    place = np.arange(1, FIRST_10K + 1) % 20
    test = np.where(follows[:FIRST_10K], place < 5, place < 10)
    group = (2 * first + second)[:FIRST_10K]
    return int(np.bincount(group[test], minlength=4).min())


def choose(root: Path) -> list[Pair]:
    """Apply the rule to the authors' lists in this folder."""
    _, split, attributes = attribute_lists(root)
    train = split == "train"

    def measured(first: str, second: str) -> Pair:
        size = smallest_group(attributes[first], attributes[second], train, (first, second) in MAJORITY)
        return Pair(first, second, size)

    named = [measured(*names) for names in NAMED]
    others = sorted((pair for pair in named if pair[:2] not in PAPER), key=lambda pair: pair.size)
    tuning = {*PAPER, *(pair[:2] for pair in others[: TUNING - len(PAPER)])}
    pairs = [pair._replace(tuning=pair[:2] in tuning) for pair in named]
    rest = [measured(*names) for names in combinations(sorted(attributes), 2)]
    added: list[Pair] = []
    for pair in sorted(rest, key=lambda pair: -pair.size):
        seen = {other.features for other in (*pairs, *added)}
        often = any(sum(name in other[:2] for other in added) >= MOST for name in pair[:2])
        if len(pair.features) == 2 and pair.features not in seen and not often and len(pairs) + len(added) < PAIRS:
            added.append(pair)
    return [*pairs, *added]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--root", type=Path, required=True, help="folder with list_attr_celeba.txt")
    for pair in choose(parser.parse_args().root):
        print(f"{pair.first}, {pair.second}: {pair.size} images{', for tuning' if pair.tuning else ''}")


if __name__ == "__main__":
    main()
