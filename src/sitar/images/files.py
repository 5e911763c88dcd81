"""Finding and reading files that lie in folders or in zip archives, as people lay them out by hand."""

from __future__ import annotations

import gzip
import os
import zipfile
from collections.abc import Iterable
from pathlib import Path

from sitar.errors import DataError

IMAGES = (
    ".jpg", ".jpeg", ".jpe", ".jfif", ".jp2", ".png", ".tif", ".tiff", ".bmp", ".webp", ".avif", ".gif", ".ppm", ".pgm",
    ".dcm", ".dicom",
)  # fmt: skip


def is_image(name: str) -> bool:
    """By the end of its name."""
    return name.lower().endswith(IMAGES)


def check_root(root: str | None, name: str, layout: str) -> Path:
    """The folder of a dataset, or an error that says what should lie in it."""
    if root is None:
        raise DataError(f"{name} needs data.root, the folder with its files: {layout}.")
    path = Path(root).expanduser()
    if not path.is_dir():
        raise DataError(f"data.root {root!r} is not a folder. {name} expects there {layout}.")
    return path


def places(root: Path) -> list[Path]:
    """The folder and the folders in it: people unpack archives with and without a folder of their own."""
    return [root, *sorted(path for path in root.iterdir() if path.is_dir())]


def read_text(root: Path, name: str) -> str:
    """A text file below `root`: as it is, with .gz, or in a zip archive of the same stem."""
    for place in places(root):
        if (path := place / name).is_file():
            return path.read_text(encoding="utf-8-sig")
        if (path := place / f"{name}.gz").is_file():
            return gzip.decompress(path.read_bytes()).decode("utf-8-sig")
        if (path := (place / name).with_suffix(".zip")).is_file():
            with zipfile.ZipFile(path) as archive:
                if name in archive.namelist():
                    return archive.read(name).decode("utf-8-sig")
    raise DataError(f"{str(root)!r} has no {name}, nor {name}.gz, nor {Path(name).with_suffix('.zip').name} with it.")


class Files:
    """Files by name, in folders and in zip archives."""

    def __init__(self, folders: Iterable[Path], archives: Iterable[Path] = ()) -> None:
        self.folders = list(folders)
        self.archives = list(archives)
        self.members: dict[str, tuple[zipfile.ZipFile, zipfile.ZipInfo]] = {}
        for path in self.archives:
            archive = zipfile.ZipFile(path)
            for member in archive.infolist():
                self.members.setdefault(member.filename, (archive, member))

    def names(self) -> list[str]:
        """Every image there is, by its name below the folder or within the archive, sorted."""
        return [name for name in self.all_names() if is_image(name)]

    def all_names(self) -> list[str]:
        """Every file there is; hidden ones are none, as editors and systems leave them beside images."""
        found = {name for name in self.members if not name.endswith("/") and not _is_hidden(name)}
        for folder in self.folders:
            for place, folders, files in os.walk(folder, followlinks=True):
                folders[:] = [name for name in folders if not name.startswith(".") and not _leads_up(place, name)]
                inner = os.path.relpath(place, folder)
                found |= {name if inner == "." else f"{inner}/{name}" for name in files if not name.startswith(".")}
        return sorted(found)

    def stamp(self, name: str) -> str:
        """What changes when the file does, without reading it; empty when there is none."""
        if name in self.members:
            member = self.members[name][1]
            return f"{member.file_size} {member.CRC}"
        for folder in self.folders:
            try:
                status = os.stat(os.path.join(folder, name))
            except OSError:
                continue
            return f"{status.st_size} {status.st_mtime_ns}"
        return ""

    def read(self, name: str) -> bytes:
        if name in self.members:
            archive, member = self.members[name]
            return archive.read(member)
        for folder in self.folders:
            try:
                file = os.open(os.path.join(folder, name), os.O_RDONLY)
            except (FileNotFoundError, NotADirectoryError):
                continue
            try:
                return os.read(file, os.fstat(file).st_size)
            finally:
                os.close(file)
        raise FileNotFoundError(name)


def _is_hidden(name: str) -> bool:
    return any(part.startswith(".") for part in name.split("/"))


def _leads_up(place: str, name: str) -> bool:
    """Whether a folder is a link to one that it lies in, which a walk would follow forever."""
    path = os.path.join(place, name)
    return os.path.islink(path) and f"{os.path.realpath(place)}/".startswith(f"{os.path.realpath(path)}/")
