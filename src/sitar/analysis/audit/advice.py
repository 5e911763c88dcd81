"""Say what we know of SITAR on data with such a first look: on how many generated settings it helped, and cost.

No rule that reads labels alone has predicted the sign of its gain in worst group better than chance
(docs/results/map.md). So this is a count, and not a prediction.
"""

from __future__ import annotations

from typing import NamedTuple


class Counts(NamedTuple):
    """Counts settings of the map (reproduce/map.py) by what the noise did to the worst group."""

    helps: int
    nothing: int
    costs: int


OVER_CONTROL = {"tells": Counts(8, 29, 12), "nothing": Counts(1, 6, 8)}
OVER_ERM = {"tells": Counts(12, 19, 18), "nothing": Counts(3, 6, 6)}
"""By the kind of the first look's verdict, for SITAR with the noise of the paper."""

QUESTION = "Would the noise of SITAR help here?"
EXCHANGED = (
    f"{QUESTION} This data cannot say. Its samples would be the same if label and cue exchanged their roles, and what "
    "a method gains in the one role it loses in the other (docs/results/exchange.md). Samples that contradict the cue "
    "decide."
)
NEXT = {
    "tells": "Train ERM, the control and SITAR, and compare them on samples that contradict the cue",
    "nothing": "Without a cue to ignore there is little to gain",
}


def advice(kind: str) -> str | None:
    """Return advice in words for the kind of verdict of a first look. None: there was too little to look at."""
    if kind == "cannot tell":
        return EXCHANGED
    if kind not in OVER_CONTROL:
        return None
    control, erm = OVER_CONTROL[kind], OVER_ERM[kind]
    return (
        f"{QUESTION} Labels alone do not say: no rule that we tried has told it. On {sum(control)} sets of generated "
        f"features whose first look ended like this one, SITAR helped the worst group on {control.helps}, did nothing "
        f"on {control.nothing} and cost on {control.costs}, compared with its control; compared with ERM {erm.helps}, "
        f"{erm.nothing} and {erm.costs}. {NEXT[kind]} (docs/results/map.md)."
    )
