"""Put runs side by side: rows of runs that differ in the seed alone, and comparisons of runs on the same data."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from sitar.config import section_config
from sitar.errors import RunError, SitarError
from sitar.given import Kind, given_to, kinds_of, marked
from sitar.presets import load_config, preset_names
from sitar.privacy import last_name, shareable
from sitar.run_folder import PLACES, Result, Run, RunFolder, flat, folder_names, preset_name, without_places
from sitar.splits import TEST_SPLITS, VAL, deciding_split

ANSWERS, DIGEST, FEATURES = "refit.answers", "refit.digest", "refit.features"
LONGEST_LABEL = 40  # characters that a sentence of a report has room for
SEED = re.compile(r"seed\d+")  # the name of a folder
SECTIONS = ("data", "model", "method", "train")  # of the settings that a preset has
DATA_ON = "train.data_on"  # a place too: in which memory the data lies
REFIT = (ANSWERS, DIGEST, FEATURES)  # settings of a run that `sitar refit` has made; labels say them in words


@dataclass(frozen=True)
class Row:
    """A row holds runs that differ in nothing but the seed."""

    label: str
    runs: list[Run]

    @property
    def seeds(self) -> list[int]:
        return [run.seed for run in self.runs]

    @property
    def results(self) -> list[Result]:
        return [run.result for run in self.runs]

    @property
    def given(self) -> dict[str, Any]:
        """Return what the runs were given besides inputs and labels, by its key in result.json."""
        return given_to(self.results[0])

    @property
    def was_given_more(self) -> bool:
        """Return whether the runs were given more than inputs and labels, so that they are no rivals of the others."""
        return bool(self.kinds)

    @property
    def kinds(self) -> list[Kind]:
        """Return the kinds of what they were given besides. Most runs were given nothing."""
        return kinds_of(self.results[0])

    @property
    def marked_label(self) -> str:
        """Return the label with the marks of these kinds."""
        return marked(self.label, self.results[0])

    def summary(self, split: str, metric: str) -> dict[str, Any]:
        """Return mean, standard deviation over seeds (None for one) and the single values of a metric.

        A value is None where a figure is missing.
        """
        values = [result["splits"].get(split, {}).get(metric) for result in self.results]
        known = [value for value in values if value is not None]
        return {
            "mean": mean(known) if known else None,
            "std": stdev(known) if len(known) > 1 else None,
            "values": values,
        }


@dataclass(frozen=True)
class ComparedRun(Run):
    """A compared run has a place and a name in a comparison."""

    row: int
    label: str


@dataclass(frozen=True)
class Comparison:
    """A comparison holds runs on the same data. A row is runs that differ in the seed alone."""

    dataset: str
    rows: list[Row]
    runs: list[ComparedRun]
    with_paths: bool = True  # whether folders of this machine may be shown
    name: str = ""  # of the data, where others in the report are of the same dataset: with what tells them apart

    def shown(self, value: Any) -> Any:
        """Return a text with paths, or values with such texts, as they may be shown."""
        return value if self.with_paths else shareable(value)

    def shown_folder(self, folder: RunFolder) -> RunFolder:
        """Return a folder by the name under which it may be shown, such as in a command."""
        return RunFolder(Path(self.shown(str(folder.path))))

    @property
    def splits(self) -> list[str]:
        """Return the test splits that a run has, the one that decides last; `val` where there is none."""
        known = [split for split in TEST_SPLITS if any(split in run.result["splits"] for run in self.runs)]
        return known or [VAL]

    @property
    def main_split(self) -> str:
        """Return the split that the sentences are about: unseen conditions where the data has them."""
        return deciding_split(self.splits) or VAL

    @property
    def classes(self) -> list[str]:
        return self.runs[0].classes

    @property
    def attributes(self) -> dict[str, list[str]]:
        """Return the names of the values of the attribute. Runs made before there were some have none."""
        return next((names for run in self.runs if (names := run.result.get("attributes"))), {})


def unlike_presets(rows: Sequence[Row]) -> list[str]:
    """Say which rows have other settings than their preset, in a sentence for each list of settings.

    What a label names already is left out.
    """
    changed: dict[str, list[str]] = {}
    for row in rows:
        words = [f"{key}={value}" for key, value in unlike_preset(row.runs[0].config).items()]
        if hidden := [word for word in words if f" {word} " not in f"{row.label} "]:
            changed.setdefault(", ".join(hidden), []).append(row.label)
    return [_unlike(labels, settings, len(rows)) for settings, labels in changed.items()]


def _unlike(labels: Sequence[str], settings: str, rows: int) -> str:
    if len(labels) == 1:
        return f"Unlike its preset, {labels[0]} has {settings}."
    return f"Unlike their presets, {'all rows' if len(labels) == rows else ' and '.join(labels)} have {settings}."


def unlike_preset(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a run that are not those of its preset, without those that say where things lie.

    There are none where the preset is not known here, such as a file of the user's own. The settings of another method
    than the preset's are held against the defaults of that method.
    """
    mine = {key: value for key, value in without_places(config).items() if key.partition(".")[0] in SECTIONS}
    preset = config.get("preset")
    if preset not in preset_names():
        return {}
    try:
        theirs = load_config(preset).to_dict()
    except (SitarError, ImportError):  # of a plug-in that is gone, or without torch
        return {}
    name, method = mine.get("method.name"), theirs["method"]["name"]
    if name != method:
        theirs["method"] = {**_defaults(name), "name": method}
    known = without_places(theirs)
    return {key: value for key, value in mine.items() if key != DATA_ON and value != known.get(key)}


def _defaults(method: Any) -> dict[str, Any]:
    """Return the settings of a method where nobody says otherwise. There are none of a method that is unknown here."""
    try:
        return section_config("method", {"name": method}).model_dump(mode="json", by_alias=True)
    except SitarError:
        return {}


def read_runs(paths: Sequence[Path]) -> list[Run]:
    """Read finished runs. A run that is given twice is refused."""
    runs: list[Run] = []
    seen: dict[str, Run] = {}
    for path in paths:
        run = Run.read(RunFolder(path))
        twin = seen.setdefault(_identity(run), run)
        if twin is not run:
            raise RunError(
                f"{str(run.folder.path)!r} and {str(twin.folder.path)!r} are the same run (settings and seed). Give "
                "one of them."
            )
        runs.append(run)
    return runs


def usable_runs(
    paths: Sequence[Path], purpose: str, needed: Callable[[Run], Any] = lambda run: None
) -> tuple[list[Run], list[tuple[str, str]]]:
    """Read finished runs, each of them once. Return them, and (path, reason) of what is left out.

    `needed` reads what the purpose needs besides settings and result, and raises where it is damaged.
    """
    runs: list[Run] = []
    left_out: list[tuple[str, str]] = []
    seen: dict[str, Path] = {}
    for path in paths:
        try:
            run = Run.read(RunFolder(path))
            needed(run)
            identity = _identity(run)
        except RunError as error:
            left_out.append((str(path), str(error)))
            continue
        if identity in seen:
            left_out.append((str(path), f"It is the same run as {str(seen[identity])!r}: settings, seed and data."))
            continue
        seen[identity] = path
        runs.append(run)
    if not runs:
        reasons = [reason for _, reason in left_out] + [hint for path in paths if (hint := _all_in(path))]
        raise RunError(f"No finished run to {purpose}. " + " ".join(reasons))
    return runs, left_out


def _all_in(path: Path) -> str:
    """Say how to give all runs in a folder, where runs lie in it or in its folders: runs/DATASET/METHOD/seed0."""
    for deeper in (1, 2, 3):
        if any(path.glob("*/" * deeper + RunFolder(path).config_file.name)):
            return f"To take all runs in {str(path)!r}, write {shlex.quote(str(path))}{'/*' * deeper}."
    return ""


def group_runs(runs: Sequence[Run]) -> list[Row]:
    """Put runs together that differ only in the seed. A row is labelled by preset and by what else differs.

    Where files lie does not count: data that moved is the same data. Other data under the same settings is told apart
    by where it lies, and another version of a user's own method by the digest of its file.
    """
    together: dict[tuple[Any, ...], list[Run]] = {}
    data_of = {_settings_key(run): run.data_checksum for run in reversed(runs) if run.data_checksum is not None}
    code_of = {_settings_key(run): run.code for run in reversed(runs) if run.code is not None}
    for run in runs:
        key = _settings_key(run)
        data = run.data_checksum or data_of.get(key)
        code = code_of.get(key) if run.code is None else run.code
        together.setdefault((key, data, _text(run.unlabelled_checksum), code), []).append(run)
    firsts = [max(members, key=lambda run: run.code is not None) for members in together.values()]  # one that knows
    settings = [_told_apart(first, firsts) for first in firsts]
    rows = []
    for mine, members in zip(settings, together.values(), strict=True):
        rivals = [other for other in settings if other["preset"] == mine["preset"] and other is not mine]
        varying = sorted({key for other in rivals for key in mine.keys() | other.keys()
                          if key != "seed" and mine.get(key) != other.get(key)})  # fmt: skip
        label = " ".join(
            [mine["preset"], *(f"{key}={mine[key]}" for key in varying if key in mine and key not in REFIT)]
        )
        rows.append(Row(label + _answers(mine, rivals), sorted(members, key=lambda run: run.seed)))
    return rows


def _text(checksum: str | None) -> str | None:
    """Return a checksum as text, whatever a stranger has written in its place."""
    return None if checksum is None else str(checksum)


def _answers(settings: Mapping[str, Any], rivals: Sequence[Mapping[str, Any]]) -> str:
    """Return the end of a label that says how many answers a run was given; and which, if others have as many."""
    answers, digest = (settings.get(key) for key in (ANSWERS, DIGEST))
    if answers is None:
        return ""
    twins = any(other.get(ANSWERS) == answers and other.get(DIGEST) != digest for other in rivals)
    return f" +{answers} answers" + (f" ({digest})" if twins else "")


def _identity(run: Run) -> str:
    """Return what makes a run this one: its settings, but not where files lie, and checksums of data and code."""
    checksums = [run.data_checksum, run.unlabelled_checksum, run.code]
    return json.dumps([without_places(run.config), *checksums], sort_keys=True, default=str)


def _settings_key(run: Run) -> str:
    """Return what the seeds of one setting share. A run without a checksum counts as one on the same data.

    The answers choose the features of a last layer that is fitted again, for each seed anew.
    """
    settings = {key: value for key, value in without_places(run.config).items() if key not in ("seed", FEATURES)}
    return json.dumps(settings, sort_keys=True, default=str)


def _told_apart(run: Run, others: Sequence[Run]) -> dict[str, Any]:
    """Return the settings of a run, with where its files lie only if another has the same settings on other data.

    Where both lie in the same place, the checksum tells them apart. Other code is told apart by its digest.
    """
    mine = without_places(run.config)
    same = [other for other in others if other is not run and _settings_key(other) == _settings_key(run)]
    if any(other.code != run.code for other in same):
        mine["code"] = "+".join(digest[:8] for digest in run.code or ()) or "installed"
    if twins := [other for other in same if _inputs(other) != _inputs(run)]:
        places = [{key: value for key, value in flat(one.config).items() if key in PLACES} for one in (run, *twins)]
        mine |= places[0]
        if places[0] in places[1:]:
            mine["data_checksum"] = str(run.data_checksum)[:8]
    return {**mine, "preset": str(mine.get("preset") or run.result.get("preset") or "custom")}


def _inputs(run: Run) -> list[str | None]:
    return [_text(run.data_checksum), _text(run.unlabelled_checksum)]


def compare_runs(paths: Sequence[Path], *, with_paths: bool = True) -> tuple[list[Comparison], list[tuple[str, str]]]:
    """Return comparisons, one for each data set, and (path, reason) of what is left out.

    Without `with_paths`, settings tell no folder of this machine.
    """
    runs, left_out = usable_runs(paths, "report on", lambda run: (_data(run), run.metrics))
    of_data: dict[str, list[Run]] = {}
    for run in runs:
        shown = run if with_paths else replace(run, config=shareable(run.config), result=shareable(run.result))
        of_data.setdefault(_data(run), []).append(shown)
    comparisons = [replace(_comparison(runs), with_paths=with_paths) for runs in of_data.values()]
    return _named(comparisons), left_out


def name_of(explanation: Mapping[str, Any]) -> str:
    """Return what a run is called that an explanation is of."""
    return f"{preset_name(str(explanation['preset']))}, seed {explanation['seed']}"


def names_of(explanations: Sequence[Mapping[str, Any]], folders: Sequence[Path]) -> list[str]:
    """Return what runs are called that explanations are of: by their folders where a preset has several of them."""
    names = list(map(name_of, explanations))
    return names if len({*names}) == len(names) else folder_names(folders)


def _named(comparisons: list[Comparison]) -> list[Comparison]:
    """Give comparisons names that tell them apart: by settings of the data, then by its place, then by its checksum."""
    names = [comparison.dataset for comparison in comparisons]
    for facts_of in (_settings, _place, _checksum):
        twins = [place for place, name in enumerate(names) if names.count(name) > 1]
        facts = {place: facts_of(comparisons[place].runs[0]) for place in twins}
        for place in twins:
            rivals = [facts[other] for other in twins if comparisons[other].dataset == comparisons[place].dataset]
            told = [key for key in facts[place] if any(rival.get(key) != facts[place][key] for rival in rivals)]
            names[place] = ", ".join([names[place], *(f"{key}={facts[place][key]}" for key in told)])
    return [replace(comparison, name=name) for comparison, name in zip(comparisons, names, strict=True)]


def _data_settings(run: Run) -> dict[str, Any]:
    settings = run.config.get("data")
    if not isinstance(settings, dict):
        raise RunError(f"The run in {str(run.folder.path)!r} is damaged: it does not say its 'data'.")
    return settings


def _settings(run: Run) -> dict[str, Any]:
    """Return the settings of the data, without where it lies."""
    settings = without_places({"data": _data_settings(run)})
    return {key.partition(".")[2]: value for key, value in settings.items()}


def _place(run: Run) -> dict[str, Any]:
    """Return the names of the file or folder in which the data lies."""
    settings = flat({"data": _data_settings(run)})
    return {key.partition(".")[2]: last_name(str(settings[key])) for key in PLACES if settings.get(key)}


def _checksum(run: Run) -> dict[str, Any]:
    return {"checksum": str(run.data_checksum)[:8]}


def _data(run: Run) -> str:
    """Return what tells data apart: its settings, but not where it lies, its checksum, and how much there is."""
    sizes = {split: metrics["n"] for split, metrics in run.result["splits"].items()}
    return json.dumps([_settings(run), run.data_checksum, sizes], sort_keys=True, default=str)


def _comparison(runs: list[Run]) -> Comparison:
    rows = _named_by_folder(_shorter(group_runs(runs)))
    compared = [
        ComparedRun(
            run.folder,
            run.config,
            run.result,
            place,
            row.label if len(row.runs) == 1 else f"{row.label}, seed {run.seed}",
        )
        for place, row in enumerate(rows)
        for run in row.runs
    ]
    return Comparison(compared[0].result["dataset"], rows, compared)


def _shorter(rows: list[Row]) -> list[Row]:
    """Return labels without the folder of the preset, where all have the same one and they stay apart."""
    short = [row.label.partition("/")[2] for row in rows]
    one = len({row.label.partition("/")[0] for row in rows}) == 1
    if not one or len(set(short)) < len(rows) or not all(short):
        return rows
    return [replace(row, label=label) for row, label in zip(rows, short, strict=True)]


def _named_by_folder(rows: list[Row]) -> list[Row]:
    """Return labels that are too long for a sentence as the names of their folders, where all rows stay apart."""
    labels = [(_folder_name(row) if len(row.label) > LONGEST_LABEL else None) or row.label for row in rows]
    if len({*labels}) < len(rows):
        return rows
    return [replace(row, label=label) for row, label in zip(rows, labels, strict=True)]


def _folder_name(row: Row) -> str | None:
    """Return the name that a user gave to the folder of a row, or to that around its folders seed0, seed1, ..., if any.

    By default the folder around them is called as the preset, which says nothing of the other settings.
    """
    paths = [run.folder.path.absolute() for run in row.runs]
    named = {path.parent if SEED.fullmatch(path.name) else path for path in paths}
    if len(named) > 1 or any(path.as_posix().endswith(f"/{row.runs[0].config.get('preset')}") for path in named):
        return None
    return named.pop().name
