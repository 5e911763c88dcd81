"""reproduce/bit.py measures what answers buy, on tiny runs, and its page shows the means of the record."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.runs import run, settings
from helpers.scripts import script
from sitar.analysis.refit.refit import fit
from sitar.evaluation.inputs import Inputs
from sitar.evaluation.metrics import split_metrics
from sitar.evaluation.predict import predict_split
from sitar.evaluation.trained_model import TrainedModel, load
from sitar.progress import unwatched

ROWS = ["ERM", "control"]


def test_a_task_is_measured_and_the_page_shows_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bit = script("reproduce/bit.py")
    monkeypatch.setattr(bit, "ON", "ood_test")  # where ColorMNIST has its test
    monkeypatch.setattr(bit, "DRAWS", 2)
    runs = [
        run(settings("erm"), tmp_path / "erm"),
        run(settings("sitar", **{"alpha": 0.0, "lambda": 0.0}), tmp_path / "control"),
    ]
    (tmp_path / "files").mkdir()
    name = bit.extract("colour with label", 0, [folder.path for folder in runs], tmp_path / "files", "cpu")
    file = bit.file_of(tmp_path / "files", "colour with label", 0)
    assert file.name == name
    found, exchanged = bit.measure(file, ("colour with label", "label with colour"), 0, ROWS)
    assert json.loads(json.dumps(found)) == found
    assert exchanged["column"] == "label with colour"
    for row, folder in zip(ROWS, runs, strict=True):
        said = folder.result()["splits"]["ood_test"]
        assert found["fixed"][row]["worst_group"] == said["worst_group"]
        assert exchanged["fixed"][row]["core_auc"] == pytest.approx(said["shortcut_auc"])  # the attribute is the class
    refit = refit_of([load(folder, "cpu") for folder in runs], bit)
    assert found["refit"][0]["worst_group"] == pytest.approx(refit, abs=0.02)  # files have half precision
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


def refit_of(models: list[TrainedModel], bit: Any) -> float:
    """Return the worst group of the first draw as `sitar refit` itself fits it."""
    data = models[0].data
    new, test = data.evaluation[bit.FROM], data.evaluation[bit.ON]
    names = [str(place) for place in range(len(new))]
    said = np.stack([model.predict_index(new.x) for model in models])
    pool = bit.Pool(ROWS, ROWS, bit.CLASSES, names, said)
    asked = np.array([question.image for question in bit._questions(pool, 0)])
    inputs, images = Inputs([names[place] for place in asked], new.x[asked]), Inputs(names, new.x)
    fitted = fit(models, [inputs] * len(models), [images] * len(models), new.y[asked].numpy(), unwatched)
    predicted = predict_split(fitted.method.logits, test, fitted.chosen.model.device)
    return split_metrics(predicted, resamples=0)["worst_group"]


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
    assert len({question.image for question in asked}) == bit.TO_REFIT
    assert sum(question.image < 30 for question in asked[: bit.TO_CHOOSE]) >= 15  # three of four
