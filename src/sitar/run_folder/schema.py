"""Say which types readers of result.json and config.yaml rely on, and refuse a file that has others."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, NotRequired

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from sitar.errors import RunError
from sitar.splits import EVALUATION_SPLITS, TRAIN

RESULT_VERSION = 1
MOST_CLASSES = 50_000  # bounds that no run of ours comes near: they keep a stranger's file from costing minutes
MOST_GROUPS = 50_000  # of one split
MOST_COLUMNS = 2**20
MOST_SPLITS = 100
DEEPEST = 50  # values in one another
MOST_VALUES = 2**30  # numbers of one input
MOST_GROUPED = 10**8  # training samples that have groups: a model is built with a number for each


def _at_most(most: int) -> BeforeValidator:
    """Refuse more items before each of them is looked at."""

    def few(items: Any) -> Any:
        if _is_nested(items) and len(items) > most:
            raise ValueError(f"it has {len(items):,} items, and at most {most:,} are read")
        return items

    return BeforeValidator(few)


def _that(holds: Callable[[Any], bool], else_: str) -> AfterValidator:
    """Refuse a value of the right type for which something does not hold."""

    def checked(value: Any) -> Any:
        if not holds(value):
            raise ValueError(else_)
        return value

    return AfterValidator(checked)


Count = Annotated[int, Field(ge=0, lt=2**53)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1)]
Interval = Annotated[list[Finite], Field(min_length=2, max_length=2)]
Shape = Annotated[
    list[Annotated[int, Field(ge=1)]],
    Field(min_length=1, max_length=3),
    _that(lambda shape: len(shape) != 2, "it has 1 side, of features, or 3, of images"),
    _that(lambda shape: math.prod(shape) <= MOST_VALUES, f"an input has at most {MOST_VALUES:,} values"),
]
Names = Annotated[list[str], _at_most(MOST_CLASSES)]


class GroupResult(TypedDict):
    """This is the size and the accuracy of a group. An empty group has no accuracy."""

    n: Count
    accuracy: Share | None


class SplitResult(TypedDict):
    """These are the metrics of a split, or None where one does not exist. More of them may follow."""

    __pydantic_config__ = ConfigDict(extra="allow")  # type: ignore[reportGeneralTypeIssues]

    n: Count
    average: Share | None
    worst_group: NotRequired[Share | None]
    groups: NotRequired[Annotated[dict[str, GroupResult], _at_most(MOST_GROUPS)]]
    intervals: NotRequired[dict[str, Interval | None]]


def _has_figures(split: SplitResult) -> bool:
    """Return whether all metrics are numbers or None: those of which this page does not know the names, too."""
    figures = [value for name, value in split.items() if name not in ("groups", "intervals") and value is not None]
    return all(type(value) in (int, float) and abs(value) < 2**53 for value in figures)  # type: ignore[operator]


class TaskResult(TypedDict):
    """This is what a model must know of its training data to be built again without it."""

    shape: Shape
    class_counts: Annotated[list[Count], _at_most(MOST_CLASSES), Field(min_length=1)]
    group_counts: NotRequired[
        Annotated[
            list[Count],
            _at_most(MOST_GROUPS),
            _that(lambda counts: 0 < sum(counts) <= MOST_GROUPED, f"it counts 1 to {MOST_GROUPED:,} samples"),
        ]
    ]
    environments: NotRequired[Annotated[int, Field(ge=1, lt=2**53)]]
    feature_columns: NotRequired[  # of the table that features were read from, in the order of an input
        Annotated[
            list[str],
            _at_most(MOST_COLUMNS),
            Field(min_length=1),
            _that(lambda names: len({*names}) == len(names), "a name is there twice"),
        ]
    ]


class ExpectedAccuracy(TypedDict):
    """This is the accuracy that answers let expect where a model will be used."""

    accuracy: Finite
    interval: Interval


class CandidateAccuracy(ExpectedAccuracy):
    """This is the expected accuracy of a run that a last layer was chosen from."""

    run: str


class RefitResult(TypedDict):
    """This is how a last layer was fitted again."""

    __pydantic_config__ = ConfigDict(extra="allow")  # type: ignore[reportGeneralTypeIssues]

    run: str
    features: str
    penalty: Finite
    weighted: bool
    expected: ExpectedAccuracy
    before: Annotated[list[CandidateAccuracy], Field(min_length=1)]
    answered: NotRequired[list[str]]  # checksums of the inputs, as the run stores them, that had an answer


class Result(TypedDict):
    """This is result.json. Runs of early releases lack what is not required."""

    __pydantic_config__ = ConfigDict(extra="allow")  # type: ignore[reportGeneralTypeIssues]

    version: int
    dataset: str
    method: NotRequired[str]
    needs_groups: NotRequired[bool]
    licence: NotRequired[str]  # of the data
    unlabelled: NotRequired[Count]  # inputs that the method was given besides the training data
    heads: NotRequired[dict[str, Any]]  # of a method that has several: the figures of each
    nuisances: NotRequired[Names]  # names of what the run was told to ignore
    gate: NotRequired[dict[str, Any]]
    auto: NotRequired[dict[str, Any]]  # which candidate was chosen, and why
    answers: NotRequired[Count]  # to which the last layer was fitted again, besides the training data
    refit: NotRequired[RefitResult]
    preset: NotRequired[str]
    seed: int
    selection: str
    precision: NotRequired[str]
    selected_epoch: NotRequired[int | None]
    seconds: Finite
    classes: NotRequired[Annotated[Names, _that(lambda names: len({*names}) == len(names), "a name is there twice")]]
    attributes: NotRequired[dict[str, Names]]
    task: NotRequired[
        Annotated[
            TaskResult,
            _that(lambda task: "group_counts" not in task or "environments" in task, "it has groups, no environments"),
        ]
    ]
    splits: Annotated[
        dict[str, Annotated[SplitResult, _that(_has_figures, "a metric of it is no number")]],
        _at_most(MOST_SPLITS),
        _that(lambda splits: not splits.keys().isdisjoint((TRAIN, *EVALUATION_SPLITS)), "no split is one of ours"),
    ]


def _fits_together(result: Result) -> Result:
    """Refuse a result that counts other classes than it names, or that could not be written again as JSON."""
    counted = result["task"]["class_counts"] if "task" in result else []
    if counted and "classes" in result and len(counted) != len(result["classes"]):
        raise ValueError(f"it names {len(result['classes']):,} classes and counts {len(counted):,}")
    level: list[Any] = [result]
    for _ in range(DEEPEST):
        if any(isinstance(value, float) and not math.isfinite(value) for value in level):
            raise ValueError("a number is NaN or infinite")
        nested = (value.values() if isinstance(value, dict) else value for value in level if _is_nested(value))
        level = list(chain.from_iterable(nested))
        if not level:
            return result
    raise ValueError(f"values lie in one another, {DEEPEST} deep and more")


def _is_nested(value: Any) -> bool:
    return isinstance(value, dict | list)


class DataSettings(TypedDict, total=False):
    """This is what readers rely on of the settings of the data."""

    __pydantic_config__ = ConfigDict(extra="allow")  # type: ignore[reportGeneralTypeIssues]

    crop_pct: Finite | None


class Settings(TypedDict, total=False):
    """This is what readers of config.yaml rely on. Whether the rest of it is sound is for `run_config` to say."""

    __pydantic_config__ = ConfigDict(extra="allow")  # type: ignore[reportGeneralTypeIssues]

    preset: str | None
    seed: int
    data: DataSettings
    model: dict[str, Any]
    method: dict[str, Any]
    train: dict[str, Any]


RESULT = TypeAdapter(Annotated[Result, AfterValidator(_fits_together)])
SETTINGS = TypeAdapter(Settings)


def check(schema: TypeAdapter[Any], content: dict[str, Any], file: Path) -> None:
    """Refuse what a file holds if it does not have the types that readers rely on."""
    try:
        schema.validate_python(content, strict=True)
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False, include_context=False)[0]
        where = ".".join(map(str, problem["loc"])) or "what it holds"
        why = problem["msg"].removeprefix("Value error, ")
        raise RunError(f"{str(file)!r} is damaged: {where} is not as it should be ({why}).") from error
