from __future__ import annotations

import shlex
import sys
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sitar.cli.choose import Images, Runs
from sitar.cli.imports import Import
from sitar.cli.output import Device, say

if TYPE_CHECKING:
    from sitar.analysis.ask.session import Session


def command(
    runs: Runs,
    images: Images,
    answers: Annotated[
        Path, typer.Option(help="CSV file of answers. If it exists, the questions go on where they stopped.")
    ] = Path("answers.csv"),
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Ask in this terminal.")] = False,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port of the page; 0: any that is free.")] = 0,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the order of the questions.")] = 0,
    import_: Import = None,
    device: Device = "auto",
) -> None:
    """Ask a person which class unlabelled images have, on a page of this machine. Answers choose between runs."""
    from sitar.analysis.answers import AnswersFile
    from sitar.analysis.ask.pool import read_pool
    from sitar.analysis.ask.session import Session
    from sitar.analysis.ask.terminal import ask_in_terminal

    file = AnswersFile(answers)
    if file.labels is not None:
        say(f"{file.labels} holds labels and stays as it is. Answers are kept in {file.path}.")
    pool = read_pool(runs, images, file.path, device)
    with Session.opened(pool, file, seed) as session:
        for note in dict.fromkeys(session.choice.notes):
            say(note)
        if no_browser:
            try:
                ask_in_terminal(session, sys.stdin, say)
            except KeyboardInterrupt:
                say("")
        else:
            _serve(session, port)
        say(session.words)
    say(f"Answers: {file.path}")
    choose = ["sitar", "choose", *map(str, runs), "--images", str(images), "--answers", str(file.path)]
    say(f"Choose:  {shlex.join(choose)}")


def _serve(session: Session, port: int) -> None:
    from sitar.errors import ConfigError

    try:
        from sitar.analysis.ask.server import serve
    except ImportError as error:
        raise ConfigError(
            'The page needs Starlette and uvicorn: pip install "sitar[ask]". --no-browser asks in this terminal.'
        ) from error
    serve(session, port, _ready)


def _ready(address: str) -> None:
    say(f"Questions: {address}\nThis address is for you alone. Ctrl-C ends; all answers are kept.")
    webbrowser.open(address)
