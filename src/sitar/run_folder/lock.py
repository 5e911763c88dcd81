"""One process at a time writes into a run folder."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sitar.errors import RunError
from sitar.locks import LockedError, locked
from sitar.run_folder.layout import LOCK, Layout


class Lockable(Layout):
    """A folder can be locked, so that other processes do not write into it."""

    @contextmanager
    def lock(self, *, wait: bool = False) -> Iterator[None]:
        """Keep other processes from writing into this folder. A killed process leaves no lock behind.

        What was read before the lock was taken may have changed: read it again.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            lock = locked(self.path / LOCK, wait=wait)
            lock.__enter__()
        except LockedError as error:
            raise RunError(
                f"{error.owner} is writing into the run folder {str(self.path)!r}. Wait for it, or choose another "
                "folder with --out."
            ) from error
        except OSError as error:
            raise self._cannot_write(error) from error
        try:
            yield
        finally:
            lock.__exit__(None, None, None)

    def _cannot_write(self, error: OSError) -> RunError:
        return RunError(
            f"Cannot write the run folder {str(self.path)!r}: {error.strerror or error}. Choose another with --out."
        )
