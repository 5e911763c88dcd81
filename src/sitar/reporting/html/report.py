"""The report: one HTML file about some runs, which opens without a network and needs no torch to be made."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from sitar.errors import ConfigError
from sitar.files import write_atomic
from sitar.reporting.comparison import ComparedRun as Run
from sitar.reporting.comparison import Comparison, compare_runs
from sitar.reporting.html import charts
from sitar.reporting.html.pictures import cam, part, shares, walks, wrong
from sitar.reporting.html.sentences import listed, summary
from sitar.reporting.tables import percent
from sitar.run_folder import RunFolder, flat
from sitar.run_folder import explain_command as command

MOST_CLASSES = 12  # of a confusion matrix; with more, the most frequent confusions are listed
MOST_CONFUSIONS = 12
MOST_AXES = 12  # whose sensitivity is shown
PARTS = {
    "sensitivity": "which of its own axes a classifier uses",
    "shared_axes": "which axes of one VAE all classifiers use",
    "traversals": "sliders that walk along latent axes",
    "mistakes": "images that one model gets wrong and another right",
    "gradcam": "Grad-CAM",
}
IN_FILES = ("traversals", "mistakes", "gradcam")  # parts that have arrays


def write_report(
    paths: Sequence[Path],
    out: Path,
    title: str = "",
    on_left_out: Callable[[str, str], None] = lambda path, reason: None,
) -> Path:
    """A report of the runs in `paths`. What cannot be used is named in it, and `on_left_out` is told."""
    if out.suffix.lower() not in (".html", ".htm"):
        raise ConfigError(f"--out {str(out)!r} is no page: give a file that ends in .html.")
    comparisons, left_out = compare_runs(paths)
    environment = Environment(
        loader=PackageLoader("sitar.reporting.html"), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    environment.filters |= {"percent": percent, "breakable": _breakable}
    names = [comparison.dataset for comparison in comparisons]
    page = environment.get_template("report.html").render(
        title=title or f"sitar report: {', '.join(dict.fromkeys(names))}",
        left_out=left_out,
        sections=[_section(comparison, place, len(comparisons)) for place, comparison in enumerate(comparisons)],
        chart={"width": charts.WIDTH, "height": charts.HEIGHT, "left": charts.LEFT, "bottom": charts.BOTTOM},
    )
    out.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(out, page.encode(errors="replace"))  # a path may hold bytes that are no text
    for path, reason in left_out:
        on_left_out(path, reason)
    return out


def _breakable(text: str) -> Markup:
    """A name that may go on in the next line behind a mark, and not within a word."""
    return Markup(re.sub(r"([_=/]|\.(?!\d))", r"\1<wbr>", str(escape(text))))


def _section(comparison: Comparison, place: int, many: int) -> dict[str, Any]:
    """All that the template shows of one comparison."""
    split = comparison.main_split
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
        "wrong": wrong(comparison),
        "walks": walks(comparison, many),
        "cams": [found for run in comparison.runs if (found := cam(run))],
        "missing": _missing(comparison),
        "settings": _settings(comparison),
        "details": [_details(comparison, run) for run in comparison.runs],
    }


def _verdict(run: Run) -> str:
    """What an audit of the run's axes says, where there was one."""
    verdict = (run.audit or {}).get("verdict")
    return str(verdict.get("words", "")) if isinstance(verdict, dict) else ""


def _missing(comparison: Comparison) -> list[dict[str, Any]]:
    """What is not shown, of which runs, and the command that makes it, or the reason why nothing does."""
    lost: dict[tuple[str, ...], list[Run]] = {}
    reasons: dict[tuple[str, str], list[str]] = {}
    for run in comparison.runs:
        given = (run.explanation or {}).get("reasons") or {}
        gone = [name for name in PARTS if name not in given and not _is_there(run, name)]
        if gone:
            lost.setdefault(tuple(gone), []).append(run)
        for name in PARTS:
            if name in given:
                reasons.setdefault((name, given[name]), []).append(run.label)
    found: list[dict[str, Any]] = []
    for names, runs in lost.items():
        about = {"what": listed(PARTS[n] for n in names), "runs": [run.label for run in runs]}
        found.append({**about, "command": _explain(comparison, runs)})
    found += [{"what": PARTS[name], "runs": runs, "reason": reason} for (name, reason), runs in reasons.items()]
    if len(_rulers(comparison)) > 1:
        labels = [run.label for run in comparison.runs if part(run, "shared_axes")]
        about = {"what": "axes in use side by side, as each was measured on other axes", "runs": labels}
        found.append(about | _on_one_ruler(comparison))
    return found


def _explain(comparison: Comparison, runs: list[Run]) -> str:
    """What explains some runs and leaves the comparison side by side: on the axes that the others were measured on.

    All of them at once where nobody was measured yet, or that VAE is gone.
    """
    ruler = _ruler(comparison)
    if ruler is None:
        return command(*(run.folder for run in comparison.runs))
    return command(*(run.folder for run in runs), axes=ruler)


def _on_one_ruler(comparison: Comparison) -> dict[str, str]:
    """The command that measures all runs on the axes of one of them that has a decoder, or of a VAE that one knows."""
    with_decoder = (run.folder for run in comparison.runs if part(run, "traversals"))
    ruler = next(with_decoder, None) or _ruler(comparison)
    if ruler is None:
        return {"reason": "The VAEs whose axes they were are gone; `sitar explain` with --axes names another."}
    return {"command": command(*(run.folder for run in comparison.runs), axes=ruler)}


def _ruler(comparison: Comparison) -> RunFolder | None:
    """The run on whose axes others were measured, if it is still where it was."""
    named = (RunFolder(Path(found["run"])) for run in comparison.runs if (found := part(run, "shared_axes")))
    return next((folder for folder in named if folder.is_done), None)


def _is_there(run: Run, name: str) -> bool:
    return bool(part(run, name)) and (name not in IN_FILES or bool(run.part_arrays(name)))


def _rulers(comparison: Comparison) -> set[tuple[float, ...]]:
    """VAEs on whose axes runs were measured: told apart by their v, as a path may be written in two ways."""
    return {tuple(found["v"]) for run in comparison.runs if (found := part(run, "shared_axes"))}


def _through(comparison: Comparison) -> dict[str, Any] | None:
    """Shares of every classifier's sensitivity along the axes of one VAE, the most suspicious axis first."""
    runs = [(run, found) for run in comparison.runs if (found := part(run, "shared_axes"))]
    if len(_rulers(comparison)) != 1:
        return None
    first = runs[0][1]
    order = sorted(range(len(first["axes"])), key=lambda place: -first["v"][place])[:MOST_AXES]
    bars = [
        charts.Bars(
            f"axis {first['axes'][i]}",
            f"v = {first['v'][i]:.2f}",
            [charts.Bar(run.label, run.row, shares(found["values"])[i]) for run, found in runs],
        )
        for i in order
    ]
    return {
        "bars": bars,
        "run": first["run"],
        "n": first["n"],
        "left": len(first["axes"]) - len(order),
        "sums": [f"{sum(found['values']):.2f} ({run.label})" for run, found in runs],
    }


def _own(comparison: Comparison) -> list[dict[str, Any]]:
    """The same of each classifier's own axes, which have nothing in common but v."""
    found = []
    for run in comparison.runs:
        if about := part(run, "sensitivity"):
            share = shares(about["values"])
            order = sorted(range(len(share)), key=lambda place: -share[place])[:MOST_AXES]
            axes = [{"axis": about["axes"][i], "v": about["v"][i], "share": share[i]} for i in order]
            found.append({"label": run.label, "color": run.row, "axes": axes, "left": len(share) - len(order)})
    return found


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


def _settings(comparison: Comparison) -> dict[str, Any]:
    """Settings in which the rows differ, side by side."""
    configs = [flat(row.runs[0].config) for row in comparison.rows]
    keys = dict.fromkeys(key for config in configs for key in config if key not in ("seed", "preset"))
    lines = [(key, [_setting(config, key) for config in configs]) for key in keys]
    return {"rows": [row.label for row in comparison.rows], "lines": [line for line in lines if len({*line[1]}) > 1]}


def _setting(config: dict[str, Any], key: str) -> str:
    if key not in config:
        return "–"
    return yaml.safe_dump(config[key], default_flow_style=True).removesuffix("...\n").strip()


def _details(comparison: Comparison, run: Run) -> dict[str, Any]:
    environment = run.environment
    facts = {
        key: environment.get(key) for key in ("commit", "python", "platform", "device", "threads", "data_checksum")
    }
    versions = environment.get("versions")
    if isinstance(versions, dict):
        facts["versions"] = ", ".join(f"{name} {found}" for name, found in versions.items() if found)
    facts["seconds"] = run.result["seconds"]
    facts["epoch"] = f"{run.result.get('selected_epoch')} ({run.result['selection']})"
    path = str(run.folder.path)
    made_by = environment.get("command")
    commands = [made_by if isinstance(made_by, str) else shlex.join(["sitar", "train", str(run.folder.config_file)])]
    commands += [shlex.join(["sitar", "evaluate", path]), command(run.folder, axes=_ruler(comparison))]
    return {
        "label": run.label,
        "folder": path,
        "facts": {key: value for key, value in facts.items() if value is not None},
        "commands": commands,
        "config": yaml.safe_dump(run.config, sort_keys=False),
    }
