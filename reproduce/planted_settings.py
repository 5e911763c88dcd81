"""Draw the settings of planted data for the map of gains: `python reproduce/planted_settings.py` writes planted.yaml.

The draw is a scrambled Sobol sequence over all knobs of the data, with a fixed seed, so that settings fill the space
evenly and nobody picks them. It was committed before any run. Settings for tuning are another draw (`TUNING`), and
those with several shortcuts a third one (`NUMBERS`).
"""

from __future__ import annotations

from pathlib import Path

from scipy.stats import qmc

from sitar.files import write_atomic

TABLE = Path(__file__).parent / "planted.yaml"
LONGER = Path(__file__).parent / "planted_longer.yaml"
AUTO = Path(__file__).parent / "auto_planted.yaml"
SHORTCUTS = Path(__file__).parent / "planted_shortcuts.yaml"
FIRST = 16  # settings of the table with longer runs
SEED, SIZE = 16, 64
TUNING_SEED, TUNING_SIZE = 1016, 8
NUMBERS = (1, 2, 4)  # of shortcuts
NUMBERS_SEED, NUMBERS_SIZE = 3016, 8  # of the settings that have each number of shortcuts
RHOS = (0.5, 0.7, 0.8, 0.9, 0.95, 0.98, 1.0, 1.0)
FEATURES = (16, 24, 32, 48, 64)
KNOBS = (
    "rho", "label_noise", "core_strength", "core_bend", "core_parts", "core_scale",
    "shortcut_strength", "shortcut_bend", "shortcut_parts", "shortcut_scale", "mixing", "features", "train_size",
)  # fmt: skip
HEAD = """\
# The map of gains: 64 settings of planted data, drawn by planted_settings.py, which wrote this file before any run.
# map.py makes the page docs/results/map.md of it. The settings of the methods were chosen on another draw.
title: Planted features, percent, on data in which label and shortcut are independent
splits: {worst group: ood_test.worst_group, core AUC: ood_test.core_auc}
epoch: All values are those of the last epoch.
transposed: true
classes: 2
seeds: [0, 1, 2]
rows:
  ERM: {preset: planted/erm}
  control: {preset: planted/control}
  "sitar (axis noise, the paper's)": {preset: planted/sitar}
  sitar_best: {preset: planted/sitar_best}
paper: {}
notes: |
  `reproduce/planted.yaml` says what the numbers of the settings stand for. [The map](map.md) shows the gains.
columns:
"""


HEAD_LONGER = """\
# The first 16 settings of planted.yaml with four times the steps: are the runs of the map too short?
title: Planted features, runs with four times the steps, percent
splits: {worst group: ood_test.worst_group, core AUC: ood_test.core_auc}
epoch: All values are those of the last epoch.
transposed: true
classes: 2
seeds: [0]
rows:
  "control, 1,000 steps": {preset: planted/control, set: [train.least_steps=1000]}
  "sitar, 1,000 steps": {preset: planted/sitar, set: [train.least_steps=1000]}
paper: {}
notes: |
  [The map](map.md) has these settings with about 250 steps, and says what changes.
columns:
"""


HEAD_AUTO = """\
# `sitar_auto` and its candidates on the 64 settings of planted.yaml, with a seed that no table had before.
# regret.py reads the record.
title: Planted features, a run that is left alone, percent, where label and shortcut are independent
epoch: >-
  ERM and the control are shown at the epoch with the best [class-balanced
  accuracy](../glossary.md#class-balanced-accuracy) on val, as the presets for features keep it, and SITAR at its
  last epoch.
transposed: true
classes: 2
splits:
  worst group: ood_test.worst_group
  "worst group, ERM": ood_test.worst_group@erm
  "worst group, control": ood_test.worst_group@control
  "worst group, SITAR": ood_test.worst_group@sitar
  average: ood_test
  "average, ERM": ood_test@erm
seeds: [10]
rows:
  auto:
    preset: planted/sitar_best
    set:
      - method.name=sitar_auto
      - method.noise=swap
      - method.alpha=1
      - method.lambda=10
      - train.selection=val_class_balanced
      - train.evaluate_every=1
      - train.evaluate=[val,ood_test]
paper: {}
notes: |
  [Auto](../methods/sitar_auto.md) trains its candidates, and the [gate](../glossary.md#gate) chooses. `python
  reproduce/regret.py` makes [the page of its regret](regret.md) from this record and others.
columns:
"""


HEAD_SHORTCUTS = """\
# How much do several shortcuts change? Eight settings of another draw than planted.yaml's, each with 1, 2 and 4
# shortcuts. planted_settings.py wrote this file before any run. Where four shortcuts need more room there are more
# features. What map.py reads of it was fixed with it: the mean gain over the settings for each number of shortcuts, and
# its difference to the same settings with one shortcut, both with a bootstrap interval over the settings. No settings
# of the methods from JTT to DFR were chosen: they have the defaults of the code. LfF, AFR, CVaR DRO and DFR joined
# after the runs of the others, before anyone had looked at these.
title: Planted features with several shortcuts, percent, on data in which label and shortcuts are independent
splits: {worst group: ood_test.worst_group, core AUC: ood_test.core_auc, shortcut AUC: ood_test.shortcut_auc}
epoch: All values are those of the last epoch.
transposed: true
classes: 2
seeds: [0, 1]
rows:
  ERM: {preset: planted/erm}
  control: {preset: planted/control}
  "sitar (axis noise, the paper's)": {preset: planted/sitar}
  sitar_best: {preset: planted/sitar_best}
  JTT: {preset: planted/erm, set: [method.name=jtt]}
  LfF: {preset: planted/erm, set: [method.name=lff]}
  AFR: {preset: planted/erm, set: [method.name=afr]}
  CVaR DRO: {preset: planted/erm, set: [method.name=cvar_dro]}
  Group DRO: {preset: planted/erm, set: [method.name=group_dro]}
  DFR: {preset: planted/erm, set: [method.name=dfr]}
paper: {}
notes: |
  A group is a label and the sign of every shortcut ([planted features](../data.md#planted-features)). So worst group is
  over 4, 8 and 32 groups of `ood_test`. [The map](map.md#by-the-number-of-shortcuts) says what the number of shortcuts
  changes. The methods from JTT to DFR have their default settings, which nobody chose for these data.
  Setting 2 has rho = 0.5: nothing goes with a class there, so its shortcut AUC says little.
columns:
"""


def level(u: float, levels: tuple[float, ...]) -> float:
    """Return the level that a number from 0 to 1 falls on."""
    return levels[min(int(u * len(levels)), len(levels) - 1)]


def between(u: float, low: float, high: float) -> float:
    """Return a number between two others, evenly on a logarithmic scale."""
    return low * (high / low) ** u


def values(point: list[float]) -> dict[str, float]:
    """Turn a point of the unit cube into settings. A third of the cues is not bent at all."""
    u = dict(zip(KNOBS, point, strict=True))
    found: dict[str, float] = {"rho": level(u["rho"], RHOS), "label_noise": round(0.25 * u["label_noise"], 3)}
    for cue in ("core", "shortcut"):
        found[f"{cue}_strength"] = round(between(u[f"{cue}_strength"], 0.75, 4.0), 2)
        found[f"{cue}_bend"] = round(max(0.0, 1.5 * u[f"{cue}_bend"] - 0.5), 2)
        found[f"{cue}_parts"] = level(u[f"{cue}_parts"], (1, 2, 3, 4))
        found[f"{cue}_scale"] = round(between(u[f"{cue}_scale"], 0.5, 2.0), 2)
    found["mixing"] = round(u["mixing"], 2)
    found["features"] = level(u["features"], FEATURES)
    found["train_size"] = round(between(u["train_size"], 500, 4000))
    return found


def settings(size: int = SIZE, seed: int = SEED) -> dict[str, list[str]]:
    """Return the settings of every column: the knobs, and a seed of its own for the samples."""
    points = qmc.Sobol(len(KNOBS), seed=seed).random(size)
    return {
        f"setting {i}": [f"data.{name}={value}" for name, value in (values(list(point)) | {"seed": seed + i}).items()]
        for i, point in enumerate(points)
    }


def with_shortcuts() -> dict[str, list[str]]:
    """Return other settings, each with every number of shortcuts and with features that have room for the most.

    Test splits are larger than those of the map, so that a group with four shortcuts has as many samples as one there.
    """
    found = {}
    for name, words in settings(NUMBERS_SIZE, NUMBERS_SEED).items():
        knobs = dict(word.split("=") for word in words)
        places = int(knobs["data.core_parts"]) + max(NUMBERS) * int(knobs["data.shortcut_parts"])
        wanted = max(2 * places, int(knobs["data.features"]))
        knobs["data.features"] = str(next(features for features in FEATURES if features >= wanted))
        for number in NUMBERS:
            column = f"{name}, {number} shortcut{'s' if number > 1 else ''}"
            known = knobs | {"data.shortcuts": str(number), "data.eval_size": str(500 * 2 ** (max(NUMBERS) + 1))}
            found[column] = [f"{key}={value}" for key, value in known.items()]
    return found


def main() -> None:
    every = settings()
    first = dict(list(every.items())[:FIRST])
    tables = ((TABLE, HEAD, every), (LONGER, HEAD_LONGER, first), (AUTO, HEAD_AUTO, every))
    for table, head, columns in (*tables, (SHORTCUTS, HEAD_SHORTCUTS, with_shortcuts())):
        lines = [f"  {_quoted(name)}: [{', '.join(words)}]" for name, words in columns.items()]
        write_atomic(table, (head + "\n".join(lines) + "\n").encode())
        print(f"Wrote {table}")


def _quoted(name: str) -> str:
    """Quote a name that YAML could not read as it is."""
    return f'"{name}"' if "," in name else name


if __name__ == "__main__":
    main()
