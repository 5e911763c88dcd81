"""The command line, misused: arguments that are missing, doubled, exchanged, too many or absurd."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from random import Random

from fuzz.mutate import WORDS
from fuzz.parsers.commands import command
from fuzz.parsers.parser import Parser
from helpers.made_runs import make_run
from sitar.cli.main import COMMANDS
from sitar.errors import ConfigError

GOOD = (
    ["presets"], ["presets", "color_mnist/sitar"], ["doctor"], ["--version"], ["--help"], ["data", "--help"],
    ["compare", "a", "b"], ["compare", "a", "--json"], ["compare", "a", "b", "--against", "ERM", "--csv"],
    ["report", "a", "b", "--out", "r.html"], ["card", "a", "--out", "c.md", "--force"],
    ["sweep", "color_mnist/sitar", "--over", "method.alpha=0.1,1", "--seeds", "0-1", "--dry-run"],
    ["evaluate", "a"], ["predict", "a", "x.npz", "--out", "p.csv"], ["explain", "a"], ["audit", "a"], ["theory", "a"],
    ["export", "a"], ["choose", "a", "b", "--images", "x.npz"], ["refit", "a", "--images", "x.npz"], ["train",
    "nosuch/preset"],
    ["train", "npz/erm", "--set", "data.file=no.npz"], ["data", "prepare", "npz", "--set", "data.file=no.npz"],
    ["ask", "a", "b", "--images", "x.npz", "--no-browser"], ["push", "a", "me/x", "--dry-run"], ["data", "info",
    "color_mnist"],
)  # fmt: skip
WITHOUT_WORK = ("demo", "ray://", "auto")  # a demonstration is no error, and trains for a minute
ARGUMENTS = (
    "--set", "--seed", "--out", "--device", "--resume", "--json", "--csv", "--latex", "--metric", "--against",
    "--quiet",
    "--import", "--over", "--seeds", "--select", "--search", "--trials", "--workers", "--engine", "--images",
    "--answers", "--port",
    "--split", "--axes", "--threshold", "--root", "--help", "-h", "-q", "--", "-", "--nosuch", "a", "b", "no",
    ".", "..", "/", "x.npz",
    "x.csv", "a/result.json", "color_mnist/sitar", "npz/erm", "method.alpha=1", "model.latent_dim=99999999",
    "data.rho=2",
    "data.file=x.npz", "data.root=~nosuchuser/x", "train.epochs=0", "cuda:99", "cpu", "tpu", "-1",
    "99999999999999999999", "nan", "0.5",
    "average", "nosuch", "--format", "onnx", "torch", "--force", "--title", "--name", "--license",
    "--predictions", "m=x.csv", "m=", "=",
)  # fmt: skip


def misuse(folder: Path) -> Parser:
    place = folder / "work"

    def fresh() -> None:
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        options = {"axes": 2, "size": 6, "samples": 12, "epochs": 1, "explained": False}
        make_run(place / "a", "erm", **options)  # type: ignore[arg-type]
        make_run(place / "b", "erm", seed=1, **options)  # type: ignore[arg-type]
        (place / "x.csv").write_text("index,prediction\n0,red\n")
        (place / "x.npz").write_bytes(b"no array")

    fresh()

    def read(content: bytes) -> None:
        try:
            arguments = json.loads(content)
        except (ValueError, RecursionError) as error:
            raise ConfigError("no arguments") from error
        if not isinstance(arguments, list):
            raise ConfigError("no arguments")
        words = [str(word).replace("\0", "") for word in arguments]  # no shell passes on a zero
        if any(word in WITHOUT_WORK for word in words):
            return
        if not (place / "a" / "done").exists():
            fresh()
        command(words, place)

    def wrong(random: Random, content: bytes) -> bytes:
        words = json.loads(content)
        for _ in range(random.choice((1, 1, 2, 3, 5))):
            at = random.randrange(len(words) + 1)
            word = random.choice(
                (random.choice(ARGUMENTS), random.choice(ARGUMENTS), random.choice(WORDS), random.choice(COMMANDS))
            )
            match random.randrange(5):
                case 0 if len(words) > 1:
                    del words[at % len(words)]
                case 1 if words:
                    words[at % len(words)] = word
                case 2 if words:
                    words.insert(at, words[at % len(words)])
                case _:
                    words.insert(max(1, at), word)
        return json.dumps(words).encode()

    return Parser(
        "command line",
        [json.dumps(one).encode() for one in GOOD[:13]],
        read,
        lambda random, content: wrong(random, json.dumps(random.choice(GOOD)).encode()),
    )
