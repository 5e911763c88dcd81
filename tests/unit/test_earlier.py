"""Settings of earlier releases are read in today's words, without torch."""

from __future__ import annotations

import pytest

from sitar.config import section_config
from sitar.earlier import REMOVED, RENAMED, todays_config, todays_settings, why_refused
from sitar.registry import DATASETS, METHODS


def test_what_is_gone_is_dropped_with_the_value_that_still_holds():
    settings = {"name": "sitar", "alpha": 1.0, "beta_start": None, "discriminator_layers": 3}
    assert todays_settings("method", settings) == {"name": "sitar", "alpha": 1.0}
    assert "beta_start" in settings  # what is given is left alone


def test_what_is_gone_stays_with_another_value_so_that_it_is_refused():
    settings = {"name": "sitar", "beta_start": 6.0}
    assert todays_settings("method", settings) == settings
    assert "was removed, only None is left" in (why_refused("method", "sitar", "beta_start", 6.0) or "")


def test_an_old_name_becomes_the_new_one_in_its_place():
    assert list(todays_settings("method", {"name": "afr", "pull": 0.1, "gamma": 2}).items()) == [
        ("name", "afr"), ("l2", 0.1), ("gamma", 2),
    ]  # fmt: skip
    both = {"name": "afr", "pull": 0.1, "l2": 0.2}
    assert todays_settings("method", both) == both


def test_a_rule_is_of_one_data_set_or_method():
    assert todays_settings("method", {"name": "jtt", "pull": 1}) == {"name": "jtt", "pull": 1}
    assert why_refused("method", "jtt", "pull", 1) is None
    assert why_refused("train", None, "recon_target", "live") is None


def test_all_sections_of_a_run():
    config = {
        "seed": 1,
        "data": {"name": "color_mnist", "variant": "paper", "rho": 0.9},
        "model": {"recon_target": "detached", "hidden": 8},
        "method": {"name": "vae", "pull": 0.1},
        "train": None,
    }
    assert todays_config(config) == {
        "seed": 1,
        "data": {"name": "color_mnist", "rho": 0.9},
        "model": {"hidden": 8},
        "method": {"name": "vae", "l2": 0.1},
        "train": None,
    }


@pytest.mark.parametrize("kind", sorted({*REMOVED, *RENAMED}))
def test_the_table_names_what_there_is(kind: str):
    """What a rule renames exists today, and what it removes does not."""
    section, _, name = kind.partition(".")
    if name:
        config = {"data": DATASETS, "method": METHODS}[section].get(name).Config
    else:
        config = type(section_config(section, {}))
    known = {field.alias or key for key, field in config.model_fields.items()}
    assert not known & {*REMOVED.get(kind, {}), *RENAMED.get(kind, {})}
    assert set(RENAMED.get(kind, {}).values()) <= known
