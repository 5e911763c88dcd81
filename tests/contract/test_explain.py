"""What `sitar explain` finds in finished runs, of every method."""

from __future__ import annotations

import functools
import importlib
import inspect
import json
import shlex
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from helpers import toys
from helpers.runs import TINY_DATA, TINY_MODEL, fresh, hashes, predictions, run, settings, toy
from sitar.analysis import thumbnails
from sitar.analysis.explain import gradcam, mistakes, reference_vae, sensitivity, traversals
from sitar.analysis.explain.explain import explain_model, explain_runs
from sitar.analysis.explain.reference_vae import ReferenceVAEs
from sitar.analysis.explain.subject import Subject
from sitar.analysis.latents import shortcut_scores
from sitar.analysis.thumbnails import pixels
from sitar.data import load_data
from sitar.data.types import Data, EvalSplit
from sitar.errors import RunError, SitarError
from sitar.evaluation import trained_model
from sitar.evaluation.trained_model import load
from sitar.files import to_json
from sitar.findings import EXPLAIN_VERSION, PARTS, arrays_fit
from sitar.models import VAE
from sitar.registry import METHODS
from sitar.reporting.comparison import compare_runs
from sitar.reporting.html.missing import missing_parts
from sitar.reporting.html.report import write_report
from sitar.reporting.html.sections.sensitivity import shared_axes
from sitar.reporting.tables.explain import explain_table, shared_axes_tables
from sitar.run_folder import RunFolder

NAMES = ["traversals", "sensitivity", "shared_axes", "gradcam", "mistakes"]
KEYS = ["version", "preset", "seed", "split_of_axes", *NAMES, "reasons"]
AXES, STEPS, SHAPE = TINY_MODEL["latent_dim"], 11, (3, 14, 14)
WITHOUT_SLOPE = {"diffusion", "chroma_vae"}  # with the latter's own head, k-NN
SMALL = {**TINY_DATA, "eval_size": 60}


@pytest.fixture
def runs(runs: Callable[..., RunFolder]) -> Callable[..., RunFolder]:
    """Runs of one epoch on few samples."""
    return functools.partial(runs, train={"epochs": 1, "batch_size": 64}, data=SMALL)


def explained(*folders: RunFolder, **options: Any) -> list[dict[str, Any]]:
    return list(explain_runs(folders, device="cpu", **options))


def of(folder: RunFolder, candidates: Sequence[RunFolder] = (), **options: Any) -> dict[str, Any]:
    """Without a file being written."""
    return explain_model(Subject(load(folder, "cpu"), ReferenceVAEs(candidates, None, "cpu"), **options))[0]


@pytest.mark.parametrize("name", METHODS.names())
def test_every_method_has_values_or_reasons(name: str, runs: Callable[..., RunFolder]) -> None:
    folder, vae = runs(name), runs("vae")
    (found,) = explained(folder, axes=vae, box=(0.25, 0.25, 0.75, 0.75))
    assert found == json.loads(folder.explain_file.read_text())
    assert list(found) == KEYS
    assert list(PARTS) == NAMES
    assert (found["version"], found["split_of_axes"]) == (EXPLAIN_VERSION, "val")
    assert set(found["reasons"]) == {part for part in PARTS if found[part] is None}
    assert all(reason[0].isupper() and reason.endswith(".") for reason in found["reasons"].values())
    sloped = name not in WITHOUT_SLOPE
    assert [found[part] is not None for part in PARTS] == [
        METHODS.get(name).vae_learns is not None, sloped, sloped, sloped, True
    ]  # fmt: skip
    if sloped:
        check_axes(found["sensitivity"], AXES)
        check_axes(found["shared_axes"], AXES)
        assert (found["shared_axes"]["run"], found["shared_axes"]["seed"]) == (str(vae.path), 0)
        assert len(found["sensitivity"]["signed"]) == AXES
        assert 0 < found["gradcam"]["mass_in_box"] < 1
    files = {"explain.json", *(f"{part}.npz" for part in ("traversals", "gradcam", "mistakes") if found[part])}
    assert {file.name for file in folder.artifacts.iterdir()} == files
    check_arrays(folder, found)
    table = explain_table([found], ["a run"])
    (row,) = table.rows
    assert ("–" in row) != sloped
    assert ("The box is 25.0 % of the image" in table.note) == sloped
    assert len(shared_axes_tables([found], ["a run"])) == sloped


@pytest.mark.parametrize("name", PARTS)
def test_every_part_is_what_readers_know_of_it(name: str, runs: Callable[..., RunFolder]) -> None:
    """The module of its name makes plain values and arrays that fit its entry among the findings."""
    references = ReferenceVAEs([runs("vae")], None, "cpu")
    make = importlib.import_module(f"sitar.analysis.explain.{name}").make
    values, arrays = make(Subject(load(runs("sitar"), "cpu"), references, box=(0.25, 0.25, 0.75, 0.75)))
    part = PARTS[name]
    assert json.loads(to_json(values)) == values
    content = part.schema.model_validate(values)
    assert set(arrays) == {prefix + array for prefix in content.prefixes() for array in part.arrays}
    assert arrays_fit(part, values, arrays)
    source = inspect.getsource(importlib.import_module(f"sitar.analysis.explain.{name}"))
    assert not [other for other in PARTS if f"sitar.analysis.explain.{other}" in source], "parts do not know each other"
    for gone in arrays:
        assert not arrays_fit(part, values, {key: array for key, array in arrays.items() if key != gone})
        assert not arrays_fit(part, values, {**arrays, gone: arrays[gone][None]})
        assert not arrays_fit(part, values, {**arrays, gone: arrays[gone][:-1]})


def test_a_part_of_an_earlier_version_has_todays_name(runs: Callable[..., RunFolder], tmp_path: Path) -> None:
    """As version 1 left it: `through` for the shared axes, `wrong` for the mistakes, and wrong.npz."""
    shutil.copytree(runs("sitar").path, tmp_path / "run", ignore=shutil.ignore_patterns("artifacts"))
    folder = RunFolder(tmp_path / "run")
    (today,) = explained(folder)
    old = {"shared_axes": "through", "mistakes": "wrong"}
    before = {old.get(key, key): value for key, value in today.items()} | {"version": 1}
    folder.done_file.write_bytes(b"")  # without checksums
    folder.explain_file.write_bytes(to_json(before))
    folder.part_file("mistakes").rename(folder.part_file("wrong"))
    (comparison,), _ = compare_runs([folder.path])
    (one,) = comparison.runs
    assert one.explanation == today
    assert one.part_arrays("mistakes")
    assert not [part for part in missing_parts(comparison) if "command" in part]
    explained(folder)
    assert not folder.part_file("wrong").exists()


def check_axes(part: dict[str, Any], axes: int) -> None:
    assert part["axes"] == list(range(axes))
    assert part["n"] == 60
    assert len(part["values"]) == len(part["v"]) == axes
    assert all(value >= 0 for value in part["values"])
    assert max(part["values"]) > 0
    assert all(0 <= v <= 1 for v in part["v"])


def check_arrays(folder: RunFolder, found: dict[str, Any]) -> None:
    """Shapes and types that reports rely on."""
    if found["traversals"] is not None:
        with np.load(folder.part_file("traversals")) as arrays:
            starts, axes = (len(found["traversals"][key]) for key in ("starts", "axes"))
            check(arrays["images"], np.uint8, (starts, axes, STEPS, *SHAPE))
            check(arrays["probabilities"], np.float32, (starts, axes, STEPS, 2))
            np.testing.assert_allclose(arrays["probabilities"].sum(-1), 1, atol=1e-5)
    if found["gradcam"] is not None:
        with np.load(folder.part_file("gradcam")) as arrays:
            check(arrays["images"], np.uint8, (12, *SHAPE))
            check(arrays["maps"], np.float32, (12, *SHAPE[1:]))
            for name in ("labels", "predicted", "index"):
                check(arrays[name], np.int64, (12,))
            assert 0 <= arrays["maps"].min() <= arrays["maps"].max() <= 1
    with np.load(folder.part_file("mistakes")) as arrays:
        assert set(arrays) == {
            f"{split}/{what}" for split in found["mistakes"]["splits"] for what in ("index", "images")
        }
        for split in found["mistakes"]["splits"]:
            check(arrays[f"{split}/index"], np.int64, arrays[f"{split}/index"].shape)
            check(arrays[f"{split}/images"], np.uint8, (len(arrays[f"{split}/index"]), *SHAPE))


def check(array: np.ndarray, dtype: type, shape: tuple[int, ...]) -> None:
    assert (array.dtype, array.shape) == (dtype, shape)


@pytest.mark.parametrize("name", METHODS.names())
def test_logits_go_through_the_latent(name: str, tiny_data: Data) -> None:
    method = fresh(settings(name), tiny_data).eval()
    bottleneck = method.bottleneck()
    x = tiny_data.train.x[:30].float() / 255
    assert (bottleneck is None) == (name == "diffusion")
    if bottleneck is not None:
        with torch.no_grad():
            torch.testing.assert_close(bottleneck.classify(bottleneck.latent(x)), method.logits(x))
        assert isinstance(bottleneck.network, VAE) == (method.vae_learns is not None)


def differences(f: Callable[[Tensor], Tensor], mu: Tensor) -> Tensor:
    """Mean length of central differences along each axis, times its deviation."""
    values = []
    for axis in range(mu.shape[1]):
        step = torch.zeros(mu.shape[1])
        step[axis] = 1e-2
        with torch.no_grad():
            values.append(((f(mu + step) - f(mu - step)) / 2e-2).norm(dim=1).mean())
    return torch.stack(values) * mu.std(0)


@pytest.mark.parametrize(
    ("name", "network"), [("sitar", "vae"), ("vae", "vae"), ("erm", "network"), ("lff", "debiased")]
)
def test_sensitivity_is_of_the_latent_that_is_used(name: str, network: str, runs: Callable[..., RunFolder]) -> None:
    model = load(runs(name), "cpu")
    found = sensitivity.make(Subject(model))[0]
    split = model.data.evaluation["val"]
    net = getattr(model.method, network)
    with torch.no_grad():
        mu = net.mean(net.encoder(split.x.float() / 255))
    classify = net.classifier if network != "vae" else model.method.bottleneck().classify  # type: ignore[union-attr]
    torch.testing.assert_close(torch.tensor(found["values"]), differences(classify, mu), rtol=2e-3, atol=1e-6)
    expected = [abs(np.corrcoef(axis, split.y)[0, 1]) for axis in mu.T.numpy()]
    np.testing.assert_allclose(found["v"], expected, atol=1e-4)


def test_signs_of_two_classes(runs: Callable[..., RunFolder]) -> None:
    model = load(runs(), "cpu")
    weight = torch.tensor([[1.0, 0.0, 2.0, 0.0], [0.0, 0.0, 5.0, -1.0]])
    model.method.classifier = torch.nn.Linear(4, 2, bias=False)
    model.method.classifier.weight.data = weight
    found = sensitivity.make(Subject(model))[0]
    with torch.no_grad():
        deviation = model.method.vae.encode(model.data.evaluation["val"].x / 255)[0].std(0)
    torch.testing.assert_close(torch.tensor(found["signed"]), torch.tensor([-1.0, 0, 3, -1]) * deviation)
    torch.testing.assert_close(torch.tensor(found["values"]), weight.norm(dim=0) * deviation)


@pytest.mark.parametrize("head", ["logistic", "mlp"])
def test_chroma_vaes_head_uses_its_part_of_the_latent(head: str, runs: Callable[..., RunFolder]) -> None:
    found = of(runs("chroma_vae", head=head))
    assert found["sensitivity"]["values"][:2] == [0, 0]
    assert min(found["sensitivity"]["values"][2:]) > 0


@pytest.mark.parametrize("name", ["erm", "sitar"])
def test_the_reference_vae_moves_the_image(name: str, runs: Callable[..., RunFolder]) -> None:
    """Both models on the axes of a third run's VAE, against finite differences of the logits of decoded images."""
    model, vae = load(runs(name), "cpu"), load(runs("vae"), "cpu").method.vae
    found = of(runs(name), [runs("vae")])["shared_axes"]
    with torch.no_grad():
        mu = vae.encode(model.data.evaluation["val"].x / 255)[0]
    expected = differences(lambda z: model.method.logits(vae.decode(z)), mu)
    torch.testing.assert_close(torch.tensor(found["values"]), expected, rtol=2e-2, atol=1e-5)
    assert found["v"] == of(runs("vae"))["sensitivity"]["v"]


def test_the_first_run_with_a_vae_lends_its_axes(runs: Callable[..., RunFolder]) -> None:
    folders = [runs("erm"), runs("sitar"), runs("vae")]
    found = explained(*folders)
    assert {one["shared_axes"]["run"] for one in found} == {str(folders[1].path)}
    (table,) = shared_axes_tables(found, ["a", "b", "c"])
    assert table.columns == ["axis", "v", "a", "b", "c"]
    assert [float(row[1]) for row in table.rows] == sorted((float(row[1]) for row in table.rows), reverse=True)
    assert [row[0] for row in explain_table(found, ["a", "b", "c"]).rows] == ["a", "b", "c"]
    assert {one["shared_axes"]["run"] for one in explained(*folders, axes=folders[2])} == {str(folders[2].path)}


def test_runs_on_other_data_are_measured_on_axes_of_their_own(runs: Callable[..., RunFolder]) -> None:
    """The source is the same, and so is its checksum: the samples are not."""
    other = {**SMALL, "rho": 0.6}
    folders = [runs("erm"), runs("vae"), runs("erm", data=other), runs("vae", data=other)]
    found = explained(*folders)
    assert [one["shared_axes"]["run"] for one in found] == [str(folders[i].path) for i in (1, 1, 3, 3)]
    assert len(shared_axes_tables(found, ["a", "b", "c", "d"])) == 2
    named = explained(*folders, axes=folders[1])
    assert [one["shared_axes"] is None for one in named] == [False, False, True, True]
    assert "other data than the VAE" in named[2]["reasons"]["shared_axes"]
    assert "None of these runs has a VAE" in of(runs("erm"))["reasons"]["shared_axes"]


def test_traversals_move_one_axis_and_ask_the_classifier(runs: Callable[..., RunFolder]) -> None:
    model = load(runs(), "cpu")
    about, arrays = traversals.make(Subject(model))
    split = model.data.evaluation["val"]
    with torch.no_grad():
        mu = model.method.vae.encode(split.x / 255)[0]
    v = shortcut_scores(mu, split.y, 2)
    assert about["axes"] == v.argsort(descending=True).tolist()
    assert [start["label"] for start in about["starts"]] == [-1, 0, 1]
    starts = [mu.mean(0), *(mu[(split.y == c).nonzero()[0, 0]] for c in (0, 1))]
    for i, axis in enumerate(about["axes"]):
        deviation, mean = torch.std_mean(mu[:, axis])
        np.testing.assert_allclose(about["values"][i], mean + deviation * torch.linspace(-2.5, 2.5, STEPS), atol=1e-5)
        for k, start in enumerate(starts):
            z = start.repeat(STEPS, 1)
            z[:, axis] = torch.tensor(about["values"][i])
            with torch.no_grad():
                images, probabilities = model.method.vae.decode(z), model.method.classifier(z).softmax(1)
            np.testing.assert_allclose(arrays["probabilities"][k, i], probabilities, atol=1e-5)
            difference = arrays["images"][k, i].astype(int) - pixels(images).numpy()
            assert abs(difference).max() <= 1


def test_many_axes_many_classes_and_large_images(
    runs: Callable[..., RunFolder], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(traversals, "MOST_AXES", 2)
    monkeypatch.setattr(thumbnails, "MOST_SIDE", 7)
    model = load(runs(), "cpu")
    about, arrays = traversals.make(Subject(model))
    assert arrays["images"].shape == (3, 2, STEPS, 3, 7, 7)
    assert len(about["values"]) == 2
    _, arrays = mistakes.make(Subject(model))
    assert arrays["ood_test/images"].shape[1:] == (3, 7, 7)


@pytest.mark.usefixtures("_toys")
def test_eight_classes(tmp_path: Path) -> None:
    folder = run(toy("sitar", data={"name": "toy_blobs", "classes": 8}, model=TINY_MODEL), tmp_path / "run")
    found = of(folder)
    assert [start["label"] for start in found["traversals"]["starts"]] == [-1, 0, 1, 2]
    assert found["sensitivity"]["signed"] is None
    assert found["gradcam"]["split"] == "ood_test"


def test_pictures_of_gradcam_are_of_the_classes_in_turn(runs: Callable[..., RunFolder]) -> None:
    model = load(runs("erm"), "cpu")
    about, arrays = gradcam.make(Subject(model))
    assert about == {
        "layer": "network.encoder.layers.0", "split": "ood_test", "n": 0, "mass_in_box": None, "box": None
    }  # fmt: skip
    assert arrays["labels"].tolist() == [0, 1] * 6
    split = model.data.evaluation["ood_test"]
    assert np.array_equal(arrays["images"], split.x[arrays["index"]])
    stored = predictions(model.folder)["ood_test/logits"].argmax(1)
    assert np.array_equal(arrays["predicted"], stored[arrays["index"]])


def test_the_box_is_the_one_given_or_the_datasets(
    runs: Callable[..., RunFolder], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = load(runs("erm"), "cpu")
    given, _ = gradcam.make(Subject(model, box=(0.0, 0.0, 0.5, 1.0)))
    rest, _ = gradcam.make(Subject(model, box=(0.5, 0.0, 1.0, 1.0)))
    assert given["mass_in_box"] + rest["mass_in_box"] == pytest.approx(1, abs=1e-5)
    monkeypatch.setattr("sitar.data.benchmarks.color_mnist.ColorMNIST.box_of_interest", lambda _: (0.5, 0.0, 1.0, 1.0))
    own, _ = gradcam.make(Subject(model))
    assert own == rest
    assert gradcam.make(Subject(model, box=(0.0, 0.0, 0.5, 1.0)))[0] == given
    assert 0 < own["n"] <= 60
    monkeypatch.setattr(gradcam, "MOST", 10)
    assert 0 < gradcam.make(Subject(model))[0]["n"] <= 10


def test_wrong_samples_are_those_of_the_predictions(runs: Callable[..., RunFolder]) -> None:
    model = load(runs("erm"), "cpu")
    about, arrays = mistakes.make(Subject(model))
    assert about == {"splits": ["id_test", "ood_test"], "most": 200}
    stored = predictions(model.folder)
    index = arrays["ood_test/index"]
    mistaken = np.flatnonzero(stored["ood_test/logits"].argmax(1) != stored["ood_test/y"])
    assert sorted(index) == mistaken.tolist()
    assert np.array_equal(arrays["ood_test/images"], model.data.evaluation["ood_test"].x[index])


def test_two_runs_hold_the_same_wrong_samples(runs: Callable[..., RunFolder], monkeypatch: pytest.MonkeyPatch) -> None:
    """What both get wrong is in both and in one order; where there are too many, the first of that order stay."""
    model = load(runs("erm"), "cpu")
    truth = {name: split.y.numpy() for name, split in model.data.evaluation.items()}

    def held(wrong: list[int]) -> list[int]:
        guess = truth["ood_test"].copy()
        guess[wrong] = 1 - guess[wrong]
        monkeypatch.setattr(mistakes, "predicted_classes", lambda _: {**truth, "ood_test": guess})
        return mistakes.make(Subject(model))[1]["ood_test/index"].tolist()

    one, two = held(list(range(40))), held(list(range(20, 60)))
    assert one != sorted(one)  # a split may be sorted by class
    assert [i for i in one if i >= 20] == [i for i in two if i < 40]
    monkeypatch.setattr(mistakes, "MOST", 5)
    assert held(list(range(40))) == one[:5]


def test_a_run_without_errors_has_no_wrong_images(runs: Callable[..., RunFolder]) -> None:
    model = load(runs("erm"), "cpu")
    stored = predictions(model.folder)
    sure = {f"{name}/logits": np.eye(2)[stored[f"{name}/y"]] for name in ("id_test", "ood_test")}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            mistakes, "predicted_classes", lambda _: {name[:-7]: value.argmax(1) for name, value in sure.items()}
        )
        _, arrays = mistakes.make(Subject(model))
    assert arrays["ood_test/images"].shape == (0, *SHAPE)
    assert arrays["ood_test/images"].dtype == np.uint8


ENCODER = {"latent_dim": 4, "hidden": 8, "encoder": "test_resnet", "encoder_weights": "random"}


@pytest.mark.usefixtures("_toys", "cache")
class TestFeaturesAndEncoders:
    @pytest.mark.parametrize("name", ["sitar", "erm"])
    def test_of_features_there_is_the_sensitivity(self, name: str, tmp_path: Path) -> None:
        model = {"latent_dim": 4, "hidden": 8}
        folder = run(toy(name, data={"name": "toy_blobs", "features": True}, model=model), tmp_path / "run")
        (found,) = explained(folder)
        assert len(found["sensitivity"]["values"]) == 4
        assert set(found["reasons"]) == set(PARTS) - {"sensitivity"}
        assert "features, not images" in found["reasons"]["mistakes"]
        assert found["reasons"]["shared_axes"] == "This data holds features, not images."
        assert [file.name for file in folder.artifacts.iterdir()] == ["explain.json"]
        with pytest.raises(RunError, match="no VAE that decodes images"):
            explained(folder, axes=folder)

    @pytest.mark.parametrize("freeze", [True, False])
    @pytest.mark.parametrize("name", ["sitar", "erm"])
    def test_behind_an_encoder(self, name: str, freeze: bool, tmp_path: Path) -> None:
        """Its VAE decodes features, but its logits can be asked through another VAE, and the encoder has maps."""
        reference = run(toy("vae", model=TINY_MODEL), tmp_path / "vae")
        folder = run(toy(name, model={**ENCODER, "freeze_encoder": freeze}), tmp_path / "run")
        (found,) = explained(folder, axes=reference, box=(0.0, 0.0, 0.5, 0.5))
        assert set(found["reasons"]) == {"traversals"}
        if name == "sitar":
            assert "Behind an encoder" in found["reasons"]["traversals"]
        place = "" if freeze else "vae.backbone." if name == "sitar" else "network.backbone."
        assert found["gradcam"]["layer"] == f"{place}network.layer1.0.conv2"  # behind it a map of 8x8 is one place
        model, vae = load(folder, "cpu"), load(reference, "cpu").method.vae
        with torch.no_grad():
            mu = vae.encode(model.data.evaluation["val"].x / 255)[0]

        def logits(z: Tensor) -> Tensor:
            images = vae.decode(z)
            return model.method.logits(model.encoder.network(images) if freeze else images)

        torch.testing.assert_close(
            torch.tensor(found["shared_axes"]["values"]), differences(logits, mu), rtol=5e-2, atol=1e-5
        )
        with pytest.raises(RunError, match="no VAE that decodes images"):
            explained(folder, axes=folder)


@pytest.mark.usefixtures("_toys")
def test_data_without_val_has_the_rest(runs: Callable[..., RunFolder]) -> None:
    data = {"name": "toy_blobs", "splits": ["ood_test"]}
    found = of(runs("sitar", data=data), [runs("sitar", data=data)])
    assert set(found["reasons"]) == {"traversals", "sensitivity", "shared_axes"}
    assert all("no val split" in reason for reason in found["reasons"].values())
    assert found["gradcam"]["split"] == "ood_test"


def test_the_split_of_gradcam(runs: Callable[..., RunFolder]) -> None:
    model = load(runs("erm"), "cpu")
    splits = model.data.evaluation
    for names, expected in ((("val", "test", "ood_test"), "ood_test"), (("val", "test"), "test"), (("val",), "val")):
        kept = dict.fromkeys(names, splits["val"])
        model.data = Data(model.data.train, kept, model.data.classes, model.data.checksum)
        assert gradcam.make(Subject(model))[0]["split"] == expected
    reasons = explain_model(Subject(model))[0]["reasons"]
    assert reasons["mistakes"] == "This data has no test split."
    empty = EvalSplit(splits["val"].x[:0], splits["val"].y[:0])
    model.data = Data(model.data.train, {"val": empty}, model.data.classes, model.data.checksum)
    assert set(explain_model(Subject(model))[0]["reasons"]) == set(PARTS)


def test_it_is_the_same_again_and_old_files_go(runs: Callable[..., RunFolder], tmp_path: Path) -> None:
    shutil.copytree(runs("erm").path, tmp_path / "run")
    folder = RunFolder(tmp_path / "run")
    explained(folder)
    before = json.loads(folder.explain_file.read_text())
    folder.part_file("traversals").write_bytes(b"of an earlier release")
    (found,) = explained(folder)
    assert found == before
    assert not folder.part_file("traversals").exists()


def test_bugs_surface_and_reasons_do_not(runs: Callable[..., RunFolder], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gradcam, "make", raising(SitarError("A reason.")))
    assert of(runs("erm"))["reasons"]["gradcam"] == "A reason."
    monkeypatch.setattr(gradcam, "make", raising(ValueError("a bug")))
    with pytest.raises(ValueError, match="a bug"):
        of(runs("erm"))


def raising(error: Exception) -> Callable[..., Any]:
    def fail(*_: Any) -> None:
        raise error

    return fail


def test_explain_json_goes_before_and_comes_last(
    runs: Callable[..., RunFolder], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(runs("erm").path, tmp_path / "run")
    folder = RunFolder(tmp_path / "run")
    explained(folder)
    written: list[str] = []

    def note(path: Path, content: bytes) -> None:
        assert not folder.explain_file.exists()
        written.append(path.name)

    monkeypatch.setattr("sitar.run_folder.checksums.write_atomic", note)
    explained(folder)
    assert written == [
        "done",
        "gradcam.npz",
        "mistakes.npz",
        "explain.json",
        "done",
    ]  # with the checksums


def test_what_cannot_be_explained_is_refused_before_anything_is_computed(
    runs: Callable[..., RunFolder], tmp_path: Path
) -> None:
    (tmp_path / "cut").mkdir()
    (tmp_path / "cut" / "config.yaml").write_bytes(runs("erm").config_file.read_bytes())
    before = hashes(runs("erm").path)
    for axes, message in ((None, "not finished"), (runs("jtt"), "not finished")):
        with pytest.raises(RunError, match=message):
            explained(runs("erm"), RunFolder(tmp_path / "cut"), axes=axes)
    with pytest.raises(RunError, match="no VAE that decodes images"):
        explained(runs("erm"), axes=runs("jtt"))
    with pytest.raises(RunError, match="not finished"):
        explained(runs("erm"), axes=RunFolder(tmp_path / "cut"))
    with pytest.raises(RunError, match="no run folder"):
        explained(runs("erm"), axes=RunFolder(tmp_path / "nothing"))
    assert hashes(runs("erm").path) == before


@pytest.mark.usefixtures("_toys")
def test_changed_data_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = run(toy("erm"), tmp_path / "run")
    monkeypatch.setattr(toys, "CHECKSUM", "other")
    with pytest.raises(RunError, match="data has changed"):
        explained(folder)
    assert not folder.artifacts.exists()


def test_damaged_predictions_are_a_reason(runs: Callable[..., RunFolder], tmp_path: Path) -> None:
    shutil.copytree(runs("erm").path, tmp_path / "run")
    folder = RunFolder(tmp_path / "run")
    folder.predictions_file.write_bytes(folder.predictions_file.read_bytes()[:500])
    assert "is damaged" in explained(folder)[0]["reasons"]["mistakes"]
    folder.done_file.write_bytes(b"")  # as an early release left it, without checksums
    assert "cannot be read" in explained(folder)[0]["reasons"]["mistakes"]


def test_a_reference_vae_is_loaded_once(runs: Callable[..., RunFolder], monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[RunFolder] = []

    class Counted(reference_vae.TrainedModel):
        def __init__(self, folder: RunFolder, device: str, **options: Any) -> None:
            loaded.append(folder)
            super().__init__(folder, device, **options)

    monkeypatch.setattr(reference_vae, "TrainedModel", Counted)
    explained(runs("erm"), runs("jtt"), axes=runs("vae"))
    assert loaded == [runs("vae")]


def test_runs_of_the_same_data_load_it_once(runs: Callable[..., RunFolder], monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[Any] = []

    def counted(config: Any) -> Any:
        loaded.append(config)
        return load_data(config)

    monkeypatch.setattr(trained_model, "load_data", counted)
    explained(runs("erm"), runs("sitar"), runs("jtt"))
    assert len(loaded) == 1


def test_the_commands_of_a_report_leave_runs_side_by_side(runs: Callable[..., RunFolder], tmp_path: Path) -> None:
    """One run loses its findings, another is new: what the page says makes them again on the axes of the rest."""
    folders = []
    for name in ("sitar", "erm", "jtt"):
        shutil.copytree(runs(name).path, tmp_path / name, ignore=shutil.ignore_patterns("artifacts"))
        folders.append(RunFolder(tmp_path / name))
    paths = [folder.path for folder in folders]
    explained(*folders[:2])
    folders[1].part_file("gradcam").unlink()
    assert "decoded by the VAE of" in write_report(paths, tmp_path / "r.html").read_text(encoding="utf-8")
    for _ in range(2):
        (comparison,), _ = compare_runs(paths)
        for part in missing_parts(comparison):
            if "command" in part:
                *given, option, reference = shlex.split(part["command"])[2:]
                assert option == "--axes"
                explained(*(RunFolder(Path(run)) for run in given), axes=RunFolder(Path(reference)))
    (comparison,), _ = compare_runs(paths)
    assert not [part for part in missing_parts(comparison) if "command" in part]
    side_by_side = shared_axes(comparison)
    assert side_by_side is not None
    assert [bar.label for bar in side_by_side["bars"][0].bars] == [run.label for run in comparison.runs]
    assert len(comparison.runs) == 3
