"""What sitar keeps for itself and reads again: caches of images and of features, the pool of `sitar ask`, and locks."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from fuzz.mutate import changed, wrong_array, wrong_json, wrong_npz
from fuzz.parsers.parser import Entry, Parser
from helpers.asking import guesses, pool_of, save_images
from sitar.analysis.ask.pool import _Kept
from sitar.data.feature_cache import cached_features
from sitar.data.shards import open_tables
from sitar.errors import DataError
from sitar.images.cache import cached_images
from sitar.images.files import Files
from sitar.locks import owner_of

N = 6


def wrong_npy(random: Random, content: bytes) -> bytes:
    """Return an .npy file with another array, or with a header that says something else of it."""
    try:
        array = np.load(io.BytesIO(content), allow_pickle=False)
    except (ValueError, EOFError, OSError):
        return content
    if random.random() < 0.3:
        shape = random.choice(("(1000000000000,)", "(-1,)", "()", "(0,)", "(6,6,6,6,6)", "('a',)", "((6,),)", "1"))
        kind = random.choice(("|u1", "<u4", "<f8", "|O", "<U9999999", "[('a', '<i4')]"))
        head = f"{{'descr': {kind!r}, 'fortran_order': {random.choice(('True', 'False', '0'))}, 'shape': {shape}, }}"
        return b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head.encode() + array.tobytes()
    buffer = io.BytesIO()
    np.save(buffer, wrong_array(random, array), allow_pickle=True)
    return buffer.getvalue()


def _parser(name: str, file: Path, use: Callable[[], object]) -> Parser:
    def read(content: bytes) -> None:
        file.unlink(missing_ok=True)  # an array that is mapped keeps the file that it had
        file.write_bytes(content)
        use()

    return Parser(name, [file.read_bytes()], read, wrong_npy if file.suffix == ".npy" else wrong_json)


def image_cache(name: str, folder: Path) -> Parser:
    """A closed cache of decoded images, one of whose files is wrong."""
    os.environ["SITAR_CACHE"] = str(folder / "cache")
    save_images(folder / "i", N, 8)
    files = Files([folder / "i"])

    def use() -> None:
        found = cached_images("fuzzed", files.names(), files, (8, 8), workers=1)
        found.warn("images")
        found.rows(np.flatnonzero(found.good))

    use()
    return _parser(f"image cache {name}", next((folder / "cache").glob(f"*/{name}")), use)


def feature_cache(name: str, folder: Path) -> Parser:
    """A closed cache of features, one of whose files is wrong."""
    os.environ["SITAR_CACHE"] = str(folder / "cache")
    table = folder / "x.csv"
    table.write_text("f0,f1\n" + "".join(f"{i},{i * i}\n" for i in range(N)))

    def use() -> None:
        found = cached_features([table], open_tables(str(table)), ["f0", "f1"], None)
        found.sums.check(np.arange(len(found.array)), np.asarray(found.array))

    use()
    return _parser(f"feature cache {name}", next((folder / "cache").glob(f"*/{name}")), use)


def pool(folder: Path) -> Parser:
    """What `sitar ask` keeps beside the answers: predictions, and where the images lie."""
    images = save_images(folder / "i", 10)
    kept = _Kept(folder / "answers.csv", folder / "i")
    kept.write("key", pool_of(guesses(np.random.default_rng(0), np.arange(10) % 2, 0.9, 0.5), files=images))

    def read(content: bytes) -> None:
        kept.file.write_bytes(content)
        if (found := kept.read("key")) is None:
            raise DataError("What is kept counts as missing.")
        _ = (found.disagree, found.place, found.predictions[:, len(found) - 1], *map(str.encode, found.classes))
        assert found.files is None or all(file.is_relative_to(folder / "i") for file in found.files)

    def wrong(random: Random, content: bytes) -> bytes:
        if random.random() < 0.3:
            return wrong_npz(random, content)
        with np.load(io.BytesIO(content), allow_pickle=False) as file:
            arrays: dict[str, Any] = dict(file)
        about = changed(random, json.loads(arrays["about"].item()))
        buffer = io.BytesIO()
        np.savez(buffer, **{**arrays, "about": np.array(json.dumps(about).encode("utf-8", "replace").decode())})
        return buffer.getvalue()

    return Parser("pool", [kept.file.read_bytes()], read, wrong)


def lock(folder: Path) -> Parser:
    """A lock file, whose owner is named in a message."""
    file = folder / "lock"

    def read(content: bytes) -> None:
        file.write_bytes(content)
        if not owner_of(file, patience=0).isprintable():
            raise AssertionError("an owner with control characters")

    seed = json.dumps({"process": os.getpid(), "host": "elsewhere"}).encode()
    return Parser("lock", [seed], read, wrong_json)


ENTRIES = (
    {
        f"image cache {name}": Entry(partial(image_cache, name), 0.5)
        for name in ("index.json", "bad.json", "state.npy", "sums.npy", "images.npy")
    }
    | {
        f"feature cache {name}": Entry(partial(feature_cache, name), 0.5)
        for name in ("index.json", "sums.npy", "features.npy")
    }
    | {"pool": Entry(pool, 1), "lock": Entry(lock, 2)}
)
