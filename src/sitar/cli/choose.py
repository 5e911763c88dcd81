from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sitar.cli.imports import Import
from sitar.cli.output import Device, Json, print_json, print_table, say

Runs = Annotated[list[Path], typer.Argument(help="Folders of finished runs, the candidates.")]
Images = Annotated[
    Path,
    typer.Option(
        help="Images from where the model will be used: a folder, a table with paths, or an .npz file with x."
    ),
]


def command(
    runs: Runs,
    images: Images,
    answers: Annotated[
        Path, typer.Option(help="CSV file of answers, from `sitar ask`, or of labels (image,label).")
    ] = Path("answers.csv"),
    import_: Import = None,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Choose the best of several runs by answers about unlabelled images, and say whether more answers are needed."""
    from sitar.analysis.answers import read_answers
    from sitar.analysis.ask.choosing import choose
    from sitar.analysis.ask.pool import read_pool
    from sitar.reporting.tables.choice import choice_table

    given = read_answers(answers)
    choice = choose(read_pool(runs, images, answers, device), given).to_dict()
    if as_json:
        print_json(choice)
        return
    print_table(choice_table(choice))
    for sentence in [*dict.fromkeys(choice["notes"]), choice["words"]]:
        say(sentence)
    chosen = choice["chosen"]
    several = sum(standing["run"] == chosen["run"] for standing in choice["standings"]) > 1
    say(f"Chosen: {chosen['run']}" + (f" ({chosen['label']})" if several else ""))
