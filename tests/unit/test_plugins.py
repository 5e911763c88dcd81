"""A Python file of a user's own: imported by its path, once, and without a trace."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from sitar.errors import ConfigError
from sitar.plugins import import_file, imported_files


def test_a_file_is_imported_once_and_leaves_nothing_behind(tmp_path: Path) -> None:
    file = tmp_path / "torch.py"  # the name of an installed module
    file.write_text("import dataclasses\n@dataclasses.dataclass\nclass A:\n    x: 'int' = 1\ncount = []\n")
    module = import_file(file)
    import torch

    assert torch.__file__ != str(file)
    assert sys.modules[module.__name__] is module
    assert module.A().x == 1
    assert module.__file__ == str(file)
    assert import_file(str(file)) is module
    assert str(file) in imported_files()
    assert list(tmp_path.iterdir()) == [file]


def test_files_of_one_name_are_two_modules(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "mine.py").write_text(f"value = {folder!r}")
    assert [import_file(tmp_path / folder / "mine.py").value for folder in ("a", "b")] == ["a", "b"]


@pytest.mark.parametrize(
    ("name", "source", "reason"),
    [
        ("missing.py", None, "No such file or directory."),
        ("folder.py", Path, "Is a directory."),
        ("notes.txt", "x = 1", "it is not a Python file, whose name ends in .py."),
        ("syntax.py", "x = 1\ndef f(:\n", "line 2: invalid syntax."),
        ("null.py", "x = '\0'", "source code string cannot contain null bytes."),
        ("latin.py", b"x = 'caf\xe9'\n", "codec can't decode"),
        ("raises.py", "def f():\n    return 1 / 0\nf()\n", "line 2: ZeroDivisionError: division by zero."),
        ("import_.py", "\nimport no_such_module\n", "line 2: ModuleNotFoundError: No module named 'no_such_module'."),
        ("exits.py", "import sys\nsys.exit()\n", "line 2: SystemExit."),
    ],
)
def test_a_file_that_cannot_be_imported(
    name: str, source: str | bytes | type | None, reason: str, tmp_path: Path
) -> None:
    file, before = tmp_path / name, set(sys.modules)
    if source is Path:
        file.mkdir()
    elif source is not None:
        file.write_bytes(source if isinstance(source, bytes) else source.encode())
    for _ in range(2):  # a second try says the same
        with pytest.raises(ConfigError) as caught:
            import_file(file)
        assert str(caught.value).startswith(f"{str(file)!r} cannot be imported: ")
        assert str(caught.value).endswith(reason) or reason in str(caught.value)
        assert "\n" not in str(caught.value)
    assert str(file) not in imported_files()
    assert not {module for module in set(sys.modules) - before if module.startswith("imported_")}
