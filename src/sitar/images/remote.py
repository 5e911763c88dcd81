"""Files elsewhere (`hf://`, `s3://`, `memory://`) are found and opened through fsspec, as far as a host answers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import PurePosixPath
from typing import Any

from sitar.errors import ConfigError, DataError

PACKAGES = {"hf": 'pip install "sitar[hub]"', "s3": "pip install s3fs", "gs": "pip install gcsfs"}


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
    """Find the files that a URL names: one, those of a pattern, or those of a folder with one of these ends."""
    import fsspec

    scheme = url.partition("://")[0]
    try:
        system, path = fsspec.core.url_to_fs(url)
    except (ValueError, ImportError) as error:
        install = f" Run `{PACKAGES[scheme]}`." if scheme in PACKAGES else ""
        raise ConfigError(f"{url!r} cannot be read: nothing here knows {scheme}:// ({error}).{install}") from error
    with _answers(url):
        if any(sign in path for sign in "*?["):
            found = system.glob(path)
        elif system.isdir(path):
            found = [one for one in system.find(path) if one.endswith(suffixes)]
        else:
            found = [path] if system.exists(path) else []
    return [RemoteFile(system, one, f"{scheme}://{one.removeprefix('/')}") for one in sorted(map(str, found))]


@contextmanager
def _answers(url: str) -> Iterator[None]:
    """Say that a host does not answer, whatever its library raises."""
    try:
        yield
    except DataError:
        raise
    except Exception as error:  # every file system has errors of its own
        words = " ".join(str(error).split())[:200]
        raise DataError(
            f"{url!r} cannot be reached: {type(error).__name__}: {words}. Is there a network, does it exist, and may "
            "you read it? A copy on this machine can be given as a folder."
        ) from error
