"""A disk that is full, or fails, at any change of any file: one message, nothing lost, and the next start goes on.

The disk is asked for a change wherever a file is opened for writing, written, renamed, cut, synced or a folder made.
`Fault` refuses one of them, or one and all that follow, in every process. `SmallDisk` is a real file system, which
becomes full in the middle of a file or of an array. A limit on the size of files is that of the system.
"""

from __future__ import annotations

import ast
import errno
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from faults.conftest import Tally
from helpers.bad_disks import Fault, SmallDisk
from helpers.faults import assert_clean, assert_same, assert_whole, attempt
from helpers.works import WORKS

ROOT = Path(__file__).parents[2]
posix = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="it looks into /proc")
IN_CI = ("train", "features", "ask", "predict", "decode", "report", "choose", "refit", "reproduce")
FEW, MANY = 2, 40  # changes that are refused
FEW_SIZES, MANY_SIZES = 1, 10
ROOM = 1 << 30
PAGE = 4096
LIMITS = (0, 100, 1_000, 10_000, 100_000)  # bytes of a file


def undisturbed(name: str, home: Path) -> tuple[Any, int]:
    """What the work leaves, and how many changes it makes to files."""
    home.mkdir(exist_ok=True)
    WORKS[name].prepare(home)
    ended = attempt(name, home / "whole", fault=Fault(None))
    assert ended.how == "done", ended.said
    return WORKS[name].outcome(home / "whole"), ended.faults


def refused_at(name: str, home: Path, fault: Fault, outcome: Any) -> bool:
    """Do the work on a disk that refuses a change, then on a good one. Return whether it came to this change.

    Processes that work side by side make a few changes more or fewer from time to time.
    """
    place, when = home / f"at{fault.at}-{fault.number}", f"{os.strerror(fault.number)} at change {fault.at}"
    ended = attempt(name, place, fault=fault)
    assert ended.how in ("refused", "done"), f"{when}: {ended}"
    assert fault.at is not None
    goes_on(name, place, outcome, when)
    shutil.rmtree(place)
    return ended.faults > fault.at


def goes_on(name: str, place: Path, outcome: Any, when: str) -> None:
    """What is there is whole, and the same work ends as if nothing had happened."""
    if place.exists():
        assert_whole(place)
    ended = attempt(name, place)
    assert ended.how == "done", f"{when}, and then: {ended.said}"
    assert_same(WORKS[name].outcome(place), outcome, when)
    assert_clean(place)


@posix
@pytest.mark.ci
@pytest.mark.parametrize("name", IN_CI)
def test_some_changes_that_the_disk_refuses(name: str, tmp_path: Path, tally: Tally) -> None:
    outcome, changes = undisturbed(name, tmp_path)
    assert changes > 3
    order = random.Random(changes).sample(range(changes), changes)
    for _ in range(FEW):
        while not refused_at(name, tmp_path, Fault(order.pop()), outcome):
            pass
    tally("disks", name, tries=FEW)


@posix
@pytest.mark.slow
@pytest.mark.parametrize("name", WORKS)
def test_every_change_that_the_disk_refuses(name: str, tmp_path: Path, tally: Tally) -> None:
    """A disk that is full from then on, and one that fails once. Of many changes a random sample is refused."""
    outcome, changes = undisturbed(name, tmp_path)
    faults = [Fault(at) for at in range(changes)] + [Fault(at, errno.EIO, lasting=False) for at in range(changes)]
    random.shuffle(faults)
    tally("disks", name, possible=len(faults))
    for _ in range(min(MANY, len(faults))):
        while not refused_at(name, tmp_path, faults.pop(), outcome):
            pass
        tally("disks", name, tries=1)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    try:
        made = SmallDisk(tmp_path / "small")
    except OSError as error:
        pytest.skip(f"this system lets nobody here have a file system of their own: {error}")
    with made:
        yield made


def small(name: str, home: Path, disk: SmallDisk, sizes: int, tally: Tally) -> None:
    """Do the work on a disk with room for a part of it, then with more room."""
    outcome, _ = undisturbed(name, home)
    used = sum(-(-path.stat().st_size // PAGE) for path in (home / "whole").rglob("*") if path.is_file())
    for number in range(sizes):
        pages, seen = random.randint(1, used), home / f"seen{number}"
        disk.resize(pages * PAGE)
        ended = attempt(name, disk.place, disk=disk)
        assert ended.how in ("refused", "done"), f"{pages} of {used} pages: {ended}"
        assert_whole(disk.copy_to(seen))
        shutil.rmtree(seen)
        disk.resize(ROOM)
        ended = attempt(name, disk.place, disk=disk)
        assert ended.how == "done", f"{pages} of {used} pages, and then: {ended.said}"
        assert_same(WORKS[name].outcome(disk.copy_to(seen)), outcome, f"{pages} of {used} pages")
        assert_clean(seen)
        shutil.rmtree(seen)
        disk.empty()
        tally("small_disks", name, tries=1)


@posix
@pytest.mark.ci
@pytest.mark.parametrize("name", ["train", "decode", "predict", "ask"])
def test_a_small_disk_becomes_full(name: str, tmp_path: Path, disk: SmallDisk, tally: Tally) -> None:
    small(name, tmp_path, disk, FEW_SIZES, tally)


@posix
@pytest.mark.ci
@pytest.mark.parametrize(("name", "pages"), [("decode", 20), ("predict", 20)])
def test_images_that_have_no_room_are_refused_before_they_are_decoded(
    name: str, pages: int, tmp_path: Path, disk: SmallDisk
) -> None:
    """Pages of an array that have no room end the process that writes to them, without a word."""
    WORKS[name].prepare(tmp_path)
    disk.resize(pages * PAGE)
    ended = attempt(name, disk.place, disk=disk)
    assert ended.how == "refused"
    assert "and there is no room for them. Make room, or name a folder" in ended.said
    assert str(disk.place / "cache") in ended.said


@posix
@pytest.mark.slow
@pytest.mark.parametrize("name", WORKS)
def test_small_disks_become_full(name: str, tmp_path: Path, disk: SmallDisk, tally: Tally) -> None:
    small(name, tmp_path, disk, MANY_SIZES, tally)


@posix
@pytest.mark.slow
@pytest.mark.parametrize("name", WORKS)
def test_files_that_may_not_grow(name: str, tmp_path: Path, tally: Tally) -> None:
    """The limit of the system itself, which also holds for processes that the work starts."""
    outcome, _ = undisturbed(name, tmp_path)
    for limit in LIMITS:
        ended = attempt(name, tmp_path / f"limit{limit}", limit=limit)
        assert ended.how in ("refused", "done"), f"limit {limit}: {ended}"
        goes_on(name, tmp_path / f"limit{limit}", outcome, f"limit {limit}")
        tally("limits", name, tries=1)


# Whether the bad disk is bad

CHANGING = """
import os, subprocess, sys
from pathlib import Path
from helpers.bad_disks import Fault
root, counter, at = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
fault = Fault(at)
fault.begin(root, counter)
(root / "folder").mkdir()
with (root / "a").open("wb") as file:
    file.write(b"content")
    file.flush()
    os.fsync(file.fileno())
os.replace(root / "a", root / "b")
another = "import sys, pathlib; pathlib.Path(sys.argv[1]).write_text('content')"
subprocess.run([sys.executable, "-c", another, str(root / "c")], check=True)
print(fault.seen)
"""


@posix
def test_the_bad_disk_refuses_every_kind_of_change_in_every_process(tmp_path: Path) -> None:
    """A new folder, an opened file, a write, a sync, a rename; then an opened file and a write of another process."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "tests")}

    def changed(at: int) -> subprocess.CompletedProcess[str]:
        (tmp_path / f"at{at}").mkdir()
        words = [str(tmp_path / f"at{at}"), str(tmp_path / "counter"), str(at)]
        return subprocess.run(
            [sys.executable, "-c", CHANGING, *words], env=environment, capture_output=True, text=True, check=False
        )

    for at in range(7):
        ended = changed(at)
        assert ended.returncode == 1, at
        assert "No space left on device" in ended.stderr
    assert changed(7).stdout == "7\n"


# Where the library writes

WRITERS = {  # modules that change files without sitar.writing, and why
    "writing.py": "it is the one place",
    "cli/main.py": "the null device, where standard output was closed",
    "locks.py": "the name of the owner of a lock, which is only for a message",
    "run_folder/training.py": "lines of metrics.jsonl, of which a resumed run keeps those that its checkpoint counts",
    "analysis/answers.py": "one line after the other, each synced; a line that is cut is dropped",
    "images/cache.py": "pixels and their state, for which index.json vouches when they are synced",
    "images/worker.py": "pixels of the same cache",
    "images/download.py": "a .part of which the checksum is compared, and files in a folder that nobody keeps",
    "sweeps/engines/job.py": "a log",
    "sweeps/engines/worker.py": "standard streams",
    "testing/datasets.py": "copies of data, for tests",
    "testing/methods.py": "runs of tests",
    "estimator/base.py": "runs in the folder of the system for temporary files",
}
OPENERS = {"open", "fdopen"}
CHANGES = {
    "write_text", "write_bytes", "mkstemp", "NamedTemporaryFile", "TemporaryFile", "TemporaryDirectory", "mkdtemp",
    "truncate", "symlink_to", "hardlink_to", "open_memmap", "tofile", "savetxt", "to_csv", "to_parquet", "extractall",
}  # fmt: skip
SAVES = {"savefig", "savez", "savez_compressed"}
OPEN = {"buffer", "out", "file"}  # names of files that are open already
OF = {"os": {"replace", "rename", "link", "symlink"}, "shutil": {"copy", "copyfile", "copytree", "copyfileobj", "move"}}


def changes_files(code: str, allowed: str = "") -> bool:
    """Return whether code opens a file for writing, or calls something that does."""
    for node in ast.walk(ast.parse(code)):
        if not isinstance(node, ast.Call):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        owner = getattr(getattr(node.func, "value", None), "id", "")
        words = [one.value for one in [*node.args, *(k.value for k in node.keywords)] if isinstance(one, ast.Constant)]
        modes = [word for word in words if isinstance(word, str) and 0 < len(word) <= 4 and set(word) <= set("rwxabt+")]
        if name == allowed or (name == "open_memmap" and modes == ["r"]):
            continue
        if name in OPENERS and any(set(mode) & set("wxa+") for mode in modes):
            return True
        if name in CHANGES or name in OF.get(owner, ()):
            return True
        if name in SAVES and node.args and ast.unparse(node.args[0]) not in OPEN:
            return True
    return False


def writers(source: Path, allowed: str = "") -> set[str]:
    """The modules below a folder that change files by themselves."""
    files = {str(path.relative_to(source)): path.read_text(encoding="utf-8") for path in source.rglob("*.py")}
    assert files
    return {name for name, code in files.items() if changes_files(code, allowed)}


def test_files_are_written_in_one_place() -> None:
    found = writers(ROOT / "src" / "sitar")
    assert found - WRITERS.keys() == set(), "write through sitar.writing, or say here why not"
    assert WRITERS.keys() - found == set(), "these do not write any more"


def test_records_and_pages_are_written_in_one_place() -> None:
    """Runs that nobody keeps may lie in a temporary folder."""
    found = writers(ROOT / "reproduce", allowed="TemporaryDirectory")
    assert found == set(), "write through sitar.files.write_atomic, or sitar.writing"


@pytest.mark.parametrize(
    ("code", "wrong"),
    [
        ("path.open('w')", True), ("open(file, mode='ab')", True), ("os.fdopen(h, 'wb')", True), ("open(file)", False),
        ("path.write_text('')", True), ("figure.savefig(path, dpi=1)", True), ("os.replace(a, b)", True),
        ("text.replace('a', 'b')", False), ("figure.savefig(buffer)", False), ("plot.savefig(FOLDER / 'a.png')", True),
        ("np.savez(out, x=x)", False), ("np.savez(where, x=x)", True), ("path.open('rb')", False),
        ("np.savez_compressed(buffer)", False), ("tempfile.mkstemp()", True), ("open_memmap(path, mode='w+')", True),
        ("open_memmap(path, mode='r')", False), ("open_memmap(path)", True),
    ],
)  # fmt: skip
def test_the_search_for_writers_finds_them(code: str, wrong: bool) -> None:
    assert changes_files(code) is wrong
