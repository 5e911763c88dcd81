"""Try many inputs on every parser, in processes with little memory and little time, and say which inputs ended badly.

`PYTHONPATH=src:tests python -m fuzz.driver --inputs 1000` tries so many inputs in all. An input follows from the name
of its parser and its number, so `--parser NAME --first N --inputs 1` tries one again. A bad one is kept as a file.
With `--state FOLDER` every input is noted there when it has ended, so that a round may be stopped and given
again: it goes on with what is left.
"""

from __future__ import annotations

import argparse
import faulthandler
import hashlib
import importlib
import json
import os
import re
import resource
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from fuzz.mutate import damaged
from fuzz.parsers import PARSERS, Entry, Parser
from helpers import toys
from sitar.errors import SitarError

READERS = (
    "estimator",
    "reporting.card.card",
    "reporting.html.report",
    "reporting.tables.differences",
    "reporting.tables.runs",
)
SECONDS = 10.0  # of processor time that one input may take
WAITING = 6  # times as long on the clock: others may use the machine, and a reader that waits for ever is found
MEMORY = 2 * 2**30  # that one input may need, beyond what was in use before
OK, REFUSED = "read", "refused"
ROOT = Path(__file__).resolve().parents[2]
CODE = ("src/sitar/**/*", "tests/fuzz/**/*.py", "reproduce/*.py")  # what an outcome depends on


class TooLongError(BaseException):
    """An input takes longer than it may. It is no Exception, so that nothing below catches it."""


@dataclass(frozen=True)
class Failure:
    """An input that ended neither with success nor with a SitarError."""

    parser: str
    number: int
    error: str
    where: str


def made(parser: Parser, number: int) -> bytes:
    """Return an input: the first ones are the valid ones, then damaged bytes and wrong content take turns."""
    if number < len(parser.seeds):
        return parser.seeds[number]
    random = Random(f"{parser.name}/{number}")
    seed = random.choice(parser.seeds)
    content = seed if number % 2 else parser.wrong(random, seed)
    return damaged(random, content) if number % 2 or random.random() < 0.1 else content


def tried(parser: Parser, content: bytes, seconds: float = SECONDS) -> tuple[str, str, str]:
    """Read an input. Return how it ended, the error, and where in our code it came from."""

    def stop(*_: object) -> None:
        raise TooLongError(f"more than {seconds:g} s")

    before = signal.signal(signal.SIGALRM, stop), signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds, 1.0)
    signal.setitimer(signal.ITIMER_REAL, WAITING * seconds, 1.0)
    faulthandler.dump_traceback_later(2 * WAITING * seconds, exit=True)  # in code that no signal reaches
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            parser.read(content)
    except SitarError as error:
        clear = bool(str(error).strip()) and "Traceback" not in str(error)
        return (REFUSED, "", "") if clear else ("bad", "a message that says nothing", "")
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        frames = [
            frame
            for frame in traceback.extract_tb(error.__traceback__)
            if "/sitar/" in frame.filename or "/reproduce/" in frame.filename
        ]
        where = f"{re.sub(r'.*/(src|reproduce)/', '', frames[-1].filename)}:{frames[-1].lineno}" if frames else "?"
        return "bad", f"{type(error).__name__}: {str(error)[:300]}", where
    finally:
        faulthandler.cancel_dump_traceback_later()
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before[0])
        signal.signal(signal.SIGPROF, before[1])
    return OK, "", ""


def run(
    make: Callable[[Path], Parser],
    name: str,
    numbers: Sequence[int],
    *,
    seconds: float = SECONDS,
    memory: int = MEMORY,
    keep: Path | None = None,
    log: Path | None = None,
) -> tuple[Counter[str], list[Failure]]:
    """Try inputs in a process of their own. One that dies is replaced, and the input that killed it is named.

    `log` has a line for each input that has ended. Inputs that it has already are not tried again.
    """
    with tempfile.TemporaryDirectory(prefix="sitar-fuzz-") as folder:
        log = log or Path(folder) / "log.jsonl"
        while left := sorted(set(numbers) - set(_ended(log))):
            at = Path(folder) / "begun"
            at.unlink(missing_ok=True)
            status = _in_child(partial(_work, make, Path(folder), left, log, seconds, memory, keep))
            if status == 0:
                continue
            if not at.exists():
                raise RuntimeError(f"The parser {name!r} cannot be set up: its process ended with status {status}.")
            _note(log, int(at.read_text()), "bad", f"the process ended with status {status}", "?")
        ended = [line for number, line in _ended(log).items() if number in numbers]
    failures = [Failure(name, line["number"], line["error"], line["where"]) for line in ended if line["how"] == "bad"]
    return Counter(line["how"] for line in ended), failures


def _ended(log: Path) -> dict[int, dict[str, Any]]:
    """Return what is known of inputs. The last line may be half a line: its input is tried again."""
    known: dict[int, dict[str, Any]] = {}
    for line in log.read_text().split("\n")[:-1] if log.exists() else []:
        try:
            one = json.loads(line)
        except ValueError:  # half a line, after which a later process has written: both inputs are tried again
            continue
        known[one["number"]] = one
    return known


def _note(log: Path, number: int, how: str, error: str, where: str) -> None:
    line = json.dumps({"number": number, "how": how, "error": error, "where": where})
    with log.open("a") as file:
        file.write(line + "\n")


def _work(
    make: Callable[[Path], Parser],
    folder: Path,
    numbers: Sequence[int],
    log: Path,
    seconds: float,
    memory: int,
    keep: Path | None,
) -> None:
    with tempfile.TemporaryDirectory(dir=folder) as place, toys.entered():
        parser = make(Path(place))
        parser.read(parser.seeds[0])  # imports, and what is cached, are no input's cost
        in_use = (
            int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
            if Path("/proc").exists()
            else 0
        )
        if in_use:
            resource.setrlimit(resource.RLIMIT_AS, (in_use + memory, in_use + memory))
        for number in numbers:
            (folder / "begun").write_text(str(number))
            content = made(parser, number)
            how, error, where = tried(parser, content, seconds)
            if how == "bad" and keep is not None:
                kept = keep / f"{parser.name}-{number}"
                kept.parent.mkdir(parents=True, exist_ok=True)  # a name may be that of a file in a folder
                kept.write_bytes(content)
            _note(log, number, how, error, where)


def _in_child(work: Callable[[], None]) -> int:
    """Do work in a copy of this process, whose end is not ours. Return its exit status."""
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            null = os.open(os.devnull, os.O_RDWR)
            for stream in (0, 1):
                os.dup2(null, stream)
            work()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def again(folder: Path) -> dict[str, Entry]:
    """Return parsers whose inputs, from number 1 on, are those that were kept in a folder."""
    kept: dict[str, list[bytes]] = {}
    for file in sorted(folder.rglob("*-*")):
        name = file.relative_to(folder).as_posix().rpartition("-")[0]
        if file.is_file() and name in PARSERS:
            kept.setdefault(name, []).append(file.read_bytes())

    def made_of(make: Callable[[Path], Parser], contents: list[bytes], place: Path) -> Parser:
        parser = make(place)
        return replace(parser, seeds=[parser.seeds[0], *contents])

    return {name: Entry(partial(made_of, PARSERS[name].make, kept[name]), len(kept[name])) for name in kept}


def plan(inputs: int, names: Sequence[str]) -> Iterator[tuple[str, int]]:
    """Say how many inputs each parser is given: more to those that are quick, which come first."""
    names = sorted(names, key=lambda name: -PARSERS[name].weight)
    total = sum(PARSERS[name].weight for name in names)
    left = inputs
    for place, name in enumerate(names):
        share = left if place == len(names) - 1 else round(inputs * PARSERS[name].weight / total)
        left -= share
        yield name, share


def code() -> str:
    """Return a digest of the code under test and of the code that tests it: a round is one of one state of both."""
    digest = hashlib.sha256()
    for file in sorted(file for pattern in CODE for file in ROOT.glob(pattern) if file.is_file()):
        if file.suffix != ".pyc":
            digest.update(file.relative_to(ROOT).as_posix().encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()


def _state(folder: Path) -> Path:
    """Make or open the folder of a round. It is refused when the code has changed since the round began."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "code").touch()
    before = (folder / "code").read_text() or code()
    if before != code():
        sys.exit(f"The code has changed since the round of {str(folder)!r} began. Name a new folder with --state.")
    (folder / "code").write_text(before)
    return folder


def _part(shares: list[tuple[str, int]], entries: dict[str, Entry], first: int, given: argparse.Namespace) -> bool:
    """Try the inputs of several parsers, print a line about each, and say whether any ended badly."""
    everything: dict[str, Any] = {}
    for name, share in shares:
        began = time.perf_counter()
        log = None if given.state is None else given.state / f"{name.replace('/', '-')}.jsonl"
        try:
            counts, failures = run(entries[name].make, name, range(first, first + share), keep=given.keep, log=log)
        except RuntimeError as error:
            print(error, flush=True)
            everything[name] = {"inputs": 0, "bad": 1}
            continue
        took = time.perf_counter() - began
        print(f"{name:24} {share:7,} inputs {took:7.1f} s   {dict(counts)}", flush=True)
        for (error, where), times in Counter(
            (re.sub(r"\d+", "#", f.error)[:160], f.where) for f in failures
        ).most_common(12):
            example = next(f.number for f in failures if f.where == where)
            print(f"    {times:5} x {where}  {error}  (such as {example})", flush=True)
        everything[name] = {
            "inputs": share,
            **{how: counts[how] for how in (OK, REFUSED, "bad")},
            "seconds": round(took, 1),
        }
        if given.json:
            given.json.write_text(json.dumps(everything, indent=1) + "\n")
    return any(counts["bad"] for counts in everything.values())


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--inputs", type=int, default=1000)
    options.add_argument("--first", type=int, default=0)
    options.add_argument("--parser", action="append")
    options.add_argument("--part", default="0/1", help="such as 0/2: the first of two halves of the parsers")
    options.add_argument("--keep", type=Path, help="folder for the inputs that ended badly")
    options.add_argument("--again", type=Path, help="try the inputs that --keep has kept in this folder, and no others")
    options.add_argument("--state", type=Path, help="folder in which the round is noted, so that it can be stopped")
    options.add_argument("--json", type=Path, help="file for the counts")
    given = options.parse_args()
    if given.state is not None:
        _state(given.state)
    for reader in READERS:  # once, and not in every process that is forked
        importlib.import_module(f"sitar.{reader}")
    entries = PARSERS if given.again is None else again(given.again)
    names = given.parser or sorted(PARSERS)
    shares = (
        list(plan(given.inputs, names)) if given.again is None else [(n, int(e.weight)) for n, e in entries.items()]
    )
    part, parts = map(int, given.part.split("/"))
    first = given.first if given.again is None else 1
    sys.exit(_part(shares[part::parts], entries, first, given))


if __name__ == "__main__":
    main()
