"""Tables as plain data: a list of column names and rows of text. Percent begins here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sitar.reporting.comparison import Row
from sitar.splits import TEST_SPLITS

SHORT = {
    "worst_group": "worst",
    "adjusted_average": "adjusted",
    "class_balanced": "balanced",
    "calibration_error": "calibration",
}
SETTLED = 0.3  # slopes of Theorem 1's remainder that differ by more are not at their limit
UPPER_BOUND = "†"
UPPER_BOUND_NOTE = f"{UPPER_BOUND} was given group labels of the training samples: an upper bound."


@dataclass(frozen=True)
class Table:
    title: str
    columns: list[str]
    rows: list[list[str]]
    note: str = ""


def percent(value: float | None) -> str:
    """70.1 for 0.701; a dash where a figure does not exist."""
    return "–" if value is None else f"{100 * value:.1f}"


def percent_range(interval: Sequence[float] | None) -> str:
    return "–" if interval is None else f"{100 * interval[0]:.1f}-{100 * interval[1]:.1f}"


def marked(table: Table, needs_groups: bool) -> Table:
    """The table of a run, with a mark and a note where its method was given group labels."""
    if not needs_groups:
        return table
    return replace(table, title=f"{table.title} {UPPER_BOUND}", note=f"{table.note} {UPPER_BOUND_NOTE}")


def splits_table(title: str, splits: Mapping[str, Mapping[str, Any]]) -> Table:
    """One row a split: average and worst group with their intervals. Fits a terminal of 80 columns."""
    rows = []
    for name, metrics in splits.items():
        intervals = metrics.get("intervals") or {}
        row = [name, f"{metrics['n']:,}"]
        for metric in ("average", "worst_group"):
            row += [percent(metrics[metric]), percent_range(intervals.get(metric))]
        rows.append(row)
    columns = ["split", "n", "average", "95 % range", "worst group", "95 % range"]
    return Table(title, columns, rows, "Percent; ranges are bootstrap intervals over samples.")


def details_table(title: str, splits: Mapping[str, Mapping[str, Any]]) -> Table:
    """One row a split: the other figures of result.json."""
    metrics = ["adjusted_average", "class_balanced", "auroc", "auprc", "f1", "calibration_error"]
    rows = [[name, *(percent(figures.get(metric)) for metric in metrics)] for name, figures in splits.items()]
    columns = ["split", "adjusted average", "class balanced", "AUROC", "AUPRC", "F1", "calibration error"]
    return Table(title, columns, rows, "Percent; the adjusted average weights groups as the training split does.")


def groups_table(title: str, splits: Mapping[str, Mapping[str, Any]]) -> Table:
    """One row a group, one column a split: accuracy and size."""
    grouped = {name: metrics["groups"] for name, metrics in splits.items() if metrics["groups"]}
    names = list(dict.fromkeys(group for groups in grouped.values() for group in groups))
    rows = []
    for group in names:
        cells = [groups.get(group, {"accuracy": None, "n": 0}) for groups in grouped.values()]
        rows.append([group, *(f"{percent(cell['accuracy'])} ({cell['n']:,})" for cell in cells)])
    return Table(title, ["group", *grouped], rows, "Percent accuracy and number of samples; a dash for an empty group.")


def compare_table(rows: Sequence[Row], metrics: Sequence[str] = ("average", "worst_group")) -> Table:
    """One line a row of runs: mean and deviation over seeds on every test split."""
    splits = [s for s in TEST_SPLITS if any(s in result["splits"] for row in rows for result in row.results)]
    columns = ["runs", "seeds", *(f"{split} {SHORT.get(metric, metric)}" for split in splits for metric in metrics)]
    lines = []
    for row in rows:
        cells = [row.summary(split, metric) for split in splits for metric in metrics]
        label = f"{row.label} {UPPER_BOUND}" if row.needs_groups else row.label
        lines.append([label, ",".join(map(str, row.seeds)), *map(_mean_and_std, cells)])
    datasets = sorted({result["dataset"] for row in rows for result in row.results})
    selections = sorted({result["selection"] for row in rows for result in row.results})
    note = (
        f"Percent, mean ± standard deviation over seeds. Data: {', '.join(datasets)}. Epoch: {', '.join(selections)}."
    )
    if any(row.needs_groups for row in rows):
        note += f" {UPPER_BOUND_NOTE}"
    return Table("Comparison", columns, lines, note)


def _mean_and_std(summary: Mapping[str, Any]) -> str:
    text = percent(summary["mean"])
    return text if summary["std"] is None else f"{text} ± {100 * summary['std']:.1f}"


def theory_table(theory: Mapping[str, Any]) -> Table:
    """One row a strength of the noise: Theorem 1's prediction, the exact objective, and the terms of the former."""
    own = theory["comparisons"][0]
    columns = ["alpha", "predicted", "exact", "remainder", *(name.replace("_", " ") for name in theory["terms"])]
    terms = list(theory["terms"].values())
    rows = []
    for i, alpha in enumerate(theory["alphas"]):
        mark = " *" if alpha == theory["alpha"] else ""
        objectives = [f"{values[i]:.6f}" for values in (theory["predicted"], own["exact"])]
        rows.append([f"{alpha:.3g}{mark}", *objectives, f"{own['remainder'][i]:.1e}", *(f"{t[i]:.2e}" for t in terms)])
    title = f"Theorem 1, {theory['noise']} noise ({own['distribution']}), lambda {theory['lambda']:g}"
    note = f"Means over {theory['samples']} samples of {theory['split']}; without noise {theory['clean']:.6f}. "
    note += "* is the run's alpha. The share of consistency includes lambda; the remainder is a mean of moduli."
    return Table(title, columns, rows, note)


def unsettled_order(comparison: Mapping[str, Any]) -> float | None:
    """The slope at the smallest alphas, where those of the next few are others: the fitted order then means little."""
    slopes = comparison.get("local_orders") or [0.0]  # which older files do not have
    return slopes[0] if max(slopes) - min(slopes) > SETTLED else None


def explain_table(explanations: Sequence[Mapping[str, Any]]) -> Table:
    """One row a run: how much of its sensitivity lies on the axis that tracks the label most, and where it looks."""
    columns = ["run", "own axis", "v", "share", "axis of the ruler", "v", "share", "Grad-CAM in the box"]
    rows = []
    for found in explanations:
        look = percent((found["gradcam"] or {}).get("mass_in_box"))
        rows.append([_name(found), *_suspect(found["sensitivity"]), *_suspect(found["shared_axes"]), look])
    note = (
        "The axis that tracks the label most (v: |correlation|), and its share of the summed sensitivity of all axes, "
    )
    note += "in percent: of the run's own latent, and of the VAE that is the ruler. A dash where there is none."
    boxes = [found["gradcam"]["box"] for found in explanations if found["gradcam"] and found["gradcam"]["box"]]
    if areas := sorted({percent((x1 - x0) * (y1 - y0)) for x0, y0, x1, y1 in boxes}):
        note += f" The box is {', '.join(areas)} % of the image: so much of a map would be in it by chance."
    return Table("What the models use", columns, rows, note)


def through_tables(explanations: Sequence[Mapping[str, Any]], most: int = 10) -> list[Table]:
    """One table a ruler, a row an axis of it: how much each model that it measures reacts to that axis."""
    together: dict[str, list[Mapping[str, Any]]] = {}
    for found in explanations:
        if found["shared_axes"] is not None:
            together.setdefault(found["shared_axes"]["run"], []).append(found)
    return [_through_table(measured, most) for measured in together.values()]


def _through_table(measured: Sequence[Mapping[str, Any]], most: int) -> Table:
    ruler = measured[0]["shared_axes"]
    rows = []
    for i in sorted(range(len(ruler["axes"])), key=lambda i: -ruler["v"][i])[:most]:
        values = [f"{found['shared_axes']['values'][i]:.3g}" for found in measured]
        rows.append([str(ruler["axes"][i]), f"{ruler['v'][i]:.2f}", *values])
    note = (
        f"Mean change of the logits a standard deviation of the axis, at {ruler['n']:,} held-out samples, decoded by "
    )
    note += f"the VAE in {ruler['run']}."
    if len(ruler["axes"]) > most:
        note += f" {len(ruler['axes']) - most} more axes in explain.json."
    columns = ["axis", "v", *map(_name, measured)]
    return Table(f"On the axes of {ruler['preset']}, seed {ruler['seed']}", columns, rows, note)


def _name(found: Mapping[str, Any]) -> str:
    return f"{found['preset']}, seed {found['seed']}"


def _suspect(part: Mapping[str, Any] | None) -> list[str]:
    """The axis with the largest v, that v, and the axis's share of all sensitivity."""
    if part is None:
        return ["–", "–", "–"]
    place = max(range(len(part["axes"])), key=lambda i: part["v"][i])
    total = sum(part["values"])
    share = percent(part["values"][place] / total if total else None)
    return [str(part["axes"][place]), f"{part['v'][place]:.2f}", share]


def audit_table(audit: Mapping[str, Any], most: int = 10) -> Table:
    """One row an axis, the one that predicts the label best first, and last those that the VAE does not use."""

    def ranged(axis: Mapping[str, Any], name: str) -> str:
        low, high = axis["intervals"][name]
        return f"{axis[name]:.2f} [{low:.2f}, {high:.2f}]"

    columns = ["axis", "accuracy", "|correlation|", "Wasserstein"]
    rows = []
    for axis in audit["axes"][:most]:
        figures = [ranged(axis, name) for name in ("accuracy", "correlation", "wasserstein")]
        rows.append([str(axis["axis"]) + ("" if axis["used"] else " *"), *figures])
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
        note += f" {len(audit['axes']) - most} more axes in audit.json."
    return Table(f"Audit of {audit['preset']}, seed {audit['seed']}", columns, rows, note)
