"""Files elsewhere (`hf://`, `s3://`, `memory://`) are found and opened through fsspec, as far as a host answers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import PurePosixPath
from typing import Any

from sitar.errors import ConfigError, DataError, SitarError

INSTALL = {  # the schemes that are read, and what brings them: others of fsspec read local files, or run programs
    "hf": 'pip install "sitar[hub]"',
    "s3": "pip install s3fs",
    "gs": "pip install gcsfs",
    "gcs": "pip install gcsfs",
    "az": "pip install adlfs",
    "abfs": "pip install adlfs",
    "memory": "pip install fsspec",
}


class RemoteFile:
    """Names a file of another file system, and reads it."""

    def __init__(self, system: Any, path: str, url: str) -> None:
        self.system, self.path, self.url = system, path, url
        self.name, self.suffix = PurePosixPath(path).name, PurePosixPath(path).suffix

    def __str__(self) -> str:
        return self.url

    def open(self) -> Any:
        """Open it for reading. Parts of it are fetched when they are asked for."""
        with _answers(self.url):
            return self.system.open(self.path, "rb")

    def read_bytes(self) -> bytes:
        with _answers(self.url):
            return self.system.cat_file(self.path)

    def stamp(self) -> str:
        """Return what changes when the file does, as its host says: a checksum, or its size and time."""
        with _answers(self.url):
            return str(self.system.ukey(self.path))


def find_remote(url: str, suffixes: tuple[str, ...]) -> list[RemoteFile]:
    """Find the files that a URL names: one, those of a pattern, or those of a folder with one of these ends.

    The URL may come from a stranger's run folder. Only the schemes of `INSTALL` are read, and no chain of two.
    """
    file = remote_file(url)
    system, path, scheme = file.system, file.path, url.partition("://")[0]
    with _answers(url):
        if any(sign in path for sign in "*?["):
            found = system.glob(path)
        elif system.isdir(path):
            found = [one for one in system.find(path) if one.endswith(suffixes)]
        else:
            found = [path] if system.exists(path) else []
    return [RemoteFile(system, one, f"{scheme}://{one.removeprefix('/')}") for one in sorted(map(str, found))]


def remote_file(url: str) -> RemoteFile:
    """Return the file that a URL names, whether it is there or not."""
    import fsspec

    scheme = url.partition("://")[0]
    if scheme not in INSTALL or "::" in url:
        allowed = ", ".join(f"{one}://" for one in INSTALL)
        raise ConfigError(f"{url!r} cannot be read: nothing here knows {scheme}://, only one of {allowed}.")
    with _answers(url):
        try:
            system, path = fsspec.core.url_to_fs(url)
        except ImportError as error:
            raise ConfigError(f"{url!r} cannot be read: {error}. Run `{INSTALL[scheme]}`.") from error
    return RemoteFile(system, path, url)


@contextmanager
def _answers(url: str) -> Iterator[None]:
    """Say that a host does not answer, whatever its library raises."""
    try:
        yield
    except SitarError:
        raise
    except Exception as error:  # every file system has errors of its own
        words = " ".join(str(error).split())[:200]
        raise DataError(
            f"{url!r} cannot be reached: {type(error).__name__}: {words}. Is there a network, does it exist, and may "
            "you read it? A copy on this machine can be given as a folder."
        ) from error
