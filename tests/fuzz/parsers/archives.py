"""Archives: zip files of images, lists in zip and gzip files, tar files that are unpacked, and shards of images."""

from __future__ import annotations

import gzip
import io
import json
import os
import shutil
import tarfile
import zipfile
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
from PIL import Image

from fuzz.mutate import NUMBERS, WORDS, changed, damaged
from fuzz.parsers.parser import Parser
from fuzz.parsers.tables import wrong_parquet
from sitar.config import section_config
from sitar.errors import DataError
from sitar.images.bit_depth import BadImageError
from sitar.images.download import unpack
from sitar.images.files import Files, read_text
from sitar.images.parquet import find_shards
from sitar.registry import DATASETS

NAMES = (
    "../out.png", "/tmp/out.png", "a/../../out.png", "a\x00b.png", "\x1b[31m.png", "a\nb.png", "é" * 90 + ".png",
    "a" * 300 + ".png", ".hidden.png", "a//b.png", "./a.png", "CON.png", " .png", "a/b/c/d/e.png", ".", "..", "a/",
)  # fmt: skip


def _png() -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(np.zeros((5, 5, 3), np.uint8)).save(buffer, "PNG")
    return buffer.getvalue()


def _name(random: Random) -> str:
    return random.choice((*NAMES, *WORDS, "0/a.png", "1/b.png", f"{random.randrange(9)}.png")) or "x"


def zipped(folder: Path) -> Parser:
    """A zip file of images, every one of which is read."""
    file = folder / "x.zip"

    def packed(names: list[str], method: int = zipfile.ZIP_DEFLATED) -> bytes:
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w", method) as archive:
            for name in names:
                archive.writestr(name.split("\0")[0] or "x", _png())
        return buffer.getvalue()

    def read(content: bytes) -> None:
        file.write_bytes(content)
        files = Files([], [file])
        bad = 0
        for name in files.names():
            files.stamp(name)
            try:
                files.read(name)
            except BadImageError:
                bad += 1
        if bad:
            raise DataError(f"{bad} images cannot be read.")

    def wrong(random: Random, content: bytes) -> bytes:
        import warnings

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            names = [_name(random).encode("utf-8", "replace").decode() for _ in range(random.randrange(6))]
            made = packed(names, random.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA)))
        mark = random.choice((b"PK\x01\x02", b"PK\x03\x04", b"PK\x05\x06"))
        if random.random() < 0.7 and (at := made.find(mark)) >= 0:  # flags, methods, sizes and places that lie
            at += random.randrange(4, 30)
            size = random.choice((1, 2, 4))
            made = made[:at] + (random.choice(NUMBERS) % 256**size).to_bytes(size, "little") + made[at + size :]
        return made

    return Parser("zip", [packed(["0/a.png", "0/b.png", "1/c.png"]), packed(["a.png"], 0)], read, wrong)


def text(folder: Path) -> Parser:
    """A list of the authors of a data set, alone, in a gzip file, or in a zip file."""

    def read(content: bytes) -> None:
        kind, _, body = content.partition(b"\n")
        ending = {b"gz": ".txt.gz", b"zip": ".zip"}.get(kind, ".txt")
        for old in folder.iterdir():
            old.unlink()
        (folder / f"list{ending}").write_bytes(body)
        read_text(folder, "list.txt")

    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("list.txt", "a b c\n" * 99)
    seeds = [b"gz\n" + gzip.compress(b"a b c\n" * 99), b"zip\n" + buffer.getvalue(), b"txt\na b c\n"]

    def wrong(random: Random, content: bytes) -> bytes:
        kind, _, body = content.partition(b"\n")
        at = random.randrange(max(1, min(len(body), 48)))
        if kind == b"zip" and random.random() < 0.6:
            at = max(0, body.find(random.choice((b"PK\x01\x02", b"PK\x03\x04", b"PK\x05\x06")))) + random.randrange(30)
        return kind + b"\n" + body[:at] + bytes([random.randrange(256)]) + body[at + 1 :]

    return Parser("list", seeds, read, wrong)


def tarred(folder: Path) -> Parser:
    """A downloaded .tar.gz. Nothing may be written outside the folder it is unpacked in, and no link may stay."""
    inner, file = folder / "inner", folder / "x.tar.gz"

    def packed(members: list[tuple[str, bytes, int]]) -> bytes:
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w:gz", compresslevel=1) as tar:
            for name, kind, size in members:
                member = tarfile.TarInfo(name)
                member.type, member.size, member.linkname = kind, size, "/etc/passwd"
                tar.addfile(member, io.BytesIO(b"x" * size))
        return buffer.getvalue()

    def read(content: bytes) -> None:
        shutil.rmtree(inner, ignore_errors=True)
        inner.mkdir()
        file.write_bytes(content)
        try:
            unpack(file, inner)
        except OSError as error:  # the command says so in one line
            raise DataError(str(error)) from error
        finally:
            if outside := [path for path in folder.iterdir() if path not in (inner, file)]:
                raise AssertionError(f"written outside: {outside[0]}")
            if links := [
                path for path in inner.rglob("*") if path.is_symlink() or not (path.is_file() or path.is_dir())
            ]:
                raise AssertionError(f"a link or a device: {links[0]}")

    kinds = (tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE)

    def wrong(random: Random, content: bytes) -> bytes:
        if random.random() < 0.4:  # the bytes of tar, damaged, in gzip that is whole
            return gzip.compress(damaged(random, gzip.decompress(seeds[0])), 1)
        members = []
        for _ in range(random.randrange(5)):
            kind = random.choice((*kinds[:2], *kinds))
            size = random.choice((0, 1, 700)) if kind == tarfile.REGTYPE else 0
            members.append((_name(random).replace("\0", "").encode("utf-8", "replace").decode() or "x", kind, size))
        return packed(members)

    seeds = [packed([("d", tarfile.DIRTYPE, 0), ("d/a.txt", tarfile.REGTYPE, 600), ("b", tarfile.REGTYPE, 3)])]
    return Parser("tar", seeds, read, wrong)


def image_shard(folder: Path) -> Parser:
    """A Parquet file whose rows are images."""
    buffer = io.BytesIO()
    images = [{"bytes": _png(), "path": f"{i}.png"} for i in range(6)]
    pyarrow.parquet.write_table(pyarrow.table({"image": images, "label": [0, 1] * 3}), buffer, row_group_size=4)
    file = folder / "train-00000-of-00001.parquet"

    def read(content: bytes) -> None:
        file.unlink(missing_ok=True)  # it may be mapped
        file.write_bytes(content)
        shards = find_shards(folder)
        files = Files([], shards=shards)
        bad = 0
        for row in range(6):
            try:
                files.read(f"{file.name}/{row:07}")
            except (BadImageError, FileNotFoundError):
                bad += 1
        if bad:
            raise DataError(f"{bad} images cannot be read.")

    return Parser("image shard", [buffer.getvalue()], read, wrong_parquet)


def names(folder: Path) -> Parser:
    """Names of files and folders that somebody has sent: of images in folders of classes, and of shards."""
    root = folder / "root"
    seeds = [["train/cat/a.png", "train/dog/b.png", "val/cat/c.png", "val/dog/d.png"], ["x-00000-of-00002.parquet"]]

    def read(content: bytes) -> None:
        shutil.rmtree(root, ignore_errors=True)
        root.mkdir()
        try:
            given = json.loads(content)
        except (ValueError, RecursionError) as error:
            raise DataError("no names") from error
        for name in given if isinstance(given, list) else []:
            path = os.path.normpath(os.path.join(os.fspath(root), str(name).lstrip("/")))
            if not path.startswith(f"{root}{os.sep}"):
                continue
            try:
                os.makedirs(os.path.dirname(path), exist_ok=True)
                with open(path, "xb"):
                    pass
            except (OSError, ValueError):  # no file can be called so
                continue
        find_shards(root)
        config: Any = section_config("data", {"name": "folder", "root": str(root)})
        DATASETS.get("folder").samples(config).counts()

    def wrong(random: Random, content: bytes) -> bytes:
        parts = [*NAMES, *WORDS, "train", "val", "cat", "x-00001-of-99999999999.parquet", "x-00009-of-00002.parquet",
                 f"x-0-of-{'9' * 5000}.parquet", f"x-0-of-{'9' * 200}.parquet", "TRAIN", "train.png"]  # fmt: skip
        made = changed(random, json.loads(content)) if random.random() < 0.3 else json.loads(content)
        made = made if isinstance(made, list) else [made]
        for _ in range(random.randrange(1, 5)):
            made.append("/".join(random.choice(parts) for _ in range(random.choice((1, 2, 3)))))
        return json.dumps(made).encode()

    return Parser("file names", [json.dumps(seed).encode() for seed in seeds], read, wrong)
