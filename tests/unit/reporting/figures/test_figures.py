"""Panels of lines, traversals of axes and Grad-CAM maps: drawn from whatever there is, with nothing cut off."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

from sitar.errors import RunError
from sitar.files import to_json
from sitar.findings import EXPLAIN_VERSION
from sitar.reporting.figures.gradcam_figure import MOST as MOST_IMAGES
from sitar.reporting.figures.gradcam_figure import gradcam_figure, read_gradcam
from sitar.reporting.figures.panels import panels_figure
from sitar.reporting.figures.style import save
from sitar.reporting.figures.sweeps import settings_of, sweep_panels
from sitar.reporting.figures.traversal_figure import MOST, read_traversals, traversal_figure
from sitar.run_folder import RESULT_VERSION, RunFolder

RESULT = {"version": RESULT_VERSION, "dataset": "d", "seed": 0, "selection": "last", "seconds": 1,
          "splits": {"val": {"n": 0, "average": None}}}  # fmt: skip

ABOUT = {"title": "t", "setting": "method.x", "label": "x, a setting", "splits": {"OOD": "ood_test", "ID": "id_test"}}
LEVELS = {"ood_test": {"75: best": 75.0, "control": 9.7}, "id_test": {"75: best": 75.0}}
ODD = "$x$ <b>&amp;</b> _y_"


def columns(count: int) -> dict[str, list[str]]:
    return {f"x = {i}": ["train.epochs=3", f"method.x={i / 4}"] for i in range(count)}


def a_run(row: str, column: str, seed: int = 0, ood: float = 0.6, epochs: int = 5) -> dict[str, Any]:
    curves = {"epoch": list(range(1, epochs + 1)), **{s: [ood] * epochs for s in ("id_test", "ood_test")}}
    splits = {"ood_test": {"average": ood}, "id_test": {"average": 0.7}}
    return {"row": row, "column": column, "seed": seed, "splits": splits} | ({"curves": curves} if epochs else {})


def runs(row: str, count: int, seeds: int = 3, epochs: int = 5) -> list[dict[str, Any]]:
    return [a_run(row, c, seed, 0.5 + 0.05 * seed, epochs) for c in columns(count) for seed in range(seeds)]


def whole(figure: Figure, path: Path) -> None:
    """Something is drawn, and nothing reaches the edge."""
    save(figure, path)
    pixels = np.asarray(Image.open(path).convert("RGB"))
    assert pixels.min() < 100
    for edge in (pixels[:2], pixels[-2:], pixels[:, :2], pixels[:, -2:]):
        assert edge.min() > 240


@pytest.mark.parametrize(
    ("count", "rows", "about"),
    [
        (6, {"a": runs("a", 6)}, {}),
        (2, {"a": runs("a", 2, seeds=1)}, {}),
        (12, {"a": runs("a", 12)}, {"splits": {"OOD": "ood_test"}}),
        (12, {"a": runs("a", 12, epochs=0)}, {"scale": "linear"}),
        (6, {"a": runs("a", 6)[:4], "b": []}, {}),
        (4, {str(i): runs(str(i), 4) for i in range(7)}, {"curves_at": "x = 3"}),
        (4, {ODD: runs(ODD, 4), "$": runs("$", 3, seeds=1)}, {"curves_at": "x = 3", "title": ODD, "label": ODD}),
        (3, {"a": runs("a", 3, epochs=1)}, {}),
        (3, {"a": runs("a", 3), "b": [a_run("b", "another column")]}, {"curves_at": "x = 1"}),
    ],
    ids=["plain", "one seed", "twelve", "no curves", "missing rows", "many rows", "markup", "one epoch", "elsewhere"],
)
def test_sweeps_are_drawn_from_what_there_is(count: int, rows: Any, about: Any, tmp_path: Path) -> None:
    panels = sweep_panels({**ABOUT, **about}, columns(count), rows, LEVELS)
    whole(panels_figure(panels), tmp_path / "figure.png")


def test_points_are_the_seeds_and_the_line_their_mean() -> None:
    seeds = [a_run("a", "x = 2", seed, ood) for seed, ood in enumerate((0.5, 0.6, 0.7))]
    last, epochs = sweep_panels(ABOUT, columns(3), {"a": seeds}, LEVELS)
    assert last.lines[0].points == {2.0: pytest.approx([50, 60, 70])}
    assert last.lines[0].means == pytest.approx([60])
    assert last.ticks == {0.0: "0", 1.0: "0.25", 2.0: "0.5"}
    assert "equal distances" in last.xlabel
    assert epochs.lines[0].points[5] == pytest.approx([50, 60, 70])
    linear = sweep_panels({**ABOUT, "scale": "linear"}, columns(3), {"a": seeds}, LEVELS)[0]
    assert linear.lines[0].places == [0.5]
    assert linear.xlabel == ABOUT["label"]


def test_values_are_ordered_as_numbers() -> None:
    given = {"ten": ["method.x=10"], "two": ["method.x=2", "method.y=1"], "other": ["method.xx=1"]}
    assert list(settings_of(given, "method.x").items()) == [("two", 2.0), ("ten", 10.0)]


def test_markup_is_shown_as_it_is() -> None:
    figure = panels_figure(sweep_panels(ABOUT, columns(2), {ODD: runs(ODD, 2), "b": runs("b", 2)}, LEVELS))
    assert figure.legends[0].get_texts()[0].get_text() == ODD.replace("$", r"\$")


@pytest.mark.parametrize("suffix", ["svg", "png"])
def test_the_same_content_is_the_same_file(suffix: str, tmp_path: Path) -> None:
    panels = sweep_panels(ABOUT, columns(3), {"a": runs("a", 3)}, LEVELS)
    for name in ("a", "b"):
        save(panels_figure(panels), tmp_path / f"{name}.{suffix}")
    assert (tmp_path / f"a.{suffix}").read_bytes() == (tmp_path / f"b.{suffix}").read_bytes()
    assert b"<dc:date>" not in (tmp_path / f"a.{suffix}").read_bytes()


def explained(folder: Path, arrays: dict[str, dict[str, Any]], **parts: Any) -> RunFolder:
    """A run folder with made-up artifacts of `sitar explain`."""
    run = RunFolder(folder)
    run.artifacts.mkdir(parents=True)
    empty = dict.fromkeys(("traversals", "sensitivity", "shared_axes", "gradcam", "mistakes"))
    reasons = {name: f"There is no {name} here." for name in empty if name not in parts}
    about = {"version": EXPLAIN_VERSION, "preset": "p/q", "seed": 3, "split_of_axes": "val", **empty}
    (run.artifacts / "explain.json").write_bytes(to_json({**about, "reasons": reasons, **parts}))
    for name, content in arrays.items():
        np.savez(run.artifacts / f"{name}.npz", **content)
    return run


def with_traversals(
    folder: Path, axes: int = 10, channels: int = 3, steps: int = 9, scored: bool = True, **more: Any
) -> RunFolder:
    random = np.random.default_rng(0)
    images = random.integers(0, 256, (3, axes, steps, channels, 8, 8), dtype=np.uint8)
    about = {"axes": list(range(axes)), "starts": [{"label": -1}, {"label": 0}, {"label": 1}], "values": []}
    scores = random.random(axes).tolist()
    sensitivity = {"n": 9, "axes": list(range(axes)), "values": scores, "v": scores, "signed": None} if scored else None
    return explained(folder, {"traversals": {"images": images}}, traversals=about, sensitivity=sensitivity, **more)


@pytest.mark.parametrize(
    "options", [{}, {"axes": 1, "steps": 3}, {"axes": 40}, {"channels": 1}, {"scored": False}, {"preset": ODD}], ids=str
)
def test_traversals_are_drawn(options: dict[str, Any], tmp_path: Path) -> None:
    traversals = read_traversals(with_traversals(tmp_path / "run", **options))
    whole(traversal_figure([traversals]), tmp_path / "one.png")
    whole(traversal_figure([traversals, read_traversals(with_traversals(tmp_path / "other"))]), tmp_path / "two.png")


def test_a_traversal_starts_from_a_sample_unless_told(tmp_path: Path) -> None:
    folder = with_traversals(tmp_path / "run")
    with np.load(folder.artifacts / "traversals.npz") as arrays:
        images = arrays["images"]
    assert read_traversals(folder).start == "a sample of class 0"
    assert np.array_equal(read_traversals(folder).images, images[1])
    assert np.array_equal(read_traversals(folder, 0).images, images[0])
    with pytest.raises(RunError, match="starts 0 to 2, not 7"):
        read_traversals(folder, 7)


def test_of_many_axes_those_that_track_the_label_are_shown(tmp_path: Path) -> None:
    traversals = read_traversals(with_traversals(tmp_path / "run", axes=40))
    scores = np.random.default_rng(0)
    scores.integers(0, 256, (3, 40, 9, 3, 8, 8), dtype=np.uint8)
    expected = np.sort(np.argsort(-scores.random(40))[:MOST]).tolist()
    assert traversals.axes == expected


def test_scores_come_from_training_where_none_were_measured(tmp_path: Path) -> None:
    folder = with_traversals(tmp_path / "run", axes=2, scored=False)
    assert read_traversals(folder).scores is None
    folder.append_metrics({"epoch": 1, "shortcut_score": [0.25, 0.5]})
    assert read_traversals(folder).scores == [0.25, 0.5]


def with_maps(
    folder: Path, index: range = range(10, 18), boxed: bool = True, channels: int = 3, n: int = 500, **more: Any
) -> RunFolder:
    random, shown = np.random.default_rng(0), len(index)
    arrays = {
        "images": random.integers(0, 256, (shown, channels, 8, 8), dtype=np.uint8),
        "maps": random.random((shown, 8, 8), dtype=np.float32),
        "labels": np.arange(shown) % 2,
        "predicted": np.zeros(shown, dtype=np.int64),
        "index": np.array(index),
    }
    box = {"mass_in_box": 0.6, "box": [0.2, 0.2, 0.8, 0.9]} if boxed else {"mass_in_box": None, "box": None}
    return explained(folder, {"gradcam": arrays}, gradcam={"layer": "l", "split": "test", "n": n, **box}, **more)


@pytest.mark.parametrize(
    "options",
    [
        *({}, {"boxed": False}, {"channels": 1}, {"index": range(12, 14)}, {"index": range(200)}),
        *({"preset": 3 * ODD}, {"n": 1000}),
    ],
    ids=str,
)
def test_maps_are_drawn(options: dict[str, Any], tmp_path: Path) -> None:
    first = read_gradcam(with_maps(tmp_path / "first", **options))
    whole(gradcam_figure([first]), tmp_path / "one.png")
    whole(gradcam_figure([first, read_gradcam(with_maps(tmp_path / "other"))]), tmp_path / "two.png")


def test_images_are_named_by_their_class(tmp_path: Path) -> None:
    folder = with_maps(tmp_path / "run")
    shown = [label.get_text() for label in gradcam_figure([read_gradcam(folder)]).axes[0].get_xticklabels()]
    assert shown == ["class 0", "class 1"] * 4
    classes = ["not Blond_Hair", 3 * ODD]
    folder.result_file.write_bytes(to_json({**RESULT, "classes": classes}))
    (folder.path / "done").touch()
    figure = gradcam_figure([read_gradcam(folder)])
    shown = [label.get_text() for label in figure.axes[0].get_xticklabels()]
    assert shown[0] == "not Blond_Hair"
    assert shown[1].endswith("…")
    whole(figure, tmp_path / "named.png")


def test_runs_are_shown_on_images_that_all_have(tmp_path: Path) -> None:
    maps = [read_gradcam(with_maps(tmp_path / str(i), range(i, i + 12))) for i in (0, 6)]
    plot = gradcam_figure(maps).axes[0]
    assert len(plot.get_xticks()) == 6
    assert len(gradcam_figure(maps[:1]).axes[0].get_xticks()) == MOST_IMAGES
    with pytest.raises(RunError, match="no image of Grad-CAM in common"):
        gradcam_figure([maps[0], read_gradcam(with_maps(tmp_path / "far", range(100, 108)))])


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="sitar explain"):
        read_traversals(RunFolder(tmp_path / "none"))
    folder = with_traversals(tmp_path / "run")
    with pytest.raises(RunError, match=r"no gradcam: There is no gradcam here\."):
        read_gradcam(folder)
    (folder.artifacts / "traversals.npz").write_bytes(b"cut")
    with pytest.raises(RunError, match="cannot be read"):
        read_traversals(folder)
    (folder.artifacts / "explain.json").write_text('{"version": 99}')
    with pytest.raises(RunError, match="not of version"):
        read_traversals(folder)
