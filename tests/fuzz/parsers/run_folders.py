"""A run folder from a stranger: every file of it, read by `Run`, `sitar report`, `sitar compare` and `sitar card`."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random

from fuzz.mutate import wrong_json, wrong_lines, wrong_npz, wrong_yaml
from fuzz.parsers.commands import command
from fuzz.parsers.parser import Entry, Parser
from helpers.made_runs import make_run
from sitar.errors import RunError
from sitar.integrity import checksum
from sitar.run_folder import Run, RunFolder

Wrong = Callable[[Random, bytes], bytes]
FILES: dict[str, Wrong] = {
    "config.yaml": wrong_yaml,
    "result.json": wrong_json,
    "metrics.jsonl": wrong_lines,
    "environment.json": wrong_json,
    "predictions.npz": wrong_npz,
    "done": wrong_json,
    "artifacts/explain.json": wrong_json,
    "artifacts/traversals.npz": wrong_npz,
    "artifacts/gradcam.npz": wrong_npz,
    "artifacts/mistakes.npz": wrong_npz,
    "artifacts/audit/audit.json": wrong_json,
    "artifacts/audit/pictures.npz": wrong_npz,
}


def _runs(folder: Path) -> tuple[Path, Path]:
    options = {"axes": 2, "size": 6, "samples": 24, "epochs": 2}
    runs = [make_run(folder / name, method, **options) for name, method in (("a", "sitar"), ("b", "erm"))]  # type: ignore[arg-type]
    return runs[0].path, runs[1].path


def _read(file: Path, path: Path, content: bytes) -> None:
    """Read all of the folder, as a program does that uses `Run`."""
    file.write_bytes(content)
    run = Run.read(RunFolder(path))
    _ = (run.seed, run.environment, run.explanation, run.audit, run.classes, run.data_checksum)
    for name in ("traversals", "sensitivity", "shared_axes", "gradcam", "mistakes"):
        run.part_arrays(name)
    for split in run.result["splits"]:
        run.is_right(split)
    _ = run.metrics


def _shown(arguments: list[str], file: Path, folder: Path, content: bytes) -> None:
    file.write_bytes(content)
    command(arguments, folder)


def reader(name: str, folder: Path) -> Parser:
    path, _ = _runs(folder)
    file = path / name
    if name == "done":
        file.write_text(json.dumps({"sha256": {"result.json": checksum((path / "result.json").read_bytes())}}))
    return Parser(f"run {name}", [file.read_bytes()], partial(_read, file, path), FILES[name])


SHOWN = {
    "report": ["report", "a", "b", "--out", "report.html"],
    "compare": ["compare", "a", "b", "--against", "made/erm"],
    "card": ["card", "a", "--out", "card.md", "--force"],
}
WEIGHTS = {"report": 0.1, "compare": 0.15, "card": 0.1}  # one of them takes the time of a hundred settings


def shown(how: str, name: str, folder: Path) -> Parser:
    path, _ = _runs(folder)
    file = path / name
    return Parser(f"{how} {name}", [file.read_bytes()], partial(_shown, SHOWN[how], file, folder), FILES[name])


def whole(folder: Path) -> Parser:
    """Folders in which files are missing, exchanged, or are folders, links or empty."""
    path, other = _runs(folder)
    kept = folder / "kept"
    shutil.copytree(path, kept)
    names = sorted(file.relative_to(kept).as_posix() for file in kept.rglob("*") if file.is_file())

    def read(content: bytes) -> None:
        shutil.rmtree(path)
        shutil.copytree(kept, path)
        try:
            changes = json.loads(content)
        except ValueError as error:
            raise RunError("no changes") from error
        for change in changes if isinstance(changes, list) else []:
            if isinstance(change, list) and len(change) == 2 and change[0] in names:
                _change(path, change[0], change[1], names, other)
        command(SHOWN["report"], folder)
        command(SHOWN["compare"], folder)
        command(SHOWN["card"], folder)

    def wrong(random: Random, content: bytes) -> bytes:
        count = random.choice((1, 1, 2, 3))
        hows = ("gone", "empty", "folder", "link", "loop", "fifo", *names)
        return json.dumps([[random.choice(names), random.choice(hows)] for _ in range(count)]).encode()

    return Parser("run folder", [b"[]"], read, wrong)


def _change(path: Path, name: str, how: object, names: list[str], other: Path) -> None:
    import os

    file = path / name
    if file.is_dir() and not file.is_symlink():
        return
    file.unlink(missing_ok=True)
    match how:
        case "empty":
            file.write_bytes(b"")
        case "folder":
            file.mkdir()
        case "link":
            file.symlink_to("/nowhere")
        case "loop":
            file.symlink_to(file.name)
        case "fifo":
            os.mkfifo(file)
        case str() if how in names and (other / how).is_file():
            shutil.copy(other / how, file)


ENTRIES = {f"run {name}": Entry(partial(reader, name), 1.0) for name in FILES} | {
    f"{how} {name}": Entry(partial(shown, how, name), WEIGHTS[how])
    for how in SHOWN
    for name in FILES
    if name != "done" and (how != "compare" or "artifacts" not in name)
}
ENTRIES["run folder"] = Entry(whole, 0.2)
