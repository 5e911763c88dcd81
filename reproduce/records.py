"""Read tables and records: what a table asks for, and what its runs measured.

A table is reproduce/NAME.yaml, and its record is reproduce/records/NAME.json. Nothing here needs torch, except for the
question whether the settings of a run are still those of its preset.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NotRequired

from dispersion import suspect_axes
from pydantic import ConfigDict, TypeAdapter, ValidationError, with_config
from typing_extensions import TypedDict

from sitar.files import write_atomic
from sitar.integrity import checksum_of, sums_line
from sitar.run_folder import INERT, PLACES, flat
from sitar.yaml_text import read_yaml

HERE = Path(__file__).parent
CLAIMS = "claims"  # the one .yaml file here that is not a table
SAID = ("row", "column", "preset", "overrides", "seed")  # what tells one run of a table from another
EARLIER = "‡"  # marks what was measured before a preset changed
MARKS = f"{EARLIER} marks"  # how a page begins the sentence that explains it
SUMS = "SHA256SUMS"  # in the folder of the records: their checksums
NOT_RUN = "not run yet"
NO_IMAGES = "no images here"
WITHOUT = {  # what the code did where it did not know a setting: before it came, or after it went
    "data.shortcuts": 1,
    "data.train_rho": None,
    "method.gate": False,
    "method.last_steps": None,
    "method.mlp_layers": 3,  # of the diffusion classifier on features, which has no runs without it
    "method.mlp_width": 256,
    "method.nuisances": [],
    "method.score_floor": False,
    "method.score_momentum": 0.0,
    "method.unlabelled": False,
    "model.feature_hidden": None,
    "train.average_epochs": 1,
    "train.compile": False,
    "train.data_on": "auto",
    "train.deterministic": False,
    "train.shuffle": "samples",
}
UNREAD = {"diffusion": {"model.head_hidden"}}  # settings that a method does not read: its U-Net has no posterior


def table_names() -> list[str]:
    return sorted(path.stem for path in HERE.glob("*.yaml") if path.stem != CLAIMS)


class _Row(TypedDict, total=False):
    preset: str
    set: list[str]
    seeds: list[int]


class _Table(TypedDict):
    """This is a table, as far as its runs follow from it."""

    title: str
    splits: dict[str, Any]
    seeds: list[int]
    columns: dict[str, list[str]]
    rows: dict[str, _Row]
    curves: NotRequired[list[Any]]


_TABLE = TypeAdapter(with_config(ConfigDict(extra="allow"))(_Table))


def load_table(name: str) -> dict[str, Any]:
    return _table(HERE / f"{name}.yaml", read_written(HERE / f"{name}.yaml"))


def read_written(file: Path) -> str:
    """Return the text of a file that a person has written."""
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        sys.exit(f"{str(file)!r} cannot be read: {error}.")


def checked(schema: TypeAdapter[Any], file: Path, text: str) -> Any:
    """Return what a file of YAML holds. One that is not as it should be ends the script with a line that says where."""
    try:
        return schema.validate_python(read_yaml(text), strict=True) and read_yaml(text)
    except ValidationError as error:
        first = error.errors()[0]
        sys.exit(f"{str(file)!r}: {'.'.join(map(str, first['loc'])) or 'the file'}: {first['msg']}.")
    except ValueError as error:
        sys.exit(f"{str(file)!r} cannot be read: {error}.")


@cache
def _table(file: Path, text: str) -> dict[str, Any]:
    return checked(_TABLE, file, text)


def record_path(name: str) -> Path:
    return HERE / "records" / f"{name}.json"


def page_path(name: str) -> Path:
    return HERE.parent / "docs" / "results" / f"{name}.md"


def load_record(name: str) -> dict[str, Any]:
    if not record_path(name).exists():
        sys.exit(f"There is no record of {name} yet. `python reproduce/run.py {name}` makes it (use a GPU).")
    try:
        return json.loads(record_path(name).read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        sys.exit(f"The record {str(record_path(name))!r} cannot be read: {error}. git checkout brings it back.")


def record_so_far(name: str) -> dict[str, Any]:
    """Read the record of a table, or one without runs where there is none yet."""
    return load_record(name) if record_path(name).exists() else {"runs": []}


def write_record(name: str, runs: list[dict[str, Any]], settings: Mapping[str, Any]) -> None:
    """Write a record with one line for each run, and one for each set of settings that a run names."""
    used = {run["settings"] for run in runs if "settings" in run}
    lines = ",\n".join("    " + json.dumps(run) for run in runs)
    named = ",\n".join(f"    {json.dumps(key)}: {json.dumps(settings[key])}" for key in sorted(used))
    rest = f',\n  "settings": {{\n{named}\n  }}' if used else ""
    record_path(name).parent.mkdir(exist_ok=True)
    write_atomic(record_path(name), f'{{\n  "runs": [\n{lines}\n  ]{rest}\n}}\n'.encode())


def write_sums() -> None:
    """Note the checksum of every record, as `sha256sum -c` reads them."""
    files = sorted((HERE / "records").glob("*.json"))
    write_atomic(HERE / "records" / SUMS, b"".join(sums_line(file.name, checksum_of(file)) for file in files))


def damaged() -> list[str]:
    """Name the records that are not what was noted, those that are missing, and those that were never noted."""
    folder = HERE / "records"
    text = (folder / SUMS).read_bytes().decode(errors="replace") if (folder / SUMS).is_file() else ""
    noted = {name: digest for digest, _, name in (line.partition("  ") for line in text.split("\n") if line)}
    there = {file.name: checksum_of(file) for file in sorted(folder.glob("*.json"))}
    said = [f"reproduce/records/{name}: it is missing" for name in noted if name not in there]
    for name, digest in there.items():
        if digest != noted.get(name):
            said.append(f"reproduce/records/{name}: " + ("it has changed" if name in noted else "it is new"))
    return said


def jobs(table: dict[str, Any]) -> list[dict[str, Any]]:
    """List every run of a table. `folder` is the place of the run below the output folder."""
    return [
        {
            "row": row,
            "column": column,
            "preset": what["preset"],
            "overrides": [*what.get("set", []), *settings],
            "seed": seed,
            "folder": "-".join([what["preset"], *what.get("set", []), column, f"seed{seed}"])
            .replace("/", "-")
            .replace(" ", ""),
            "curves": table.get("curves", []),
            "explain": table.get("explain", False),
        }
        for row, what in table["rows"].items()
        if "preset" in what
        for column, settings in table["columns"].items()
        for seed in what.get("seeds", table["seeds"])
    ]


def runs_of(row: str, table: dict[str, Any], record: dict[str, Any]) -> list[dict[str, Any]]:
    """Find the runs of a row, in the record of this table or in the record that the row names.

    A cell that has runs with the settings of today shows these alone. Otherwise it shows those with earlier settings.
    """
    what = table["rows"][row]
    if "from" in what:
        other, row = what["from"]
        record = record_so_far(other)
    seeds = what.get("seeds", table["seeds"])
    runs = [run for run in record["runs"] if run["row"] == row and run["seed"] in seeds]
    todays = {run["column"] for run in runs if not changed(run, record.get("settings", {}))}
    return [run for run in runs if run["column"] not in todays or not changed(run, record.get("settings", {}))]


def value_of(run: dict[str, Any], what: str) -> float:
    """Read what a column shows of a run, in percent: SPLIT[.METRIC][@SELECTION].

    `v.1` is the largest shortcut score of the last epoch, `v.2` the second, and so on. `v.axes` is the number of axes
    that they are spread over. These are not in percent.
    """
    split, metric, selection = re.fullmatch(r"(\w+)(?:\.(\w+))?(?:@(\w+))?", what).groups()  # type: ignore[union-attr]
    if split == "v":
        scores = run["shortcut_score"]
        return suspect_axes(scores) if metric == "axes" else sorted(scores, reverse=True)[int(metric) - 1]
    found = run["splits"][split]
    if selection is not None:
        found = run.get("selections", {}).get(selection, {}).get(split, found)
    return 100 * found[metric or "average"]


def decisive(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that decide what a run measures: all but its seed, its name and where its files lie."""
    return {key: value for key, value in flat(config).items() if key not in (*PLACES, *INERT, "seed", "preset")}


@cache
def _today(preset: str, overrides: tuple[str, ...]) -> dict[str, Any]:
    from sitar.presets import load_config

    return decisive(load_config(preset, list(overrides), 0).to_dict())


def changed(run: dict[str, Any], settings: Mapping[str, Any]) -> list[str]:
    """Name the settings of a recorded run that its preset has otherwise today.

    A setting that only one of the two knows came or went with the code. WITHOUT says what the code did without it. What
    it does not say (`undeclared`) is not a change. A run whose settings are not known is taken as it is.
    """
    then, now = _settings(run, settings)
    keys = (then.keys() & now.keys()) | ((then.keys() ^ now.keys()) & WITHOUT.keys())
    keys -= UNREAD.get(now.get("method.name", ""), set())
    return sorted(key for key in keys if then.get(key, WITHOUT.get(key)) != now.get(key, WITHOUT.get(key)))


def undeclared(record: Mapping[str, Any]) -> set[str]:
    """Name the settings that only the runs of a record or only their presets know, and that WITHOUT does not have."""
    pairs = (_settings(run, record.get("settings", {})) for run in record["runs"])
    return {key for then, now in pairs for key in then.keys() ^ now.keys()} - WITHOUT.keys()


def _settings(run: dict[str, Any], settings: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the settings that a recorded run had, and those of its preset today."""
    if run.get("settings") not in settings:
        return {}, {}
    return settings[run["settings"]], _today(run["preset"], tuple(run["overrides"]))


def outdated(row: str, table: dict[str, Any], record: dict[str, Any]) -> tuple[str, ...]:
    """Name the settings that the preset of a row has otherwise than the runs of the row had."""
    source = table["rows"][row].get("from")
    settings = (record_so_far(source[0]) if source else record).get("settings", {})
    return tuple(sorted({key for run in runs_of(row, table, record) for key in changed(run, settings)}))


def is_said(run: Mapping[str, Any], asked: Iterable[Mapping[str, Any]]) -> bool:
    """Say whether a run is one of those asked for, with the preset and overrides that the table has now."""
    return any(all(run[key] == job[key] for key in SAID) for job in asked)
