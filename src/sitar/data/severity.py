"""Severity is how strongly shortcut and label agree in training: the paper's strict regime, or any by thinning out."""

from __future__ import annotations

import logging
from dataclasses import replace

import numpy as np
from pydantic import Field, model_validator

from sitar.config import Config
from sitar.data.sample_table import SampleTable
from sitar.errors import ConfigError

logger = logging.getLogger(__name__)
SHORTCUT_SPLITS = ("train", "val")  # the test keeps all groups


class SeverityConfig(Config):
    """Sets how strongly the shortcut and the label agree, for data that may know an attribute of two values."""

    majority_only: bool = Field(
        default=False, description="train and val without a sample that contradicts the shortcut: the paper's regime"
    )
    rho: float | None = Field(
        default=None, ge=0, le=1, description="thin out train and val until this share follows the shortcut"
    )
    seed: int = Field(default=0, ge=0, description="of the thinning: not the run's seed")

    @model_validator(mode="after")
    def _one_severity(self) -> SeverityConfig:
        if self.majority_only and self.rho is not None:
            raise ValueError("majority_only is rho = 1 already: set one of the two")
        return self


def with_severity(table: SampleTable, config: SeverityConfig) -> SampleTable:
    """Return the table at the severity that the settings ask for."""
    if config.majority_only:
        return _log_kept(table, majority_only(table), "data.majority_only")
    if config.rho is not None:
        return _log_kept(table, thin_out(table, config.rho, config.seed), f"data.rho = {config.rho:g}")
    return table


def majority_only(table: SampleTable) -> SampleTable:
    """Leave out the samples of training and validation that contradict the shortcut. The test keeps all."""
    _check(table, "majority_only")
    return table.take(table.in_majority() | ~np.isin(table.split, SHORTCUT_SPLITS))


def thin_out(table: SampleTable, rho: float, seed: int = 0) -> SampleTable:
    """Leave out samples of training and validation at random, until a share `rho` of them follows the shortcut.

    Whichever side there is too much of is thinned out, class by class, so that both classes have the same severity.
    """
    _check(table, "rho")
    random = np.random.default_rng((seed, 0))
    follows = table.in_majority()
    keep = ~np.isin(table.split, SHORTCUT_SPLITS)
    for split in SHORTCUT_SPLITS:
        for label in range(len(table.classes)):
            here = (table.split == split) & (table.label == label)
            with_it, against = np.flatnonzero(here & follows), np.flatnonzero(here & ~follows)
            for part, size in zip((with_it, against), _sizes(len(with_it), len(against), rho), strict=True):
                keep[random.choice(part, size, replace=False)] = True
    return table.take(keep)


def _sizes(with_it: int, against: int, rho: float) -> tuple[int, int]:
    """Return the largest numbers of samples of both sides whose shares are rho and 1 - rho."""
    total = min(with_it / rho if rho > 0 else np.inf, against / (1 - rho) if rho < 1 else np.inf)
    return min(with_it, round(rho * total)), min(against, round((1 - rho) * total))


def _log_kept(whole: SampleTable, thin: SampleTable, setting: str) -> SampleTable:
    """Log how many samples `thin` keeps and which classes it has lost. Return it with the sizes it had before."""
    before, kept = {}, []
    for split in SHORTCUT_SPLITS:
        old, new = (np.bincount(t.label[t.split == split], minlength=len(t.classes)) for t in (whole, thin))
        if not old.any():
            continue
        before[split] = int(old.sum())
        kept.append(f"{new.sum():,} of {old.sum():,} samples of {split}")
        for label in np.flatnonzero((old > 0) & (new == 0)):
            logger.warning(
                "%s leaves none of the %d samples of class %r in %s: all of them follow the shortcut, or none does.",
                setting, old[label], whole.classes[label], split,
            )  # fmt: skip
    logger.info("%s keeps %s.", setting, " and ".join(kept))
    return replace(thin, before=before)


def _check(table: SampleTable, setting: str) -> None:
    if len(table.classes) != 2 or len(table.attribute_values) != 2:
        have = f"{len(table.classes)} classes and " + (
            "no attribute" if table.attribute is None else f"{len(table.attribute_values)} attribute values"
        )
        raise ConfigError(
            f"data.{setting} needs two classes and an attribute of two values, which say what follows the shortcut; "
            f"this data has {have}. Leave it out."
        )
