"""reproduce/bit.py measures what answers buy, on tiny runs, and its page shows the means of the record."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from helpers.runs import run, settings
from helpers.scripts import script
from sitar.evaluation.trained_model import load

ROWS = ["ERM", "control"]


def test_a_task_is_measured_and_the_page_shows_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bit = script("reproduce/bit.py")
    monkeypatch.setattr(bit, "ON", "ood_test")  # where ColorMNIST has its test
    monkeypatch.setattr(bit, "DRAWS", 2)
    runs = [
        run(settings("erm"), tmp_path / "erm"),
        run(settings("sitar", **{"alpha": 0.0, "lambda": 0.0}), tmp_path / "control"),
    ]
    found = bit.measure("colour", 0, ROWS, [folder.path for folder in runs], "cpu")
    assert json.loads(json.dumps(found)) == found
    for row, folder in zip(ROWS, runs, strict=True):
        assert found["fixed"][row]["worst_group"] == folder.result()["splits"]["ood_test"]["worst_group"]
    assert [len(found[what]) for what in ("choose", "refit")] == [2, 2]
    for draw in found["choose"]:
        assert draw == {"row": draw["row"], **found["fixed"][draw["row"]]}
    assert {draw["features"] for draw in found["refit"]} <= {"latent", "hidden", "encoder"}
    assert len({json.dumps(draw) for draw in found["refit"]}) == 2  # other answers, another layer

    values = bit.means([found], "worst_group")
    best = 100 * max(found["fixed"][row]["worst_group"] for row in ROWS)
    assert values["the best candidate of each task (oracle)"] == pytest.approx(best)
    page = bit.render({"runs": [found]})
    assert f"| refit, 50 answers | {values['refit, 50 answers']:.1f} |" in page
    tuning = bit.records.load_table("exchange")["left_out"][0]
    assert "not run yet" in bit.render({"runs": [{**found, "column": tuning}]})
    assert "not run yet" in bit.render()


def test_questions_are_those_of_ask(tmp_path: Path) -> None:
    """No image is asked about twice, and disagreements come first."""
    bit = script("reproduce/bit.py")
    folder = run(settings("erm"), tmp_path / "erm")
    model = load(folder, "cpu")
    x = model.data.evaluation["val_ood"].x
    said = model.predict_index(x)
    other = said.copy()
    other[:30] = 1 - other[:30]
    pool = bit.Pool(["a", "b"], ["a", "b"], model.classes, [str(i) for i in range(len(x))], bit.np.stack([said, other]))
    asked = bit._questions(pool, seed=0)
    assert len({question.image for question in asked}) == bit.TO_CHOOSE
    assert sum(question.image < 30 for question in asked) >= bit.TO_CHOOSE // 2
