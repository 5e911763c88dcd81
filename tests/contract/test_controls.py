"""What is said of controls without torch is true of the methods."""

from __future__ import annotations

import pytest

from sitar.controls import BASELINE, CONTROLS
from sitar.methods import METHODS


@pytest.mark.parametrize("name", CONTROLS)
def test_the_settings_of_the_noise_are_settings_of_the_method(name: str) -> None:
    control, config = CONTROLS[name], METHODS.get(name).Config
    settings = config().model_dump(by_alias=True)
    assert set(control.settings) <= set(settings)
    assert control.strength in control.settings
    assert settings[control.strength] > 0
    assert config(**{control.strength: 0}).model_dump(by_alias=True)[control.strength] == 0


def test_the_baseline_is_a_method_without_groups() -> None:
    assert not METHODS.get(BASELINE).needs_groups
