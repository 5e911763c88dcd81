"""Settings, overrides and the registry."""

from __future__ import annotations

import re

import pydantic
import pytest
import yaml

from sitar.config import (
    Config,
    ModelConfig,
    NamedConfig,
    TrainConfig,
    apply_overrides,
    run_config,
)
from sitar.errors import ConfigError
from sitar.registry import DATASETS, METHODS, Registry, did_you_mean

RAW = {"data": {"name": "color_mnist"}, "method": {"name": "sitar"}}


def changed(section: str, **values) -> dict:
    return {**RAW, section: {**RAW.get(section, {}), **values}}


def problems(raw: dict) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        run_config(raw)
    return str(caught.value).splitlines()


def test_defaults_are_complete():
    config = run_config(RAW)
    assert (config.preset, config.seed) == ("custom", 0)
    assert config.method.lambda_ == 10
    assert config.model == ModelConfig()
    assert config.train == TrainConfig()


def test_settings_are_frozen():
    config = run_config(RAW)
    with pytest.raises(pydantic.ValidationError, match="frozen"):
        config.train.epochs = 3


@pytest.mark.parametrize(
    ("raw", "unknown", "meant"),
    [
        (changed("train", epoch=3), "train.epoch", "epochs"),
        (changed("method", lamda=3), "method.lamda", "lambda"),
        (changed("method", alhpa=3), "method.alhpa", "alpha"),
        (changed("data", roh=0.5), "data.roh", "rho"),
        (changed("model", latentdim=3), "model.latentdim", "latent_dim"),
        ({**RAW, "trian": {}}, "trian", "train"),
        ({**RAW, "sed": 3}, "sed", "seed"),
    ],
)
def test_unknown_key(raw, unknown, meant):
    (line,) = problems(raw)
    assert line.startswith(f"Unknown key {unknown!r}. Did you mean {meant!r}? Allowed here: ")


def test_only_a_run_that_was_fitted_again_has_the_section_of_it():
    assert "refit" not in run_config(RAW).to_dict()
    section = {"features": "hidden", "answers": 50, "digest": "0a1b2c3d"}
    config = run_config({**RAW, "refit": section})
    assert config.to_dict()["refit"] == section
    assert run_config(config.to_dict()) == config
    assert problems({**RAW, "refit": {**section, "features": "pixels"}})[0].startswith("refit.features = 'pixels'")
    assert "refit.anwers" in problems({**RAW, "refit": {**section, "anwers": 3}})[0]


def test_unknown_key_that_resembles_nothing():
    (line,) = problems({**RAW, "zzz": 1})
    assert line == "Unknown key 'zzz'. Allowed here: preset, seed, data, model, method, train."


@pytest.mark.parametrize(
    ("section", "key", "value"),
    [
        ("train", "epochs", 0),
        ("train", "epochs", "many"),
        ("train", "batch_size", 1),
        ("train", "learning_rate", float("nan")),
        ("train", "learning_rate", float("inf")),
        ("train", "momentum", 1),
        ("train", "optimiser", "lion"),
        ("train", "selection", "best"),
        ("method", "alpha", -1),
        ("method", "noise", "axes"),
        ("method", "class_weight", "balance"),
        ("data", "rho", 1.1),
        ("data", "image_size", 20),
        ("data", "train_size", 50_001),
        ("model", "latent_dim", 2.5),
        ("model", "channels", []),
        ("model", "activation", "tanh"),
    ],
)
def test_value_that_is_not_allowed(section, key, value):
    (line,) = problems(changed(section, **{key: value}))
    assert line.startswith(f"{section}.{key}")
    assert f"= {value!r} is not allowed: " in line


def whole_numbers(cls: type[Config]) -> list[str]:
    return [name for name, field in cls.model_fields.items() if field.annotation in (int, int | None)]


@pytest.mark.parametrize(
    ("section", "key"),
    [(s, key) for s, cls in (("train", TrainConfig), ("model", ModelConfig)) for key in whole_numbers(cls)],
)
def test_a_whole_number_that_no_computer_counts_to(section, key):
    (line,) = problems(changed(section, **{key: int("9" * 320)}))
    assert line.startswith(f"{section}.{key} = 999")
    assert "is not allowed: input should be less than or equal to 1000000000" in line
    assert key in whole_numbers({"train": TrainConfig, "model": ModelConfig}[section])


@pytest.mark.parametrize("key", ["warmup_epochs", "learning_rate", "weight_decay", "checkpoint_seconds"])
def test_a_whole_number_in_the_place_of_a_float(key):
    (line,) = problems(changed("train", **{key: int("9" * 320)}))
    assert line.startswith(f"train.{key} = 999")


@pytest.mark.parametrize("seed", [-1, 2**32, "one", None])
def test_seed_that_is_not_allowed(seed):
    (line,) = problems({**RAW, "seed": seed})
    assert line.startswith(f"seed = {seed!r} is not allowed")


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (changed("train", patience=3), "train: patience needs a criterion"),
        (changed("train", selection="val_average", evaluate=["val_ood"]), "train.evaluate must contain 'val'"),
        (changed("model", channels=[8, 0]), "every width in channels must be at least 1"),
        (changed("method", noise="swap", noise_distribution="uniform"), "swap draws no noise"),
        (changed("data", variant="irm"), "data: variant = 'irm' was removed, only 'paper' is left: leave variant out"),
    ],
)
def test_settings_that_do_not_go_together(raw, reason):
    (line,) = problems(raw)
    assert reason in line


def test_a_removed_setting_of_an_old_run_is_dropped():
    config = run_config(changed("data", variant="paper"))
    assert config == run_config(RAW)
    assert "variant" not in config.to_dict()["data"]


def test_several_problems_at_once():
    raw = {
        "data": {"name": "color_mnist", "rho": 2},
        "method": {"name": "sitr"},
        "train": {"epochs": 0, "x": 1},
        "y": 2,
    }
    lines = problems(raw)
    assert len(lines) == 5
    for part in (
        "'y'",
        "data.rho = 2",
        "Unknown method 'sitr'. Did you mean 'sitar'?",
        "train.epochs = 0",
        "'train.x'",
    ):
        assert sum(part in line for line in lines) == 1, part


@pytest.mark.parametrize("section", ["data", "method"])
def test_name_is_missing(section):
    (line,) = problems({**RAW, section: {}})
    assert line.startswith(f"{section}.name is missing. Known: ")


@pytest.mark.parametrize("value", [3, "sitar", ["name", "sitar"]])
def test_section_that_is_no_mapping(value):
    (line,) = problems({**RAW, "method": value})
    assert line == f"method: expected settings (key: value), got {value!r}."


def test_empty_section_means_defaults():
    assert run_config({**RAW, "train": None}).train == TrainConfig()


def test_lambda_is_written_as_in_the_paper():
    assert run_config(changed("method", **{"lambda": 3})).method.lambda_ == 3
    assert run_config(changed("method", lambda_=4)).method.lambda_ == 4
    saved = run_config(changed("method", **{"lambda": 3})).to_dict()
    assert saved["method"]["lambda"] == 3
    assert "lambda_" not in saved["method"]


@pytest.mark.parametrize(
    ("override", "path", "value"),
    [
        ("method.alpha=0.5", ("method", "alpha"), 0.5),
        (" method.alpha =0.5", ("method", "alpha"), 0.5),
        ("model.channels=[8, 16]", ("model", "channels"), [8, 16]),
        ("train.patience=null", ("train", "patience"), None),
        ("train.patience=", ("train", "patience"), None),
        ("seed=3", ("seed",), 3),
        ("data.root=/a=b", ("data", "root"), "/a=b"),
        ("new.section.key=yes", ("new", "section", "key"), True),
    ],
)
def test_override(override, path, value):
    found = apply_overrides(RAW, [override])
    for part in path:
        found = found[part]
    assert found == value


def test_overrides_leave_the_original_alone():
    raw = {"method": {"alpha": 1}}
    apply_overrides(raw, ["method.alpha=2", "method.beta=3"])
    assert raw == {"method": {"alpha": 1}}


def test_last_override_wins():
    assert apply_overrides({}, ["a.b=1", "a.b=2"]) == {"a": {"b": 2}}


@pytest.mark.parametrize(
    ("override", "reason"),
    [
        ("method.alpha", "not of the form key=value"),
        ("=3", "not of the form key=value"),
        ("method.=3", "not of the form key=value"),
        (".alpha=3", "not of the form key=value"),
        ("", "not of the form key=value"),
        ("method.alpha=[1", "not valid YAML"),
        ("data.feature_columns=*", """Put it in quotes: --set 'data.feature_columns="*"'."""),
        ("method.name.deep=1", "'name' holds a value, not settings"),
    ],
)
def test_bad_override(override, reason):
    with pytest.raises(ConfigError, match=re.escape(repr(override))) as caught:
        apply_overrides(RAW, [override])
    assert reason in str(caught.value)


def test_did_you_mean():
    assert did_you_mean("sitr", ["erm", "sitar"]) == " Did you mean 'sitar'?"
    assert did_you_mean("ERM", ["erm", "irm"]) == " Did you mean 'erm'?"
    assert did_you_mean("qqqq", ["erm", "sitar"]) == ""


@pytest.mark.parametrize(
    ("registry", "kind", "name"), [(METHODS, "method", "sitar"), (DATASETS, "dataset", "color_mnist")]
)
def test_registry_look_up(registry, kind, name):
    assert name in registry.names()
    assert registry.get(name).Config.model_fields["name"].default == name
    with pytest.raises(ConfigError, match=f"Unknown {kind} '{name}x'. Did you mean '{name}'. Known: .*{name}"):
        registry.get(f"{name}x")


@pytest.mark.parametrize("registry", [METHODS, DATASETS], ids=["methods", "datasets"])
def test_settings_carry_the_name_under_which_their_class_is_registered(registry):
    for name in registry.names():
        config = registry.get(name).Config
        assert issubclass(config, NamedConfig)
        assert config().name == name


def test_registry_refuses_a_name_twice():
    registry = Registry("toy", home="sitar.errors")
    registry.register("a")(int)
    assert (registry.names(), registry.get("a")) == (["a"], int)
    with pytest.raises(ValueError, match="toy 'a' is registered twice"):
        registry.register("a")(str)
    assert registry.get("a") is int


def test_seed_is_listed_with_the_other_problems():
    found = problems({**changed("train", epochs=0), "seed": -1})
    assert len(found) == 2
    assert found[1].startswith("seed = -1 is not allowed")


@pytest.mark.parametrize("key", [1, True, None])
def test_key_that_is_no_text(key):
    assert "Unknown key" in problems({**RAW, key: 2})[0]
    assert "Unknown key" in problems({**RAW, "train": {key: 2}})[0]


@pytest.mark.parametrize("value", [0, [], False, ""])
def test_section_that_is_false_but_not_empty(value):
    assert "expected settings" in problems({**RAW, "train": value})[0]


def test_override_in_an_empty_section():
    assert run_config(apply_overrides({**RAW, "train": None}, ["train.epochs=3"])).train.epochs == 3


@pytest.mark.parametrize("override", ["preset=other", "data.root=2020-13-45"])
def test_override_that_cannot_be_read(override):
    with pytest.raises(ConfigError, match="--set"):
        apply_overrides(RAW, [override])


def test_misspelt_split():
    assert "train.evaluate" in problems(changed("train", evaluate=["vla"]))[0]


def test_settings_of_an_earlier_release_are_read():
    """A run's config.yaml as it was written when there were more settings."""
    config = run_config(yaml.safe_load(EARLIER_RUN))
    now = {**changed("data", train_size=600), "train": {"epochs": 2}}
    assert config == run_config(now, preset="color_mnist/sitar", seed=1)
    assert "recon_target" not in config.to_dict()["model"]
    assert "beta_start" not in config.to_dict()["method"]


@pytest.mark.parametrize(
    ("section", "key", "left", "gone"),
    [
        ("model", "recon_target", "detached", "live"),
        ("method", "beta_start", None, 6.0),
        ("method", "beta_anneal_epochs", 20, 10),
        ("method", "discriminator_hidden", 256, 1000),
        ("method", "discriminator_layers", 3, 6),
        ("method", "discriminator_rate", 1e-4, 1e-3),
    ],
)
def test_a_setting_that_was_removed(section, key, left, gone):
    assert run_config(changed(section, **{key: left})) == run_config(RAW)
    (line,) = problems(changed(section, **{key: gone}))
    assert line == f"{section}: {key} = {gone!r} was removed, only {left!r} is left: leave {key} out."


@pytest.mark.parametrize("name", ["afr", "vae"])
def test_a_setting_that_was_renamed(name):
    old, new = (run_config({**RAW, "method": {"name": name, key: 0.5}}) for key in ("pull", "l2"))
    assert old == new
    assert "pull" not in old.to_dict()["method"]
    (line,) = problems({**RAW, "method": {"name": name, "pull": 0.5, "l2": 0.5}})
    assert line == "method: pull is called l2 now: give one of the two."


EARLIER_RUN = """\
preset: color_mnist/sitar
seed: 1
data:
  name: color_mnist
  variant: paper
  rho: 0.9
  label_noise: 0.25
  image_size: 28
  train_size: 600
  eval_size: 10000
  seed: 0
  root: null
model:
  latent_dim: 10
  channels: null
  hidden: 128
  activation: gelu
  encoder: null
  encoder_weights: hub
  stride_in_1x1: false
  freeze_encoder: false
  recon_target: detached
method:
  class_weight: null
  name: sitar
  alpha: 1.0
  vae: beta
  beta: 2.0
  vae_scale: sum
  lambda: 10.0
  noise: axis
  noise_distribution: gaussian
  objective: sampled
  beta_start: null
  beta_anneal_epochs: 20
  discriminator_hidden: 256
  discriminator_layers: 3
  discriminator_rate: 0.0001
train:
  epochs: 2
  least_steps: 0
  batch_size: 512
  optimiser: adam
  learning_rate: 0.001
  weight_decay: 0.0
  momentum: 0.9
  schedule: constant
  warmup_epochs: 0.0
  augment: none
  gradient_clip: null
  precision: float32
  step: auto
  selection: last
  patience: null
  evaluate:
  - val
  evaluate_every: 1
  checkpoint_seconds: 10.0
"""
