"""Presets: what ships, what a base may hold, what is shown, what other packages add."""

from __future__ import annotations

import hashlib
import json
import os
import re
from pathlib import Path

import pytest
import yaml

import sitar.presets
from sitar.config import run_config
from sitar.errors import ConfigError, RunError
from sitar.presets import files, load_config, preset_about, preset_names, preset_text, read_preset
from sitar.presets.show import show_preset
from sitar.registry import METHODS
from sitar.run_folder import RunFolder
from sitar.yaml_text import MOST_CHARACTERS

ROOT = Path(__file__).parents[2]
PRESETS = Path(sitar.presets.__file__).parent
SHIPPED = sorted(f"{file.parent.name}/{file.stem}" for file in PRESETS.glob("*/*.yaml") if file.stem != "_base")
DIGESTS = Path(__file__).with_name("preset_digests.json")
PAPER = (  # what is not in the repository, and published
    r"paper, (Sec\. \d(\.\d)*|(Eq\.|Table|Theorem|Algorithm) \d+)",
    r'paper, appendix "(Pixel-Space|Pretrained Representation) Experiments"',
    r"arXiv 2511\.19525v1, Table \d",
)


def test_overrides_reach_the_run():
    overrides = ["method.lambda=2", "train.learning_rate=1e-3", "model.channels=[8,8]", "seed=4"]
    config = load_config("color_mnist/sitar", overrides)
    assert (config.method.lambda_, config.train.learning_rate, config.model.channels) == (2, 1e-3, (8, 8))
    assert config.seed == 4
    assert load_config("color_mnist/sitar", overrides, seed=5).seed == 5


def test_options_left_over_from_another_method_are_refused():
    with pytest.raises(ConfigError) as caught:
        load_config("color_mnist/sitar", ["method.name=erm", "method.alpha=1"])
    assert "Unknown key 'method.alpha'" in str(caught.value)
    assert "beta" not in str(caught.value)  # of the preset, which was not asked for


def test_presets_ship():
    assert {"color_mnist/sitar", "color_mnist/erm", "color_mnist/control"} <= set(SHIPPED) <= set(preset_names())


@pytest.mark.parametrize("name", SHIPPED)
def test_preset_is_valid_and_round_trips(name):
    config = load_config(name, seed=7)
    assert (config.preset, config.seed) == (name, 7)
    saved = yaml.safe_load(yaml.safe_dump(config.to_dict()))
    assert run_config(saved) == config
    assert run_config(saved).to_dict() == config.to_dict()


def digests(name: str) -> dict[str, str]:
    """A short digest of each section of a preset's complete settings."""
    settings = load_config(name).to_dict()
    sections = {key: json.dumps(value, sort_keys=True) for key, value in settings.items() if isinstance(value, dict)}
    return {key: hashlib.sha256(text.encode()).hexdigest()[:8] for key, text in sections.items()}


def test_no_preset_has_drifted() -> None:
    """A change of a base, or of a default of the code, reaches many presets: none may change by accident.

    Where a change is meant, `python tests/unit/test_presets.py` writes the digests again. Their diff shows what the
    change reaches: a new setting of `train` reaches that section of every preset, a new value only a few. Say so in the
    CHANGELOG, under Results if a number can move. A new preset joins when the digests are written.
    """
    kept = json.loads(DIGESTS.read_text(encoding="utf-8"))
    assert set(kept) <= set(SHIPPED)
    drifted = [
        f"{name}: {section}"
        for name in kept
        for section, digest in digests(name).items()
        if digest != kept[name][section]
    ]
    assert not drifted, f"{drifted}. Is it meant? Then run python tests/unit/test_presets.py."


def test_presets_stay_lean() -> None:
    """What a base says is not said again, and a base says it for a whole folder."""
    files = sorted(PRESETS.glob("*/*.yaml"))
    assert sum(len(file.read_text(encoding="utf-8").splitlines()) for file in files) <= 7.5 * len(files)
    for name in SHIPPED:
        preset = read_preset(name)
        for section, settings in preset.own.values.items():
            base = preset.base.section(section)
            repeated = [key for key, value in settings.items() if key in base and base[key] == value]
            assert not repeated, f"{name} repeats its base: {section}, {repeated}"


@pytest.mark.parametrize("folder", sorted(folder.name for folder in PRESETS.glob("[a-z]*/")))
def test_every_folder_has_a_base(folder: str) -> None:
    base = yaml.safe_load((PRESETS / folder / "_base.yaml").read_text(encoding="utf-8"))
    assert set(base) == {"data", "model", "train"}
    assert "name" in base["data"]


@pytest.mark.parametrize("name", SHIPPED)
def test_every_value_of_a_preset_has_a_source(name: str) -> None:
    preset = read_preset(name)
    for file in (preset.own, preset.base):
        for section, settings in file.values.items():
            for key in set(settings) - {"name"}:
                assert (section, key) in file.sources, f"{file.name}: {section}.{key} has no source"


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_source_can_be_opened() -> None:
    presets = [read_preset(name) for name in SHIPPED]
    sources = {source for preset in presets for file in (preset.own, preset.base) for source in file.sources.values()}
    for source in sorted(sources):
        if any(re.fullmatch(form, source) for form in PAPER):
            continue
        page, _, anchor = source.partition("#")
        assert re.fullmatch(r"docs/[\w/]+\.md|reproduce/records/\w+\.json", page), f"nobody can open {source!r}"
        assert (ROOT / page).is_file(), f"{source!r} names a file that is not there"
        assert not anchor or anchor in anchors(ROOT / page), f"{source!r} names a section that is not there"


def test_preset_and_base_are_merged() -> None:
    """Setting by setting: what the preset says counts, what it leaves out is the base's."""
    config = load_config("celeba/vae")
    assert (config.train.epochs, config.train.batch_size, config.train.selection) == (40, 128, "last")
    assert (config.data.name, config.data.label, config.data.majority_only) == ("celeba", "Blond_Hair", True)


@pytest.mark.parametrize("folder", ["color_mnist", "sites"])
@pytest.mark.parametrize(
    ("name", "change"), [("sitar_relu", "model.activation=relu"), ("isotropic", "method.noise=isotropic")]
)
def test_an_ablation_differs_from_the_paper_in_one_setting(folder: str, name: str, change: str) -> None:
    """Else its row could not be held against that of the paper's noise."""
    ablation, paper = load_config(f"{folder}/{name}"), load_config(f"{folder}/sitar", [change])
    for section in ("data", "model", "method", "train"):
        assert getattr(ablation, section) == getattr(paper, section)
    assert load_config(f"{folder}/sitar") != paper


def test_paper_preset_has_the_papers_numbers():
    """v1, Table 6: d, alpha, beta and lambda."""
    config = load_config("color_mnist/sitar")
    method = config.method
    assert (config.model.latent_dim, method.alpha, method.beta, method.lambda_) == (10, 1, 2, 10)
    assert (method.noise, method.noise_distribution, config.data.rho) == ("axis", "gaussian", 0.9)


@pytest.mark.parametrize(
    ("data", "epochs", "copies"), [("celeba", 2, 50), ("waterbirds", 60, 100)], ids=["celeba", "waterbirds"]
)
def test_jtt_has_its_authors_numbers(data: str, epochs: int, copies: int) -> None:
    """In their repository: `--final_epoch`, and `JTT_upweight_` in the names of folders (docs/protocol.md#jtt)."""
    for folder in (data, f"{data}_pretrained"):
        method = load_config(f"{folder}/jtt").method
        assert (method.first_epochs, method.copies) == (epochs, copies)


def test_jtt_leaves_errors_after_sixty_epochs_of_a_pretrained_encoder() -> None:
    """The authors' strong weight decay does so, with their optimiser."""
    train = load_config("waterbirds_pretrained/jtt").train
    assert (train.optimiser, train.learning_rate, train.momentum, train.weight_decay) == ("sgd", 1e-5, 0.9, 1.0)


def test_control_has_neither_noise_nor_consistency():
    method = load_config("color_mnist/control").method
    assert (method.alpha, method.lambda_, method.beta) == (0, 0, 2)


@pytest.mark.parametrize("suffix", ["yaml", "yml"])
def test_own_file(tmp_path, suffix):
    file = tmp_path / f"mine.{suffix}"
    file.write_text("data: {name: color_mnist}\nmethod: {name: erm}\ntrain: {epochs: 2}\n")
    config = load_config(str(file), ["train.batch_size=8"])
    assert (config.preset, config.train.epochs, config.train.batch_size) == (str(file), 2, 8)


def test_file_of_a_run(tmp_path):
    file = tmp_path / "config.yaml"
    config = load_config("color_mnist/sitar", ["method.alpha=0.3"], seed=2)
    file.write_text(yaml.safe_dump(config.to_dict(), sort_keys=False))
    assert run_config(RunFolder(tmp_path).read_config()) == config
    assert load_config(str(file)) == config.model_copy(update={"preset": str(file)})


def test_missing_file(tmp_path):
    with pytest.raises(ConfigError, match=r"Cannot read .*none\.yaml"):
        load_config(str(tmp_path / "none.yaml"))
    with pytest.raises(RunError, match=r"config\.yaml"):
        RunFolder(tmp_path).read_config()


@pytest.mark.parametrize(
    ("content", "reason"),
    [(b"a: [", "not valid YAML"), (b"- 1\n- 2\n", "holds list, not settings"), (b"\xff\xfe\x00", "Cannot read")],
)
def test_file_that_holds_no_settings(tmp_path, content, reason):
    file = tmp_path / "bad.yaml"
    file.write_bytes(content)
    with pytest.raises(ConfigError, match=reason) as caught:
        load_config(str(file))
    assert "bad.yaml" in str(caught.value)


def test_empty_file_misses_its_names(tmp_path):
    file = tmp_path / "empty.yaml"
    file.write_text("")
    with pytest.raises(ConfigError, match=r"data\.name is missing"):
        load_config(str(file))


def test_unknown_preset():
    with pytest.raises(
        ConfigError, match=r"Unknown preset 'color_mnist/sitr'. Did you mean 'color_mnist/sitar'\?"
    ) as caught:
        load_config("color_mnist/sitr")
    for name in preset_names():
        assert name in str(caught.value)
    assert ".yaml file of your own" in str(caught.value)


@pytest.mark.parametrize("name", METHODS.names())
@pytest.mark.parametrize("preset", ["npz/erm", "npz/sitar_best", "folder/erm"])
def test_a_preset_takes_any_method(preset: str, name: str, caplog: pytest.LogCaptureFixture) -> None:
    config = load_config(preset, [f"method.name={name}"])
    assert config.method.name == name
    known = set(METHODS.get(name).Config.model_fields)
    assert ("class_weight: left out" in caplog.text) == ("class_weight" not in known)
    with pytest.raises(ConfigError, match=r"Unknown key 'method\.nothing'"):
        load_config(preset, [f"method.name={name}", "method.nothing=1"])
    assert load_config(preset, [f'method.name="{name}"']).method == config.method  # words of YAML may be quoted


def test_epochs_that_are_asked_for_are_those_that_run() -> None:
    assert load_config("folder/sitar_best").train.least_steps == 1700
    assert load_config("folder/sitar_best", ["train.epochs=2"]).train.least_steps == 0
    both = load_config("folder/sitar_best", ["train.least_steps=9", "train.epochs=2"]).train
    assert (both.epochs, both.least_steps) == (2, 9)


@pytest.mark.parametrize("kind", ["folder", "table", "npz", "features"])
@pytest.mark.parametrize("method", ["erm", "control", "sitar_best"])
def test_your_own_data_has_class_weights_and_enough_steps(kind: str, method: str) -> None:
    config = load_config(f"{kind}/{method}")
    assert config.method.class_weight == "balanced"
    assert config.train.least_steps == 1700


def write(folder: Path, **texts: str) -> str:
    """Write YAML files; the path of the first one."""
    for name, text in texts.items():
        (folder / f"{name}.yaml").write_text(text, encoding="utf-8")
    return str(folder / f"{next(iter(texts))}.yaml")


def test_own_file_has_no_base_unless_it_names_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "waterbirds").mkdir()
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "waterbirds", erm="data: {name: waterbirds}\nmethod: {name: erm}\n", _base="train: {epochs: 3}\n")
    config = load_config("waterbirds/erm.yaml")
    assert (config.model.latent_dim, config.train.epochs) == (10, 80)  # the defaults of the code


def test_own_file_on_the_base_of_a_dataset(tmp_path: Path) -> None:
    mine = load_config(write(tmp_path, mine="base: waterbirds\nmethod: {name: erm}\ntrain: {epochs: 7}\n")).to_dict()
    ours = load_config("waterbirds/erm", ["train.epochs=7", "method.class_weight=null"]).to_dict()
    assert {**mine, "preset": ""} == {**ours, "preset": ""}


def test_own_file_on_a_file_beside_it(tmp_path: Path) -> None:
    texts = {
        "mine": "base: common.yaml\nmethod: {name: erm}\ntrain: {epochs: 7}\nmodel:\n",
        "common": "data: {name: color_mnist, rho: 0.7}\nmodel: {hidden: 9}\ntrain: {epochs: 5, batch_size: 8}\n",
    }
    config = load_config(write(tmp_path, **texts))
    assert (config.data.rho, config.model.hidden, config.train.epochs, config.train.batch_size) == (0.7, 9, 7, 8)


def test_own_file_may_say_that_it_has_no_base(tmp_path: Path) -> None:
    file = write(tmp_path, mine="base:\ndata: {name: color_mnist}\nmethod: {name: erm}\n")
    assert load_config(file).train.epochs == 80


@pytest.mark.parametrize(
    ("base", "common", "reason"),
    [
        ("waterbrids", "", r"Unknown base 'waterbrids'. Did you mean 'waterbirds'\?.*\.yaml file works too"),
        ("[celeba]", "", "Unknown base"),
        ("nowhere.yaml", "", r"Cannot read the base 'nowhere\.yaml' of '.*mine\.yaml'"),
        ("common.yaml", "base: celeba", r"mine\.yaml': its base 'common\.yaml' names a base of its own"),
        (
            "common.yaml",
            "method: {name: erm}",
            r"its base 'common\.yaml' has 'method'. A base holds only data, ",
        ),
        ("common.yaml", "seed: 3", r"its base 'common\.yaml' has 'seed'"),
        ("common.yaml", "train: 3", r"'common\.yaml': train: expected settings \(key: value\), got 3"),
        ("common.yaml", "- 1", r"'common\.yaml' holds list, not settings"),
        ("common.yaml", "a: [", r"'common\.yaml' is not valid YAML"),
        ("common.yaml", "train: {epoch: 3}", r"Unknown key 'train\.epoch'. Did you mean 'epochs'"),
    ],
)
def test_bad_base(tmp_path: Path, base: str, common: str, reason: str) -> None:
    mine = f"base: {base}\ndata: {{name: color_mnist}}\nmethod: {{name: erm}}\n"
    with pytest.raises(ConfigError, match=reason):
        load_config(write(tmp_path, mine=mine, common=common))


def test_section_of_your_own_that_is_no_mapping_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"train: expected settings \(key: value\), got 3"):
        load_config(write(tmp_path, mine="base: color_mnist\nmethod: {name: erm}\ntrain: 3\n"))


def test_base_is_no_preset() -> None:
    assert not [name for name in preset_names() if "_base" in name]
    with pytest.raises(ConfigError, match="Unknown preset 'color_mnist/_base'"):
        load_config("color_mnist/_base")


@pytest.mark.parametrize("name", SHIPPED)
def test_what_a_preset_is_fits_on_a_line(name: str) -> None:
    assert preset_about(name).endswith(".")
    assert preset_text(name).splitlines()[0] == f"# {preset_about(name)}"


def test_file_without_a_comment_says_nothing_of_itself(tmp_path: Path) -> None:
    assert preset_about(write(tmp_path, empty="")) == ""
    assert preset_about(write(tmp_path, plain="data: {name: color_mnist}\n")) == ""


def test_shown_preset_has_every_setting_its_origin_and_its_source() -> None:
    lines = show_preset("celeba/sitar_best").splitlines()
    assert lines[:2] == [
        preset_text("celeba/sitar_best").splitlines()[0],
        "# Give data.root. For the other task set data.label=Attractive and data.attribute=Smiling.",
    ]
    shown = [re.sub(" +", " ", line) for line in lines]
    assert " beta: 1.5 # source: reproduce/records/color_mnist_tuning.json [preset]" in shown
    assert " latent_dim: 10 # source: arXiv 2511.19525v1, Table 6 [base]" in shown
    assert " hidden: 128 # [default]" in shown
    settings = [line for line in lines if line.startswith("  ")]
    assert all(re.search(r"  # (source: .+ )?\[(preset|base|default)\]$", line) for line in settings)
    complete = load_config("celeba/sitar_best").to_dict()
    assert len(settings) == sum(len(section) for section in complete.values() if isinstance(section, dict))


@pytest.mark.parametrize("name", ["bar/vae", "npz/sitar_best", "color_mnist/diffusion"])
def test_shown_preset_can_be_trained(name: str, tmp_path: Path) -> None:
    file = write(tmp_path, mine=show_preset(name))
    assert load_config(file) == load_config(name).model_copy(update={"preset": file})


def test_shown_file_of_your_own(tmp_path: Path) -> None:
    text = "# Mine.\nbase: celeba\nseed: 3\nmethod:\n  name: sitar\n  lambda_: 4  # source: a guess\n"
    lines = show_preset(write(tmp_path, mine=text)).splitlines()
    assert lines[0] == "# Mine."
    shown = [re.sub(" +", " ", line) for line in lines]
    assert "seed: 3 # [preset]" in shown
    assert " lambda: 4.0 # source: a guess [preset]" in shown
    assert " name: celeba # [base]" in shown


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Install a package that brings presets, until the test is over."""

    def install(name: str, init: str = "", **presets: str) -> None:
        folder = tmp_path / name.replace("-", "_")
        folder.mkdir()
        (folder / "__init__.py").write_text(init, encoding="utf-8")
        for preset, text in presets.items():
            file = folder / f"{preset.replace('__', '/')}.yaml"
            file.parent.mkdir(exist_ok=True)
            file.write_text(text, encoding="utf-8")
        about = tmp_path / f"{folder.name}-1.0.dist-info"
        about.mkdir()
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n", encoding="utf-8")
        (about / "entry_points.txt").write_text(f"[sitar.presets]\n{name} = {folder.name}\n", encoding="utf-8")

    monkeypatch.syspath_prepend(str(tmp_path))
    files._files.cache_clear()
    yield install
    files._files.cache_clear()


def test_presets_of_another_package(package, caplog: pytest.LogCaptureFixture) -> None:
    package(
        "my-presets",
        color_mnist__mine="# Mine.\nmethod: {name: erm}\n",
        other__erm="method: {name: erm}\n",
        other___base="data: {name: color_mnist}\ntrain: {epochs: 3}\n",
        alone__erm="data: {name: sites}\nmethod: {name: erm}\n",
    )
    assert {"color_mnist/mine", "other/erm", "alone/erm", "color_mnist/sitar"} <= set(preset_names())
    assert preset_about("color_mnist/mine") == "Mine."
    ours = load_config("color_mnist/erm").model_copy(update={"preset": "color_mnist/mine"})
    assert load_config("color_mnist/mine") == ours  # it has the base of the folder that it joins
    assert load_config("other/erm").train.epochs == 3
    assert load_config("alone/erm").train.epochs == 80
    assert not caplog.records


def test_package_whose_presets_cannot_be_had_is_named(package, caplog: pytest.LogCaptureFixture) -> None:
    package("broken-presets", init="raise RuntimeError('no luck')")
    package("good-presets", color_mnist__good="method: {name: erm}\n")
    assert {"color_mnist/good", "color_mnist/sitar"} <= set(preset_names())
    preset_names()
    (record,) = caplog.records  # said once
    assert "'broken-presets'" in record.getMessage()
    assert "no luck" in record.getMessage()


def test_name_of_a_preset_that_is_taken_is_refused(package, caplog: pytest.LogCaptureFixture) -> None:
    before = load_config("color_mnist/erm")
    files._files.cache_clear()
    package(
        "greedy",
        color_mnist__erm="method: {name: sitar}\n",
        color_mnist___base="train: {epochs: 1}\n",
        color_mnist__free="method: {name: erm}\n",
    )
    assert load_config("color_mnist/erm") == before
    assert "color_mnist/free" in preset_names()
    said = sorted(record.getMessage() for record in caplog.records)
    assert said == [
        f"{name}.yaml of the package 'greedy' is refused: 'sitar' has one of that name."
        for name in ("color_mnist/_base", "color_mnist/erm")
    ]


def test_preset_of_another_package_that_names_a_base(package) -> None:
    package("based", mine__erm="base: celeba\nmethod: {name: erm}\n")
    with pytest.raises(ConfigError, match="'mine/erm' names a base, but it has that of its folder"):
        load_config("mine/erm")


def test_preset_of_another_package_that_is_no_text(package, tmp_path: Path) -> None:
    package("binary", mine__erm="")
    (tmp_path / "binary" / "mine" / "erm.yaml").write_bytes(b"\xff")
    with pytest.raises(ConfigError, match="Cannot read the preset 'mine/erm'"):
        load_config("mine/erm")


if __name__ == "__main__":
    kept = {name: digests(name) for name in SHIPPED}
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(sections)}" for name, sections in kept.items())
    DIGESTS.write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")


@pytest.mark.parametrize("kind", ["pipe", "device"])
@pytest.mark.parametrize("text", [None, "base: f.yaml\n"], ids=["file", "base"])
def test_a_pipe_or_a_device_is_no_settings_file(kind: str, text: str | None, tmp_path: Path) -> None:
    """The first would wait for somebody to write into it, and the second has no end."""
    file = tmp_path / "f.yaml"
    os.mkfifo(file) if kind == "pipe" else file.symlink_to("/dev/zero")
    if text is not None:
        (tmp_path / "own.yaml").write_text(text)
    with pytest.raises(ConfigError, match=r"Cannot read .*f\.yaml.*: it is not a regular file"):
        read_preset(str(file if text is None else tmp_path / "own.yaml"))


def test_a_large_settings_file_is_refused_before_it_is_read(tmp_path: Path) -> None:
    with (tmp_path / "f.yaml").open("wb") as file:
        file.truncate(10 * MOST_CHARACTERS)
    with pytest.raises(ConfigError, match=r"has 10,000,000 bytes, and at most 4,000,000 are read"):
        read_preset(str(tmp_path / "f.yaml"))


def test_line_ends_of_another_system_are_read_as_ours(tmp_path: Path) -> None:
    (tmp_path / "f.yaml").write_bytes(b"# About.\r\nbase: color_mnist\r\nmethod: {name: erm}\r\n")
    assert preset_text(str(tmp_path / "f.yaml")) == "# About.\nbase: color_mnist\nmethod: {name: erm}\n"
