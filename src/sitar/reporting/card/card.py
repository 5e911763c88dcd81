"""Write a model card in the form of Hugging Face, from run folders alone: no torch, and no path of this machine."""

from __future__ import annotations

import functools
import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from sitar.errors import ConfigError, RunError, SitarError
from sitar.files import write_atomic
from sitar.given import kinds_of
from sitar.privacy import last_name, shareable
from sitar.reporting.card.front_matter import front_matter
from sitar.reporting.card.markdown import Markdown, escaped
from sitar.reporting.comparison import group_runs, read_runs
from sitar.reporting.groups import named_group
from sitar.reporting.html.bars import interval_of, wilson
from sitar.reporting.html.sentences import listed
from sitar.reporting.tables.table import HEADLINE, chance, percent, percent_range
from sitar.run_folder import PLACES, Run, RunFolder, flat, preset_name, without_places
from sitar.splits import EVALUATION_SPLITS, TEST_SPLITS, VAL, deciding_split
from sitar.wording import counted

logger = logging.getLogger(__name__)
FEW = 30  # samples of a group below which its interval says little
SECTIONS = ("method", "model", "train")  # of the settings that the card lists


def write_card(
    paths: Sequence[Path], out: Path, *, name: str | None = None, licence: str | None = None, force: bool = False
) -> Path:
    """Write the card of a run as a Markdown file. A file that is there is kept unless `force` is given."""
    if out.suffix.lower() != ".md":
        raise ConfigError(f"--out {str(out)!r} is no card: give a file that ends in .md.")
    if out.exists() and not force:
        raise RunError(f"{str(out)!r} is already there. Give another --out, or --force to replace it.")
    if not out.parent.is_dir():
        raise RunError(f"There is no folder {str(out.parent)!r} to write {out.name!r} into.")
    card = make_card(paths, name=name, licence=licence)
    try:
        write_atomic(out, card.encode(errors="replace"))
    except OSError as error:
        raise RunError(f"Cannot write {str(out)!r}: {error.strerror or error}. Choose another --out.") from error
    return out


def make_card(
    paths: Sequence[Path],
    *,
    name: str | None = None,
    licence: str | None = None,
    repository: str | None = None,
    only_exported: bool = False,
) -> str:
    """Return the text of the card of the first run. The others are the same setting with other seeds.

    With `only_exported`, the exported files are published without the run, and the card tells how to use them alone.
    """
    try:
        return _card(paths, name, licence, repository, only_exported)
    except (SitarError, OSError, MemoryError):
        raise
    except Exception as error:  # a run that is damaged in a way that its files do not show
        logger.debug("%s", paths[0], exc_info=True)
        named = " or ".join(repr(str(path)) for path in paths)
        raise RunError(f"No card can be made of {named}. It is damaged: {type(error).__name__}: {error}.") from error


def _card(
    paths: Sequence[Path], name: str | None, licence: str | None, repository: str | None, only_exported: bool
) -> str:
    runs = [replace(run, result=shareable(run.result)) for run in read_runs(paths)]
    rows = group_runs(runs)
    if len(rows) > 1:
        raise RunError(
            f"A card is about one model, and these runs differ in more: {', '.join(row.label for row in rows)}. Give "
            "runs that differ in the seed alone. `sitar compare` puts settings side by side."
        )
    run, data = runs[0], data_name(runs[0])
    title = name or f"{data}, {run.result.get('method', 'unknown method')}"
    page = _template().render(
        title=title,
        run=run,
        data=data,
        repository=None if repository is None else Markdown(repository),
        licence=licence,
        data_licence=run.result.get("licence"),
        method=run.result.get("method"),
        commit=shareable(run.environment.get("commit")),
        shape=_shape(run),
        splits=_splits(run),
        main=main_split(run),
        metrics=HEADLINE,
        groups={split: rows for split in _tests(run) if (rows := group_rows(run, split))},
        limits=limits(run, len(runs)),
        selection=selection_in_words(run),
        seeds=seed_rows(runs),
        audit=find_audit(run),
        settings=_settings(run),
        preset=_preset(run),
        versions=dict.fromkeys(("sitar", "torch")) | shareable(run.environment.get("versions") or {}),
        only_exported=only_exported,
        exported=[file.name for file in run.folder.exports()],
        class_counts=_class_counts(run),
    )
    return front_matter(run, title, data, _tests(run), licence) + "\n" + page


def data_name(run: Run) -> str:
    """Return what the data is called: the data set, and the name of the folder or file where it is the user's own."""
    settings, dataset = flat(run.config), run.result["dataset"]
    places = [last_name(str(settings[key])) for key in PLACES if key.startswith("data.") and settings.get(key)]
    names = [PurePosixPath(place).stem for place in places]
    return ": ".join([dataset, *[name for name in names[:1] if name.lower() not in ("", dataset.lower())]])


def main_split(run: Run) -> str:
    """Return the split that the model is judged by."""
    split = deciding_split(run.result["splits"])
    if split is None:
        raise RunError(
            f"The run in {str(run.folder.path)!r} has no figures but of the samples it was trained on, so there is no "
            "card of it. Keep some samples for `val`."
        )
    return split


def group_rows(run: Run, split: str) -> list[list[str]]:
    """Return name, size, accuracy and Wilson's interval of every group of a split, the worst first."""
    groups = run.result["splits"][split].get("groups") or {}
    known = sorted(groups.items(), key=lambda item: 2.0 if item[1]["accuracy"] is None else item[1]["accuracy"])
    rows = []
    for group, cell in known:
        accuracy, n = cell["accuracy"], cell["n"]
        interval = None if accuracy is None or not n else wilson(accuracy, n)
        rows.append([_group(run, group), f"{n:,}", percent(accuracy), percent_range(interval)])
    return rows


def limits(run: Run, seeds: int) -> list[str]:
    """Say what the numbers do not tell, and where the model fails. Each sentence follows from the record."""
    split = main_split(run)
    figures, said = run.result["splits"][split], []
    groups = figures.get("groups") or {}
    if split == VAL:
        said.append(f"There is no test split: all figures are of {VAL}, which may also have chosen the epoch.")
    if not groups:
        said.append("No groups are known for this data, so it is not known whether some inputs do worse than others.")
    if empty := [_group(run, group) for group, cell in groups.items() if not cell["n"]]:
        said.append(
            f"No sample of {split} is of {' or '.join(empty)}: nothing is known of the model there, and its worst "
            "group may be one of them."
        )
    if few := [_group(run, group) for group, cell in groups.items() if 0 < cell["n"] < FEW]:
        said.append(
            f"Fewer than {FEW} samples of {split} are of {' or of '.join(few)}: the accuracy there is hardly known."
        )
    worst, level = figures.get("worst_group"), chance("worst_group", len(run.classes))
    if worst is not None and level is not None and worst <= level:
        said.append(
            f"In its worst group on {split} the model is right in {percent(worst)} % of cases, no more than a guess "
            f"({percent(level)} %). Do not use it where such inputs occur."
        )
    if absent := [name for name, n in zip(run.classes, _counts(run), strict=False) if n == 0]:
        said.append(f"No training sample is of the class {listed(absent)}: the model cannot know it.")
    if (error := figures.get("calibration_error")) is not None:
        said.append(
            f"Its probabilities are off by {percent(error)} points on average on {split} (expected calibration error)."
        )
    said += [kind.on_card(shareable(kind.of(run.result))) for kind in kinds_of(run.result)]
    if (expected := (run.result.get("refit") or {}).get("expected")) is not None:
        said.append(
            "Where the images of these answers come from, its accuracy is expected to be "
            f"{percent(expected['accuracy'])} % ({percent_range(expected['interval'])})."
        )
    if seeds == 1:
        said.append("One seed was trained. How much another seed would differ is not known.")
    return said


def selection_in_words(run: Run) -> str:
    """Say which epoch was kept, and by what."""
    rule, epoch = run.result["selection"], run.result.get("selected_epoch")
    which = "" if epoch is None else f" It was epoch {epoch}."
    if rule == "last":
        return f"The last epoch was kept; no split chose it.{which}"
    return f"The epoch was chosen by the rule {rule}, on data that was not trained on.{which}"


def seed_rows(runs: Sequence[Run]) -> list[list[str]]:
    """Return the figures of every seed on the split that decides. There are none for one run."""
    if len(runs) == 1:
        return []
    split = main_split(runs[0])
    return [
        [str(run.seed), *(percent(run.result["splits"].get(split, {}).get(metric)) for metric in HEADLINE)]
        for run in runs
    ]


def find_audit(run: Run) -> dict[str, Any] | None:
    """Return the verdicts of the audit in the run, or of an audit of the same data that lies beside it.

    Beside are the folders in the same folder and, below runs/DATASET/METHOD, those of other methods. A first look has
    no run, and says itself of which data it is.
    """
    own = _verdicts(run.audit)
    if own is not None or run.data_checksum is None:
        return own
    home = run.folder.path.resolve().parent
    beside = [*home.glob("*/artifacts/audit")]
    if home.as_posix().endswith(f"/{_preset(run)}"):
        beside += home.parent.glob("*/*/artifacts/audit")
    for path in sorted(beside):
        folder = RunFolder(path.parents[1])
        try:
            audit, environment = folder.audit(), folder.environment() or {}
        except RunError:
            continue
        of = audit.get("data_checksum") or environment.get("data_checksum")
        if of == run.data_checksum and (found := _verdicts(audit)):
            return found
    return None


def _verdicts(audit: dict[str, Any] | None) -> dict[str, Any] | None:
    try:
        assert audit is not None
        look = audit["first_look"]
        return {
            "first": None if look is None else str(look["verdict"]["words"]),
            "words": str(audit["verdict"]["words"]),
            "notes": [str(note) for note in audit["notes"]],
        }
    except (AssertionError, KeyError, TypeError):  # there was none, or it is damaged
        return None


def _group(run: Run, group: str) -> str:
    return named_group(group, run.classes, run.result.get("attributes") or {})


def _tests(run: Run) -> list[str]:
    """Return the test splits, the one that decides first; val where there is none."""
    known = [split for split in reversed(TEST_SPLITS) if split in run.result["splits"]]
    return sorted(known, key=lambda split: split != main_split(run)) or [main_split(run)]


def _splits(run: Run) -> list[list[str]]:
    """Return size, and average and worst group with their intervals, of every split but the one trained on."""
    rows = []
    for split in (split for split in EVALUATION_SPLITS if split in run.result["splits"]):
        figures = run.result["splits"][split]
        cells = [
            cell
            for metric in HEADLINE
            for cell in (
                percent(figures.get(metric)),
                percent_range(None if figures.get(metric) is None else interval_of(figures, metric)),
            )
        ]
        rows.append([split, f"{figures['n']:,}", *cells])
    return rows


def _counts(run: Run) -> list[int]:
    return (run.result.get("task") or {}).get("class_counts") or []


def _class_counts(run: Run) -> list[list[str]]:
    return [[name, f"{n:,}"] for name, n in zip(run.classes, _counts(run), strict=False)]


def _shape(run: Run) -> str | None:
    """Say in words what one input is."""
    shape, data = (run.result.get("task") or {}).get("shape"), run.config.get("data") or {}
    if not shape:
        return None
    if len(shape) == 1:
        return f"{counted(shape[0], 'feature')} as float32"
    how = _resized(data["crop_pct"]) if "crop_pct" in data else ""  # images of files
    return f"images of {shape[1]} x {shape[2]} pixels and {counted(shape[0], 'channel')} as uint8{how}"


def _resized(crop_pct: float | None) -> str:
    if crop_pct is None:
        return ", stretched to this size"
    return f", cut from the middle after the shorter side was scaled (crop_pct {crop_pct:g})"


def _preset(run: Run) -> str:
    return shareable(preset_name(str(run.config.get("preset") or run.result.get("preset") or "custom")))


def _settings(run: Run) -> list[list[str]]:
    kept = shareable(without_places(run.config))
    return [
        [key, "none" if value is None else str(value)]
        for key, value in kept.items()
        if key.partition(".")[0] in SECTIONS
    ]


@functools.cache
def _template() -> Any:
    environment = Environment(
        loader=PackageLoader("sitar.reporting.card", "."),
        undefined=StrictUndefined,
        finalize=escaped,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"markdown": Markdown, "escaped": escaped}
    return environment.get_template("card.md")
