"""The checks that every method and every dataset of sitar passes, run on those of this package."""

import pytest

import sitar.testing


@pytest.mark.parametrize("check", sitar.testing.method_checks("mixup"))
def test_mixup(check) -> None:
    check()


@pytest.mark.parametrize("check", sitar.testing.dataset_checks("stripes", train_size=100, eval_size=50))
def test_stripes(check) -> None:
    check()
