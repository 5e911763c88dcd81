"""Choose the CPU threads of a run: the user's own number, that of the run which it continues, or the fastest."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import torch

from sitar import threads
from sitar.threads import Rehearsal

__all__ = ["Rehearsal", "cpu_threads"]
logger = logging.getLogger(__name__)


@contextmanager
def cpu_threads(
    rehearse: Callable[[], AbstractContextManager[Rehearsal | None]], recorded: int | None
) -> Iterator[None]:
    """Have torch use the number of threads that is right for a run, and put the caller's number back afterwards.

    `rehearse` lends a step of the run to try out, or None where the run has none. `recorded` is the number of threads
    of a run that is continued: with another number its weights could differ in the last digits. A new run has None.
    """
    before = torch.get_num_threads()
    try:
        number = _number(rehearse, recorded)
    finally:
        torch.set_num_threads(before)
    with threads.threads(number):
        yield


def _number(rehearse: Callable[[], AbstractContextManager[Rehearsal | None]], recorded: int | None) -> int:
    number = threads.users_number()
    if number is None and recorded is not None and recorded <= torch.get_num_threads():
        return recorded
    if number is None:
        with rehearse() as rehearsal:
            number = threads.number_for(rehearsal)
    if recorded is not None and number != recorded:
        logger.warning(
            "The run was started on %d threads and continues on %d, so its weights may differ in the last digits from "
            "those of a run that was never stopped. OMP_NUM_THREADS=%d continues it exactly.",
            recorded, number, recorded,
        )  # fmt: skip
    return number
