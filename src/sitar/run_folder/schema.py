"""Say which types readers of result.json and config.yaml rely on, and refuse a file that has others."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, NotRequired

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from sitar.errors import RunError

RESULT_VERSION = 1


class GroupResult(TypedDict):
    """This is the size and the accuracy of a group. An empty group has no accuracy."""

    n: int
    accuracy: float | None


class SplitResult(TypedDict):
    """These are the metrics of a split: fractions, or None where one does not exist. More of them may follow."""

    __pydantic_config__ = ConfigDict(extra="allow")  # type: ignore[reportGeneralTypeIssues]

    n: int
    average: float | None
    worst_group: NotRequired[float | None]
    groups: NotRequired[dict[str, GroupResult]]
    intervals: NotRequired[dict[str, Annotated[list[float], Field(min_length=2, max_length=2)] | None]]


class TaskResult(TypedDict):
    """This is what a model must know of its training data to be built again without it."""

    shape: list[int]
    class_counts: list[int]
    group_counts: NotRequired[list[int]]
    environments: NotRequired[int]


class Result(TypedDict):
    """This is result.json. Runs of early releases lack what is not required."""

    __pydantic_config__ = ConfigDict(extra="allow")  # type: ignore[reportGeneralTypeIssues]

    version: int
    dataset: str
    method: NotRequired[str]
    needs_groups: NotRequired[bool]
    licence: NotRequired[str]  # of the data
    unlabelled: NotRequired[int]  # inputs that the method was given besides the training data
    heads: NotRequired[dict[str, Any]]  # of a method that has several: the figures of each
    nuisances: NotRequired[list[str]]  # names of what the run was told to ignore
    gate: NotRequired[dict[str, Any]]
    auto: NotRequired[dict[str, Any]]  # which candidate was chosen, and why
    answers: NotRequired[int]  # to which the last layer was fitted again, besides the training data
    refit: NotRequired[dict[str, Any]]
    preset: NotRequired[str]
    seed: int
    selection: str
    selected_epoch: NotRequired[int | None]
    seconds: float
    classes: NotRequired[list[str]]
    attributes: NotRequired[dict[str, list[str]]]
    task: NotRequired[TaskResult]
    splits: dict[str, SplitResult]


class Settings(TypedDict, total=False):
    """This is what readers of config.yaml rely on. Whether the rest of it is sound is for `run_config` to say."""

    __pydantic_config__ = ConfigDict(extra="allow")  # type: ignore[reportGeneralTypeIssues]

    preset: str | None
    seed: int
    data: dict[str, Any]
    model: dict[str, Any]
    method: dict[str, Any]
    train: dict[str, Any]


RESULT, SETTINGS = TypeAdapter(Result), TypeAdapter(Settings)


def check(schema: TypeAdapter[Any], content: dict[str, Any], file: Path) -> None:
    """Refuse what a file holds if it does not have the types that readers rely on."""
    try:
        schema.validate_python(content, strict=True)
    except ValidationError as error:
        problem = error.errors()[0]
        where = ".".join(map(str, problem["loc"]))
        raise RunError(f"{str(file)!r} is damaged: {where} is not as it should be ({problem['msg']}).") from error
