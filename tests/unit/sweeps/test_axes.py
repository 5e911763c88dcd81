"""What --over and --seeds say, and what they refuse."""

from __future__ import annotations

import pytest

from sitar.errors import ConfigError
from sitar.sweeps.axes import Range, Values, parse_over, parse_seeds


def test_values_are_read_as_settings_are() -> None:
    given = [
        "method.alpha=0.1,0.5,1",
        "method.noise=axis, direction",
        "train.evaluate=[val],[val,test]",
        "a.b=null,true",
    ]
    assert parse_over(given) == [
        Values("method.alpha", (0.1, 0.5, 1)),
        Values("method.noise", ("axis", "direction")),
        Values("train.evaluate", (["val"], ["val", "test"])),
        Values("a.b", (None, True)),
    ]


def test_a_mapping_says_the_same() -> None:
    assert parse_over({"method.alpha": [0.1, 1], "method.beta": "1..4:log"}) == [
        Values("method.alpha", (0.1, 1)),
        Range("method.beta", 1, 4, log=True),
    ]


def test_ranges() -> None:
    assert parse_over(["m.a=0.01..10:log", "m.b=2..8", "m.c=-1e-3..0.5"]) == [
        Range("m.a", 0.01, 10, log=True),
        Range("m.b", 2, 8),
        Range("m.c", -0.001, 0.5),
    ]


@pytest.mark.parametrize(
    ("over", "says"),
    [
        ("method.alpha", "not of the form"),
        ("method.alpha=", "not of the form"),
        ("=1,2", "not of the form"),
        ("method.alpha=[1", "not valid YAML"),
        ("method.alpha=,", "not valid YAML"),
        ("seed=0,1", "--seeds 0-4"),
        ("method.alpha=a..b", "ends of a range are numbers"),
        ("method.alpha=2..1", "to a greater one"),
        ("method.alpha=1..inf", "to a greater one"),
        ("method.alpha=nan..1", "to a greater one"),
        ("method.alpha=0..1:log", "begins above 0"),
    ],
)
def test_what_is_no_axis_is_refused(over: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        parse_over([over])


def test_a_setting_is_varied_once() -> None:
    with pytest.raises(ConfigError, match="given twice"):
        parse_over(["method.alpha=1", "method.alpha=2"])


def test_an_empty_list_is_refused() -> None:
    with pytest.raises(ConfigError, match="has no value"):
        parse_over({"method.alpha": []})


@pytest.mark.parametrize(
    ("given", "seeds"),
    [
        ("0-4", (0, 1, 2, 3, 4)),
        ("3", (3,)),
        ("5,0-1,1", (0, 1, 5)),
        (7, (7,)),
        (range(3), (0, 1, 2)),
        ([2, 2, 1], (1, 2)),
    ],
)
def test_seeds(given: object, seeds: tuple[int, ...]) -> None:
    assert parse_seeds(given) == seeds  # type: ignore[arg-type]


@pytest.mark.parametrize("given", ["", "4-0", "a", "1,", "0-99999999", "-1", [], [-1], [0.5]])
def test_what_are_no_seeds_is_refused(given: object) -> None:
    with pytest.raises(ConfigError, match="seeds"):
        parse_seeds(given)  # type: ignore[arg-type]


@pytest.mark.parametrize("over", ["method.alpha=-inf..1", "method.alpha=!!int ''", "method.alpha=" + "[" * 3000])
def test_values_that_are_none_are_refused_with_a_reason(over: str) -> None:
    with pytest.raises(ConfigError, match=r"--over method\.alpha"):
        parse_over([over])


def test_a_seed_of_thousands_of_digits_is_refused() -> None:
    with pytest.raises(ConfigError, match="--seeds"):
        parse_seeds("1" * 5000)
