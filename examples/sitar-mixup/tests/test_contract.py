"""The checks that every method of sitar passes, run on the method of this package."""

import pytest

import sitar.testing


@pytest.mark.parametrize("check", sitar.testing.method_checks("mixup"))
def test_mixup(check) -> None:
    check()
