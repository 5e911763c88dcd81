"""Classes by name: ours, and those of other packages, of which one that fails must not spoil the rest."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Literal

import pytest

from helpers.packages import install
from sitar.config import NamedConfig
from sitar.errors import ConfigError
from sitar.methods.base import Method
from sitar.plugins import import_file
from sitar.registry import DATASETS, METHODS, Registry

GROUP = "sitar.toys"
CLASS = "class Class:\n    class Config: ...\n"
Install = Callable[..., None]


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """A function that installs a package with entry points of the group, for one test."""
    site, before = tmp_path / "site", set(sys.modules)
    monkeypatch.syspath_prepend(str(site))

    def of(package: str, entries: dict[str, str], modules: dict[str, str]) -> None:
        install(site, package, {GROUP: entries}, modules)

    yield of
    for name in set(sys.modules) - before:
        if name.startswith(("toy_", "box_", "imported_")):
            del sys.modules[name]


def registry() -> Registry:
    """A registry that holds `ours`."""
    toys = Registry("toy", home="sitar.errors", group=GROUP)
    toys.register("ours")(ConfigError)
    return toys


def test_a_plugin_is_listed_by_name_and_imported_when_it_is_asked_for(installed: Install) -> None:
    installed("toy-box", {"bear": "toy_box.bear:Class"}, {"toy_box/bear.py": CLASS})
    toys = registry()
    assert toys.names() == ["bear", "ours"]
    assert toys.get("ours") is ConfigError
    assert "toy_box.bear" not in sys.modules
    bear = toys.get("bear")
    assert bear is sys.modules["toy_box.bear"].Class
    assert toys.get("bear") is bear
    assert toys.available() == {"bear": bear, "ours": ConfigError}
    assert toys.added_by("bear") == "toy_box.bear:Class of the package 'toy-box' (1.0)"
    assert toys.added_by("ours") is None


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("import no_such_module\n", "ModuleNotFoundError: No module named 'no_such_module'."),
        ("raise RuntimeError('two\\nlines')\n", "RuntimeError: two lines."),
        ("import sys\nsys.exit(3)\n", "SystemExit: 3."),
        ("def f(:\n", "SyntaxError: invalid syntax"),
        ("", "AttributeError: module 'toy_box.bear' has no attribute 'Class'."),
    ],
)
def test_a_plugin_that_fails_is_named_and_the_rest_works(
    source: str, reason: str, installed: Install, caplog: pytest.LogCaptureFixture
) -> None:
    installed(
        "toy-box",
        {"bear": "toy_box.bear:Class", "doll": "toy_box.doll:Class"},
        {"toy_box/bear.py": source, "toy_box/doll.py": CLASS},
    )
    toys = registry()
    assert toys.names() == ["bear", "doll", "ours"]
    with pytest.raises(ConfigError) as caught:
        toys.get("bear")
    message = str(caught.value)
    assert message.startswith(f"toy_box.bear:Class of the package 'toy-box' (1.0) cannot be imported. {reason}")
    assert "\n" not in message
    assert list(toys.available()) == ["doll", "ours"]
    assert f"The toy 'bear' is left out. {message}" in caplog.text
    assert toys.get("ours") is ConfigError


@pytest.mark.parametrize(
    ("value", "source"),
    [("toy_box.bear", CLASS), ("toy_box.bear:Class", "class Class: ...\n"), ("toy_box.bear:f", "f = 1")],
)
def test_what_is_no_class_with_settings_is_refused(value: str, source: str, installed: Install) -> None:
    installed("toy-box", {"bear": value}, {"toy_box/bear.py": source})
    with pytest.raises(ConfigError, match=r"is no toy.*package\.module:Class.*`Config`"):
        registry().get("bear")


def test_a_taken_name_is_refused_with_both_owners(installed: Install, caplog: pytest.LogCaptureFixture) -> None:
    installed("box-a", {"ours": "box_a:Class", "bear": "box_a:Class"}, {"box_a.py": CLASS})
    installed("box-b", {"bear": "box_b:Class"}, {"box_b.py": CLASS})
    toys = registry()
    with caplog.at_level(logging.WARNING):
        assert toys.names() == toys.names() == ["bear", "ours"]
    a, b = (f"box_{name}:Class of the package 'box-{name}' (1.0)" for name in "ab")
    assert [record.getMessage() for record in caplog.records] == [
        f"{b} is refused: the toy 'bear' is that of {a}.",
        f"{a} is refused: the toy 'ours' is that of sitar.errors.ConfigError.",
    ]
    assert toys.get("ours") is ConfigError
    assert toys.get("bear").__module__ == "box_a"


def test_a_class_of_a_plugin_may_register_itself(installed: Install) -> None:
    toys = registry()
    installed(
        "toy-box",
        {"bear": "toy_box:Class"},
        {"toy_box/__init__.py": "from toy_box.bear import Class", "toy_box/bear.py": CLASS},
    )
    import toy_box  # type: ignore[import-not-found]

    toys.register("bear")(toy_box.Class)
    toys.register("bear")(toy_box.Class)
    assert toys.get("bear") is toy_box.Class
    assert toys.names() == ["bear", "ours"]


def test_a_file_cannot_take_the_name_of_a_plugin_or_of_ours(installed: Install, tmp_path: Path) -> None:
    installed("toy-box", {"bear": "toy_box:Class"}, {"toy_box.py": CLASS})
    (tmp_path / "mine.py").write_text(CLASS)
    mine = import_file(tmp_path / "mine.py").Class
    toys = registry()
    package, file = (
        r"toy_box:Class of the package 'toy-box' \(1\.0\)",
        r"Class in the file .*mine\.py \(sha256 [0-9a-f]{12}\)",
    )
    with pytest.raises(ValueError, match=f"toy 'bear' is registered twice: by {package}, and by {file}"):
        toys.register("bear")(mine)
    with pytest.raises(ValueError, match=f"toy 'ours' is registered twice: by sitar.errors.ConfigError, and by {file}"):
        toys.register("ours")(mine)
    toys.register("mine")(mine)
    assert toys.names() == ["bear", "mine", "ours"]
    assert toys.added_by("mine").startswith(f"Class in the file {tmp_path / 'mine.py'} (sha256 ")


def test_ours_are_there_first(installed: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    """Our own classes are imported at the first look-up, and before somebody else's class is registered."""
    home = "from toy_shelf import toys\n@toys.register('ours')\nclass Ours: ..."
    installed("toy-home", {}, {"toy_home.py": home})
    shelf = ModuleType("toy_shelf")
    monkeypatch.setitem(sys.modules, "toy_shelf", shelf)
    shelf.toys = toys = Registry("toy", home="toy_home", group=GROUP)  # type: ignore[attr-defined]
    assert toys.names() == ["ours"]
    assert toys.get("ours").__name__ == "Ours"

    del sys.modules["toy_home"]
    shelf.toys = toys = Registry("toy", home="toy_home", group=GROUP)  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match=r"toy 'ours' is registered twice: by toy_home\.Ours, and by builtins\.int"):
        toys.register("ours")(int)
    assert toys.get("ours").__name__ == "Ours"


def test_an_unknown_name_says_how_others_come_in() -> None:
    with pytest.raises(
        ConfigError, match=r"Unknown toy 'beer'\. Known: ours\. If it comes from a file.*--import.*install"
    ):
        registry().get("beer")


def test_classes_for_the_time_of_a_block() -> None:
    toys = registry()
    with toys.holding({"bear": int, "ours": str}):
        assert (toys.get("bear"), toys.get("ours")) == (int, str)
    assert toys.names() == ["ours"]
    assert toys.get("ours") is ConfigError


class NoMethod:
    """It has settings, and is no method."""

    class Config(NamedConfig):
        name: Literal["odd"] = "odd"


class NoSettings(Method):
    """It is a method, and has no settings."""


class NoDataset:
    """It has settings, and is no data set."""

    class Config(NamedConfig):
        name: Literal["odd"] = "odd"


@pytest.mark.parametrize(
    ("registry", "cls", "expected"),
    [
        (METHODS, NoMethod, "the class must derive from sitar.methods.base.Method"),
        (METHODS, NoSettings, "its `Config` must derive from sitar.config.NamedConfig"),
        (DATASETS, NoDataset, "the class must derive from sitar.data.base.Dataset"),
    ],
)
def test_a_class_that_breaks_the_contract_is_named_and_the_rest_works(
    registry: Registry, cls: type, expected: str, caplog: pytest.LogCaptureFixture
) -> None:
    with registry.holding({"odd": cls}):
        with pytest.raises(ConfigError, match="breaks the contract") as error:
            registry.get("odd")
        assert expected in str(error.value)
        assert f"sitar.testing.check_{registry.kind}('odd')" in str(error.value)
        others = registry.available()
    assert "odd" not in others
    assert len(others) == len(registry.names())
    assert "breaks the contract" in caplog.text
