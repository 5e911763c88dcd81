"""Archives of a data set come from the web: from mirrors in order, resumed where they stopped, verified before use."""

from __future__ import annotations

import gzip
import hashlib
import http.client
import os
import re
import shutil
import tarfile
import urllib.error
import urllib.request
import zlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from sitar.errors import DataError
from sitar.locks import LockedError, locked
from sitar.writing import scratch_folder, sync_folder

TIMEOUT = 15.0  # seconds to connect, and without a byte
CHUNK = 1 << 20

Received = Callable[[int, int | None], None]  # is told the bytes done, and the bytes in all where the host says so


@dataclass(frozen=True)
class Download:
    """Names a .tar.gz archive, which is unpacked in the data set's folder. Without a checksum, gzip's own must do."""

    file: str
    urls: tuple[str, ...]
    sha256: str | None = None


class _FailedError(Exception):
    """Says why one mirror did not give the file."""


def fetch(
    download: Download, folder: Path, received: Received = lambda done, total: None, timeout: float = TIMEOUT
) -> Path:
    """Bring the archive into `folder`, from the first mirror that gives it. A `.part` that was left is continued."""
    target = folder / download.file
    lock = target.with_name(f"{target.name}.lock")
    try:
        with locked(lock, wait=False):
            try:
                return _fetch(download, target, received, timeout)
            finally:
                with suppress(OSError):  # Windows keeps it until it is released, and removes it then
                    lock.unlink()
    except LockedError as error:
        raise DataError(f"{error.owner} is downloading {str(target)!r}. Wait for it.") from error


def _fetch(download: Download, target: Path, received: Received, timeout: float) -> Path:
    part = target.with_name(f"{target.name}.part")
    tried = []
    if target.is_file():
        try:
            _verify(target, download.sha256)
            return target
        except _FailedError as error:
            tried.append(f"the one in the folder: {error}")
    for url in download.urls:
        try:
            with part.open("ab") as file:
                _receive(url, file, received, timeout)
            _verify(part, download.sha256)
            os.replace(part, target)
            return target
        except _FailedError as error:
            tried.append(f"{url}: {error}")
        except (OSError, http.client.HTTPException) as error:
            tried.append(f"{url}: {getattr(error, 'reason', None) or error or type(error).__name__}")
    if part.is_file() and part.stat().st_size == 0:
        part.unlink()
    kept = f" {part.stat().st_size:,} bytes are kept: the same command continues." if part.is_file() else ""
    raise DataError(f"{download.file} could not be downloaded. Tried {'; '.join(tried)}.{kept}")


def unpack(archive: Path, folder: Path) -> None:
    """Unpack the files of a .tar.gz below `folder`, all or none. Nothing is written outside, links are refused."""
    with scratch_folder(folder, ".unpacking") as scratch:
        try:
            with gzip.open(archive) as content, tarfile.open(archive, fileobj=content) as tar:
                for member in tar:
                    _extract(tar, member, scratch)
                while content.read(CHUNK):  # gzip verifies its checksum at the end, which tar does not reach
                    pass
        except (tarfile.TarError, EOFError, zlib.error, OSError) as error:
            if isinstance(error, OSError) and error.errno is not None:  # the disk's fault, not the archive's
                raise
            archive.unlink()
            raise DataError(
                f"{str(archive)!r} is damaged ({error}) and was removed. The same command downloads it again."
            ) from error
        for path in scratch.iterdir():
            if (folder / path.name).exists():
                raise DataError(
                    f"{str(folder / path.name)!r} is in the way of what {archive.name} holds. Move it, or unpack the "
                    "archive by hand."
                )
        if hasattr(os, "sync"):
            os.sync()  # the content before the names: thousands of files are not asked for one by one
        for path in scratch.iterdir():
            os.replace(path, folder / path.name)
        sync_folder(folder)


def _extract(tar: tarfile.TarFile, member: tarfile.TarInfo, folder: Path) -> None:
    path = folder / member.name
    inside = path.resolve().is_relative_to(folder.resolve())
    if not inside or not (member.isfile() or member.isdir()):
        why = "is a link or a device" if inside else "leads out of the folder"
        raise DataError(f"{str(tar.name)!r} is not safe to unpack: {member.name!r} {why}. Nothing was unpacked.")
    if member.isdir():
        path.mkdir(parents=True, exist_ok=True)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    content = tar.extractfile(member)
    assert content is not None  # it is a file
    with content, path.open("wb") as file:
        shutil.copyfileobj(content, file)


def _receive(url: str, file: BinaryIO, received: Received, timeout: float) -> None:
    """Append what is missing of `url` to `file`, or all of it anew where the host cannot continue."""
    done = file.seek(0, os.SEEK_END)
    request = urllib.request.Request(url, headers={"User-Agent": "sitar"})
    if done:
        request.add_header("Range", f"bytes={done}-")
    try:
        response = urllib.request.urlopen(request, timeout=timeout)
    except urllib.error.HTTPError as error:
        with error:
            if error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE and done:
                if _total(error.headers.get("Content-Range")) != done:
                    file.truncate(0)  # longer than the file: of another one
                    _receive(url, file, received, timeout)
                return
            raise _FailedError(f"the host answers {error.code} {error.reason}") from error
    with response:
        total = _total(response.headers.get("Content-Range"))
        if total is None or not response.headers["Content-Range"].startswith(f"bytes {done}-"):
            file.truncate(0)
            done = 0
            length = response.headers.get("Content-Length") or ""
            total = int(length) if length.isdigit() else None
        received(done, total)
        while chunk := response.read1(CHUNK):
            file.write(chunk)
            done += len(chunk)
            received(done, total)
    if total is not None and done != total:
        raise _FailedError(f"the connection ended after {done:,} of {total:,} bytes")


def _total(content_range: str | None) -> int | None:
    """Return the size of the whole file, from a header such as `bytes 10-19/20`."""
    size = re.search(r"/(\d+)$", content_range or "")
    return int(size[1]) if size else None


def _verify(path: Path, sha256: str | None) -> None:
    if sha256 is None:
        return
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != sha256:
        path.unlink()
        raise _FailedError(f"its sha256 is {digest[:12]}…, expected {sha256[:12]}…, and it was removed")
