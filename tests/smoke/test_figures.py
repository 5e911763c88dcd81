"""The paper's figures: what their tables run, and that what is shown is what the records say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from helpers.scripts import ROOT, script
from sitar.presets import load_config
from sitar.run_folder import RunFolder

from .test_reproduce import TINY

SWEEPS = {
    "sweep_beta": ("beta", {0.1, 1, 1.5, 2}, {"alpha": 1.0, "lambda_": 10.0}),
    "sweep_alpha": ("alpha", {0, 0.1, 0.5, 1, 1.5}, {"beta": 2.0, "lambda_": 10.0}),
    "sweep_lambda": ("lambda_", {0, 0.01, 0.1, 1, 5, 10}, {"alpha": 1.0, "beta": 2.0}),
    "sweep_noise": ("alpha", {1}, {"beta": 2.0, "lambda_": 10.0}),
    "sweep_analytic": ("alpha", {1}, {"beta": 2.0, "lambda_": 10.0}),
}
PRESETS = {"sweep_noise": "color_mnist/isotropic", "sweep_analytic": "color_mnist/sitar_analytic"}


@pytest.fixture
def figures():
    """The command, which imports the runner beside it."""
    return script("reproduce/figures.py")


@pytest.fixture
def elsewhere(figures, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Tables, records and docs of a test's own."""
    monkeypatch.setattr(figures.records, "HERE", tmp_path)
    monkeypatch.setattr(figures, "DOCS", tmp_path / "docs")
    (tmp_path / "docs").mkdir()
    table = yaml.safe_load((ROOT / "reproduce" / "sweep_lambda.yaml").read_text(encoding="utf-8"))
    table["columns"] = dict(list(table["columns"].items())[::5])
    del table["notes"]  # they name values of other tables
    table["figure"]["levels"] = {"75: best from shape alone": 75}
    (tmp_path / "sweep_lambda.yaml").write_text(yaml.safe_dump(table, sort_keys=False))
    return tmp_path


@pytest.mark.parametrize("name", SWEEPS)
def test_a_sweep_moves_one_setting_of_the_paper(name: str, figures) -> None:
    key, paper, fixed = SWEEPS[name]
    table = figures.run.load_table(name)
    jobs = figures.run.jobs(table)
    configs = [load_config(job["preset"], job["overrides"], job["seed"]) for job in jobs]
    values = [getattr(config.method, key) for config in configs]
    assert set(values) >= paper
    assert 5 <= len(set(values)) <= 6
    assert {seed: sum(c.seed == seed for c in configs) for seed in (0, 1, 2)} == dict.fromkeys(
        (0, 1, 2), len(set(values))
    )
    assert {job["preset"] for job in jobs} == {PRESETS.get(name, "color_mnist/sitar")}
    for config in configs:
        assert config.data.rho == 0.9
        assert {name: getattr(config.method, name) for name in fixed} == fixed
        assert set(table["curves"]) <= set(config.train.evaluate)
    columns = [float(column.partition(" = ")[2]) for column in table["columns"]]
    assert columns == sorted(set(values))


def test_levels_come_from_records(figures) -> None:
    for source in figures.figures().values():
        about = figures.run.load_table(source)["figure"]
        for split, levels in figures.levels(about).items():
            assert levels["75: best from shape alone"] == 75
            for name, level in levels.items():
                assert not name.startswith("control") or (split == "ood_test" and 9 < level < 10.5)


@pytest.mark.parametrize("name", PRESETS)
def test_noises_are_compared_at_the_same_strengths(name: str, figures) -> None:
    noise, alpha = (figures.run.load_table(name) for name in (name, "sweep_alpha"))
    assert set(noise["columns"]) < set(alpha["columns"])
    source, row = noise["rows"]["sitar (axis noise, the paper's)"]["from"]
    assert source == "sweep_alpha"
    assert row in alpha["rows"]
    assert set(noise["figure"]["rows"]) == set(noise["rows"])
    assert noise["figure"]["curves_at"] in noise["columns"]


def test_from_runs_through_the_record_to_the_figure(
    figures, elsewhere: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runner, out, early = figures.run, elsewhere / "runs", elsewhere / "early.svg"
    jobs = [job for job in runner.jobs(runner.load_table("sweep_lambda")) if job["seed"] < 2]
    tiny = [setting for setting in TINY if not setting.startswith("train.e")]
    for job in jobs[:-1]:
        runner.work(job, out, "cpu", [*tiny, "train.epochs=2"])
    figures.main(["sweep_lambda", "--runs", str(out), "--out", str(early)])
    assert "3 of 6 runs" in capsys.readouterr().out
    with pytest.raises(SystemExit, match=r"no record of sweep_lambda yet. `python reproduce/run.py sweep_lambda`"):
        figures.main(["sweep_lambda"])

    runner.work(jobs[-1], out, "cpu", [*tiny, "train.epochs=2"])
    runner.collect("sweep_lambda", out, jobs)
    for job, run in zip(jobs, runner.load_record("sweep_lambda")["runs"], strict=True):
        lines = RunFolder(out / job["folder"]).metrics()
        assert run["curves"]["epoch"] == [1, 2]
        for split in ("id_test", "ood_test"):
            assert run["curves"][split] == [round(line[split]["average"], 4) for line in lines]
    figures.main(["sweep_lambda", "--runs", str(out), "--out", str(early)])
    figures.main(["sweep_lambda"])
    assert (elsewhere / "docs" / "figures" / "sweep_lambda.svg").read_bytes() == early.read_bytes()
    assert "(figures/sweep_lambda.svg)" in (elsewhere / "docs" / "figures.md").read_text(encoding="utf-8")
    assert "columns differ in method.lambda." in runner.render("sweep_lambda")


def test_curves_that_were_not_watched_are_missed(figures, elsewhere: Path) -> None:
    folder = elsewhere / "run"
    with pytest.raises(SystemExit, match=r"no curves of ood_test: its train.evaluate"):
        figures.run._curves(["ood_test"], [{"phase": "p", "epoch": 1, "val": {"average": 0.5}}], folder)


def test_a_level_that_was_not_run_yet_is_left_out(figures, elsewhere: Path) -> None:
    level = {"mean": ["sweep_lambda", "sitar (axis noise, the paper's)", "lambda = 0"], "split": "ood_test"}
    about = {"splits": {"OOD": "ood_test"}, "levels": {"no noise": level, "75": 75}}
    assert figures.levels(about) == {"ood_test": {"75": 75}}


def test_pictures_say_what_they_need(figures, elsewhere: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match=r"sitar explain .*none` makes it"):
        figures.main(["gradcam", str(elsewhere / "none")])
    with pytest.raises(SystemExit):
        figures.main(["traversals"])
    assert "needs run folders" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        figures.main(["sweep_lambda", "run"])
    assert "give --runs DIR" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="No run of sweep_lambda is finished"):
        figures.main(["sweep_lambda", "--runs", str(elsewhere)])


def test_the_page_is_the_one_that_the_command_writes(figures) -> None:
    page = (ROOT / "docs" / "figures.md").read_text(encoding="utf-8")
    assert page == figures.page()
    for name, source in figures.figures().items():
        assert f"python reproduce/figures.py {name}" in page
        assert (f"(figures/{name}.svg)" in page) == figures.run.record_path(source).exists()


def committed() -> list[str]:
    return sorted(path.stem for path in (ROOT / "docs" / "figures").glob("*.svg"))


@pytest.mark.parametrize("name", committed())
def test_a_figure_is_the_one_that_its_record_makes(name: str, figures, tmp_path: Path) -> None:
    there = (ROOT / "docs" / "figures" / f"{name}.svg").read_text(encoding="utf-8")
    if name in ("when", "map"):
        script(f"reproduce/{name}.py").save_figure(tmp_path / "again.svg")
    else:
        figures.main([name, "--out", str(tmp_path / "again.svg")])
    again = (tmp_path / "again.svg").read_text(encoding="utf-8")
    by = [re.search(r"Matplotlib v[\d.]+", text) for text in (there, again)]
    if by[0] and by[1] and by[0][0] != by[1][0]:
        pytest.skip(f"drawn by {by[0][0]}, here is {by[1][0]}: letters and margins may differ")
    assert again == there


def test_severity_is_drawn() -> None:
    assert "severity" in committed()
