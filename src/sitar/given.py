"""A run may be given more than inputs and labels. This list says what, and how tables and sentences mark such a run.

It reads `result.json` alone, without torch. A new kind is one more entry of `KINDS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Kind:
    """This is one kind of more: the key in result.json that says it, and what a reader is told."""

    key: str
    mark: Callable[[Any], str]  # of the value, behind the name of a row
    note: str  # below a table
    apart: str  # before the figures of such rows, in a summary
    on_card: Callable[[Any], str]  # of the value, in the card of a model
    nothing: Any  # the value of a run that was not given it

    def of(self, result: Mapping[str, Any]) -> Any:
        """Return what a run was given of this kind."""
        return result.get(self.key) or self.nothing


GROUPS = Kind(
    "needs_groups",
    lambda _: "†",
    "† was given group labels of the training samples: an upper bound.",
    "Given group labels of the training samples, an upper bound and not a rival",
    lambda _: "It was trained with group labels of the training samples. Methods without them are no rivals of it.",
    False,
)
ANSWERS = Kind(
    "answers",
    lambda answers: f"+{answers} answers",
    "+N answers: its last layer was fitted again, to N answers about images from where it will be used, and to such "
    "images without an answer.",
    "Given answers about images from where the model will be used, which the others were not",
    lambda answers: f"Its last layer was fitted to {answers} answers about images from where it will be used.",
    0,
)
UNLABELLED = Kind(
    "unlabelled",
    lambda _: "§",
    "§ was given unlabelled inputs too, from where the model will be used.",
    "Given unlabelled inputs from where the model will be used, which the others were not",
    lambda count: f"It also learned from {count:,} unlabelled inputs, from where it was meant to be used.",
    0,
)
NUISANCES = Kind(
    "nuisances",
    lambda _: "¶",
    "¶ was told what to ignore (method.nuisances).",
    "Told what to ignore, which the others were not",
    lambda names: f"It was told to ignore {', '.join(names)}. It may still use what goes with them.",
    [],
)
KINDS = (GROUPS, ANSWERS, UNLABELLED, NUISANCES)
KEYS = tuple(kind.key for kind in KINDS)


def kinds_of(result: Mapping[str, Any]) -> list[Kind]:
    """Return what a run was given besides inputs and labels. Most runs were given nothing."""
    return [kind for kind in KINDS if kind.of(result)]


def given_to(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return, for every kind, what a run was given of it, as plain values."""
    return {kind.key: kind.of(result) for kind in KINDS}


def marked(label: str, result: Mapping[str, Any]) -> str:
    """Return a label with the marks of what a run was given. A label that says it already has no second mark."""
    marks = [kind.mark(kind.of(result)) for kind in kinds_of(result)]
    return " ".join([label, *(mark for mark in marks if mark not in label)])


def notes(results: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the notes that explain the marks of these runs."""
    return [kind.note for kind in KINDS if any(kind.of(result) for result in results)]
