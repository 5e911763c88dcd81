"""What a run is given besides its data, and what it is resumed from: nuisances, unlabelled inputs, trials, logs."""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch
import yaml

from fuzz.mutate import NUMBERS, WORDS, wrong_csv, wrong_json, wrong_lines, wrong_yaml
from fuzz.parsers.other import ROOT, _after_one_checkpoint, _reproduction
from fuzz.parsers.parser import Entry, Parser
from fuzz.parsers.tables import _columns, _csv
from helpers.runs import run, toy
from sitar.config import section_config
from sitar.data.concepts import read_concept
from sitar.data.nuisances import read_nuisances
from sitar.data.unlabelled import read_unlabelled
from sitar.errors import RunError
from sitar.registry import DATASETS
from sitar.run_folder import RunFolder
from sitar.sweeps.axes import parse_over
from sitar.sweeps.choosing import Rule
from sitar.sweeps.plan import Plan
from sitar.sweeps.search import Search
from sitar.testing.interrupt import Stop
from sitar.training.run import train_config


def _features(folder: Path, **more: Any) -> tuple[Any, Any]:
    columns = _columns()
    (folder / "x.csv").write_bytes(_csv(columns))
    settings = {"name": "features", "file": str(folder / "x.csv"), "feature_columns": "f*", "split_column": "split"}
    config: Any = section_config("data", {**settings, "attribute_column": "place", **more})
    return config, DATASETS.get("features").load(config)


def nuisances(folder: Path) -> Parser:
    """The columns of a table that a model is asked to ignore, and the names by which they are asked for."""
    n = 60
    columns = {name: (values * 3)[:n] for name, values in _columns().items()}
    columns["split"] = ["train"] * 48 + ["val"] * 6 + ["test"] * 6

    def read(content: bytes) -> None:
        head, _, body = content.partition(b"\n")
        (folder / "x.csv").write_bytes(body)
        settings = {"name": "features", "file": str(folder / "x.csv"), "feature_columns": "f*", "split_column": "split"}
        config: Any = section_config("data", {**settings, "attribute_column": "place"})
        data = DATASETS.get("features").load(config)
        read_nuisances(head.decode("utf-8", "backslashreplace").replace("\0", "").split("|"), config, data)

    def wrong(random: Random, content: bytes) -> bytes:
        head, _, body = content.partition(b"\n")
        given = dict(columns)
        strange: tuple[Callable[[], list[Any]], ...] = (
            lambda: [random.choice(("", "nan", "inf", "1e308", "-1e308", "a", "b")) for _ in range(n)],
            lambda: [random.choice(("0001-01-01", "9999-12-31", "2026-01-01", "")) for _ in range(n)],
            lambda: [f"{random.randrange(1, 9999):04}-01-01" for _ in range(n)],
            lambda: [""] * n, lambda: ["1"] * n, lambda: list(given["label"]), lambda: list(range(n)),
            lambda: ["" if i else "1" for i in range(n)], lambda: [random.choice((0, 1)) for _ in range(n)],
            lambda: [random.choice((1e-300, -1e300, 5e-324)) for _ in range(n)],
            lambda: [random.choice(("north", "south", "", "nan")) for _ in range(n)],
        )  # fmt: skip
        given[random.choice(("patient", "place", "patient", "extra"))] = random.choice(strange)()
        word = random.choice(WORDS).replace("\n", " ").replace("\r", " ").encode("utf-8", "replace")
        names = random.choice(
            (head, b"extra", b"place|patient", b"label", b"f0", b"blur", word, b"place|place", b"x.csv")
        )
        return names + b"\n" + (_csv(given) if random.random() < 0.7 else wrong_csv(random, body))

    return Parser("nuisances", [b"place\n" + _csv(columns), b"patient\n" + _csv(columns)], read, wrong)


def unlabelled(folder: Path) -> Parser:
    """A table of features without labels, from where a model will be used."""
    config, data = _features(folder)
    new = {name: _columns()[name] for name in ("f0", "f1")}
    new["f0"] = [value + 9 for value in new["f0"]]
    file = folder / "new.csv"
    named = config.model_copy(update={"unlabelled": str(file)})

    def read(content: bytes) -> None:
        file.write_bytes(content)
        read_unlabelled(named, data)

    return Parser("unlabelled", [_csv(new)], read, wrong_csv)


def concept_table(folder: Path) -> Parser:
    """A table of features with a column that says which rows show a concept."""
    config, _ = _features(folder)
    random = np.random.default_rng(0)
    columns = {
        "concept": ["with", "without"] * 20,
        **{f"f{i}": random.normal(size=40).round(3).tolist() for i in (0, 1)},
    }
    file = folder / "concept.csv"

    def read(content: bytes) -> None:
        file.write_bytes(content)
        read_concept(str(file), config, torch.zeros(4, 2))

    return Parser("concept table", [_csv(columns)], read, wrong_csv)


def trials(folder: Path) -> Parser:
    """The trials of a search, in the SQLite file that Optuna keeps them in."""
    plan = Plan(
        "color_mnist/sitar",
        (),
        tuple(parse_over(("method.alpha=0.01..10:log", "method.noise=axis,direction"))),
        (0,),
        folder,
    )
    plan = plan.typed()
    file = folder / "optuna.db"

    def search() -> Search:
        return Search(plan, Rule("average"), file, True)

    found = search()
    for number, drawn in enumerate(found.rounds(3, 1)):
        for trial in drawn:
            if number < 2:
                found.tell(trial, 0.5 + number / 10)
    found.study._storage.remove_session()
    seed = file.read_bytes()

    def read(content: bytes) -> None:
        for old in (*folder.glob("optuna.db*"), *folder.glob("trials.json")):  # a stranger's notes would agree
            old.unlink()
        file.write_bytes(content)
        found = search()
        found.points()
        for drawn in found.rounds(4, 1):
            for trial in drawn:
                found.tell(trial, 0.7)

    def wrong(random: Random, content: bytes) -> bytes:
        with tempfile.TemporaryDirectory() as place:
            copy = Path(place) / "x.db"
            copy.write_bytes(content)
            with sqlite3.connect(copy) as base:
                tables = [row[0] for row in base.execute("select name from sqlite_master where type='table'")]
                for _ in range(random.choice((1, 1, 2))):
                    table = random.choice([*tables, "trials", "trial_params", "trial_values", "studies"])
                    columns = [row[1] for row in base.execute(f"pragma table_info({table})")]
                    value = random.choice(
                        (*NUMBERS[:12], None, 0.5, *WORDS[:20], "{}", "[]", "COMPLETE", "RUNNING", b"\xff")
                    )
                    try:
                        match random.randrange(4):
                            case 0:
                                base.execute(f"delete from {table}")
                            case 1:
                                base.execute(f"drop table {table}")
                            case _:
                                base.execute(f"update {table} set {random.choice(columns)} = ?", (value,))
                    except (sqlite3.Error, UnicodeEncodeError, OverflowError):
                        continue
            base.close()
            return copy.read_bytes()

    return Parser("trials", [seed], read, wrong)


RESUMED = {"config.yaml": wrong_yaml, "environment.json": wrong_json, "metrics.jsonl": wrong_lines}


def resumed(name: str, folder: Path) -> Parser:
    """A file of a run that was stopped and is resumed."""
    config = toy("erm", train={"epochs": 2})
    path, kept = folder / "run", folder / "kept"
    undo = _after_one_checkpoint()
    try:
        run(config, path)
    except Stop:
        pass
    finally:
        undo()
    shutil.copytree(path, kept)
    content = (path / name).read_bytes()

    def read(content: bytes) -> None:
        shutil.rmtree(path)
        shutil.copytree(kept, path)
        (path / name).write_bytes(content)
        train_config(config, RunFolder(path), device="cpu", resume=True, progress=False)

    return Parser(f"resumed {name}", [content], read, RESUMED[name])


def table(folder: Path) -> Parser:
    """The description of a table of runs: reproduce/NAME.yaml."""
    values = _reproduction(folder)
    file = folder / "demo.yaml"

    def read(content: bytes) -> None:
        file.write_bytes(content)
        try:
            values.records.jobs(values.records.load_table("demo"))
        except (values.ValueNameError, SystemExit) as error:
            raise RunError(str(error)) from error

    return Parser("table of runs", [file.read_bytes()], read, wrong_yaml)


def claims(folder: Path) -> Parser:
    """The claims of the paper and the rules that decide them: reproduce/claims.yaml."""
    values = _reproduction(folder)
    import claims as page  # type: ignore[import-not-found]

    file = folder / "claims.yaml"
    whole = yaml.safe_load((ROOT / "reproduce" / "claims.yaml").read_text())
    seed = yaml.safe_dump(whole[:4]).encode()
    rules = (
        "a",
        "a.mean",
        "a.mean > ",
        "().__class__",
        "open('x')",
        "9**9**9",
        "gain.lower > 0 or x.y",
        "[1]",
        "1 < 'a'",
        "a.b.c > 0",
        "-" * 5000 + "1",
        "(" * 300,
    )

    def wrong(random: Random, content: bytes) -> bytes:
        if random.random() < 0.4:
            tree = yaml.safe_load(content)
            random.choice(tree)[random.choice(("holds", "holds in part"))] = random.choice(rules)
            return yaml.safe_dump(tree).encode()
        return wrong_yaml(random, content)

    def read(content: bytes) -> None:
        file.write_bytes(content)
        try:
            page.render()
        except (values.ValueNameError, SystemExit) as error:
            raise RunError(str(error)) from error

    return Parser("claims", [seed], read, wrong)


ENTRIES = {f"resumed {name}": Entry(partial(resumed, name), 0.1) for name in RESUMED}
