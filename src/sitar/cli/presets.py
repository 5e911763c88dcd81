from __future__ import annotations

from typing import Annotated

import typer

from sitar.cli.imports import Import
from sitar.cli.output import Json, print_json, print_table
from sitar.presets import load_config, preset_about, preset_names
from sitar.presets.show import show_preset
from sitar.reporting.tables.table import Table


def command(
    show: Annotated[str | None, typer.Option(help="Print one preset: every setting and its source.")] = None,
    import_: Import = None,
    as_json: Json = False,
) -> None:
    """List the presets, or show one of them with the source of each value."""
    if show is not None:
        print_json(load_config(show).to_dict()) if as_json else typer.echo(show_preset(show))
        return
    descriptions = {name: preset_about(name) for name in preset_names()}
    if as_json:
        print_json(descriptions)
        return
    note = "sitar train PRESET trains one, sitar presets --show PRESET shows its settings."
    print_table(Table("Presets", ["preset", "what it is"], [[name, text] for name, text in descriptions.items()], note))
