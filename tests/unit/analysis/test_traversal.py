"""Traversals, extremes, and the sheets that show them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from PIL import Image

from sitar.analysis.traversal import ENDS, STARTS, STEPS, extremes, shrunk, traversal
from sitar.errors import RunError
from sitar.files import to_json
from sitar.findings import AUDIT_VERSION
from sitar.models import VAE, ConvDecoder, ConvEncoder
from sitar.reporting.figures.audit_figure import axes_figure, axis_sheet, draw_audit
from sitar.reporting.html.embed import rgb
from sitar.run_folder import RunFolder


def test_only_the_axis_moves_along_a_traversal() -> None:
    torch.manual_seed(0)
    encoder = ConvEncoder((3, 8, 8), (4,))
    vae = VAE(encoder, ConvDecoder(3, encoder), 3)
    mu, y = torch.randn(50, 3) * torch.tensor([1.0, 4.0, 1.0]), torch.arange(50) % 2
    images, values = traversal(vae, mu, y, axis=1)
    assert images.shape == (1 + STARTS, STEPS, 3, 8, 8)
    assert images.dtype == torch.uint8
    assert values[0] == pytest.approx(float(mu[:, 1].mean() - 2.5 * mu[:, 1].std()), abs=1e-5)
    assert values[-1] == pytest.approx(float(mu[:, 1].mean() + 2.5 * mu[:, 1].std()), abs=1e-5)
    starts = [mu.mean(0), *mu[:STARTS]]  # the classes alternate here already
    for row, start in zip(images, starts, strict=True):
        z = start.repeat(STEPS, 1)
        z[:, 1] = values
        with torch.no_grad():
            assert torch.equal(row, (255 * vae.decode(z)).round().to(torch.uint8))
    assert not torch.equal(images[:, 0], images[:, -1])


def test_a_traversal_starts_from_each_class_in_turn() -> None:
    torch.manual_seed(0)
    encoder = ConvEncoder((1, 8, 8), (4,))
    vae = VAE(encoder, ConvDecoder(2, encoder), 2)
    y = torch.tensor([0] * 30 + [1] * 30 + [2] * 30)
    mu = torch.randn(90, 2)
    sorted_last = traversal(vae, mu, y, 0)[0][1:]
    alternating = torch.stack([torch.arange(30), torch.arange(30, 60), torch.arange(60, 90)], 1).flatten()
    assert torch.equal(sorted_last, traversal(vae, mu[alternating], y[alternating], 0)[0][1:])


def test_large_images_become_small_and_small_ones_stay() -> None:
    x = torch.zeros(2, 3, 20, 40, dtype=torch.uint8)
    x[..., 20:] = 200
    assert shrunk(x, 40) is x
    small = shrunk(x, 10)
    assert small.shape == (2, 3, 5, 10)
    assert small.dtype == torch.uint8
    assert small[0, 0, 0, [0, -1]].tolist() == [0, 200]
    assert shrunk(torch.ones(2, 4, 3, 1, 30), 10).shape == (2, 4, 3, 1, 10)
    assert shrunk(x[:0], 10).shape[0] == 0


def test_extremes_are_the_ends_of_every_class() -> None:
    value = torch.randperm(60, generator=torch.Generator().manual_seed(0)).float()
    y = torch.arange(60) % 2
    x = value.to(torch.uint8)[:, None, None, None].expand(60, 1, 2, 2)
    found = extremes(x, value, y, [0, 1])
    assert found.shape == (2, 2, ENDS, 1, 2, 2)
    for c in (0, 1):
        mine = value[y == c].sort().values.tolist()
        assert found[c, 0, :, 0, 0, 0].tolist() == mine[:ENDS]
        assert found[c, 1, :, 0, 0, 0].tolist() == mine[-ENDS:]


def test_extremes_of_few_samples_do_not_overlap() -> None:
    x = torch.arange(25, dtype=torch.uint8)[:, None, None, None].expand(25, 1, 2, 2)
    y = (torch.arange(25) >= 20).long()
    found = extremes(x, torch.arange(25.0), y, [0, 1])
    assert found[1, :, :, 0, 0, 0].tolist() == [[20, 21], [23, 24]]


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
    for figure in (axes_figure(audit), axis_sheet(audit, audit["pictures"][0], arrays)):
        figure.savefig(tmp_path / "sheet.png", dpi=100)
        assert_margins_are_blank(figure, tmp_path / "sheet.png")


def assert_margins_are_blank(figure: Figure, path: Path) -> None:
    pixels = np.asarray(Image.open(path).convert("RGB"))
    assert pixels.min() < 200
    for edge in (pixels[:2], pixels[-2:], pixels[:, :2], pixels[:, -2:]):
        assert edge.min() == 255


def test_channels_become_colours() -> None:
    image = np.arange(5, dtype=np.uint8)[:, None, None].repeat(2, 1).repeat(2, 2)
    assert rgb(image[1:2])[0, 0].tolist() == [1, 1, 1]
    assert rgb(image[1:3])[0, 0].tolist() == [1, 2, 0]
    assert rgb(image)[0, 0].tolist() == [0, 1, 2]


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
