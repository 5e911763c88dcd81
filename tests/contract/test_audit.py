"""What `sitar audit` finds in finished runs."""

from __future__ import annotations

import importlib
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from helpers import toys
from helpers.runs import TINY_DATA, TINY_MODEL, fresh, hashes, load_data, run, settings, toy
from sitar.analysis.audit import audit as auditing
from sitar.analysis.audit.audit import audit_model, audit_run, check_has_axes, train_and_audit
from sitar.data.types import Data, EvalSplit, TrainSplit
from sitar.errors import DataError, RunError
from sitar.evaluation.trained_model import load
from sitar.models import VAE
from sitar.presets import load_config
from sitar.registry import METHODS
from sitar.reporting.figures.audit_figure import draw_audit
from sitar.reporting.tables.audit import audit_table
from sitar.run_folder import RunFolder

AXES = TINY_MODEL["latent_dim"]


@pytest.fixture
def runs(runs: Callable[..., RunFolder]) -> Callable[..., RunFolder]:
    """Runs of the method that an audit trains, where none is named."""
    return lambda method="vae", **options: runs(method, **options)


@pytest.mark.parametrize("name", METHODS.names())
def test_a_method_says_whether_it_has_axes(name: str, tiny_data: Data) -> None:
    config = settings(name)
    has = isinstance(getattr(fresh(config, tiny_data), "vae", None), VAE)
    assert has == (METHODS.get(name).vae_learns is not None)
    if has:
        check_has_axes(config)
    else:
        with pytest.raises(RunError, match=f"the method '{name}' has none"):
            check_has_axes(config)


def test_the_vae_never_sees_a_label(tiny_data: Data) -> None:
    """Its weights are the same whatever the labels are."""
    config = settings("vae")
    split = tiny_data.train
    seen = []
    for y in (split.y, 1 - split.y):
        method = fresh(config, tiny_data)
        torch.manual_seed(0)
        method.loss(TrainSplit(split.x, y).batch(torch.arange(64)))["loss"].backward()  # type: ignore[operator]
        seen.append([p.grad for p in method.vae.parameters()])  # type: ignore[union-attr]
    assert all(torch.equal(a, b) for a, b in zip(*seen, strict=True))


def test_the_vae_is_shown_so_many_samples(tiny_data: Data) -> None:
    method = fresh(settings("vae", max_samples=100), tiny_data)
    (phase, _) = method.phases()
    assert phase.indices.unique().numel() == 100  # type: ignore[union-attr]
    assert next(fresh(settings("vae", max_samples=300), tiny_data).phases()).indices is None  # type: ignore[union-attr]


@pytest.mark.parametrize("method", ["vae", "sitar", "chroma_vae"])
def test_the_axes_of_every_vae_are_audited(method: str, runs: Callable[..., RunFolder]) -> None:
    folder = runs(method)
    audit = audit_run(folder, "cpu")
    assert audit == folder.audit()  # plain values, readable without torch
    assert sorted(axis["axis"] for axis in audit["axes"]) == list(range(AXES))
    places = [(not axis["used"], -axis["accuracy"]) for axis in audit["axes"]]
    assert places == sorted(places)
    for axis in audit["axes"]:
        low, high = axis["intervals"]["accuracy"]
        assert low <= axis["accuracy"] <= high
        assert axis["furthest_classes"] == ["digits 0-4", "digits 5-9"]
    assert audit["held_out"]["n"] == sum(audit["held_out"]["classes"].values()) == 400
    assert audit["attribute"]["name"] == "color"
    assert any("have seen the label" in note for note in audit["notes"]) == (method != "vae")
    drawn = draw_audit(folder)
    assert {path.name for path in drawn} >= {"axes.png", f"axis{audit['axes'][0]['axis']}.png"}
    with np.load(folder.audit_file.parent / "pictures.npz") as arrays:
        first = audit["pictures"][0]
        assert arrays[f"axis{first['axis']}/traversal"].shape == (6, 9, 3, 14, 14)
        assert arrays[f"axis{first['axis']}/extremes"].shape == (2, 2, 8, 3, 14, 14)
    table = audit_table(audit)
    assert table.columns[-2:] == ["AUC color", "AUC label"]
    assert [int(row[0].strip(" *")) for row in table.rows] == [axis["axis"] for axis in audit["axes"]]


def test_the_scores_are_of_held_out_latents(runs: Callable[..., RunFolder]) -> None:
    model = load(runs(), "cpu")
    audit, _ = audit_model(model)
    split = model.data.evaluation["val"]
    with torch.no_grad():
        mu = model.method.vae.encode(split.x.float() / 255)[0].numpy()
    for axis in audit["axes"]:
        assert axis["correlation"] == pytest.approx(abs(np.corrcoef(mu[:, axis["axis"]], split.y)[0, 1]), abs=1e-5)


def test_an_axis_that_stays_at_0_is_not_used(runs: Callable[..., RunFolder], monkeypatch: pytest.MonkeyPatch) -> None:
    model = load(runs(), "cpu")
    with torch.no_grad():
        model.method.vae.mean.weight.mul_(torch.tensor([[100.0], [100.0], [1e-4], [100.0]]))
    audit, _ = audit_model(model)
    assert [axis["axis"] for axis in audit["axes"] if not axis["used"]] == [2]
    assert audit["axes"][-1]["axis"] == 2
    assert audit_table(audit).rows[-1][0] == "2 *"
    assert "* is not used" in audit_table(audit).note
    monkeypatch.setattr(auditing, "USED", 1e9)
    assert audit_model(model)[0]["verdict"]["kind"] == "nothing encoded"


def test_the_logistic_regression_has_learned_the_label(tiny_data: Data) -> None:
    """On latents that hold it; every class counts the same, so that the rare one is not given up."""
    method = fresh(settings("vae"), tiny_data)
    y = (torch.arange(400) % 10 == 0).long()
    mu = torch.randn(400, AXES, generator=torch.Generator().manual_seed(0))
    mu[:, 0] += 1.5 * y
    method.vae.encode = lambda x: (x, x)  # type: ignore[method-assign, union-attr]
    method.fit(TrainSplit(mu, y))  # type: ignore[operator]
    right = method.logits(mu).argmax(1) == y
    assert right[y == 1].float().mean() == pytest.approx(float(right[y == 0].float().mean()), abs=0.1)
    assert right.float().mean() > 0.7


def test_an_audit_is_the_same_again(runs: Callable[..., RunFolder]) -> None:
    model = load(runs(), "cpu")
    assert audit_model(model)[0] == audit_model(model)[0]


class Function(torch.nn.Module):
    def __init__(self, function: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.forward = function


def leaky(model: Any, attribute: bool = True) -> None:
    """Axis 1 becomes the colour: redness of the image, less its greenness."""

    def encode(x: torch.Tensor) -> torch.Tensor:
        generator = torch.Generator().manual_seed(len(x))
        mu = torch.randn(len(x), AXES, generator=generator)
        mu[:, 1] = 0.1 * mu[:, 1] + x[:, 0].mean((1, 2)) * 20 - x[:, 1].mean((1, 2)) * 20
        return mu

    model.method.vae.encoder = Function(encode)
    model.method.vae.mean = torch.nn.Identity()
    if not attribute:
        for name, split in model.data.evaluation.items():
            model.data.evaluation[name] = EvalSplit(split.x, split.y)


@pytest.fixture
def _own_data(monkeypatch: pytest.MonkeyPatch) -> None:
    """Data that a test may change: read again."""
    monkeypatch.setattr("sitar.evaluation.trained_model.load_data", toys_or_real)


def toys_or_real(config: Any) -> Data:
    data = load_data(config)
    return Data(data.train, dict(data.evaluation), data.classes, data.checksum, data.train_groups)


@pytest.mark.usefixtures("_own_data")
def test_an_axis_that_is_the_colour_is_called_so(runs: Callable[..., RunFolder]) -> None:
    model = load(runs(), "cpu")
    leaky(model)
    audit, arrays = audit_model(model)
    assert (audit["verdict"]["kind"], audit["verdict"]["axes"]) == ("one", [1])
    assert audit["attribute"]["attribute_auc"][1] > 0.99
    assert "it is rather color than the label" in audit["verdict"]["words"]
    ends = arrays["axis1/extremes"]
    assert ends[:, 0, :, 0].max() == 0  # the lowest are not red, whatever their class
    assert ends[:, 1, :, 1].max() == 0  # the highest are not green


@pytest.mark.usefixtures("_own_data")
def test_no_attribute_is_needed(runs: Callable[..., RunFolder]) -> None:
    model = load(runs(), "cpu")
    leaky(model, attribute=False)
    audit, _ = audit_model(model)
    assert audit["attribute"] is None
    assert audit["verdict"]["kind"] == "one"
    assert "AUC" not in audit["verdict"]["words"]
    assert audit_table(audit).columns == ["axis", "accuracy", "|correlation|", "Wasserstein"]


def test_the_split_that_ties_label_and_attribute_least(runs: Callable[..., RunFolder]) -> None:
    """At rho = 1 label and colour are one thing in every split: the first is as good as any."""
    audit, _ = audit_model(load(runs(data={**TINY_DATA, "rho": 1.0}), "cpu"))
    assert audit["attribute"]["split"] == "val"
    assert audit["attribute"]["tie"] == pytest.approx(1)
    model = load(runs(), "cpu")
    split = model.data.evaluation["ood_test"]
    loose = EvalSplit(split.x, split.y, 2 * split.y + torch.arange(len(split)) % 2, split.group_names)
    model.data = Data(
        model.data.train, {**model.data.evaluation, "ood_test": loose}, model.data.classes, model.data.checksum
    )
    assert audit_model(model)[0]["attribute"]["split"] == "ood_test"


@pytest.mark.usefixtures("_own_data")
@pytest.mark.parametrize(("rare", "scored"), [(0, False), (1, False), (7, True)])
def test_too_small_data_is_said(rare: int, scored: bool, runs: Callable[..., RunFolder]) -> None:
    """With a few held-out samples of a class there are scores, but no verdict; with none of it, a constant label."""
    model = load(runs(), "cpu")
    split = model.data.evaluation["val"]
    keep = torch.cat([(split.y == 0).nonzero()[:, 0], (split.y == 1).nonzero()[:rare, 0]])
    model.data.evaluation["val"] = EvalSplit(split.x[keep], split.y[keep])
    audit, arrays = audit_model(model)
    assert audit["verdict"]["kind"] == "too few"
    assert f"class 'digits 5-9' has {rare} held out" in audit["verdict"]["words"]
    assert bool(audit["axes"]) == bool(arrays) == scored


@pytest.mark.usefixtures("_toys")
def test_features_have_no_pictures(tmp_path: Path) -> None:
    config = toy("vae", data={"name": "toy_blobs", "features": True}, model={"latent_dim": 4, "hidden": 8})
    folder = run(config, tmp_path / "run")
    audit = audit_run(folder, "cpu")
    assert len(audit["axes"]) == 4
    assert audit["pictures"] == []
    assert any("features, not images" in note for note in audit["notes"])
    assert [path.name for path in draw_audit(folder)] == ["first_look.png", "axes.png"]


@pytest.mark.usefixtures("_toys", "cache")
def test_behind_a_frozen_encoder_there_are_real_images_only(tmp_path: Path) -> None:
    model = {
        "latent_dim": 4,
        "hidden": 8,
        "encoder": "test_resnet",
        "encoder_weights": "random",
        "freeze_encoder": True,
    }
    folder = run(toy("vae", model=model), tmp_path / "run")
    audit = audit_run(folder, "cpu")
    assert any("decodes features" in note for note in audit["notes"])
    with np.load(folder.audit_file.parent / "pictures.npz") as arrays:
        assert all(name.endswith("/extremes") for name in arrays)
        assert arrays
    assert len([path for path in draw_audit(folder) if path.name.startswith("ax")]) == 4


@pytest.mark.usefixtures("_toys")
def test_many_classes(tmp_path: Path) -> None:
    """Of eight classes two are shown, those that an axis holds furthest apart."""
    audit = audit_run(run(toy("vae", data={"name": "toy_blobs", "classes": 8}), tmp_path / "run"), "cpu")
    assert audit["chance"] == 1 / 8
    for picture in audit["pictures"]:
        axis = next(axis for axis in audit["axes"] if axis["axis"] == picture["axis"])
        assert picture["classes"] == sorted(axis["furthest_classes"])


def test_what_is_left_out_is_said(runs: Callable[..., RunFolder], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auditing, "MOST_HELD_OUT", 150)
    monkeypatch.setattr(auditing, "MOST_TRAIN", 200)
    audit, _ = audit_model(load(runs(max_samples=100), "cpu"))
    assert "The VAE was shown 100 of 300 training samples" in audit["notes"][0]
    assert "Scores are of 150 of 400 held-out samples" in audit["notes"][1]
    assert (audit["held_out"]["n"], audit["held_out"]["of"]) == (150, 400)


def test_an_audit_says_that_its_vae_was_started_anew(runs: Callable[..., RunFolder]) -> None:
    folder = runs(beta=1e4, restarts=1)
    audit = audit_run(folder, "cpu")
    assert audit["verdict"]["kind"] == "nothing encoded"
    assert "The VAE used no axis after 2 of 2 starts; the last had a beta of 5000." in audit["notes"]
    assert audit["first_look"]["verdict"]["kind"] == "tells"  # there is an answer all the same
    assert not any("starts" in note for note in audit_run(runs(), "cpu")["notes"])


def refused(folder: RunFolder, error: type[Exception], message: str) -> None:
    """Nothing in the folder changes."""
    before = hashes(folder.path)
    with pytest.raises(error, match=message):
        audit_run(folder, "cpu")
    assert hashes(folder.path) == before


def test_a_run_without_a_vae_is_refused(runs: Callable[..., RunFolder]) -> None:
    advice = "the method 'erm' has none. Give a run or a preset of chroma_vae, sitar, vae"
    refused(runs("erm"), RunError, advice)


@pytest.mark.usefixtures("_toys")
def test_data_without_val_is_refused(runs: Callable[..., RunFolder]) -> None:
    refused(runs("vae", data={"name": "toy_blobs", "splits": ["ood_test"]}), DataError, "no val split")


@pytest.mark.parametrize(
    ("preset", "advice"),
    [("color_mnist/erm", ", such as color_mnist/vae."), ("demo/erm", ", such as demo/sitar."), ("mine.yaml", "vae.")],
)
def test_the_preset_that_is_advised_exists(preset: str, advice: str) -> None:
    config = load_config("demo/erm").model_copy(update={"preset": preset})
    with pytest.raises(RunError) as refused:
        check_has_axes(config)
    assert str(refused.value).endswith(advice)


def test_data_too_small_for_a_held_out_sample_is_said(tmp_path: Path) -> None:
    np.savez(tmp_path / "data.npz", x=np.random.default_rng(0).normal(size=(4, 3)), y=[0, 0, 1, 1])
    data = {"name": "npz", "file": str(tmp_path / "data.npz")}
    folder = run(settings("vae", data=data, model={"latent_dim": 2, "hidden": 4}), tmp_path / "run")
    with pytest.raises(DataError, match=r"no val split .* 4 training samples are too few .*data\.val_share"):
        audit_run(folder, "cpu")


def test_ten_samples_have_an_answer_and_no_vae(tmp_path: Path) -> None:
    np.savez(tmp_path / "data.npz", x=np.random.default_rng(0).normal(size=(10, 3)), y=[0, 1] * 5)
    config = load_config("npz/vae", [f"data.file={tmp_path / 'data.npz'}", "data.val_share=0.05"])
    said: list[str] = []
    with pytest.raises(DataError, match=r"no val split .* are too few"):
        train_and_audit(
            config, RunFolder(tmp_path / "run"), device="cpu", progress=False,
            on_first_look=lambda look: said.append(look["verdict"]["words"]),
        )  # fmt: skip
    assert said[0].startswith("Too few samples for a first look: class '0' has 4 training samples")
    assert not (tmp_path / "run").exists()


def test_unfinished_and_damaged_runs_are_refused(runs: Callable[..., RunFolder], tmp_path: Path) -> None:
    (tmp_path / "cut").mkdir()
    (tmp_path / "cut" / "config.yaml").write_bytes(runs().config_file.read_bytes())
    with pytest.raises(RunError, match="not finished"):
        audit_run(RunFolder(tmp_path / "cut"), "cpu")
    shutil.copytree(runs().path, tmp_path / "damaged")
    (tmp_path / "damaged" / "environment.json").write_text("{}")
    with pytest.raises(RunError, match=r"environment\.json"):
        audit_run(RunFolder(tmp_path / "damaged"), "cpu")


@pytest.mark.usefixtures("_toys")
def test_changed_data_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = run(toy("vae"), tmp_path / "run")
    monkeypatch.setattr(toys, "CHECKSUM", "other")
    with pytest.raises(RunError, match="data has changed"):
        audit_run(folder, "cpu")


@pytest.mark.usefixtures("_toys")
def test_settings_are_parsed_once_and_data_is_loaded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In training and audit together, and in an audit of a finished run."""
    calls: Counter[str] = Counter()

    def count(module: str, name: str) -> None:
        function = getattr(importlib.import_module(module), name)

        def counted(*arguments: Any, **options: Any) -> Any:
            calls[name] += 1
            return function(*arguments, **options)

        monkeypatch.setattr(f"{module}.{name}", counted)

    for module in ("sitar.training.run", "sitar.evaluation.trained_model"):
        count(module, "load_data")
    for module in ("sitar.training.run", "sitar.evaluation.trained_model", "sitar.analysis.audit.audit"):
        count(module, "run_config")
    config, folder = toy("vae"), RunFolder(tmp_path / "run")
    audit = train_and_audit(config, folder, device="cpu", progress=False)
    assert calls == {"load_data": 1}, "the settings were parsed before"
    for again in (lambda: train_and_audit(config, folder, device="cpu", progress=False), lambda: audit_run(folder)):
        calls.clear()
        assert again() == audit
        assert calls == {"load_data": 1, "run_config": 1}


@pytest.mark.usefixtures("_toys")
def test_a_method_without_axes_is_refused_before_it_is_trained(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="the method 'erm' has none"):
        train_and_audit(toy("erm"), RunFolder(tmp_path / "run"), device="cpu", progress=False)
    assert not (tmp_path / "run").exists()
