"""A process of its own does jobs: `python -m sitar.sweeps.engines.worker`. Lines of JSON tell it which.

Each line on standard input is a list of jobs to do together, mostly of one. Each line of the answer says how they have
ended. The end of standard input means that nobody waits for an answer any more: the process ends at once, whatever it
does. So no run outlives its sweep.
"""

from __future__ import annotations

import json
import os
import threading
from queue import Queue
from typing import Any, TextIO

from sitar.interpreter import answer_line
from sitar.sweeps.engines.job import Job, attempt, attempt_together, listen_to_sitar


def work() -> None:
    orders, answers = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
    with open(os.devnull) as nothing:
        os.dup2(nothing.fileno(), 0)  # nobody else reads the orders,
    os.dup2(2, 1)  # or writes between the answers
    listen_to_sitar()
    jobs: Queue[list[dict[str, Any]]] = Queue()
    threading.Thread(target=_listen, args=(orders, jobs), daemon=True).start()
    while True:
        given = [Job.from_dict(values) for values in jobs.get()]
        errors = [attempt(given[0])] if len(given) == 1 else attempt_together(given)
        answers.write(answer_line({"errors": errors}))
        answers.flush()


def _listen(orders: TextIO, jobs: Queue[list[dict[str, Any]]]) -> None:
    for line in orders:
        jobs.put(json.loads(line))
    os._exit(0)


if __name__ == "__main__":
    work()
