"""A package can run these contract checks on the methods and datasets that it adds (docs/extending.md).

`check_method("mixup")` runs all of them. With pytest, `@pytest.mark.parametrize("check", method_checks("mixup"))` on a
test that calls `check()` makes a test of each.
"""

from sitar.testing.contract import Check, ContractError
from sitar.testing.datasets import check_dataset, dataset_checks
from sitar.testing.methods import check_method, method_checks

__all__ = ["Check", "ContractError", "check_dataset", "check_method", "dataset_checks", "method_checks"]
