"""What `sitar theory` says of finished runs."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from helpers import toys
from helpers.referees import moments_of
from helpers.runs import TINY_MODEL, hashes, run, toy
from sitar.analysis.theory import examine_theory
from sitar.errors import DataError, RunError, SitarError
from sitar.evaluation.trained_model import load
from sitar.files import to_json
from sitar.reporting.figures.style import to_png
from sitar.reporting.figures.theory import theory_figure
from sitar.reporting.tables.theory import order_in_words, theory_table, unsettled_order
from sitar.run_folder import RunFolder


def steep(folder: RunFolder, path: Path) -> RunFolder:
    """A copy with a classifier that might have learned something, since three tiny epochs leave it flat, and with class
    weights that matter, where it has some."""
    shutil.copytree(folder.path, path)
    copy = RunFolder(path)
    weights = load_file(copy.model_file)
    if "class_weight" in weights:
        weights["class_weight"] = torch.tensor([0.2, 3.0])
    save_file({k: v * (8 if k.startswith("classifier") else 1) for k, v in weights.items()}, copy.model_file)
    copy.done_file.write_bytes(b"")  # its checksums are those of the weights before
    return copy


@pytest.mark.parametrize(
    "options",
    [
        {"noise": "axis"},
        {"noise": "direction", "noise_distribution": "uniform"},
        {"noise": "isotropic", "noise_distribution": "rademacher"},
        {"noise": "axis", "objective": "analytic", "alpha": 0.3},
        {"noise": "direction", "class_weight": "balanced", "alpha": 1.5},
    ],
    ids=lambda options: "-".join(map(str, options.values())),
)
def test_a_trained_classifier_obeys_the_theorem(
    options: dict[str, Any], runs: Callable[..., RunFolder], tmp_path: Path
) -> None:
    theory = examine_theory(steep(runs(**options), tmp_path / "run"), "cpu")
    assert theory["samples"] == 128
    assert theory["alpha"] == options.get("alpha", 1.0)
    assert theory["alpha"] in theory["alphas"]
    assert theory["alphas"] == sorted(theory["alphas"])
    terms = np.sum(list(theory["terms"].values()), 0)
    np.testing.assert_allclose(theory["predicted"], theory["clean"] + terms, rtol=1e-10)
    own, skewed = theory["comparisons"]
    assert (own["distribution"], skewed["distribution"]) == (options.get("noise_distribution", "gaussian"), "skewed")
    assert own["order"] == pytest.approx(4, abs=0.3)
    assert skewed["order"] == pytest.approx(3, abs=0.3)
    assert unsettled_order(own) is None
    assert own["local_orders"] == pytest.approx([4] * 3, abs=0.3)


def test_a_remainder_that_is_not_at_its_limit_is_said_not_to_be(runs: Callable[..., RunFolder], tmp_path: Path) -> None:
    comparison = {"distribution": "skewed", "order": 2.3, "local_orders": [2.83, 2.58, 1.39]}
    assert order_in_words(comparison, "gelu") == (
        "skewed noise: the remainder is not at its limit yet, where alpha^3 is expected: its slope still changes, and "
        "is 2.83 at the smallest alphas."
    )
    settled = "skewed noise: the remainder falls as alpha^2.30 (expected: 3)."
    assert order_in_words({**comparison, "local_orders": [2.3, 2.3, 2.3]}, "gelu") == settled
    assert order_in_words({"distribution": "skewed", "order": 2.3}, "gelu") == settled, "files from before"
    theory = examine_theory(runs(noise="axis"), "cpu")
    theory["comparisons"][1] |= comparison
    theory_figure(theory).savefig(tmp_path / "theory.svg")
    assert "slope 2.83" in re.sub(r"<!--|-->", "", (tmp_path / "theory.svg").read_text())


@pytest.mark.usefixtures("_toys")
def test_changed_data_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = run(toy("sitar", model=TINY_MODEL), tmp_path / "run")
    monkeypatch.setattr(toys, "CHECKSUM", "other")
    with pytest.raises(RunError, match="data has changed"):
        examine_theory(folder, "cpu")


def test_v_is_that_of_the_last_epoch(runs: Callable[..., RunFolder]) -> None:
    folder = runs(noise="axis")
    logged = folder.metrics()[-1]["shortcut_score"]
    np.testing.assert_allclose(examine_theory(folder, "cpu")["noise_scale"], logged, atol=0.06)
    assert examine_theory(folder, "cpu", noise="isotropic")["noise_scale"] == [1.0] * TINY_MODEL["latent_dim"]


def test_the_noise_is_measured_without_chance_where_training_did_so(runs: Callable[..., RunFolder]) -> None:
    folder = runs(noise="axis", score_floor=True)
    logged = folder.metrics()[-1]["shortcut_score"]
    assert min(logged) < 0.06  # in some batches nothing is left of a weak axis
    np.testing.assert_allclose(examine_theory(folder, "cpu")["noise_scale"], logged, atol=0.06)


def test_the_exact_objective_is_that_of_training(runs: Callable[..., RunFolder], tmp_path: Path) -> None:
    """Against draws of the run's own noise, with its own losses and class weights."""
    options = {"noise": "axis", "class_weight": "balanced", "lambda": 0.05}  # both parts are of one size
    folder = steep(runs(**options), tmp_path / "run")
    theory = examine_theory(folder, "cpu", samples=400)
    model = load(folder, "cpu")
    split = model.data.evaluation["val"]
    assert theory["samples"] == len(split)  # all of them, so that their order does not matter
    with torch.no_grad():
        z, _ = model.method.vae.encode(split.x.float() / 255)
        z, y = z.repeat(200, 1), split.y.repeat(200)
        torch.manual_seed(0)
        terms = model.method.classification(z, y, moments_of(torch.tensor([theory["noise_scale"]])))
    total = float(terms["cross_entropy"] + theory["lambda"] * terms["consistency"])
    assert theory["comparisons"][0]["exact"][-1] == pytest.approx(total, rel=0.02)


def test_relu_has_no_curvature_and_no_order(runs: Callable[..., RunFolder]) -> None:
    theory = examine_theory(runs(model={**TINY_MODEL, "activation": "relu"}), "cpu")
    assert set(theory["terms"]["curvature"]) == {0.0}
    assert [comparison["order"] for comparison in theory["comparisons"]] == [None, None]


def test_a_swap_run_under_other_noise(runs: Callable[..., RunFolder]) -> None:
    folder = runs(noise="swap")
    with pytest.raises(RunError, match="--noise direction"):
        examine_theory(folder, "cpu")
    assert examine_theory(folder, "cpu", noise="direction")["noise"] == "direction"


@pytest.mark.usefixtures("_toys")
@pytest.mark.parametrize(
    ("method", "options", "noise", "error", "message"),
    [
        ("erm", {}, None, RunError, "another method, 'erm'"),
        ("sitar", {"alpha": 0.0, "lambda": 0.0}, None, RunError, "the control"),
        ("sitar", {}, "axes", SitarError, "Did you mean 'axis'"),
        ("sitar", {}, "swap", SitarError, "Unknown noise 'swap'"),
        (
            "sitar",
            {"data": {"name": "toy_blobs", "splits": ["ood_test"]}},
            None,
            DataError,
            "no val split",
        ),
    ],
)
def test_what_cannot_be_examined_is_said(
    method: str, options: Any, noise: str | None, error: type, message: str, runs: Callable[..., RunFolder]
) -> None:
    folder = runs(method, **options)
    before = hashes(folder.path)
    with pytest.raises(error, match=message):
        examine_theory(folder, "cpu", noise)
    assert hashes(folder.path) == before


def test_an_unfinished_run_is_refused(runs: Callable[..., RunFolder], tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_bytes(runs().config_file.read_bytes())
    with pytest.raises(RunError, match="not finished"):
        examine_theory(RunFolder(tmp_path), "cpu")


def test_table_and_figure(runs: Callable[..., RunFolder], tmp_path: Path) -> None:
    for options in ({"noise": "axis"}, {"model": {**TINY_MODEL, "activation": "relu"}}):
        theory = json.loads(to_json(examine_theory(runs(**options), "cpu")))
        table = theory_table(theory)
        assert len(table.rows) == len(theory["alphas"])
        assert table.rows[-1][0] == "1 *"
        assert to_png(theory_figure(theory)).startswith(b"\x89PNG")
