"""Say in words what the answers mean so far."""

from __future__ import annotations

from sitar.wording import counted


def nothing_to_choose(candidates: int, accuracy: str | None) -> str:
    """Say why no answer can choose. `accuracy` is that of the candidates, or None if the answers are too few."""
    if candidates < 2:
        about = "One candidate leaves nothing to choose: questions are random, and estimate its accuracy."
        return about if accuracy is None else f"{about} It is {accuracy}."
    about = "All candidates agree on every image, so there is nothing to choose: questions are random."
    return about if accuracy is None else f"{about} The accuracy of all of them is {accuracy}."


def too_few(answers: int, fewest: int, disagreement: float) -> str:
    """Say how many answers are needed before anything is said."""
    share = f"The candidates disagree on {percent(disagreement)} of the images."
    return f"{counted(answers, 'answer')} of at least {fewest}. {share}"


def of_one_class(leader: str) -> str:
    """Say that the answers know one class only."""
    return f"{leader} is ahead, but all answers so far are one class: an answer of another class is needed."


def ahead(leader: str, best: float, more: int | None, left: int, farthest: int) -> str:
    """Say who is ahead, how probable it is that this candidate is best, and what would settle it."""
    sure = f"{leader} is ahead, {floored(best)}"
    if more is not None:
        return f"{sure}; {counted(more, 'more answer')} would settle it."
    if left > farthest:
        return f"{sure}. {farthest} more answers would hardly settle it: the best two are about equal."
    if left > 0:
        return f"{sure}. Answers about all images would hardly settle it: the best two are about equal."
    return f"{sure}, and no image is left that could settle it: the best two are about equal."


def settled(leader: str, best: float, accuracy: str) -> str:
    """Say that the questions may stop."""
    return f"{leader} is ahead, {floored(best)}: this is settled, and you can stop. Its accuracy is {accuracy}."


def either_will_do(leader: str, close: float) -> str:
    """Say that the best two are so close that the questions may stop."""
    return f"{leader} is ahead by less than {percent(close)}: either will do, and you can stop."


def with_interval(value: float, interval: tuple[float, float]) -> str:
    """Write a share with its interval."""
    return f"{percent(value)} ({percent(interval[0])} to {percent(interval[1])})"


def percent(value: float) -> str:
    """Write a share in whole percent."""
    return f"{100 * value:.0f} %"


def floored(value: float) -> str:
    """Write a probability in whole percent. It is never 100: a person may be wrong."""
    return "over 99 %" if value > 0.99 else f"{int(100 * value)} %"
