"""Figures of an audit: nothing is cut off, and they are rebuilt from the run folder alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

from sitar.errors import RunError
from sitar.files import to_json
from sitar.findings import AUDIT_VERSION
from sitar.reporting.figures.audit_figure import axes_figure, axis_contact_sheet, draw_audit
from sitar.run_folder import RunFolder


def an_audit(axes: int = 10, classes: tuple[str, ...] = ("cat", "dog"), channels: int = 3, steps: bool = True) -> Any:
    figures = {"accuracy": 0.7, "correlation": 0.4, "wasserstein": 1.0}
    bounds = {name: [value - 0.05, value + 0.05] for name, value in figures.items()}
    shape = (channels, 6, 6)
    random = np.random.default_rng(0)
    arrays = {"axis1/extremes": random.integers(0, 256, (len(classes), 2, 8, *shape), dtype=np.uint8)}
    if steps:
        arrays["axis1/traversal"] = random.integers(0, 256, (4, 9, *shape), dtype=np.uint8)
    values = np.linspace(-2, 2, 9).tolist() if steps else None
    audit = {
        "version": AUDIT_VERSION,
        "chance": 1 / len(classes),
        "rule": {"lift": 0.4, "gap": 0.05},
        "verdict": {"kind": "one", "axes": [1], "words": ""},
        "axes": [{"axis": axis, "used": axis < 8, **figures, "intervals": bounds} for axis in range(axes)],
        "pictures": [{"axis": 1, "classes": list(classes), "values": values}],
    }
    return audit, arrays


@pytest.mark.parametrize(
    "options",
    [{}, {"axes": 50}, {"axes": 2, "channels": 1}, {"channels": 2}, {"channels": 5}, {"steps": False},
     {"classes": ("$x", "a class with a very long name$", "<script>alert(1)</script>", "d", "e", "f")}],
    ids=str,
)  # fmt: skip
def test_sheets_are_drawn_with_nothing_cut_off(options: dict[str, Any], tmp_path: Path) -> None:
    audit, arrays = an_audit(**options)
    for figure in (axes_figure(audit), axis_contact_sheet(audit, audit["pictures"][0], arrays)):
        figure.savefig(tmp_path / "sheet.png", dpi=100)
        assert_margins_are_blank(figure, tmp_path / "sheet.png")


def assert_margins_are_blank(figure: Figure, path: Path) -> None:
    pixels = np.asarray(Image.open(path).convert("RGB"))
    assert pixels.min() < 200
    for edge in (pixels[:2], pixels[-2:], pixels[:, :2], pixels[:, -2:]):
        assert edge.min() == 255


def test_pictures_are_rebuilt_from_the_folder(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    with pytest.raises(RunError, match="sitar audit"):
        folder.audit()
    audit, arrays = an_audit()
    folder.audit_file.parent.mkdir(parents=True)
    np.savez(folder.audit_file.parent / "pictures.npz", **arrays)
    (folder.audit_file.parent / "audit.json").write_bytes(to_json(audit))
    (folder.audit_file.parent / "axis7.png").write_bytes(b"of an earlier audit")
    assert [path.name for path in draw_audit(folder)] == ["axes.png", "axis1.png"]
    assert sorted(path.name for path in folder.audit_file.parent.glob("*.png")) == ["axes.png", "axis1.png"]
    (folder.audit_file.parent / "audit.json").write_bytes(to_json({**audit, "axes": []}))
    assert draw_audit(folder) == []
    (folder.audit_file.parent / "audit.json").write_bytes(to_json({**audit, "version": 99}))
    with pytest.raises(RunError, match="not of version"):
        folder.audit()
