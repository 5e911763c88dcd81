"""Make the tables of `sitar explain`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sitar.reporting.tables.table import Table, percent
from sitar.wording import counted

Explanation = Mapping[str, Any]


def explain_table(explanations: Sequence[Explanation], names: Sequence[str]) -> Table:
    """Show how much of each run's sensitivity lies on the axis that tracks the label most, and where it looks."""
    columns = ["run", "own axis", "v", "share", "shared axis", "v", "share", "Grad-CAM in the box"]
    rows = []
    for name, explanation in zip(names, explanations, strict=True):
        in_box = percent((explanation["gradcam"] or {}).get("mass_in_box"))
        suspects = [*_suspect(explanation["sensitivity"]), *_suspect(explanation["shared_axes"])]
        rows.append([name, *suspects, in_box])
    note = (
        "The axis that tracks the label most (v: |correlation|), and its share of the summed sensitivity of all axes, "
        "in percent: of the run's own latent, and of the VAE whose axes are shared. A dash where there is none."
    )
    boxes = [gradcam["box"] for explanation in explanations if (gradcam := explanation["gradcam"]) and gradcam["box"]]
    if areas := sorted({percent((x1 - x0) * (y1 - y0)) for x0, y0, x1, y1 in boxes}):
        note += f" The box is {', '.join(areas)} % of the image: so much of a map would be in it by chance."
    return Table("What the models use", columns, rows, note)


def shared_axes_tables(explanations: Sequence[Explanation], names: Sequence[str], most: int = 10) -> list[Table]:
    """Show how much each model reacts to each axis, one table for each VAE whose axes are shared."""
    together: dict[str, list[tuple[str, Explanation]]] = {}
    for name, explanation in zip(names, explanations, strict=True):
        if explanation["shared_axes"] is not None:
            together.setdefault(explanation["shared_axes"]["run"], []).append((name, explanation))
    return [_shared_axes_table(measured, most) for measured in together.values()]


def _shared_axes_table(measured: Sequence[tuple[str, Explanation]], most: int) -> Table:
    shared = measured[0][1]["shared_axes"]
    rows = []
    for i in sorted(range(len(shared["axes"])), key=lambda i: -shared["v"][i])[:most]:
        values = [f"{explanation['shared_axes']['values'][i]:.3g}" for _, explanation in measured]
        rows.append([str(shared["axes"][i]), f"{shared['v'][i]:.2f}", *values])
    note = (
        f"Mean change of the logits per standard deviation of the axis, at {shared['n']:,} held-out samples, decoded "
        f"by the VAE in {shared['run']}."
    )
    if len(shared["axes"]) > most:
        note += f" {counted(len(shared['axes']) - most, 'more axis', 'more axes')} in explain.json."
    columns = ["axis", "v", *(name for name, _ in measured)]
    return Table(f"On the axes of {shared['preset']}, seed {shared['seed']}", columns, rows, note)


def _suspect(part: Mapping[str, Any] | None) -> list[str]:
    """Return the axis with the largest v, that v, and the axis's share of all sensitivity."""
    if part is None:
        return ["–", "–", "–"]
    place = max(range(len(part["axes"])), key=lambda i: part["v"][i])
    total = sum(part["values"])
    share = percent(part["values"][place] / total if total else None)
    return [str(part["axes"][place]), f"{part['v'][place]:.2f}", share]
