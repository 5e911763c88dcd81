"""The report: one HTML file about some runs, which opens without a network and needs no torch to be made."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from jinja2 import Environment, PackageLoader, StrictUndefined

from sitar.records import write_atomic
from sitar.reporting import charts
from sitar.reporting.embed import heated, rgb, sheet
from sitar.reporting.gather import Comparison, Run, gather
from sitar.reporting.tables import flat
from sitar.reporting.words import summary

MOST_WRONG = 48  # images of each run that it gets wrong and another does not
MOST_CLASSES = 12  # of a confusion matrix; with more, the most frequent confusions are listed
MOST_CONFUSIONS = 12
MOST_PIXELS = 20_000_000  # of all traversals together, so that the file stays small: fewer starts, then fewer axes
MOST_AXES = 12  # whose sensitivity is shown
SHOWN_PROBABILITIES = 4  # classes beside a picture that walks along an axis
PARTS = {
    "sensitivity": "which axes each classifier uses",
    "traversals": "sliders that walk along latent axes",
    "wrong": "images that one model gets wrong and another right",
    "gradcam": "Grad-CAM",
}


def write_report(paths: Sequence[Path], out: Path, title: str = "") -> Path:
    """A report of the runs in `paths`; what cannot be used is named in it."""
    comparisons, left_out = gather(paths)
    environment = Environment(
        loader=PackageLoader("sitar.reporting"), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    environment.filters["percent"] = lambda value: "–" if value is None else f"{100 * value:.1f}"
    names = [comparison.dataset for comparison in comparisons]
    page = environment.get_template("report.html").render(
        title=title or f"sitar report: {', '.join(dict.fromkeys(names))}",
        left_out=left_out,
        sections=[_section(comparison, place, len(comparisons)) for place, comparison in enumerate(comparisons)],
        chart={"width": charts.WIDTH, "height": charts.HEIGHT, "left": charts.LEFT, "bottom": charts.BOTTOM},
    )
    out.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(out, page.encode())
    return out


def _section(comparison: Comparison, place: int, many: int) -> dict[str, Any]:
    """All that the template shows of one comparison."""
    split = comparison.main_split
    walks = _walks(comparison, many)
    return {
        "place": place,
        "comparison": comparison,
        "split": split,
        "words": summary(comparison),
        "audits": [(run.label, words) for run in comparison.runs if (words := _verdict(run))],
        "bars": charts.split_bars(comparison),
        "groups": [(s, found) for s in reversed(comparison.splits) if (found := charts.group_bars(comparison, s))],
        "curves": charts.accuracy_curves(comparison),
        "losses": [(run.label, found) for run in comparison.runs if (found := charts.loss_curves(run))],
        "scores": [chart for run in comparison.runs if (chart := charts.score_curves(run))],
        "through": _through(comparison),
        "own": _own(comparison),
        "confusions": [_confusion(run, split) for run in comparison.runs if len(run.labels(split))],
        "wrong": _wrong(comparison),
        "walks": walks,
        "cams": [cam for run in comparison.runs if (cam := _cam(run))],
        "missing": _missing(comparison),
        "settings": _settings(comparison),
        "details": [_details(run) for run in comparison.runs],
    }


def _verdict(run: Run) -> str:
    """What an audit of the run's axes says, where there was one."""
    return ((run.audit or {}).get("verdict") or {}).get("words", "")


def _part(run: Run, name: str) -> dict[str, Any] | None:
    return (run.explain or {}).get(name)


def _missing(comparison: Comparison) -> list[dict[str, Any]]:
    """What is not shown, of which runs, and the command that makes it, or the reason why nothing does."""
    found = []
    nobody = [run for run in comparison.runs if run.explain is None]
    if nobody:
        command = shlex.join(["sitar", "explain", *(str(run.folder.path) for run in nobody)])
        found.append({"what": _and(PARTS.values()), "runs": [run.label for run in nobody], "command": command})
    reasons: dict[tuple[str, str], list[str]] = {}
    for run in comparison.runs:
        for part, reason in ((run.explain or {}).get("reasons") or {}).items():
            if part in PARTS:
                reasons.setdefault((part, reason), []).append(run.label)
    found += [{"what": PARTS[part], "runs": runs, "reason": reason} for (part, reason), runs in reasons.items()]
    return found


def _and(words: Iterable[str]) -> str:
    *most, last = words
    return f"{', '.join(most)} and {last}"


def _through(comparison: Comparison) -> dict[str, Any] | None:
    """Shares of every classifier's sensitivity along the axes of one VAE, the most suspicious axis first."""
    runs = [(run, found) for run in comparison.runs if (found := _part(run, "through"))]
    rulers = {found["run"] for _, found in runs}
    if not runs or len(rulers) > 1:
        return None
    first = runs[0][1]
    order = sorted(range(len(first["axes"])), key=lambda place: -first["v"][place])[:MOST_AXES]
    bars = [
        charts.Bars(
            f"axis {first['axes'][i]}",
            f"v = {first['v'][i]:.2f}",
            [charts.Bar(run.label, run.row, _shares(found["values"])[i]) for run, found in runs],
        )
        for i in order
    ]
    return {"bars": bars, "run": first["run"], "n": first["n"], "left": len(first["axes"]) - len(order)}


def _own(comparison: Comparison) -> list[dict[str, Any]]:
    """The same of each classifier's own axes, which have nothing in common but v."""
    found = []
    for run in comparison.runs:
        if part := _part(run, "sensitivity"):
            shares = _shares(part["values"])
            order = sorted(range(len(shares)), key=lambda place: -shares[place])[:MOST_AXES]
            axes = [{"axis": part["axes"][i], "v": part["v"][i], "share": shares[i]} for i in order]
            found.append({"label": run.label, "color": run.row, "axes": axes, "left": len(shares) - len(order)})
    return found


def _shares(values: Sequence[float]) -> list[float]:
    total = sum(values) or 1.0
    return [value / total for value in values]


def _confusion(run: Run, split: str) -> dict[str, Any]:
    y, said, n = run.labels(split), run.logits(split).argmax(1), len(run.classes)
    counts = np.bincount(y * n + said, minlength=n * n).reshape(n, n)
    about = {"label": run.label, "classes": run.classes, "matrix": None, "list": []}
    if n <= MOST_CLASSES:
        totals = counts.sum(1, keepdims=True).clip(1)
        shares = (counts / totals).round(4).tolist()
        about["matrix"] = [
            list(zip(row, share, strict=True)) for row, share in zip(counts.tolist(), shares, strict=True)
        ]
        return about
    wrong = counts.copy()
    np.fill_diagonal(wrong, 0)
    for place in np.argsort(-wrong, axis=None, kind="stable")[:MOST_CONFUSIONS]:
        true, taken = divmod(int(place), n)
        if wrong[true, taken]:
            about["list"].append(
                (run.classes[true], run.classes[taken], int(wrong[true, taken]), int(counts[true].sum()))
            )
    return about


def _wrong(comparison: Comparison) -> dict[str, Any] | None:
    """Thumbnails with what every run said of them: the page shows those that one gets wrong and another right."""
    split, runs = comparison.main_split, comparison.runs
    right = {place: run.is_right(split) for place, run in enumerate(runs)}
    chosen: dict[int, np.ndarray] = {}
    for place, run in enumerate(runs):
        arrays = run.arrays("wrong") if _part(run, "wrong") else {}
        found = zip(arrays.get(f"{split}/index", ()), arrays.get(f"{split}/images", ()), strict=True)
        some = [
            (int(index), image) for index, image in found
            if len(runs) == 1 or any(right[other][index] for other in right if other != place)
        ]  # fmt: skip
        chosen |= dict(some[:MOST_WRONG])
    if not chosen:
        return None
    order = sorted(chosen)
    columns = min(16, len(order))
    blank = np.zeros_like(chosen[order[0]])
    tiles = [chosen[index] for index in order] + [blank] * (-len(order) % columns)
    picture = sheet(np.stack(tiles).reshape(-1, columns, *blank.shape))
    said = [run.logits(split).argmax(1) for run in runs]
    items = [
        {
            "index": index,
            "label": int(runs[0].labels(split)[index]),
            "said": [int(answers[index]) for answers in said],
        }
        for index in order
    ]
    labels = [run.label for run in runs]
    return {"sheet": asdict(picture), "items": items, "runs": labels, "classes": comparison.classes, "split": split}


def _walks(comparison: Comparison, many: int) -> list[dict[str, Any]]:
    """Pictures and probabilities along every axis, a sheet for each start."""
    runs = [run for run in comparison.runs if _part(run, "traversals")]
    walks = []
    for run in runs:
        part, arrays = run.explain["traversals"], run.arrays("traversals")  # type: ignore[index]
        images = arrays.get("images")
        if images is None:
            continue
        starts, axes = _affordable(images.shape, MOST_PIXELS // (len(runs) * many))
        known = _part(run, "sensitivity") or {"axes": [], "v": [], "values": []}
        v = dict(zip(known["axes"], known["v"], strict=True))
        shares = dict(zip(known["axes"], _shares(known["values"]), strict=True))
        order = sorted(range(len(part["axes"])), key=lambda place: -v.get(part["axes"][place], 0.0))[:axes]
        probabilities = arrays.get("probabilities")
        walks.append(
            {
                "label": run.label,
                "classes": run.classes,
                "axes": [
                    {
                        "axis": (axis := part["axes"][place]), "v": v.get(axis), "share": shares.get(axis),
                        "values": [round(value, 2) for value in part["values"][place]],
                    }
                    for place in order
                ],
                "starts": [
                    {
                        "name": _start(part["starts"][s]["label"], run.classes),
                        "sheet": asdict(sheet(images[s, order])),
                        "probabilities": None if probabilities is None else _most_probable(probabilities[s, order]),
                    }
                    for s in range(starts)
                ],
                "left": len(part["axes"]) - axes,
            }
        )  # fmt: skip
    return walks


def _affordable(shape: tuple[int, ...], pixels: int) -> tuple[int, int]:
    """How many starts and axes there is room for."""
    starts, axes, steps, _, height, width = shape
    strips = max(1, pixels // (steps * height * width))  # walks along one axis from one start
    return max(1, min(starts, strips // axes)), min(axes, strips)


def _start(label: int, classes: Sequence[str]) -> str:
    return "the mean of all" if label < 0 else f"a sample of {classes[label]}"


def _most_probable(probabilities: np.ndarray) -> list[dict[str, Any]]:
    """For each axis the classes that are most probable somewhere along it, and their probabilities."""
    found = []
    for along in probabilities:
        classes = np.sort(np.argsort(-along.max(0), kind="stable")[:SHOWN_PROBABILITIES])
        found.append({"classes": classes.tolist(), "values": along[:, classes].round(3).tolist()})
    return found


def _cam(run: Run) -> dict[str, Any] | None:
    part, arrays = _part(run, "gradcam"), run.arrays("gradcam")
    if not part or "images" not in arrays:
        return None
    pairs = [
        np.stack([rgb(image).transpose(2, 0, 1), heated(image, heat)])
        for image, heat in zip(arrays["images"], arrays["maps"], strict=True)
    ]
    pictures = [
        {"uri": sheet(pair[None]).uri, "label": run.classes[int(label)], "said": run.classes[int(said)]}
        for pair, label, said in zip(pairs, arrays["labels"], arrays["predicted"], strict=True)
    ]
    return {"label": run.label, "pictures": pictures, **part}


def _settings(comparison: Comparison) -> dict[str, Any]:
    """Settings in which the rows differ, side by side."""
    configs = [flat(row.folders[0].read_config()) for row in comparison.rows]
    keys = dict.fromkeys(key for config in configs for key in config if key not in ("seed", "preset"))
    lines = [(key, [_setting(config, key) for config in configs]) for key in keys]
    return {"rows": [row.label for row in comparison.rows], "lines": [line for line in lines if len({*line[1]}) > 1]}


def _setting(config: dict[str, Any], key: str) -> str:
    if key not in config:
        return "–"
    return yaml.safe_dump(config[key], default_flow_style=True).removesuffix("...\n").strip()


def _details(run: Run) -> dict[str, Any]:
    environment = run.environment
    facts = {
        key: environment.get(key) for key in ("commit", "python", "platform", "device", "threads", "data_checksum")
    }
    facts["versions"] = ", ".join(
        f"{name} {found}" for name, found in (environment.get("versions") or {}).items() if found
    )
    facts["seconds"] = run.result["seconds"]
    facts["epoch"] = f"{run.result.get('selected_epoch')} ({run.result['selection']})"
    path = str(run.folder.path)
    commands = [environment.get("command") or shlex.join(["sitar", "train", str(run.folder.config_file)])]
    commands += [shlex.join(["sitar", verb, path]) for verb in ("evaluate", "explain")]
    return {
        "label": run.label,
        "folder": path,
        "facts": {key: value for key, value in facts.items() if value is not None},
        "commands": commands,
        "config": yaml.safe_dump(run.config, sort_keys=False),
    }
