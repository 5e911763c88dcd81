"""Answers of a person, the record of a sweep, checkpoints and weights, an estimator, and records of reproductions."""

from __future__ import annotations

import io
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any

import numpy as np
import torch

from fuzz.mutate import NUMBERS, WORDS, changed, wrong_csv, wrong_json
from fuzz.parsers.parser import Parser
from helpers.asking import guesses, pool_of
from helpers.runs import run, toy
from sitar.analysis.answers import AnswersFile, read_answers
from sitar.analysis.ask.choosing import choose
from sitar.errors import RunError
from sitar.estimator.classifiers import SitarClassifier
from sitar.evaluation.trained_model import load
from sitar.integrity import SEAL, sealed
from sitar.run_folder import RunFolder
from sitar.sweeps.folder import SweepFolder
from sitar.sweeps.sweep import Sweep
from sitar.testing.interrupt import Stop
from sitar.training.run import train_config

ROOT = Path(__file__).resolve().parents[3]


def _without_checksums(path: Path) -> None:
    """Make a run one of an early release: a stranger can write checksums that fit, so they are no help here."""
    RunFolder(path).done_file.write_bytes(b"")


def answers(folder: Path) -> Parser:
    pool = pool_of(guesses(np.random.default_rng(0), np.arange(30) % 2, 0.9, 0.5))
    at = "2026-01-01T00:00:00+00:00"
    lines = [f"{pool.names[i]},{('cat', 'dog', '')[i % 3]},disagreement,0.5,{at}" for i in range(9)]
    head = "image,answer,why_asked,probability,at"
    seeds = [
        "\n".join([head, *lines, f"{pool.names[0]},cat,undo,,{at}", ""]).encode(),
        b"image,label\n00000.png,cat\n00001.png,dog\n",
    ]
    path = folder / "answers.csv"

    def read(content: bytes) -> None:
        for extra in folder.iterdir():
            extra.unlink()
        path.write_bytes(content)
        given = read_answers(path)
        with AnswersFile(path).opened():
            pass
        choose(pool, given).to_dict()

    return Parser("answers", seeds, read, wrong_csv)


def sweep(folder: Path) -> Parser:
    summary = {"mean": 0.8, "std": 0.1, "n": 2}
    point = {
        "name": "alpha=0.1", "values": {"method.alpha": 0.1}, "control": False, "needs_groups": False,
        "unlabelled": None,
        "nuisances": [], "seeds": [0, 1], "score": 0.8, "seconds": [1.0, 2.0],
        "splits": {"val": {"average": summary, "worst_group": summary}, "test": {"average": summary}},
    }  # fmt: skip
    record = {
        "version": 1, "preset": "color_mnist/sitar", "settings": [], "over": {"method.alpha": [0.1, 1]},
        "seeds": [0, 1],
        "search": None, "select": {"rule": "val_average", "metric": "average", "reads_groups": False},
        "chosen": "alpha=0.1", "points": [point, {**point, "name": "alpha=1", "values": {"method.alpha": 1}}],
        "unfinished": 0, "failed": [{"name": "alpha=1", "seed": 0, "error": "x", "log": "l"}], "mixed_data": False,
    }  # fmt: skip
    place = SweepFolder(folder)

    def read(content: bytes) -> None:
        place.record_file.write_bytes(content)
        found = Sweep(folder, place.record())
        _ = (found.points, found.chosen, found.chosen_runs, found.failed, found.table())

    return Parser("sweep", [json.dumps(sealed(record)).encode()], read, wrong_sealed)


def wrong_sealed(random: Random, content: bytes) -> bytes:
    """Return a sealed record with wrong values, mostly with a checksum that fits them, as a stranger can write it."""
    content = wrong_json(random, content)
    if random.random() < 0.1 or content.startswith(b"[" * 20_000):  # nested too deep to be sealed
        return content
    record = json.loads(content)
    if not isinstance(record, dict):
        return content
    return json.dumps(sealed({key: value for key, value in record.items() if key != SEAL})).encode()


def wrong_state(random: Random, content: bytes) -> bytes:
    """Return a file of torch whose values or tensors are others."""
    state = changed(random, torch.load(io.BytesIO(content), weights_only=True))
    if random.random() < 0.5 and isinstance(state, dict) and isinstance(state.get("method"), dict):
        tensors = [key for key, value in state["method"].items() if isinstance(value, torch.Tensor)]
        key = random.choice(tensors or ["x"])
        state["method"][key] = random.choice((
            torch.zeros(()), torch.zeros(3, 3), torch.full((2,), float("nan")), torch.zeros(4,
            dtype=torch.int64), torch.zeros(0), None,
        ))  # fmt: skip
    buffer = io.BytesIO()
    torch.save(state, buffer)
    return buffer.getvalue()


def state(folder: Path) -> Parser:
    """The checkpoint of a run that was stopped, and the run that is resumed from it."""
    config = toy("erm", train={"epochs": 2})
    path, kept = folder / "run", folder / "kept"
    stop = _after_one_checkpoint()
    try:
        run(config, path)
    except Stop:
        pass
    finally:
        stop()
    shutil.copytree(path, kept)
    content = RunFolder(path).state_file.read_bytes()

    def read(content: bytes) -> None:
        shutil.rmtree(path)
        shutil.copytree(kept, path)
        RunFolder(path).state_file.write_bytes(content)
        train_config(config, RunFolder(path), device="cpu", resume=True, progress=False)

    return Parser("state", [content], read, wrong_state)


def _after_one_checkpoint() -> Callable[[], None]:
    """Stop a run when its first checkpoint is written. Return what undoes this."""
    before = RunFolder.write_state

    def write_state(self: RunFolder, content: bytes) -> None:
        before(self, content)
        raise Stop

    RunFolder.write_state = write_state  # type: ignore[method-assign]

    def undo() -> None:
        RunFolder.write_state = before  # type: ignore[method-assign]

    return undo


def weights(folder: Path) -> Parser:
    from safetensors.torch import load as read_tensors
    from safetensors.torch import save

    path = folder / "run"
    run(toy("sitar", train={"epochs": 1}), path)
    file = RunFolder(path).model_file
    _without_checksums(path)

    def read(content: bytes) -> None:
        file.write_bytes(content)
        load(path, "cpu")

    def wrong(random: Random, content: bytes) -> bytes:
        if random.random() < 0.5:  # a header that lies
            size = int.from_bytes(content[:8], "little")
            head = json.dumps(changed(random, json.loads(content[8 : 8 + size])), default=str).encode(
                "utf-8", "replace"
            )
            length = len(head) if random.random() < 0.8 else random.choice(NUMBERS) % 2**64
            return length.to_bytes(8, "little") + head + content[8 + size :]
        tensors = read_tensors(content)
        key = random.choice(sorted(tensors))
        value = tensors.pop(key)
        if random.random() < 0.8:
            tensors[random.choice((key, key, key, "x", key + "s"))] = random.choice((
                value.double(), value.half(), value.reshape(-1).clone(), torch.zeros(()), torch.zeros(0),
                value.to(torch.int64), value * float("nan"),
            ))  # fmt: skip
        return save(tensors)

    return Parser("weights", [file.read_bytes()], read, wrong)


def encoder_weights(folder: Path) -> Parser:
    """A file of a user's own with the weights of an encoder, as a state dict of torch."""
    import timm

    from sitar.models.pretrained import PretrainedEncoder

    network = timm.create_model("test_resnet.r160_in1k", num_classes=0)
    buffer = io.BytesIO()
    torch.save(network.state_dict(), buffer)

    def read(content: bytes) -> None:
        (folder / "w.pth").write_bytes(content)
        PretrainedEncoder("test_resnet.r160_in1k", (3, 32, 32), str(folder / "w.pth"))

    def wrong(random: Random, content: bytes) -> bytes:
        given = changed(random, dict(torch.load(io.BytesIO(content), weights_only=True)))
        made = io.BytesIO()
        torch.save(given, made)
        return made.getvalue()

    return Parser("encoder weights", [buffer.getvalue()], read, wrong)


def estimator(folder: Path) -> Parser:
    random = np.random.default_rng(0)
    path = folder / "run"
    y = np.arange(40) % 2
    SitarClassifier(max_iter=100, random_state=0).fit(random.normal(size=(40, 3)) + 3 * y[:, None], y).save(path)
    file = RunFolder(path).estimator_file
    _without_checksums(path)

    def read(content: bytes) -> None:
        file.write_bytes(content)
        SitarClassifier.load(path, "cpu")

    return Parser("estimator", [file.read_bytes()], read, wrong_json)


def result_as_model(folder: Path) -> Parser:
    """result.json, from which a model is built again."""
    path = folder / "run"
    run(toy("erm", train={"epochs": 1}), path)
    file = RunFolder(path).result_file
    _without_checksums(path)

    def read(content: bytes) -> None:
        file.write_bytes(content)
        load(path, "cpu")

    return Parser("model of result.json", [file.read_bytes()], read, wrong_json)


def config_as_model(folder: Path) -> Parser:
    """config.yaml, from which a model is built again."""
    from fuzz.mutate import wrong_yaml

    path = folder / "run"
    run(toy("sitar", train={"epochs": 1}), path)
    file = RunFolder(path).config_file
    _without_checksums(path)

    def read(content: bytes) -> None:
        file.write_bytes(content)
        load(path, "cpu")

    return Parser("model of config.yaml", [file.read_bytes()], read, wrong_yaml)


def _reproduction(folder: Path) -> ModuleType:
    sys.path.insert(0, str(ROOT / "reproduce"))
    try:
        import claims  # type: ignore[import-not-found]  # noqa: F401 - which `learning` imports by name
        import values  # type: ignore[import-not-found]
    finally:
        sys.path.pop(0)
    values.records.HERE = folder
    shutil.copytree(ROOT / "reproduce" / "records", folder / "records")
    for table in (ROOT / "reproduce").glob("*.yaml"):
        shutil.copy(table, folder)
    return values


def _evaluate(values: Any, text: str) -> None:
    try:
        values.evaluate(text)
    except (values.ValueNameError, SystemExit) as error:  # which the scripts say in one line
        raise RunError(str(error)) from error


EXPRESSIONS = (
    "color_mnist; sitar_best; rho = 0.9; OOD; mean", "color_mnist; sitar_best - ERM; rho = 0.9; ID / OOD; mean ± sd",
    "color_mnist; *; rho = 0.9; OOD; interval", "demo; *; *; *; low to high", "ask_rule.json: runs; seeds",
    "color_mnist; paper, SITAR; rho = 0.9; OOD; seed 3", "cpu_step.json: a.b[0][x=1] - a.c; percent; mean",
)  # fmt: skip


def expression(folder: Path) -> Parser:
    values = _reproduction(folder)

    def wrong(random: Random, content: bytes) -> bytes:
        parts = content.decode().split(";")
        pieces = (
            "*",
            " - ",
            " / ",
            " ± ",
            "mean",
            "seed -1",
            "seed 99999999999999999999",
            "paper, X",
            "[0]",
            "[-9]",
            "[=]",
            "[a!=b]",
            "..",
            "percent",
            ".json:",
            "x.json: a",
            "celeba",
            *WORDS,
        )
        for _ in range(random.choice((1, 2, 3))):
            place = random.randrange(len(parts))
            parts[place] = random.choice(
                (parts[place] + random.choice(pieces), random.choice(pieces), random.choice(parts))
            )
        return ";".join(parts[: random.randrange(1, len(parts) + 2)]).encode("utf-8", "surrogatepass")

    return Parser(
        "value",
        [one.encode() for one in EXPRESSIONS],
        lambda content: _evaluate(values, content.decode("utf-8", "surrogateescape")),
        wrong,
    )


def record(folder: Path) -> Parser:
    """The record of a table, over which values are computed."""
    values = _reproduction(folder)
    file = folder / "records" / "demo.json"
    whole = json.loads(file.read_bytes())
    seed = json.dumps({**whole, "runs": whole["runs"][:4]}).encode()

    def read(content: bytes) -> None:
        file.write_bytes(content)
        _evaluate(values, "demo; *; *; *; mean ± sd")
        _evaluate(values, "demo.json: runs[0].seed")

    return Parser("record", [seed], read, wrong_json)
