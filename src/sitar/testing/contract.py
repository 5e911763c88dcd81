"""A contract consists of checks. Each has a name and a sentence, and its error says what is broken."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

PREFIX = "check_"


class ContractError(AssertionError):
    """A method or a dataset does not do what the rest of the library relies on."""


@dataclass(frozen=True)
class Check:
    """A check asks one thing of one method or dataset, and is ready to be called.

    `function` asserts something. Its docstring begins with a sentence that says what is expected. pytest shows
    `__name__` as the name of the test.
    """

    subject: str  # such as "method 'mixup'"
    function: Callable[..., None]
    arguments: tuple[Any, ...]
    variant: str = ""  # tells checks with the same function apart

    @property
    def __name__(self) -> str:
        name = self.function.__name__.removeprefix(PREFIX)
        return f"{name}-{self.variant}" if self.variant else name

    def __call__(self) -> None:
        """Run the check. Raise a `ContractError` that names it and says what is expected."""
        try:
            self.function(*self.arguments)
        except Exception as error:
            reason = str(error) if isinstance(error, AssertionError) else f"{type(error).__name__}: {error}"
            expected = " ".join((self.function.__doc__ or "").partition("\n\n")[0].split())
            raise ContractError(
                f"The {self.subject} fails the check {self.__name__!r}.\nExpected: {expected}\nFound: {reason}"
            ) from error
