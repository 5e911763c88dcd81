"""A process of its own decodes images: `python -m sitar.images.worker`. Lines of JSON on standard input tell it which.

The first line is the task, each other one a chunk of images. It writes pixels into the array that all share, and
answers every chunk with a line: checksums of its images, what was wrong, and which use little of their range.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import zlib
from mmap import mmap
from pathlib import Path
from typing import Any, TextIO

from sitar.errors import DataError, SitarError
from sitar.images.bit_depth import BadImageError
from sitar.images.decode import decode_bytes
from sitar.images.files import Files
from sitar.images.remote import remote_file
from sitar.interpreter import answer_line


def work(task: dict[str, Any]) -> None:
    shards = {name: remote_file(path) if "://" in path else Path(path) for name, path in task["shards"].items()}
    files = Files(map(Path, task["folders"]), map(Path, task["archives"]), shards, task["column"])
    with open(task["array"], "r+b") as file:
        array = mmap(file.fileno(), 0)  # writing to the file would have processes wait for each other
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # nobody else writes between the answers
    gc.freeze()  # nothing imported is looked through again
    for line in sys.stdin:
        chunk, sums, bad, narrow = json.loads(line), [], {}, {}
        for place, name in chunk["images"]:
            try:
                pixels, said = decode_bytes(_read(files, name), **task["form"])
                start = task["offset"] + place * len(pixels)
                array[start : start + len(pixels)] = pixels
                sums.append(zlib.crc32(pixels))
                if said is not None:
                    narrow[place] = said
            except BadImageError as error:
                sums.append(0)
                bad[place] = str(error)
            except SitarError as error:  # a missing package: no other image could do better
                _answer(answers, {"error": str(error)})
                return
        _answer(answers, {"number": chunk["number"], "sums": sums, "bad": bad, "narrow": narrow})


def _answer(answers: TextIO, report: dict[str, Any]) -> None:
    answers.write(answer_line(report))
    answers.flush()


def _read(files: Files, name: str) -> bytes:
    try:
        return files.read(name)
    except FileNotFoundError as error:
        raise BadImageError("there is no such file") from error
    except (BadImageError, SitarError):
        raise
    except Exception as error:  # of the disk, or of an archive of a strange kind
        if files.is_remote(name):  # the host, and no image of it
            raise DataError(f"The file of {name!r} cannot be read further: {error}. Try again.") from error
        raise BadImageError(f"cannot be read: {getattr(error, 'strerror', None) or error}") from error


if __name__ == "__main__":
    work(json.loads(sys.stdin.readline()))
