"""`sitar data` lists the datasets, checks that their files are in place, and decodes their images once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from sitar.cli.imports import Import
from sitar.cli.output import Json, Set, print_json, print_table, say
from sitar.config import apply_overrides, section_config
from sitar.errors import ConfigError
from sitar.progress import ShownProgress
from sitar.registry import DATASETS
from sitar.reporting.tables.table import Table
from sitar.wording import counted

if TYPE_CHECKING:
    from sitar.data import Dataset

app = typer.Typer(help="List, check and prepare datasets.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="A dataset (see `sitar data list`).")]
Root = Annotated[str | None, typer.Option(help="The folder with its files.")]


@app.command("list")
def list_(import_: Import = None, as_json: Json = False) -> None:
    """List the datasets: the files that each one needs, its licence, and what to cite."""
    descriptions = {name: _describe(dataset) for name, dataset in DATASETS.available().items()}
    if as_json:
        print_json(descriptions)
        return
    rows = [
        [name, each["files"], each["licence"], f"{each['citation']}\n{each['homepage']}".strip()]
        for name, each in descriptions.items()
    ]
    downloads = [name for name, each in descriptions.items() if each["downloads"]]
    note = f"`sitar data prepare` downloads {', '.join(downloads)}."
    print_table(Table("Datasets", ["dataset", "files", "licence", "citation"], rows, note))


@app.command()
def check(name: Name, root: Root = None, set_: Set = None, import_: Import = None, as_json: Json = False) -> None:
    """Count the samples of each group in every split, and compare the counts with published ones.

    No image is opened. The exit status is 1 if the counts differ.
    """
    from sitar.data.published_counts import TOTAL, compare_counts

    dataset, config = _dataset(name, root, set_)
    table, layout = dataset.samples(config), dataset.layout_of(config)
    comparison = compare_counts(table, dataset.published(config))
    counts, before, published = comparison.counts, dict(table.before), comparison.published
    agrees = comparison.agrees

    def cell(split: str, group: str) -> str:
        of = f" of {before[split]:,}" if group == TOTAL and split in before else ""
        paper = (published or {}).get(split, {})
        return f"{counts[split][group]:,}{of}" + (f" ({paper[group]:,})" if group in paper else "")

    if as_json:
        print_json({"layout": layout, "counts": counts, "before": before, "paper": published, "agrees": agrees})
    else:
        rows = [[group, *(cell(split, group) for split in counts)] for group in next(iter(counts.values()), ())]
        note = "Published counts in brackets" + ("." if agrees else ": some differ.") if published else table.legend()
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
    import_: Import = None,
    as_json: Json = False,
) -> None:
    """Decode and resize every image once, or read all features, into a cache that runs then read.

    Missing files are downloaded first, if a host offers them. If you stop the command, start it again.
    """
    dataset, config = _dataset(name, root, [*(set_ or []), *([] if on_bad is None else [f"on_bad={on_bad}"])])
    with ShownProgress() as shown:
        prepared = dataset.prepare(config, shown.watch)
    if prepared is None:
        raise ConfigError(f"{name} has no image files: there is nothing to prepare. `sitar data check` reads it.")
    table, cached = prepared
    if cached is None:
        if as_json:
            print_json({"ready": len(table)})
        else:
            say(f"The features of {counted(len(table), 'sample')} are ready.")
        return
    cached.warn_of_narrow()
    ready, left_out = len(table) - len(cached.bad), len(cached.bad)
    if as_json:
        print_json({"ready": ready, "left_out": left_out, "bad": cached.bad, "checksum": cached.checksum})
        return
    for file, reason in cached.bad.items():
        say(f"left out: {file}: {reason}", err=True)
    say(f"{counted(ready, 'image')} ready, {left_out:,} left out.")


def _describe(dataset: type[Dataset]) -> dict[str, Any]:
    return {
        "files": dataset.layout if dataset.setting is None else f"data.{dataset.setting}: {dataset.layout}",
        "licence": dataset.licence,
        "citation": dataset.citation,
        "homepage": dataset.homepage,
        "downloads": bool(dataset.downloads),
    }


def _dataset(name: str, root: str | None, set_: list[str] | None) -> tuple[type[Dataset], Any]:
    """Return a dataset and its settings. `--set` takes the keys of the data section."""
    raw = {"name": name} | ({} if root is None else {"root": root})
    raw = apply_overrides({"data": raw}, [f"data.{setting.removeprefix('data.')}" for setting in set_ or []])
    return DATASETS.get(name), section_config("data", raw["data"])
