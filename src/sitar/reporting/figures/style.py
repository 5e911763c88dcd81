"""All figures share this look, and are written in this way."""

from __future__ import annotations

import io
from pathlib import Path

from matplotlib import rc_context
from matplotlib.figure import Figure

from sitar.writing import replaced

BLUE, ORANGE, GREY, INK = "#3b6fb6", "#d9822b", "#6b717b", "#22262e"
SUSPICIOUS = 0.3  # a shortcut score above this is drawn as a suspect


def save(figure: Figure, path: Path) -> None:
    """Write a figure so that the same content gives the same bytes: no date, no random names."""
    path.parent.mkdir(parents=True, exist_ok=True)
    metadata = {"Date": None} if path.suffix == ".svg" else {"Software": None}
    with rc_context({"svg.hashsalt": "figure", "svg.fonttype": "path"}), replaced(path) as file:
        figure.savefig(file, dpi=150, metadata=metadata, format=path.suffix[1:])


def to_png(figure: Figure) -> bytes:
    """Return the figure as the content of a PNG file."""
    buffer = io.BytesIO()
    figure.savefig(buffer, dpi=150)
    return buffer.getvalue()
