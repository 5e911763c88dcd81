"""Read YAML that a stranger may have written: no objects, no merges, and no more values than a person would write.

A few lines of YAML can name each other and so stand for billions of values. PyYAML shares what is named, and whoever
walks through it does not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import yaml

MOST_CHARACTERS = 1_000_000
MOST_VALUES = 100_000
DEEPEST = 50
LONGEST_NUMBER = 1_000  # in characters


class _Loader(yaml.SafeLoader):
    nodes = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """Count values while they are read: a key that is repeated a million times is only one in the end."""
        self.nodes += 1
        _check_number(self.nodes)
        return super().compose_node(parent, index)

    def fetch_flow_collection_start(self, TokenClass: Any) -> None:
        """Refuse what is nested too deep at once: PyYAML takes a second for a few thousand levels."""
        _check_depth(self.flow_level)
        super().fetch_flow_collection_start(TokenClass)

    def add_indent(self, column: int) -> bool:
        _check_depth(len(self.indents))
        return super().add_indent(column)

    def construct_scalar(self, node: yaml.ScalarNode | yaml.MappingNode) -> Any:
        """Refuse a number of thousands of digits: `1:1:1` is one to the base of 60, and takes long to read."""
        is_number = node.tag in ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")
        if is_number and isinstance(node, yaml.ScalarNode) and len(node.value) > LONGEST_NUMBER:
            raise yaml.constructor.ConstructorError(
                None, None, f"a number has {len(node.value):,} digits, and at most {LONGEST_NUMBER:,} are read",
                node.start_mark,
            )  # fmt: skip
        return super().construct_scalar(node)

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """Refuse `<<: *name`, which copies what it names, and copies of copies grow without a bound."""
        for key, _ in node.value:
            if key.tag == "tag:yaml.org,2002:merge":
                raise yaml.constructor.ConstructorError(
                    None, None, "`<<` is not read: write the values", key.start_mark
                )


def read_yaml(text: str) -> Any:
    """Return what a text of YAML holds. A text that cannot be read raises a ValueError that says why."""
    value = _read(text, _Loader.get_single_data)
    _check(value)
    return value


def yaml_nodes(text: str) -> yaml.Node | None:
    """Return the same text as nodes, which know the lines that they stand on."""
    return _read(text, _Loader.get_single_node)


def _read(text: str, get: Callable[[_Loader], Any]) -> Any:
    if len(text) > MOST_CHARACTERS:
        raise ValueError(f"it has {len(text):,} characters, and at most {MOST_CHARACTERS:,} are read")
    try:
        return get(_Loader(text))
    except yaml.MarkedYAMLError as error:  # whose own words quote the text, which may be that of another file
        place = "" if error.problem_mark is None else f" in line {error.problem_mark.line + 1}"
        raise ValueError(f"{error.problem or error.context or 'it is no YAML'}{place}") from error
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error
    except ValueError:
        raise
    except Exception as error:  # PyYAML raises IndexError, KeyError and others for a value that does not fit its tag
        raise ValueError(f"a value in it cannot be read ({type(error).__name__}: {error})") from error


def _check_depth(levels: int) -> None:
    if levels > DEEPEST:
        raise ValueError(f"it is nested more than {DEEPEST} deep")


def _check_number(values: int) -> None:
    if values > MOST_VALUES:
        raise ValueError(f"it stands for more than {MOST_VALUES:,} values")


def _check(value: Any) -> None:
    """Refuse values that are too many, or too deep, once what is named is written out."""
    level, seen = [value], 0
    for _ in range(DEEPEST):
        inner: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                inner += [*item.keys(), *item.values()]
            elif isinstance(item, (list, tuple, set)):
                inner += item
            _check_number(len(inner) + seen)
        if not inner:
            return
        level, seen = inner, seen + len(inner)
    raise ValueError(f"it is nested more than {DEEPEST} deep")
