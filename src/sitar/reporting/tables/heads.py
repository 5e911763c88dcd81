"""Make the table of the heads of a run whose method has several, with a note on which of them predicts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sitar.reporting.tables.table import HEADLINE, Table, percent
from sitar.splits import deciding_split

WHICH = "The training data cannot tell which head is right: answers can (sitar ask, sitar choose)."


def heads_table(heads: Mapping[str, Any]) -> Table:
    """Show what each head has on the split that decides. `heads` is what result.json says of them."""
    split = deciding_split(heads["splits"]) or next(iter(heads["splits"]))
    figures = heads["splits"][split]
    rows = [[str(number), *(percent(head.get(name)) for name in HEADLINE)] for number, head in enumerate(figures)]
    note = f"Head {heads['predicts']} predicts (method.head). {WHICH}"
    if "chosen" in heads:
        asked = f"{heads['answers']} labels of unlabelled inputs on which heads differ most"
        note += f" {asked} would choose {heads['chosen']}."
    return Table(f"Heads, on {split}", ["head", *(name.replace("_", " ") for name in HEADLINE)], rows, note)
