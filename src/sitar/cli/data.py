"""`sitar data`: which datasets there are, whether their files are in place, and their images decoded once."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import Progress

from sitar.cli.output import Json, Set, print_json, print_table
from sitar.config import apply_overrides, section_config
from sitar.errors import ConfigError
from sitar.registry import DATASETS
from sitar.reporting.tables import Table

app = typer.Typer(help="List, check and prepare datasets.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="A dataset (see `sitar data list`).")]
Root = Annotated[str | None, typer.Option(help="The folder with its files.")]


@app.command("list")
def list_(as_json: Json = False) -> None:
    """The datasets, and what lies in the folder of each."""
    from sitar.data.dataset import Dataset

    found = {}
    for name in DATASETS.names():
        dataset = DATASETS.get(name)
        brought = issubclass(dataset, Dataset)
        found[name] = f"data.{dataset.setting}: {dataset.layout}" if brought else "ships with the package"
    if as_json:
        print_json(found)
        return
    print_table(Table("Datasets", ["dataset", "files"], [[name, files] for name, files in found.items()]))


@app.command()
def check(name: Name, root: Root = None, set_: Set = None, as_json: Json = False) -> None:
    """Count the groups of every split, from the metadata alone, beside the paper's. Exits with 1 where they differ."""
    dataset, config = _dataset(name, root, set_)
    counts, published = dataset.index(config).counts(), dataset.published(config)
    agrees = None if published is None else counts == published
    if as_json:
        print_json({"counts": counts, "paper": published, "agrees": agrees})
    else:
        groups = list(next(iter(counts.values())))
        rows = []
        for split, found in counts.items():
            paper = (published or {}).get(split, {})
            rows.append([split, *(f"{found[g]:,}" + (f" ({paper[g]:,})" if g in paper else "") for g in groups)])
        note = "The paper's counts in brackets." if published else "The paper prints no counts for these settings."
        print_table(Table(f"{dataset.title}, samples of each group", ["split", *groups], rows, note))
    if agrees is False:
        raise typer.Exit(1)


@app.command()
def prepare(name: Name, root: Root = None, set_: Set = None, as_json: Json = False) -> None:
    """Decode and resize every image once; runs then read the cache. A preparation that was stopped continues."""
    from sitar.data.image_data import ImageDataset

    dataset, config = _dataset(name, root, set_)
    if not issubclass(dataset, ImageDataset):
        raise ConfigError(f"{name} has no image files: there is nothing to prepare. `sitar data check` reads it.")
    console = Console(stderr=True)
    total = len(dataset.index(config))
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bars:
        task = bars.add_task(f"{dataset.title}: images", total=total)
        index, cached = dataset.prepare(config, watch=lambda done: bars.update(task, completed=done))
    if as_json:
        print_json({"images": len(index), "bad": cached.bad, "checksum": cached.checksum})
        return
    for file, reason in cached.bad.items():
        print(f"left out: {file}: {reason}", file=sys.stderr)
    typer.echo(f"{len(index) - len(cached.bad):,} images ready, {len(cached.bad):,} left out.")


def _dataset(name: str, root: str | None, set_: list[str] | None) -> tuple[Any, Any]:
    """A dataset from files and its settings; `--set` takes the keys of the data section."""
    from sitar.data.dataset import Dataset

    dataset = DATASETS.get(name)
    if not issubclass(dataset, Dataset):
        raise ConfigError(f"{name} ships with the package: there is nothing to check or to prepare.")
    raw = {"name": name} | ({} if root is None else {"root": root})
    raw = apply_overrides({"data": raw}, [f"data.{setting.removeprefix('data.')}" for setting in set_ or []])
    return dataset, section_config("data", raw["data"])
