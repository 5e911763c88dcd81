"""Files are found and read in folders, zip archives and Parquet shards, as people lay them out by hand."""

from __future__ import annotations

import gzip
import logging
import lzma
import os
import posixpath
import stat
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import IO

from sitar.errors import DataError
from sitar.files import check_packing, user_path
from sitar.images.bit_depth import BadImageError
from sitar.images.parquet import IMAGE, Shard
from sitar.images.remote import RemoteFile
from sitar.wording import are, counted

logger = logging.getLogger(__name__)
IMAGES = (
    ".jpg", ".jpeg", ".jpe", ".jfif", ".jp2", ".png", ".tif", ".tiff", ".bmp", ".webp", ".avif", ".gif", ".ppm", ".pgm",
    ".dcm", ".dicom",
)  # fmt: skip
PILLOW_FORMATS = ("JPEG", "PNG", "BMP", "GIF", "PPM", "TIFF", "WEBP", "AVIF", "JPEG2000")
"""What Pillow may take a file for: the kinds above, and no other, whatever the file is called. For some other kinds it
starts programs, such as Ghostscript for PostScript. A JPEG file of several pictures (MPO) is found through JPEG."""
MOST = 2**29  # bytes of an image file or of a text, unpacked
LONGEST = 4096  # letters of a path: more of them no system opens, and a table of long ones fills the memory
DAMAGED = (  # what is raised for an archive that is damaged, encrypted, or of a strange kind
    zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, NotImplementedError, RuntimeError, ValueError,
)  # fmt: skip


def is_image(name: str) -> bool:
    """Return whether a file is an image, by the end of its name."""
    return name.lower().endswith(IMAGES)


def kinds_of(names: Iterable[str]) -> str:
    """Count the kinds of files by the ends of their names, and list the most frequent ones."""
    kinds = Counter(PurePosixPath(name).suffix.lower() or "no ending" for name in names)
    return ", ".join(f"{kind} ({n:,})" for kind, n in kinds.most_common(5))


def warn_of_others(names: Iterable[str]) -> None:
    """Say which files are no images by their names, so that none is missed."""
    if others := [name for name in names if not is_image(name)]:
        files, kinds = counted(len(others), "file"), kinds_of(others)
        logger.warning("%s without the ending of an image %s left out: %s.", files, are(len(others)), kinds)


def check_root(root: str | None, name: str, layout: str, advice: str = "") -> Path:
    """Return the folder of a data set. An error says what should lie in it and how to get that."""
    if root is None:
        raise DataError(f"{name} needs data.root, the folder with its files: {layout}. {advice}".rstrip())
    path = user_path(root)
    if not path.is_dir():
        raise DataError(f"data.root {root!r} is not a folder. {name} expects there {layout}. {advice}".rstrip())
    return path


def places(root: Path) -> list[Path]:
    """Return the folder and the folders in it: people unpack archives with and without a folder of their own."""
    return [root, *sorted(path for path in root.iterdir() if path.is_dir() and not _is_hidden(path.name))]


def check_paths(paths: Iterable[str], where: str) -> list[str]:
    """Return the paths that `where` names, in one spelling. Refuse those that leave the folder or are there twice."""
    files = [posixpath.normpath(path) for path in paths]
    if strange := [file for file in files if "\0" in file or file == "."]:
        raise DataError(
            f"In {where} {len(strange):,} paths are empty or hold a zero byte, such as {strange[0]!r}: no file is "
            "called so."
        )
    if long := [file for file in files if len(file) > LONGEST]:
        raise DataError(
            f"In {where} {len(long):,} paths are longer than {LONGEST:,} characters, such as {long[0][:40]!r}...: no "
            "file is called so."
        )
    if leaving := [file for file in files if posixpath.isabs(file) or file.partition("/")[0] == ".."]:
        raise DataError(
            f"In {where} {len(leaving):,} paths lead out of data.root, such as {leaving[0]!r}. Give paths below it, "
            "without '..'."
        )
    seen: set[str] = set()
    if twice := [file for file in files if file in seen or seen.add(file)]:
        n = len(twice)
        raise DataError(
            f"{counted(n, 'file')} {are(n)} in {where} more than once, such as {twice[0]!r}: one image could be in "
            "training and in the test. Remove the repeated lines."
        )
    return files


def find_text(root: Path, name: str) -> Path | None:
    """Find a text file below `root`: as it is, with .gz, or in a zip archive of the same stem."""
    for place in places(root):
        for path in (place / name, place / f"{name}.gz"):
            if path.is_file():
                return path
        if (path := (place / name).with_suffix(".zip")).is_file() and name in _zip(path).namelist():
            return path
    return None


def read_text(root: Path, name: str) -> str:
    """Read the text that `find_text` finds."""
    if (path := find_text(root, name)) is None:
        zipped = Path(name).with_suffix(".zip").name
        raise DataError(f"{str(root)!r} has no {name}, nor {name}.gz, nor {zipped} with it.")
    try:
        if path.suffix == ".zip":
            return _unzipped(path, name).decode("utf-8-sig")
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            return _bounded(file, path).decode("utf-8-sig")
    except (*DAMAGED, gzip.BadGzipFile) as error:
        raise DataError(f"{str(path)!r} is damaged or was cut ({error}). Bring it again.") from error


def _unzipped(path: Path, name: str) -> bytes:
    try:
        archive = _zip(path)
        check_packing(archive.getinfo(name))
        with archive.open(name) as file:
            return _bounded(file, path)
    except OSError as error:  # a place in the file that there is not
        raise zipfile.BadZipFile(str(error)) from error


def _bounded(file: IO[bytes] | gzip.GzipFile, path: Path) -> bytes:
    """Read a file that may be compressed, within a bound: a small one may unpack to more than there is memory."""
    content = file.read(MOST + 1)
    if len(content) > MOST:
        raise DataError(f"{str(path)!r} unpacks to more than {MOST:,} bytes, which is more than is read of a text.")
    return content


def _zip(path: Path) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(path)
    except DAMAGED as error:
        raise DataError(f"{str(path)!r} is no zip archive, or was cut: half a download? Bring it again.") from error


Member = tuple[zipfile.ZipFile, zipfile.ZipInfo]


class Files:
    """Reads files by name from folders, from zip archives and, a row each, from `column` of Parquet shards."""

    def __init__(
        self,
        folders: Iterable[Path],
        archives: Iterable[Path] = (),
        shards: Mapping[str, Path | RemoteFile] | None = None,
        column: str = IMAGE,
    ) -> None:
        self.folders = list(folders)
        self.where = [os.path.realpath(folder) for folder in self.folders]
        self.archives = list(archives)
        self.column = column
        self.shards = {name: Shard(path, column) for name, path in (shards or {}).items()}
        self._open: Shard | None = None  # one at a time: there can be more than a process may have open
        self.members: dict[str, Member] = {}
        self.inner: dict[str, Member] = {}  # of archives with a folder of their own: names below it
        for path in self.archives:
            archive = _zip(path)
            files = [member for member in archive.infolist() if member.filename and not member.is_dir()]
            packed = len({member.filename.partition("/")[0] for member in files}) == 1
            for member in files:
                self.members.setdefault(member.filename, (archive, member))
                if packed and "/" in member.filename:
                    self.inner.setdefault(member.filename.partition("/")[2], (archive, member))

    def names(self) -> list[str]:
        """Return every image in folders and archives, by its name below the folder or within the archive, sorted."""
        return [name for name in self.all_names() if is_image(name)]

    def all_names(self) -> list[str]:
        """Return every file in folders and archives, but for hidden ones, which editors and systems leave there."""
        names = {name for name in self.members if not _is_hidden(name)}
        for folder in self.folders:
            names |= set(_walk(folder))
        return sorted(names)

    def stamp(self, name: str) -> str:
        """Return a text that changes when the file does, without reading it. It is empty where there is no file."""
        if packed := self._member(name):
            return f"{packed[1].file_size} {packed[1].CRC}"
        if shard := self.shards.get(name.rpartition("/")[0]):
            return shard.stamp
        for folder in self.where:
            try:
                status = os.stat(os.path.join(folder, name))
            except OSError:
                continue
            return f"{folder} {status.st_size} {status.st_mtime_ns} {status.st_ctime_ns}"
        return ""

    def is_remote(self, name: str) -> bool:
        """Say whether a file lies on another host."""
        shard = self.shards.get(name.rpartition("/")[0])
        return shard is not None and isinstance(shard.path, RemoteFile)

    def _member(self, name: str) -> Member | None:
        return self.members.get(name) or self.inner.get(name)

    def read(self, name: str) -> bytes:
        if packed := self._member(name):
            archive, member = packed
            _check_size(member.file_size)
            try:
                check_packing(member)
                return archive.read(member)
            except (*DAMAGED, OSError) as error:
                raise BadImageError(f"the zip archive is damaged here: {error}") from error
        if shard := self.shards.get(name.rpartition("/")[0]):
            if self._open not in (None, shard):
                self._open.close()
            self._open = shard
            content = shard.read(int(name.rpartition("/")[2]))
            _check_size(len(content))
            return content
        for folder in self.folders:
            path = os.path.join(folder, name)
            try:
                status = os.stat(path)
            except (FileNotFoundError, NotADirectoryError):
                continue
            if not stat.S_ISREG(status.st_mode):  # opening a pipe would wait for somebody to write into it
                raise BadImageError("not a regular file, but a folder, a pipe, a socket or a device")
            _check_size(status.st_size)
            with open(path, "rb", buffering=0) as file:
                return file.read(status.st_size)
        raise FileNotFoundError(name)


def _check_size(size: int) -> None:
    if size > MOST:
        raise BadImageError(f"{size:,} bytes, where at most {MOST:,} are read of an image")


def _is_hidden(name: str) -> bool:
    return any(part.startswith(".") for part in name.split("/"))


def _walk(folder: Path) -> Iterator[str]:
    """Yield the names of the files below a folder, but for hidden ones. Links are followed, each folder is read once.

    Links come last. So the files of a folder that lies here have the name of that folder, and not of a link to it.
    """
    seen: set[tuple[int, int]] = set()
    places, links = [""], []
    while places or links:
        inner = places.pop() if places else links.pop(0)
        try:
            status = os.stat(folder / inner)
            if (identity := (status.st_dev, status.st_ino)) in seen and status.st_ino:
                logger.warning("%r is a link to a folder that is read already, and is left out.", str(folder / inner))
                continue
            seen.add(identity)
            with os.scandir(folder / inner) as entries:
                found = sorted((e for e in entries if not e.name.startswith(".")), key=lambda entry: entry.name)
            for entry in found:
                name = f"{inner}/{entry.name}" if inner else entry.name
                if entry.is_dir():
                    (links if entry.is_symlink() else places).append(name)
                else:
                    yield name
        except OSError as error:
            raise DataError(
                f"The folder {str(folder / inner)!r} cannot be read: {error.strerror or error}. Give yourself the "
                "right to read it, or move it elsewhere: images in it would else be left out without a word."
            ) from error
