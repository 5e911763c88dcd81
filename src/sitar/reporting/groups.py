"""Say in words what the groups of a split are, and of which of them its numbers tell nothing, or little."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any

from sitar.splits import deciding_split

MOST_NAMED = 5
FEW = 10  # samples of a group below which its accuracy is hardly known
LONGEST_NUMBER = 9  # digits of a number in the name of a group
NO_GROUPS = "A dash for a worst group: no groups are known."


def named_group(group: str, classes: Sequence[str], attributes: Mapping[str, Sequence[str]]) -> str:
    """Write `label=1,place=0` with the names of class and value, as far as they are known."""
    label, _, rest = group.partition(",")
    name = _name_at(label.removeprefix("label="), classes) or label
    attribute, _, place = rest.rpartition("=")
    value = _name_at(place, attributes.get(attribute, ())) or place
    described = value if attribute in value else f"{attribute} {value}"  # such as not Male
    return f"{name}, {described}" if rest else name


def _name_at(place: str, names: Sequence[str]) -> str | None:
    known = place.isdecimal() and len(place) <= LONGEST_NUMBER and int(place) < len(names)
    return names[int(place)] if known else None


def has_empty_group(figures: Mapping[str, Any]) -> bool:
    """Return whether a group of a split has no sample. The worst group may be that one."""
    return any(cell["n"] == 0 for cell in (figures.get("groups") or {}).values())


def empty_groups(
    split: str, figures: Mapping[str, Any], classes: Sequence[str], attributes: Mapping[str, Sequence[str]]
) -> list[str]:
    """Say which groups have no sample, because then no number of the split tells what a model does on them."""
    empty = [group for group, cell in (figures.get("groups") or {}).items() if cell["n"] == 0]
    if not empty:
        return []
    unknown = "So its numbers do not tell whether a model follows the shortcut."
    return [f"No sample of {split} is of {_named(empty, classes, attributes)}. {unknown}"]


def small_groups(
    split: str, figures: Mapping[str, Any], classes: Sequence[str], attributes: Mapping[str, Sequence[str]]
) -> list[str]:
    """Say which groups have few samples."""
    small = [group for group, cell in (figures.get("groups") or {}).items() if 0 < cell["n"] < FEW]
    if not small:
        return []
    named = _named(small, classes, attributes)
    return [f"Fewer than {FEW} samples of {split} are of {named}: the accuracy there is hardly known."]


def _named(groups: Sequence[str], classes: Sequence[str], attributes: Mapping[str, Sequence[str]]) -> str:
    names = [named_group(group, classes, attributes) for group in groups[:MOST_NAMED]]
    more = f" and {len(groups) - MOST_NAMED} more" if len(groups) > MOST_NAMED else ""
    return f"{' or of '.join(names)}{more}"


def notes_on_groups(results: Iterable[Mapping[str, Any]], shown: Container[str]) -> list[str]:
    """Say below a table of these splits what a reader of its worst groups must know, on the split that decides."""
    notes: list[str] = []
    for result in results:
        splits = {split: figures for split, figures in result["splits"].items() if split in shown}
        if (split := deciding_split(splits)) is not None:
            about = split, splits[split], result.get("classes") or (), result.get("attributes") or {}
            notes += empty_groups(*about) + small_groups(*about)
    return list(dict.fromkeys(notes))
