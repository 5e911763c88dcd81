"""Contract checks that a package can run on the methods and datasets that it adds (docs/extending.md).

import pytest
from sitar.testing import method_checks

@pytest.mark.parametrize("check", method_checks("mixup"))
def test_mixup(check):
    check()
"""

from sitar.testing.contract import Check, ContractError
from sitar.testing.methods import check_method, method_checks

__all__ = ["Check", "ContractError", "check_method", "method_checks"]
