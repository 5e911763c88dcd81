"""Stop a run right before one of its writes, as a kill would."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest import mock

from sitar.run_folder import RunFolder


class Stop(BaseException):
    """This ends a process, as a kill would. It is no Exception, so that no handler catches it."""


def writes(call: Callable[[], object], stop_at: int | None = None, before: Callable[[], object] = lambda: None) -> int:
    """Run `call` and count the changes it makes to files that matter; stop it right before change number `stop_at`.

    `before` is called before every change. It may look at the files, and must not change any.

    Files change by a rename or by a line appended to the metrics, so that stopping before each of them (and thereby
    after the one before) visits every state that a killed process can leave, but for files with temporary names.
    """
    count = 0

    def counted(function: Callable[..., Any], changes: Callable[..., bool] = lambda *_: True) -> Callable[..., Any]:
        def wrapper(*arguments: Any, **keywords: Any) -> Any:
            nonlocal count
            if changes(*arguments):
                count += 1
                if count - 1 == stop_at:
                    raise Stop
                before()
            return function(*arguments, **keywords)

        return wrapper

    with ExitStack() as patches:
        for owner, name, wrapper in (
            (os, "replace", counted(os.replace)),
            (os, "mkdir", counted(os.mkdir, lambda path, *_: not os.path.exists(path))),
            (RunFolder, "append_metrics", counted(RunFolder.append_metrics)),
            (Path, "unlink", counted(Path.unlink, lambda path: path.exists() and path.name[0] != ".")),
        ):
            patches.enter_context(mock.patch.object(owner, name, wrapper))
        call()
    return count
