"""What every registered data set promises (sitar.testing.datasets).

A new data set is covered by being registered. Where it needs files, `helpers.made_data` makes tiny ones.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from helpers import made_data
from sitar.data import Dataset
from sitar.data.benchmarks import celeba, dominoes
from sitar.presets import preset_names
from sitar.registry import DATASETS
from sitar.testing import Check
from sitar.testing.datasets import DATASET_CHECKS, DatasetCase

NAMES = DATASETS.names()
MADE = {maker.partition(" ")[0] for maker in made_data.MAKERS}
CASES = [*made_data.MAKERS, *(name for name in NAMES if name not in MADE)]


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], DatasetCase]:
    """Made-up files of each data set, written once, with the settings that read them."""
    made: dict[str, DatasetCase] = {}

    def case(maker: str) -> DatasetCase:
        if maker not in made:
            make = made_data.MAKERS.get(maker, lambda _: DATASETS.get(maker).Config())
            config = make(tmp_path_factory.mktemp("made"))
            made[maker] = DatasetCase(config.name, config.model_dump(exclude_unset=True))
        return made[maker]

    return case


@pytest.fixture(autouse=True)
def _made_faces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Our lists are taken for CelebA's, our faces for its first 10,000, and our clothes for Fashion-MNIST's."""
    monkeypatch.setattr(celeba, "MD5", made_data.md5_of_lists())
    monkeypatch.setattr(celeba, "FIRST_10K", made_data.N)
    monkeypatch.setattr(dominoes, "FASHION", made_data.fashion_of_ours())


def test_every_dataset_that_needs_files_has_made_up_ones() -> None:
    assert set(NAMES) >= MADE >= {name for name in NAMES if DATASETS.get(name).needs_files}


@pytest.mark.parametrize("maker", CASES)
@pytest.mark.parametrize("check", DATASET_CHECKS, ids=lambda check: check.__name__.removeprefix("check_"))
def test_a_dataset_keeps_its_promise(
    check: Callable[[DatasetCase], None], maker: str, cases: Callable[[str], DatasetCase]
) -> None:
    Check(f"dataset {maker!r}", check, (cases(maker),))()


@pytest.mark.parametrize("name", NAMES)
def test_a_dataset_has_presets(name: str) -> None:
    assert [preset for preset in preset_names() if preset.startswith(f"{name}/")]


def test_what_a_dataset_need_not_have() -> None:
    """A subclass says only what is its own."""
    assert (Dataset.prepare(None), Dataset.layout_of(None), Dataset.published(None)) == (None, None, None)
    assert (Dataset.val_share(None), Dataset.box_of_interest(None)) == (None, None)
    assert Dataset.needs_files
