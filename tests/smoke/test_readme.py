"""README, docs and records tell the truth."""

from __future__ import annotations

import json
import re
import shlex
from statistics import mean, median

import pytest
from click.exceptions import UsageError
from typer.main import get_command

from helpers.scripts import ROOT, script
from sitar.cli.main import app
from sitar.presets import load_config

README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_two_commands_stand_early() -> None:
    first = README.splitlines()[:25]
    assert any(line.startswith("make demo") for line in first)
    assert any(line.startswith("make test") for line in first)
    assert "pip install sitar" not in README


def commands() -> list[str]:
    blocks = re.findall(r"```bash\n(.*?)```", README, flags=re.DOTALL)
    lines = [line.partition("#")[0].strip() for block in blocks for line in block.splitlines()]
    return [line for line in lines if line.startswith("sitar ")]


@pytest.mark.parametrize("line", commands())
def test_readme_commands_exist(line: str) -> None:
    """Command and options parse; presets and settings are valid."""
    words = shlex.split(line)[1:]
    group = get_command(app)
    command = group.commands[words[0]]  # type: ignore[attr-defined]
    try:
        parameters = command.make_context(words[0], words[1:]).params
    except UsageError as error:
        pytest.fail(str(error))
    if "preset" in parameters:
        load_config(parameters["preset"], parameters["set_"] or [], parameters.get("seed", 0))


def test_links_lead_somewhere() -> None:
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *ROOT.glob("docs/**/*.md")]:
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
            if not target.startswith("http"):
                assert (page.parent / target).exists(), f"{page.name}: {target}"


def sample(row: str, column: str, split: str) -> list[float]:
    """Return the accuracies of a row of the headline's table, one for each seed."""
    return list(script("reproduce/values.py").sample(f"color_mnist; {row}; rho = {column}; {split}").values())


def ood(column: str, less: str = "") -> list[float]:
    """OOD accuracies of the headline, one for each seed."""
    return sample(f"sitar_best{less}", column, "OOD")


@pytest.mark.parametrize("column", ["0.5", "0.7", "0.9", "1.0"])
def test_the_headline_is_at_least_the_paper(column: str) -> None:
    above = ood(column, less=" - paper, SITAR")
    assert len(above) >= 5
    assert mean(above) >= 0


@pytest.mark.parametrize("column", ["0.5", "0.7", "0.9", "1.0"])
def test_ten_seeds_of_the_headline_reach_their_targets(column: str) -> None:
    found, inside = ood(column), sample("sitar_best", column, "ID")
    assert len(found) == len(inside) == 10
    assert mean(found) >= 71.5
    assert abs(mean(found) - mean(inside)) <= 3
    assert sorted(found)[1] >= 69
    assert min(found) >= (68 if column == "0.7" else 69)  # seed 7 misses it at rho = 0.7 (docs/decisions.md)


@pytest.mark.parametrize(("column", "target"), [("0.9", 68), ("1.0", 56)])
def test_the_noise_of_the_paper_reaches_its_targets(column: str, target: float) -> None:
    found = sample("sitar", column, "OOD")
    assert len(found) == 5
    assert mean(found) >= target


def row_values(row: str, place: str) -> list[float]:
    """Return the values of a row, or of a difference of rows: `TABLE; COLUMN; SPLIT` is the place."""
    table, rest = place.split("; ", 1)
    return list(script("reproduce/values.py").sample(f"{table}; {row}; {rest}").values())


def ends(row: str, place: str) -> tuple[float, float]:
    """Return the 95 % interval over seeds."""
    return script("reproduce/values.py").interval(dict(enumerate(row_values(row, place))))


def average(row: str, place: str) -> float:
    return mean(row_values(row, place))


def rows_of(table: str) -> list[str]:
    return list(script("reproduce/values.py").records.load_table(table)["rows"])


def test_all_other_methods_but_chroma_vae_fall_where_nothing_contradicts_the_colour() -> None:
    """Every row at rho = 1.0. Rows of SITAR, all noise alike and the oracle are not other methods."""
    found = {row: row_values(row, "baselines; rho = 1.0; OOD") for row in rows_of("baselines")}
    others = {row: seen for row, seen in found.items() if seen and not row.startswith(("sitar", "isotropic", "oracle"))}
    chroma = {row: seen for row, seen in others.items() if row.startswith("Chroma-VAE")}
    assert len(chroma) >= 3
    assert min(min(seen) for seen in chroma.values()) > 20
    fallen = {row: max(seen) for row, seen in others.items() if row not in chroma}
    assert len(fallen) >= 15
    assert max(fallen.values()) < 0.5, fallen


def test_few_seeds_are_those_of_the_three_rows_that_readme_names() -> None:
    found = {row: len(row_values(row, "baselines; rho = 1.0; OOD")) for row in rows_of("baselines")}
    named = ("curvature penalty", "Jacobian penalty", "diffusion classifier, epoch chosen on val")
    others = {row for row in found if not row.startswith(("sitar on", "isotropic", "Chroma-VAE", *named))}
    assert len(others) >= 15
    assert {found[row] for row in others} == {5}
    assert all(found[row] >= 1 for row in named)


def test_jtt_is_level_with_the_noise_of_the_paper_at_one_severity_and_far_below_without_a_shortcut() -> None:
    assert abs(average("JTT - sitar (axis noise, the paper's)", "baselines; rho = 0.9; OOD")) < 2
    assert ends("JTT - sitar (axis noise, the paper's)", "baselines; rho = 0.5; OOD")[1] < -20


CELEBA = [f"celeba; {task}; worst group" for task in ("Blond/Gender", "Attractive/Smiling")]
CHOSEN = [f"celeba_pretrained; Blond/Gender; worst group, chosen {how} groups" for how in ("without", "with")]
BAR = ["bar; BAR; average", "bar_frozen; BAR; average"]
SITES = "sites; rho = 0.98; unseen sites"
SITES_FACES = "sites_faces; rho = 0.98; unseen sites"


def test_on_blond_hair_every_column_of_readme_is_below_a_coin() -> None:
    columns = ("ERM", "control", "sitar (axis noise, alpha 0.1, the paper's)", "sitar_best")
    assert max(average(row, CELEBA[0]) for row in columns) < 50


@pytest.mark.parametrize("place", CELEBA)
def test_celeba_owes_its_gain_to_the_vae_and_not_to_the_noise(place: str) -> None:
    sitar = "sitar (axis noise, alpha 0.1, the paper's)"
    for row in (sitar, "control"):
        assert ends(f"{row} - ERM", place)[0] > 0
        assert average(f"{row} - ERM", place) > 20
    low, high = ends(f"{sitar} - control", place)
    assert low < 0 < high
    assert abs(average(f"{sitar} - control", place)) < 5


def test_label_and_shortcut_that_exchange_their_roles_take_back_the_gain() -> None:
    for row in ("control, 10 axes", "sitar, 10 axes"):
        assert abs(average(f"{row} - ERM", "exchange; mean of columns; worst group")) < 5
        assert ends(f"{row} - ERM", "exchange; mean of columns; core AUC")[1] < -5


@pytest.mark.parametrize("label", ["Black_Hair", "Smiling"])
def test_the_noise_gains_where_it_is_told_what_to_ignore(label: str) -> None:
    told = f"{label} with Male, gender from other faces, swap"
    for metric in ("worst group", "core AUC"):
        assert len(row_values(told, f"nuisances_faces; CelebA; {metric}")) == 5
        assert ends(f"{told} - {label} with Male, control", f"nuisances_faces; CelebA; {metric}")[0] > 0
    assert ends(f"{label} with Male, ERM - {told}", "nuisances_faces; CelebA; core AUC")[0] > 0


def test_behind_pretrained_encoders_sitar_cannot_be_told_from_erm_or_is_below() -> None:
    found = {
        (row, place): ends(f"{row} - ERM", place)
        for place in (*BAR, *CHOSEN)
        for row in rows_of(place.partition(";")[0])
        if row.startswith("sitar") and row_values(row, place)
    }
    assert len(found) >= 8
    assert all(low < 0 for low, _ in found.values()), found
    assert any(high > 0 for _, high in found.values())  # cannot be told
    assert any(high < 0 for _, high in found.values())  # is below


def test_on_sites_the_noise_gains_less_than_the_vae_costs() -> None:
    for place, gaining in ((SITES, ("sitar (axis noise, the paper's)", "sitar_best")), (SITES_FACES, ("sitar_best",))):
        for row in gaining:
            assert ends(f"{row} - control", place)[0] > 0
            assert ends(f"ERM - {row}", place)[0] > 0
    low, high = ends("sitar (axis noise, the paper's) - control", SITES_FACES)
    assert low < 0 < high
    assert ends("isotropic noise - control", SITES_FACES)[0] > 0  # noise on every axis gains on faces too
    low, high = ends("sitar_best - isotropic noise", SITES_FACES)
    assert low < 0 < high


def test_the_losses_that_are_told_are_losses() -> None:
    assert average("sitar", CHOSEN[1]) < average("control", CHOSEN[1]) < average("LfF", CHOSEN[1])
    for place in CELEBA:
        for row in ("isotropic noise", "Chroma-VAE, k-NN", "Chroma-VAE, MLP head"):
            low, high = ends(f"sitar (axis noise, alpha 0.1, the paper's) - {row}", place)
            assert low < 0 < high  # cannot be told
    ours = max(average(row, BAR[1]) for row in rows_of("bar_frozen") if row.startswith("sitar"))
    assert ours < average("Jacobian penalty", BAR[1]) < average("ERM", BAR[1])


def test_a_run_that_is_left_alone_gains_on_small_images_and_not_on_planted_features() -> None:
    record = json.loads((ROOT / "reproduce/records/regret_sums.json").read_text(encoding="utf-8"))
    lost = {line["table"]: line for line in record["lines"]}
    assert lost["own_presets.py"]["tasks"] == 5
    assert lost["own_presets.py"]["auto"] < lost["own_presets.py"]["erm"] - 10
    assert lost["auto_planted"]["tasks"] == 64
    assert lost["auto_planted"]["auto"] > lost["auto_planted"]["erm"]  # no gain
    own = json.loads((ROOT / "reproduce/records/own_presets.json").read_text(encoding="utf-8"))["means"]
    plain = {
        (line["task"], line["row"]): line["last average"] for line in own if line["task"].startswith("no shortcut")
    }
    for task in ("no shortcut, digits", "no shortcut, X-rays"):
        assert plain[task, "small, auto"] > plain[task, "small, ERM"] - 0.03


def test_the_demo_holds_in_the_record_on_three_seeds() -> None:
    runs = json.loads((ROOT / "reproduce/records/demo.json").read_text(encoding="utf-8"))["runs"]
    found = {(run["preset"], run["seed"]): run["splits"]["ood_test"]["average"] for run in runs}
    assert {seed for _, seed in found} == {0, 1, 2}
    assert all(value < 0.20 for (preset, _), value in found.items() if preset != "demo/sitar")
    assert all(value > 0.65 for (preset, _), value in found.items() if preset == "demo/sitar")


def test_targets_of_speed_that_are_said_to_be_reached_are_reached() -> None:
    """What the page of the performance says of two CPU cores."""
    record = json.loads((ROOT / "reproduce/records/benchmarks_cpu.json").read_text(encoding="utf-8"))
    images = record["images"]
    assert images["DataLoader loop"]["times_slower"] >= 2
    assert images["pythae beta-VAE"]["times_slower"] > 1
    assert median(images["sitar"]["turns"]) <= 1.05 * median(images["sitar, control"]["turns"])
    too_dear = [
        (what, row["value"]) for what, rows in record["costs"].items() for row in rows if row.get("times", 0) > 2.1
    ]
    assert too_dear == [("batch", 1024)]
