"""The code blocks of README and docs, and how each page is run: block by block, in one empty folder.

A block is run if it is `bash` or `python`. Blocks of the other languages in `SHOWN` are only shown. Two comments, which
readers do not see, stand in the lines before a block:

    <!-- no-run: REASON -->     the block is not run
    <!-- data: NAME -->         what a maker of page_data.py leaves in the folder first; several names are allowed

Results are not compared. A command must end with the status 0, and every file that it names by `--out` must exist.

Training is shortened in two ways: each gradient phase has one epoch of at most 256 samples, and the datasets that we
draw are small where a page does not say how large. The settings that a page shows stay as they are. `sitar demo` and
`sitar sweep` train in processes of their own, so they get the settings `DEMO` instead.

`sitar` is called in this process, where torch is imported already. A line with shell syntax, or of another program, is
run by bash, where `sitar`, `python` and `torchrun` are those of this environment. No shell state goes from one line to
the next. The folder holds a link `examples` to our examples, as in a clone.
"""

from __future__ import annotations

import glob
import itertools
import math
import os
import re
import shlex
import subprocess
import sys
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, chdir, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

import sitar.training.loop
from helpers import cli, packages, page_data
from helpers.scripts import ROOT
from sitar.data.benchmarks.color_mnist import ColorMNISTConfig
from sitar.data.benchmarks.sites import SitesConfig
from sitar.training.plan import Plan, plan_phase

RUN = {"bash", "python"}
SHOWN = {"text", "csv", "diff", "json", "toml", "yaml"}
SAMPLES = 256  # of an epoch
SIZES = {"train_size": 500, "eval_size": 300}  # of drawn data
DEMO = ["--set", "train.epochs=1", *(word for name, size in SIZES.items() for word in ("--set", f"data.{name}={size}"))]
SHELL = set("|&;<>(){}$`")  # what only a shell understands

FENCE = re.compile(r"^ *```")
COMMENT = re.compile(r"<!-- *(no-run|data):(.*?)-->")


@dataclass(frozen=True)
class Block:
    """A code block, with what the comments before it say."""

    page: str
    line: int
    language: str
    code: str
    data: tuple[str, ...] = ()
    reason: str | None = None  # why it is not run

    @property
    def is_run(self) -> bool:
        return self.language in RUN and self.reason is None

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def pages() -> list[str]:
    """All pages, by their path in the repository."""
    files = [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))]
    return [file.relative_to(ROOT).as_posix() for file in files]


def blocks(page: str) -> list[Block]:
    return list(read((ROOT / page).read_text(encoding="utf-8"), page))


def read(text: str, page: str = "page") -> Iterator[Block]:
    """Yield the blocks of a page. Comments count for the next block, with nothing but empty lines between."""
    lines = enumerate(text.splitlines(), 1)
    data: list[str] = []
    reason = None
    for number, line in lines:
        if FENCE.match(line):
            indent, language = len(line) - len(line.lstrip()), line.strip().strip("`").strip()
            code = [inner[indent:] for _, inner in itertools.takewhile(lambda pair: not FENCE.match(pair[1]), lines)]
            yield Block(page, number, language, "\n".join(code) + "\n", tuple(data), reason)
            data, reason = [], None
        elif found := COMMENT.findall(line):
            for kind, value in found:
                if kind == "data":
                    data += value.split()
                else:
                    reason = value.strip()
        elif line.strip():
            data, reason = [], None


@contextmanager
def short_training() -> Iterator[None]:
    """Give every gradient phase one epoch of few samples."""

    def plan(*arguments: object) -> Plan:
        whole = plan_phase(*arguments)  # type: ignore[arg-type]
        few = whole.indices if whole.phase.sampling is not None else whole.indices[:SAMPLES]
        size = min(whole.batch_size, len(few))
        return replace(whole, indices=few, batch_size=size, steps=math.ceil(len(few) / size), epochs=1)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sitar.training.loop, "plan_phase", plan)
        yield


@contextmanager
def small_data() -> Iterator[None]:
    """Give the datasets that we draw few samples by default."""
    drawn = (ColorMNISTConfig, SitesConfig)
    try:
        with pytest.MonkeyPatch.context() as patch:
            for config, (name, size) in itertools.product(drawn, SIZES.items()):
                patch.setattr(config.model_fields[name], "default", size)
                config.model_rebuild(force=True)
            yield
    finally:
        for config in drawn:
            config.model_rebuild(force=True)


def run(found: list[Block], folder: Path) -> None:
    """Run the blocks of one page in `folder`. An error names the block."""
    names: dict[str, object] = {"__name__": "__main__"}
    (folder / "examples").symlink_to(ROOT / "examples")
    with ExitStack() as stack:
        stack.enter_context(chdir(folder))
        stack.enter_context(packages.as_in_a_new_process(folder))  # it forgets what a page imports and registers
        stack.enter_context(short_training())
        stack.enter_context(small_data())
        stack.enter_context(pytest.MonkeyPatch.context()).setenv("MPLBACKEND", "agg")
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("default")  # for a reader a warning is no error
        for block in found:
            for name in block.data:
                page_data.MAKERS[name](folder, stack)
            if block.is_run:
                try:
                    _run_python(block, names) if block.language == "python" else _run_bash(block)
                except (Exception, SystemExit) as error:
                    raise AssertionError(f"{block}: {type(error).__name__}: {error}") from error


def commands(block: Block) -> list[str]:
    """The lines of a bash block, each with what it continues on, without comments and empty lines."""
    joined = block.code.replace("\\\n", " ").splitlines()
    return [line for line in joined if shlex.split(line, comments=True)]


def _run_python(block: Block, names: dict[str, object]) -> None:
    code = "\n" * block.line + block.code  # so that a traceback has the line of the page
    exec(compile(code, str(ROOT / block.page), "exec"), names)


def _run_bash(block: Block) -> None:
    for line in commands(block):
        words = shlex.split(line, comments=True)
        if words[0] == "sitar" and not SHELL & set(line.partition(" #")[0]):
            _sitar(words[1:])
        else:
            _bash(line)
        for option, value in itertools.pairwise(words):
            assert option != "--out" or Path(value).exists(), f"{line!r} left no {value!r}"


def _sitar(words: list[str]) -> None:
    found = [
        path for word in words for path in (sorted(glob.glob(word)) if "*" in word and "=" not in word else [word])
    ]
    cli.sitar(*(os.path.expanduser(word) for word in found), *(DEMO if words[0] in ("demo", "sweep") else []))


def _bash(line: str) -> None:
    programs = Path("bin")
    if not programs.exists():
        programs.mkdir()
        for name, arguments in (("python", ""), ("sitar", "-P -m sitar"), ("torchrun", "-m torch.distributed.run")):
            (programs / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {arguments} "$@"\n')
            (programs / name).chmod(0o755)
    path = f"{programs.resolve()}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", line], env={**os.environ, "PATH": path},
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, f"{line!r} ended with status {done.returncode}\n{done.stdout}{done.stderr}"
