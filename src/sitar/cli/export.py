from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sitar.cli.imports import Import
from sitar.cli.output import Json, print_json, say


def command(
    run: Annotated[Path, typer.Argument(help="Folder of a finished run.")],
    format: Annotated[str, typer.Option(help="onnx, or torch (a .pt2 file of torch.export).")] = "onnx",
    out: Annotated[Path | None, typer.Option(help="The file to write; default: RUN/export/model.onnx or .pt2.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is already there.")] = False,
    floats: Annotated[
        bool, typer.Option("--floats", help="Images go in as floats in [0, 1], where the training data has them so.")
    ] = False,
    licence: Annotated[str | None, typer.Option("--license", help="Licence of the model, for its metadata.")] = None,
    import_: Import = None,
    as_json: Json = False,
) -> None:
    """Export a model as one file that runs without sitar: pixels or features in, probabilities out."""
    from sitar.export.export import export

    done = export(run, format, out, force=force, floats=floats, licence=licence)
    if as_json:
        print_json({"file": str(done.path), "bytes": done.size, "sha256": done.sha256, **done.description})
        return
    described, checked = done.description, done.description["checked"]
    takes, shape = described["input"], " x ".join(map(str, described["input"]["shape"]))
    say(f"Input: {takes['name']}, {takes['dtype']}, {shape}{_resized(takes.get('resize'))}")
    say(f"Outputs: {', '.join(described['outputs'])} of {', '.join(described['classes'])}")
    say(
        f"Largest difference to the model, over {checked['inputs']} inputs: probabilities "
        f"{checked['probabilities']:.1e}, logits {checked['logits']:.1e} (allowed {checked['allowed']:.0e})"
    )
    say(f"File: {done.path}   {done.size / 1e6:.1f} MB")
    say(f"SHA-256: {done.sha256}   (`sha256sum -c {done.path.name}.sha256` compares it)")


def _resized(how: dict[str, object] | None) -> str:
    if how is None:
        return ""
    return ", stretched" if how["mode"] == "stretch" else f", cut from the middle (crop_pct {how['crop_pct']})"
