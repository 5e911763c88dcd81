"""An audit says which simple cues of a user's arrays tell the label: in words, as rows, and as a table to print."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sitar.reporting.tables.audit import first_look_table


@dataclass(frozen=True, repr=False)
class Audit:
    """An audit holds what a first look at data has found, as plain values (`look`)."""

    look: dict[str, Any]

    @property
    def verdict(self) -> str:
        """Return in words what tells the label, and whether this data can tell it from the label."""
        return self.look["verdict"]["words"]

    @property
    def cues(self) -> list[dict[str, Any]]:
        """Return a row for each cue, the one that tells most first. `pandas.DataFrame(audit.cues)` is a frame."""
        return [
            {
                "cue": cue["name"],
                "kind": cue["kind"],
                "accuracy": cue["accuracy"],
                "low": cue["interval"][0],
                "high": cue["interval"][1],
                "tells the label": cue["strength"],
                "samples that contradict": sum(cue["conflicts"].values()),
            }
            for cue in self.look["cues"]
        ]

    def __repr__(self) -> str:
        table = first_look_table(self.look)
        rows = [table.columns, *table.rows]
        widths = [max(len(row[column]) for row in rows) for column in range(len(table.columns))]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
        return "\n".join([self.verdict, "", *lines])
