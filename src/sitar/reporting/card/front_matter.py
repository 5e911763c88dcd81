"""The front matter of a card tells a hub of models what the model is, and how it was measured."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import yaml

from sitar.reporting.groups import has_empty_group
from sitar.reporting.tables.table import HEADLINE
from sitar.run_folder import Run

NAMES = {"average": "Accuracy", "worst_group": "Worst-group accuracy"}
TASKS = {1: ("tabular-classification", "Tabular classification"), 3: ("image-classification", "Image classification")}
TAGS = ("shortcut-learning", "spurious-correlations", "group-robustness")
IDENTIFIER = re.compile(r"[a-z0-9][a-z0-9.-]*")


def front_matter(run: Run, name: str, data: str, splits: Sequence[str], licence: str | None) -> str:
    """Return the front matter as YAML, between its two lines of dashes."""
    kind, title = TASKS.get(len((run.result.get("task") or {}).get("shape") or ()), TASKS[3])
    tags = ["sitar", *TAGS, str(run.result.get("method"))]
    content = {
        **_licence(licence),
        "library_name": "sitar",
        "pipeline_tag": kind,
        "tags": list(dict.fromkeys(tags)),
        "metrics": ["accuracy"],
        "model-index": [
            {
                "name": name,
                "results": [
                    {
                        "task": {"type": kind, "name": title},
                        "dataset": {"name": data, "type": run.result["dataset"], "split": split},
                        "metrics": _metrics(run, split),
                    }
                    for split in splits
                    if _metrics(run, split)
                ],
            }
        ],
    }
    return f"---\n{yaml.safe_dump(content, sort_keys=False, allow_unicode=True)}---\n"


def _licence(licence: str | None) -> dict[str, str]:
    """Return the licence as the hub names it. Words of your own become the name of another licence."""
    if licence is None:
        return {"license": "unknown"}
    if IDENTIFIER.fullmatch(licence):
        return {"license": licence}
    return {"license": "other", "license_name": re.sub(r"[^a-z0-9.]+", "-", licence.lower()).strip("-") or "other"}


def _metrics(run: Run, split: str) -> list[dict[str, Any]]:
    """Return the metrics that a hub ranks by: no worst group where it may be one without a sample."""
    figures = run.result["splits"][split]
    compared = [metric for metric in HEADLINE if metric != "worst_group" or not has_empty_group(figures)]
    known = [(metric, figures.get(metric)) for metric in compared]
    return [
        {"type": "accuracy", "name": NAMES[metric], "value": round(value, 4)}
        for metric, value in known
        if value is not None
    ]
