"""Small packages that look installed, made for one test, and what a process knows of them."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from sitar import plugins
from sitar.presets import files
from sitar.registry import DATASETS, METHODS


def install(
    site: Path,
    package: str,
    entry_points: Mapping[str, Mapping[str, str]],
    modules: Mapping[str, str],
    version: str = "1.0",
) -> None:
    """Write what an installer would leave in the folder `site`: modules, by their path, and their metadata."""
    info = site / f"{package.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n")
    lines = []
    for group, entries in entry_points.items():
        lines += [f"[{group}]", *(f"{name} = {value}" for name, value in entries.items())]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
    for path, source in modules.items():
        (site / path).parent.mkdir(parents=True, exist_ok=True)
        (site / path).write_text(source)


@contextmanager
def as_in_a_new_process(*paths: Path) -> Iterator[None]:
    """Look for packages anew, in the folders `paths` too, and forget afterwards what was found and imported."""
    for registry in (METHODS, DATASETS):
        registry.names()
    before = set(sys.modules)
    with pytest.MonkeyPatch.context() as patch:
        for path in paths:
            patch.syspath_prepend(str(path))
        for registry in (METHODS, DATASETS):
            patch.setattr(registry, "_classes", dict(registry._classes))
            patch.setattr(registry, "_plugins", None)
        patch.setattr(plugins, "_files", {})
        files._files.cache_clear()
        yield
    files._files.cache_clear()
    for name in set(sys.modules) - before:
        file = getattr(sys.modules[name], "__file__", None) or ""
        if name.startswith("imported_") or file.startswith(tuple(map(str, paths))):
            del sys.modules[name]
