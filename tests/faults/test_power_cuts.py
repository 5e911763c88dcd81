"""After a power cut the disk has what was synced. What was not is lost, zero or garbage, and is never used.

A kill leaves all that was written, since the system writes it later. A power cut does not. So these tests note how much
of each file was synced, and take the rest away.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from helpers import asking, toys
from helpers.faults import UNFINISHED, assert_clean
from helpers.runs import assert_same_run, run, toy, writes
from sitar.analysis.answers import AnswersFile, read_answers
from sitar.analysis.ask.session import Session
from sitar.images.cache import CLOSED, IMAGES, STATE, cached_images
from sitar.images.files import Files
from sitar.run_folder import RunFolder

pytestmark = [
    pytest.mark.skipif(os.name != "posix", reason="files are told apart by their inodes"),
    pytest.mark.usefixtures("_toys"),
]


@pytest.fixture
def _toys() -> Iterator[None]:
    with toys.entered():
        yield


@contextmanager
def noted_syncs(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[int, int]]:
    """How many bytes of each file, by its inode, are on the disk."""
    synced: dict[int, int] = {}

    def fsync(handle: int) -> None:
        status = os.fstat(handle)
        synced[status.st_ino] = status.st_size

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fsync)
        yield synced


def left(source: Path, synced: dict[int, int], tail: str) -> dict[str, bytes]:
    """Return the files that a power cut leaves. What was not synced is gone, or zero, or garbage."""
    files = {}
    for path in sorted(path for path in source.rglob("*") if path.is_file()):
        content, kept = path.read_bytes(), synced.get(path.stat().st_ino, 0)
        lost = len(content) - kept
        rest = {"gone": b"", "zero": bytes(lost), "garbage": random.Random(lost).randbytes(lost)}[tail]
        files[str(path.relative_to(source))] = content[:kept] + rest
    return files


def put(files: dict[str, bytes], target: Path) -> Path:
    for name, content in files.items():
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        (target / name).write_bytes(content)
    return target


@pytest.mark.parametrize("tail", ["gone", "zero", "garbage"])
def test_a_run_goes_on_from_what_was_on_the_disk(tail: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before every rename, every line of the metrics and every new folder."""
    config, whole, states = toy("erm"), tmp_path / "whole", []
    with noted_syncs(monkeypatch) as synced:
        total = writes(lambda: run(config, whole), before=lambda: states.append(left(whole, synced, tail)))
    assert len(states) == total > 10
    assert sum(any(UNFINISHED.search(name) for name in files) for files in states) > 5, "none has a file that was begun"
    for number, files in enumerate(states):
        place = put(files, tmp_path / str(number))
        if "config.yaml" in files and "done" not in files:  # half of files that were begun
            put({".result.json.0a1b2c3d.new": b'{"version": 1, "da', ".done.0a1b2c3d.new": b""}, place)
        assert_same_run(run(config, place, resume=True), RunFolder(whole))
        assert_clean(place)


def test_an_answer_is_on_the_disk_before_the_next_question(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pool = asking.pool_of(np.stack([np.zeros(20, int), np.arange(20) % 2]))
    path, given = tmp_path / "place" / "answers.csv", []
    with noted_syncs(monkeypatch) as synced, Session.opened(pool, AnswersFile(path)) as session:
        for number in range(8):
            assert session.question is not None
            given.append(pool.names[session.question.image])
            session.answer(session.question.image, number % 2)
            put(left(path.parent, synced, "garbage"), tmp_path / str(number))
    for number in range(8):
        lines = read_answers(tmp_path / str(number) / "answers.csv").lines
        assert [line.image for line in lines] == given[: number + 1]


def test_pixels_that_did_not_come_to_the_disk_are_decoded_again(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system writes pages of a mapped file in any order: a state may be there before the pixels it speaks of."""
    names = [path.name for path in asking.save_images(tmp_path / "images", 200, size=10)]

    def decoded() -> Path:
        cached_images("cut", names, Files([tmp_path / "images"]), (8, 8), workers=1)
        (folder,) = cache.iterdir()
        return folder

    folder = decoded()
    whole = {name: (folder / name).read_bytes() for name in (IMAGES, STATE)}
    (folder / CLOSED).unlink()
    images = np.load(folder / IMAGES, mmap_mode="r+")
    lost = random.Random(0).sample(range(len(names)), 60)
    images[lost] = 0
    images.flush()
    state = np.load(folder / STATE)
    assert state.all(), "the state says that all are there"
    assert decoded() == folder
    assert {name: (folder / name).read_bytes() for name in whole} == whole


def test_pixels_come_to_the_disk_before_the_state_that_vouches_for_them(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names, order = [path.name for path in asking.save_images(tmp_path / "images", 200, size=10)], []
    flush = np.memmap.flush

    def noted(self: np.memmap) -> None:
        order.append(Path(str(self.filename)).name)
        flush(self)

    monkeypatch.setattr(np.memmap, "flush", noted)
    monkeypatch.setattr("sitar.images.cache.CHECKPOINT_SECONDS", 0.0)
    cached_images("cut", names, Files([tmp_path / "images"]), (8, 8), workers=1)
    assert order.count(STATE) > 2
    before = order[0]
    for name in order[1:]:
        assert name != STATE or before != STATE, "a state without its pixels"
        before = name
    assert order[0] == IMAGES
    assert [name for name in order if name in (IMAGES, STATE)] == [IMAGES, STATE] * order.count(STATE)


def test_what_a_power_cut_leaves_of_an_archive_is_not_taken_for_the_data(tmp_path: Path) -> None:
    """Files of an archive have their names only after all of them are on the disk."""
    from sitar.images import download

    synced: list[str] = []
    (tmp_path / "content" / "images").mkdir(parents=True)
    (tmp_path / "content" / "images" / "a.png").write_bytes(b"pixels")
    archive = Path(shutil.make_archive(str(tmp_path / "data"), "gztar", tmp_path / "content"))
    target = tmp_path / "target"
    target.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        replace = os.replace
        patch.setattr(os, "sync", lambda: synced.append("all"))
        patch.setattr(os, "replace", lambda a, b: (synced.append("name"), replace(a, b)))
        download.unpack(archive, target)
    assert synced == ["all", "name"]
    assert (target / "images" / "a.png").read_bytes() == b"pixels"
    assert_clean(target)
