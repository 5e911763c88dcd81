"""Presets: what ships, what a base may hold, what is shown, what other packages add."""

from __future__ import annotations

import re

import pytest
import yaml

from sitar.config import run_config
from sitar.errors import ConfigError, RunError
from sitar.presets import load_config, preset_names, preset_text
from sitar.registry import METHODS
from sitar.run_folder import RunFolder


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
    assert {"color_mnist/sitar", "color_mnist/erm", "color_mnist/control"} <= set(preset_names())


@pytest.mark.parametrize("name", preset_names())
def test_preset_is_valid_and_round_trips(name):
    config = load_config(name, seed=7)
    assert (config.preset, config.seed) == (name, 7)
    saved = yaml.safe_load(yaml.safe_dump(config.to_dict()))
    assert run_config(saved) == config
    assert run_config(saved).to_dict() == config.to_dict()


@pytest.mark.parametrize("name", preset_names())
def test_every_value_of_a_preset_has_a_source(name):
    for line in preset_text(name).splitlines():
        is_section = re.fullmatch(r"\w+:", line)
        is_comment = line.startswith("#") or not line.strip()
        if not is_section and not is_comment and not re.match(r"\s*name:", line):
            assert re.search(r"\S  # source: \S", line), line


def test_paper_preset_has_the_papers_numbers():
    """v1, Table 6: d, alpha, beta and lambda."""
    config = load_config("color_mnist/sitar")
    method = config.method
    assert (config.model.latent_dim, method.alpha, method.beta, method.lambda_) == (10, 1, 2, 10)
    assert (method.noise, method.noise_distribution, config.data.rho) == ("axis", "gaussian", 0.9)


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
