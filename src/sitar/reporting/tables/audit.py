"""Make the tables of `sitar audit`: that of the first look, and that of the axes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sitar.reporting.tables.table import Table
from sitar.wording import counted


def first_look_table(look: Mapping[str, Any], most: int = 12) -> Table:
    """Show how well each simple cue alone tells the label, the best first."""
    rows = []
    for cue in look["cues"][:most]:
        low, high = cue["interval"]
        conflicts = f"{sum(cue['conflicts'].values()):,} of {look['n']:,}"
        rows.append(
            [cue["name"], cue["kind"], f"{cue['accuracy']:.2f} [{low:.2f}, {high:.2f}]", cue["strength"], conflicts]
        )
    note = f"Of {look['n']:,} training samples; accuracy of the cue alone, class-balanced and cross-validated (chance "
    note += f"{look['chance']:.2f}); a cue tells the label if the interval lies above {look['rule']['bar']:.2f}. "
    note += f"All intervals hold together with {100 * look['rule']['level']:.0f} %."
    if len(look["cues"]) > most:
        note += f" {counted(len(look['cues']) - most, 'more cue')} in audit.json."
    columns = ["cue", "kind", "accuracy", "tells the label", "samples that contradict"]
    return Table("First look: what alone tells the label", columns, rows, note)


def audit_table(audit: Mapping[str, Any], most: int = 10) -> Table:
    """Show the scores of each axis: the one that predicts the label best first, and last those that are not used."""
    columns = ["axis", "accuracy", "|correlation|", "Wasserstein"]
    rows = []
    for axis in audit["axes"][:most]:
        scores = [_ranged(axis, name) for name in ("accuracy", "correlation", "wasserstein")]
        rows.append([str(axis["axis"]) + ("" if axis["used"] else " *"), *scores])
    held_out, attribute = audit["held_out"], audit["attribute"]
    note = f"Of {held_out['n']:,} samples of {held_out['split']}, with 95 % bootstrap intervals; accuracy of the axis "
    note += f"alone, class-balanced (chance {audit['chance']:.2f}); distance between classes in standard deviations."
    if attribute is not None:
        columns += [f"AUC {attribute['name']}", "AUC label"]
        for row, axis in zip(rows, audit["axes"], strict=False):
            row += [f"{attribute[key][axis['axis']]:.2f}" for key in ("attribute_auc", "label_auc")]
        note += f" AUC on {attribute['split']}."
    if not all(axis["used"] for axis in audit["axes"][:most]):
        note += " * is not used by the VAE, and does not count."
    if len(audit["axes"]) > most:
        note += f" {counted(len(audit['axes']) - most, 'more axis', 'more axes')} in audit.json."
    return Table(f"Audit of {audit['preset']}, seed {audit['seed']}", columns, rows, note)


def _ranged(axis: Mapping[str, Any], name: str) -> str:
    """Write a score of an axis with its interval."""
    low, high = axis["intervals"][name]
    return f"{axis[name]:.2f} [{low:.2f}, {high:.2f}]"
