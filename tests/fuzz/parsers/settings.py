"""Settings: the YAML of a run, preset files with a base, `--set`, `--over` and `--seeds`."""

from __future__ import annotations

from pathlib import Path
from random import Random

from fuzz.mutate import WORDS, strange, wrong_yaml
from fuzz.parsers.parser import Parser
from sitar import presets
from sitar.config import apply_overrides, run_config
from sitar.presets.files import preset_text, read_preset
from sitar.presets.show import show_preset
from sitar.sweeps.axes import parse_over, parse_seeds

NAMES = ("color_mnist/sitar", "color_mnist/erm", "waterbirds/jtt", "npz/sitar", "table/erm")


def _known() -> list[str]:
    return [name for name in NAMES if name in presets.preset_names()]


def config(folder: Path) -> Parser:
    import yaml

    seeds = [yaml.safe_dump(presets.load_config(name).to_dict()).encode() for name in _known()]

    def read(content: bytes) -> None:
        file = folder / "mine.yaml"
        file.write_bytes(content)
        run_config(read_preset(str(file)).merged()).to_dict()

    return Parser("config", seeds, read, wrong_yaml)


def preset(folder: Path) -> Parser:
    seeds = [b"base: color_mnist\n" + preset_text(name).encode() for name in _known()]
    (folder / "base.yaml").write_text("data: {name: color_mnist}\ntrain: {epochs: 2}\n")
    seeds.append(b"base: base.yaml\nmethod: {name: erm}\n")
    (folder / "base_of_base.yaml").write_text("base: color_mnist\n")

    def read(content: bytes) -> None:
        file = folder / "mine.yaml"
        file.write_bytes(content)
        presets.load_config(str(file), seed=0)
        show_preset(str(file))

    return Parser("preset", seeds, read, wrong_yaml)


OVERRIDES = (
    "method.alpha=0.5", "train.epochs=2", "data.rho=0.9", "seed=3", "model.channels=[4, 8]", "train.log=[tensorboard]",
    "method={name: erm}", "train.evaluate=[val, ood_test]", "model.latent_dim=8", "data.name=npz", "data.file=x.npz",
    "method.noise=swap", "train.learning_rate=1e-3", "train.selection=val_worst_group",
    "model.encoder=resnet18.tv_in1k",
)  # fmt: skip


def override(folder: Path) -> Parser:
    raw = presets.load_config("color_mnist/sitar").to_dict()

    def read(content: bytes) -> None:
        text = content.decode("utf-8", "surrogateescape")
        run_config(apply_overrides(raw, text.split("\x1f"))).to_dict()

    def wrong(random: Random, content: bytes) -> bytes:
        import yaml

        key = (
            content.decode().partition("=")[0]
            if random.random() < 0.7
            else random.choice((*WORDS, "a.b.c", "method", "method..x", "data.name.x"))
        )
        value = random.choice(
            (
                strange(random),
                "[" * 3000,
                "{a: " * 800,
                "&a [*a]",
                "!!python/object:os.system x",
                "99999999",
                "1" * 5000,
            )
        )
        text = (
            value
            if isinstance(value, str)
            else yaml.dump(value, default_flow_style=True, width=10**6).removesuffix("...\n")
        )
        return f"{key}={text}".encode("utf-8", "surrogatepass")

    return Parser("set", [one.encode() for one in OVERRIDES], read, wrong)


def over(folder: Path) -> Parser:
    seeds = [
        b"method.alpha=0.1,0.5,1", b"method.alpha=0.01..10:log", b"train.epochs=1..5", b"data.rho=[0.8, 0.9]",
        b"model.channels=[4],[4, 8]", b"method.noise=swap,gaussian",
    ]  # fmt: skip

    def read(content: bytes) -> None:
        text = content.decode("utf-8", "surrogateescape")
        for axis in parse_over([text]):
            axis.describe()

    def wrong(random: Random, content: bytes) -> bytes:
        key, _, values = content.decode().partition("=")
        parts = [
            random.choice(
                (
                    values,
                    *WORDS,
                    str(strange(random)),
                    "..",
                    ":log",
                    "1..0",
                    "nan..inf",
                    "0..1:log",
                    "{",
                    "&a",
                    "1e400..2",
                )
            )
            for _ in range(random.randrange(4))
        ]
        return f"{random.choice((key, key, '', 'x', '.'))}={random.choice((',', '..', '')).join(parts)}".encode(
            "utf-8", "surrogatepass"
        )

    return Parser("over", seeds, read, wrong)


def seeds_option(folder: Path) -> Parser:
    def wrong(random: Random, content: bytes) -> bytes:
        parts = [
            random.choice(
                ("0", "1-3", "3-1", "-", "0-99999999999", "1-", "-1", "a", " ", "1e3", "٣", "0-4294967295", *WORDS)
            )
            for _ in range(random.randrange(5))
        ]
        return ",".join(parts).encode("utf-8", "surrogatepass")

    return Parser(
        "seeds",
        [b"0", b"0-4", b"0,2,5", b"0-2,7"],
        lambda content: parse_seeds(content.decode("utf-8", "surrogateescape")),
        wrong,
    )
