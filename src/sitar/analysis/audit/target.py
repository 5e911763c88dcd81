"""Find what a user asks to audit: a path that exists is data or a finished run, anything else is a preset."""

from __future__ import annotations

import json
from collections.abc import Sequence
from glob import has_magic
from pathlib import Path

from sitar.config import apply_overrides, section_config
from sitar.data.image_shards import holds_images
from sitar.data.own_data.feature_table import FeaturesConfig, has_features
from sitar.data.own_data.table import TableConfig, has_shards
from sitar.data.shards import find_files
from sitar.data.tables import SUFFIXES, open_table
from sitar.errors import ConfigError
from sitar.files import user_path
from sitar.images.files import Files
from sitar.images.parquet import find_shards
from sitar.presets import preset_names
from sitar.registry import unknown
from sitar.run_folder import RunFolder

VAE = "vae"  # the last part of the presets that audits train
SHOWN = 10  # columns that are named


def find_target(
    what: str, overrides: Sequence[str] = (), root: str | None = None, table: str | None = None
) -> RunFolder | tuple[str, list[str]]:
    """Return a run, or a preset with the settings that make it one of this data.

    `root` is the folder with the images of a table, or of a preset. `table` names a table in the folder `what`.
    """
    path = user_path(what)
    settings = [*overrides] if root is None else [_set("data.root", root), *overrides]
    if table is not None and (not path.is_dir() or RunFolder(path).is_started):
        raise ConfigError(f"--table names a table in a folder of data, and {what!r} is none. Leave --table out.")
    if not path.exists():
        files = find_files(str(path)) if has_magic(what) else []
        return _pattern(what, Path(files[0]), settings) if files else (_preset(what), settings)
    if RunFolder(path).is_started:
        if settings:
            raise ConfigError(f"{what!r} is a run: its settings are fixed. Leave --root and --set out.")
        return RunFolder(path)
    if path.suffix.lower() in (".yaml", ".yml"):
        return what, settings
    if path.suffix.lower() in SUFFIXES:
        return _table(path, settings, root)
    if root is not None:
        raise ConfigError(f"{what!r} is the data itself: leave --root out.")
    if path.is_dir():
        return _folder(what, path, settings) if table is None else _table(path / table, settings, root)
    if path.suffix.lower() == ".npz":
        return f"npz/{VAE}", [_set("data.file", what), *settings]
    raise ConfigError(
        f"{what!r} cannot be audited: give a folder with a folder for each class, or with tables in it; a table (.csv, "
        ".parquet), a pattern of tables, an .npz file, the folder of a finished run, or a preset."
    )


def _folder(what: str, path: Path, settings: list[str]) -> tuple[str, list[str]]:
    """Return the preset of a folder: of images or features in its tables, or of a folder a class."""
    if has_shards(path, _columns(settings)):
        return f"table/{VAE}", [_set("data.root", what), *settings]
    if _has_features(path, settings):
        return f"features/{VAE}", [_set("data.file", what), *settings]
    found = _table_in(path, settings)
    return (f"folder/{VAE}", [_set("data.root", what), *settings]) if found is None else _table(found, settings, None)


def _table_in(folder: Path, settings: list[str]) -> Path | None:
    """Return the table in a folder that lists its images. None: there is none, and a folder is a class."""
    tables = sorted(path for path in folder.iterdir() if path.suffix.lower() in SUFFIXES and path.is_file())
    column = _columns(settings).path_column
    names = {path: open_table(path).names for path in tables}
    listing = [path for path in tables if column in names[path]]
    if len(listing) == 1:
        return listing[0]
    if len(listing) > 1:
        raise ConfigError(
            f"{str(folder)!r} has {len(listing)} tables with a column {column!r}: "
            f"{', '.join(path.name for path in listing)}. Name one with --table."
        )
    classes = [path for path in folder.iterdir() if path.is_dir() and not path.name.startswith(".")]
    if tables and len(classes) < 2:
        raise ConfigError(
            f"{str(folder)!r} has no folder for each class, and no table in it has a column {column!r} with the "
            f"images: {tables[0].name} has {_some(names[tables[0]])}. Name the column with --set data.path_column=..., "
            "and that of the classes with data.label_column. Columns of features are named with data.feature_columns."
        )
    return None


def _some(names: list[str]) -> str:
    return ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN:,} more columns" if len(names) > SHOWN else "")


def _has_features(folder: Path, settings: list[str]) -> bool:
    """Say whether the tables in a folder are one table of features, by the first of them. One of paths is none."""
    files = sorted(file for file in folder.iterdir() if file.suffix.lower() in SUFFIXES and file.is_file())
    if not files and not Files([folder]).names():
        files = list(find_shards(folder).values())[:1]
    tables = [open_table(file, may_be_empty=True) for file in files]
    if not tables or any(_columns(settings).path_column in table.names for table in tables):
        return False
    return has_features(tables[0], _feature_config(settings))


def _pattern(given: str, first: Path, settings: list[str]) -> tuple[str, list[str]]:
    """Return the preset of the tables that a pattern names: of images or of features, by the first of them."""
    table, columns = open_table(first, may_be_empty=True), _columns(settings)
    if columns.path_column in table.names or holds_images(table, columns.image_column):
        return f"table/{VAE}", [_set("data.table", given), *settings]
    return f"features/{VAE}", [_set("data.file", given), *settings]


def _feature_config(settings: list[str]) -> FeaturesConfig:
    """Return the names of the columns with features, as the settings have them."""
    said = [setting for setting in settings if setting.startswith("data.feature_columns=")]
    config = section_config("data", apply_overrides({"data": {"name": "features"}}, said)["data"])
    assert isinstance(config, FeaturesConfig)
    return config


def _columns(settings: list[str]) -> TableConfig:
    """Return the names of the columns with images, or with their paths, as the settings have them."""
    said = [setting for setting in settings if setting.startswith(("data.path_column=", "data.image_column="))]
    config = section_config("data", apply_overrides({"data": {"name": "table"}}, said)["data"])
    assert isinstance(config, TableConfig)
    return config


def _table(path: Path, settings: list[str], root: str | None) -> tuple[str, list[str]]:
    """Return the preset of a table: of images where it has a column with them or with their paths, else of features."""
    elsewhere = any(setting.startswith("data.root=") for setting in settings)  # a name would be looked for there first
    images = [_set("data.root", str(path.parent)), _set("data.table", str(path.absolute()) if elsewhere else path.name)]
    opened, columns = open_table(path), _columns(settings)
    if root is not None or columns.path_column in opened.names or holds_images(opened, columns.image_column):
        return f"table/{VAE}", [*images, *settings]
    return f"features/{VAE}", [_set("data.file", str(path)), *settings]


def _preset(what: str) -> str:
    names = preset_names()
    if what in names or what.endswith((".yaml", ".yml")):
        return what
    if f"{what}/{VAE}" in names:
        return f"{what}/{VAE}"
    own = [name for name in names if name.endswith(f"/{VAE}")]
    raise unknown(
        "preset", what, own, "There is no file or folder of that name either. Other presets with a VAE work too."
    )


def _set(key: str, value: str) -> str:
    return f"{key}={json.dumps(value)}"  # quoted, so that a folder called 10 is not a number
