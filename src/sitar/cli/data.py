"""`sitar data`: which datasets there are, whether their files are in place, and their images, decoded once."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import DownloadColumn, Progress, ProgressColumn, TransferSpeedColumn

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
    """The datasets: what lies in the folder of each, its licence, and whom to cite."""
    from sitar.data.base import Dataset

    found = {}
    for name in DATASETS.names():
        dataset = DATASETS.get(name)
        brought = issubclass(dataset, Dataset)
        files = f"data.{dataset.setting}: {dataset.layout}" if brought else "ships with the package"
        about = {key: getattr(dataset, key, "") for key in ("licence", "citation", "homepage")}
        found[name] = {"files": files, **about, "downloads": bool(getattr(dataset, "downloads", ()))}
    if as_json:
        print_json(found)
        return
    rows = [
        [name, about["files"], about["licence"] or "yours", f"{about['citation']}\n{about['homepage']}".strip()]
        for name, about in found.items()
    ]
    note = "`sitar data prepare` downloads " + ", ".join(name for name, about in found.items() if about["downloads"])
    print_table(Table("Datasets", ["dataset", "files", "licence", "citation"], rows, f"{note}."))


@app.command()
def check(name: Name, root: Root = None, set_: Set = None, as_json: Json = False) -> None:
    """Count the groups of every split, from the metadata alone, beside published ones. Exits with 1 if they differ."""
    from sitar.data.published_counts import TOTAL, compare

    dataset, config = _dataset(name, root, set_)
    index, layout = dataset.index(config), dataset.found(config)
    found = compare(index, dataset.published(config))
    counts, before, published, agrees = found.counts, dict(index.before), found.published, found.agrees

    def cell(split: str, group: str) -> str:
        of = f" of {before[split]:,}" if group == TOTAL and split in before else ""
        paper = (published or {}).get(split, {})
        return f"{counts[split][group]:,}{of}" + (f" ({paper[group]:,})" if group in paper else "")

    if as_json:
        print_json({"layout": layout, "counts": counts, "before": before, "paper": published, "agrees": agrees})
    else:
        rows = [[group, *(cell(split, group) for split in counts)] for group in next(iter(counts.values()), ())]
        note = "Published counts in brackets" + ("." if agrees else ": some differ.") if published else index.legend()
        note += "\nTotals are of those before data.rho or data.majority_only." if before else ""
        title = f"{dataset.title}, samples of each group" + (f" (layout: {layout})" if layout else "")
        print_table(Table(title, ["group", *counts], rows, note))
    if agrees is False:
        raise typer.Exit(1)


@app.command()
def prepare(
    name: Name,
    root: Root = None,
    on_bad: Annotated[str | None, typer.Option(help="Images that cannot be read: fail, or skip them.")] = None,
    set_: Set = None,
    as_json: Json = False,
) -> None:
    """Decode and resize every image once; runs then read the cache. Files that are missing are downloaded first, where
    a host gives them. What was stopped continues."""
    from sitar.data.image_dataset import ImageDataset

    dataset, config = _dataset(name, root, [*(set_ or []), *([] if on_bad is None else [f"on_bad={on_bad}"])])
    if not issubclass(dataset, ImageDataset):
        raise ConfigError(f"{name} has no image files: there is nothing to prepare. `sitar data check` reads it.")
    console = Console(stderr=True)
    index = dataset.index_if_there(config) if dataset.downloads else None
    if index is None and dataset.downloads and config.root is not None:
        with _bars(console, DownloadColumn(), TransferSpeedColumn()) as bars:
            task = bars.add_task(f"{dataset.title}: download", total=None)
            dataset.download(config, lambda done, total: bars.update(task, completed=done, total=total))
    index = dataset.index(config) if index is None else index
    dataset.warn_of_counts(config, index)
    with _bars(console) as bars:
        task = bars.add_task(f"{dataset.title}: images", total=len(index))
        index, cached = dataset.prepare(config, lambda done: bars.update(task, completed=done), index)
    ready, left_out = len(index) - len(cached.bad), len(cached.bad)
    if as_json:
        print_json({"ready": ready, "left_out": left_out, "bad": cached.bad, "checksum": cached.checksum})
        return
    for file, reason in cached.bad.items():
        print(f"left out: {file}: {reason}", file=sys.stderr)
    typer.echo(f"{ready:,} images ready, {left_out:,} left out.")


def _bars(console: Console, *columns: ProgressColumn) -> Progress:
    default = Progress.get_default_columns()
    return Progress(*default, *columns, console=console, transient=True, disable=not console.is_terminal)


def _dataset(name: str, root: str | None, set_: list[str] | None) -> tuple[Any, Any]:
    """A dataset from files and its settings; `--set` takes the keys of the data section."""
    from sitar.data.base import Dataset

    dataset = DATASETS.get(name)
    if not issubclass(dataset, Dataset):
        raise ConfigError(f"{name} ships with the package: there is nothing to check or to prepare.")
    raw = {"name": name} | ({} if root is None else {"root": root})
    raw = apply_overrides({"data": raw}, [f"data.{setting.removeprefix('data.')}" for setting in set_ or []])
    return dataset, section_config("data", raw["data"])
