"""Every method whose model can be one file is exported, and the file agrees with the model."""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch

import sitar
from helpers import made_data
from helpers.bits import damaged, some_bits
from helpers.runs import TINY_MODEL, run, settings
from sitar.errors import ExportError, RunError
from sitar.evaluation.metrics import softmax
from sitar.export.description import describe_input
from sitar.export.export import LARGEST, export
from sitar.registry import METHODS
from sitar.run_folder import RunFolder

NAMES = list(METHODS.available())
VARIANTS = [
    *((name, {}) for name in NAMES),
    ("chroma_vae", {"head": "logistic"}),
    ("chroma_vae", {"head": "mlp"}),
    ("sitar", {"vae": "factor"}),
    ("afr", {"last_epochs": 2}),
]
REFUSED = {"chroma_vae": "method.head=logistic", "diffusion": "train another method"}  # with their defaults
IMAGES = 1000
ENCODER = {"encoder": "test_resnet.r160_in1k", "encoder_weights": "random"}


def is_refused(name: str, options: dict[str, Any]) -> bool:
    return name in REFUSED and not options


def session(path: Path) -> onnxruntime.InferenceSession:
    return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])


def new_images(shape: tuple[int, ...], n: int = IMAGES) -> np.ndarray:
    """Noise of every contrast, and one flat image of each shade."""
    random = np.random.default_rng(3)
    images = (random.uniform(0, 256, (n, *shape)) * random.uniform(0, 1, (n, 1, 1, 1))).astype(np.uint8)
    shades = min(n, 256)
    images[:shades] = np.arange(shades, dtype=np.uint8)[:, None, None, None]
    return images


def assert_agrees(path: Path, folder: RunFolder, x: np.ndarray) -> None:
    """The file against the model: all inputs in batches of 256, and one by one."""
    model, file = sitar.load(folder, device="cpu"), session(path)
    (taken,) = file.get_inputs()
    logits = model.logits(x)
    for size in (256, 1):
        parts = [file.run(None, {taken.name: x[i : i + size]}) for i in range(0, len(x), size)]
        probabilities, found = (np.concatenate(part) for part in zip(*parts, strict=True))
        assert np.abs(probabilities - softmax(logits)).max() < LARGEST
        assert np.abs(found - logits).max() < LARGEST * max(1, np.abs(logits).max())
    assert np.ptp(logits, axis=0).max() > 10 * LARGEST, "the inputs are told apart, so that agreement means something"


def cases() -> list[Any]:
    """One of them, and those that are refused, on every change; all of them in CI."""
    return [
        pytest.param(
            name, options, id="-".join([name, *map(str, options.values())]),
            marks=[] if (name == "sitar" and not options) or is_refused(name, options) else [pytest.mark.ci],
        )
        for name, options in VARIANTS
    ]  # fmt: skip


@pytest.mark.parametrize(("name", "options"), cases())
def test_a_file_agrees_with_the_model(
    name: str, options: dict[str, Any], runs: Callable[..., RunFolder], tmp_path: Path
) -> None:
    folder, out = runs(name, **options), tmp_path / "model.onnx"
    if is_refused(name, options):
        with pytest.raises(ExportError, match=REFUSED[name]):
            export(folder, "onnx", out)
        assert not out.exists()
        return
    done = export(folder, "onnx", out)
    assert max(done.description["checked"][key] for key in ("probabilities", "logits")) <= LARGEST
    assert_agrees(out, folder, new_images(sitar.load(folder, device="cpu").task.shape))


@pytest.mark.ci
@pytest.mark.parametrize("name", [name for name in NAMES if name not in REFUSED])
def test_features_go_in_as_they_are_stored(name: str, tmp_path: Path) -> None:
    config = settings(name, data=made_data.npz(tmp_path).model_dump(), model=TINY_MODEL, train={"epochs": 2})
    folder = run(config, tmp_path / "run")
    (tmp_path / "data.npz").unlink()
    done = export(folder)
    assert done.path == folder.path / "export" / "model.onnx"
    width = sitar.load(folder, device="cpu").task.shape[0]
    assert done.description["input"] == {"name": "features", "shape": ["batch", width], "dtype": "float32"}
    assert_agrees(done.path, folder, np.random.default_rng(1).normal(0, 2, (IMAGES, width)).astype(np.float32))


def test_features_of_a_table_are_named_in_their_order(tmp_path: Path) -> None:
    folder = run(settings("erm", data=made_data.features(tmp_path).model_dump(), model=TINY_MODEL), tmp_path / "run")
    assert describe_input(sitar.load(folder, device="cpu"))["columns"] == ["f0", "f1"]


@pytest.mark.ci
@pytest.mark.parametrize("frozen", [True, False])
def test_an_encoder_is_in_the_file(frozen: bool, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    data = made_data.table(tmp_path / "data").model_dump() | {"crop_pct": 0.875}
    model = {**TINY_MODEL, **ENCODER, "freeze_encoder": frozen}
    folder = run(settings("sitar", data=data, model=model, train={"epochs": 1, "batch_size": 16}), tmp_path / "run")
    shutil.rmtree(tmp_path / "data")
    done = export(folder)
    resize = done.description["input"]["resize"]
    assert resize == {"height_width": [16, 16], "mode": "crop", "crop_pct": 0.875, "filter": resize["filter"]}
    assert done.description["input"]["colour"] == "RGB"
    assert_agrees(done.path, folder, new_images((3, 16, 16), 300))


def test_a_refitted_run_is_exported_and_marked(runs: Callable[..., RunFolder], tmp_path: Path) -> None:
    from sitar.models.weights import to_bytes

    shutil.copytree(runs("sitar").path, tmp_path / "run")
    folder = RunFolder(tmp_path / "run")
    config = folder.read_config() | {"refit": {"answers": 20, "digest": "abc", "features": "hidden"}}
    folder.write_config(config)
    result = {**folder.result(), "answers": 20}
    from sitar.config import run_config
    from sitar.data.types import described_task
    from sitar.methods import build_method

    method = build_method(run_config(config), described_task(result["task"]))
    folder.write_model(to_bytes(method.state_dict()))
    folder.finish(result)
    done = export(folder)
    assert done.description["answers"] == 20
    assert_agrees(done.path, folder, new_images((3, 14, 14), 300))


def test_the_torch_format_agrees_to_the_bit(runs: Callable[..., RunFolder], tmp_path: Path) -> None:
    folder = runs("jtt")
    done = export(folder, "torch", tmp_path / "model.pt2")
    extra = {"sitar.json": ""}
    module = torch.export.load(done.path, extra_files=extra).module()
    model = sitar.load(folder, device="cpu")
    x = new_images(model.task.shape, 300)
    for n in (1, 300):
        with torch.no_grad():
            probabilities, logits = module(torch.from_numpy(x[:n]))
        np.testing.assert_array_equal(logits.numpy(), model.logits(x[:n]))
        np.testing.assert_allclose(probabilities.numpy(), model.predict_proba(x[:n]), atol=1e-6)
    assert json.loads(extra["sitar.json"]) == done.description


@pytest.mark.skipif(shutil.which("sha256sum") is None, reason="needs sha256sum")
@pytest.mark.parametrize("name", ["model.pt2", "a\\b\n.pt2", None])
def test_the_checksum_lies_beside_the_file(name: str | None, runs: Callable[..., RunFolder], tmp_path: Path) -> None:
    folder = RunFolder(shutil.copytree(runs("erm").path, tmp_path / "run"))
    done = export(folder, "torch", None if name is None else tmp_path / name)
    beside = done.path.with_name(done.path.name + ".sha256")

    def compare() -> int:
        command = ["sha256sum", "-c", "--status", "--strict", beside.name]
        return subprocess.run(command, cwd=done.path.parent, check=False).returncode

    assert done.sha256 == hashlib.sha256(done.path.read_bytes()).hexdigest()
    assert compare() == 0
    for bit in some_bits(done.path.read_bytes(), 20):
        with damaged(done.path, bit):
            assert compare() != 0
            if name is None:
                with pytest.raises(RunError, match=r"model\.pt2' is damaged"):
                    folder.compare(done.path)
    export(folder, "torch", None if name is None else tmp_path / name, force=True)
    assert compare() == 0


def test_a_file_says_where_it_comes_from(runs: Callable[..., RunFolder], tmp_path: Path) -> None:
    folder = runs("group_dro")
    done = export(folder, out=tmp_path / "model.onnx", licence="CC BY 4.0")
    metadata = session(done.path).get_modelmeta().custom_metadata_map
    said = {key: json.loads(value) for key, value in metadata.items()}
    assert said == done.description
    environment, result = folder.environment() or {}, folder.result()
    assert said["classes"] == result["classes"]
    assert said["data_checksum"] == environment["data_checksum"]
    assert said["commit"] == environment["commit"]
    assert (said["method"], said["seed"], said["dataset"]) == ("group_dro", 0, "color_mnist")
    assert (said["needs_groups"], said["answers"], said["licence"]) == (True, 0, "CC BY 4.0")
    assert "CC BY-SA" in said["data_licence"]
    assert said["exported_by"] == sitar.__version__
    assert said["input"]["shape"] == ["batch", 3, 14, 14]
    model = onnx.load(done.path)
    onnx.checker.check_model(model, full_check=True)
    assert not any(node.metadata_props or node.doc_string for node in model.graph.node), (
        "what the exporter notes is gone"
    )


@pytest.mark.parametrize("format", ["onnx", "torch"])
def test_a_file_holds_only_what_it_needs(format: str, runs: Callable[..., RunFolder], tmp_path: Path) -> None:
    """JTT marks each training sample and has a first model. Neither is needed, and no path of this machine is."""
    folder = runs("jtt")
    out = tmp_path / f"model.{'onnx' if format == 'onnx' else 'pt2'}"
    content = export(folder, format, out).path.read_bytes()
    if format == "torch":
        archive = zipfile.ZipFile(io.BytesIO(content))
        content = b"".join(archive.read(name) for name in archive.namelist())
    assert b"second" in content
    for private in (
        b"wrong",
        b"first.encoder.layers.0.weight",
        str(Path(sitar.__file__).parent).encode(),
        str(tmp_path).encode(),
    ):
        assert private not in content
    assert b".py" not in content


def test_a_file_that_does_not_agree_is_not_written(
    runs: Callable[..., RunFolder], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sitar.export import onnx_file

    converted = onnx_file.convert

    def damaged(*arguments: Any) -> Any:
        model = converted(*arguments)
        for tensor in model.graph.initializer:
            values = onnx.numpy_helper.to_array(tensor)
            if tensor.name.endswith("bias") and values.ndim == 1:
                tensor.CopyFrom(onnx.numpy_helper.from_array(values + 0.01, tensor.name))
        return model

    monkeypatch.setattr(onnx_file, "convert", damaged)
    with pytest.raises(ExportError, match="does not agree with the model"):
        export(runs("erm"), out=tmp_path / "model.onnx")
    assert list(tmp_path.iterdir()) == []


def test_a_file_for_one_size_of_batch_is_not_written(
    runs: Callable[..., RunFolder], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What counts neighbours is traced for the batch at hand. Were it not refused, the check would find out."""
    monkeypatch.setattr(METHODS.get("chroma_vae"), "__setattr__", _forget_no_export, raising=False)
    with pytest.raises(ExportError, match=r"does not take a batch of|cannot be traced"):
        export(runs("chroma_vae"), out=tmp_path / "model.onnx")
    assert list(tmp_path.iterdir()) == []


def _forget_no_export(self: torch.nn.Module, name: str, value: Any) -> None:
    if name != "no_export":
        torch.nn.Module.__setattr__(self, name, value)


def test_a_model_that_is_too_large_for_onnx_says_so(
    runs: Callable[..., RunFolder], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sitar.export import onnx_file

    monkeypatch.setattr(onnx_file, "LARGEST", 1000)
    with pytest.raises(ExportError, match="Use --format torch"):
        export(runs("erm"), out=tmp_path / "model.onnx")


def test_an_export_that_is_named_and_lies_in_the_run_keeps_its_checksum(
    runs: Callable[..., RunFolder], tmp_path: Path
) -> None:
    shutil.copytree(runs("erm").path, tmp_path / "run")
    folder = RunFolder(tmp_path / "run")
    export(folder, "torch")
    export(folder, "torch", folder.export_file("torch"), force=True, licence="mit")
    folder.compare(folder.export_file("torch"))


def test_an_operation_that_onnx_does_not_have_is_one_message(
    runs: Callable[..., RunFolder], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, cls = runs("erm"), METHODS.get("erm")
    monkeypatch.setattr(cls, "logits", lambda self, x: torch.special.bessel_j0(self.network(x)))
    with pytest.raises(ExportError, match=r"cannot be written as ONNX .*bessel_j0.* Use --format torch"):
        export(folder, out=tmp_path / "model.onnx")
    export(folder, "torch", tmp_path / "model.pt2")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.pt2", "model.pt2.sha256"]


def test_a_branch_that_depends_on_the_data_is_one_message(
    runs: Callable[..., RunFolder], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, cls = runs("erm"), METHODS.get("erm")
    monkeypatch.setattr(cls, "logits", lambda self, x: self.network(x) if x.mean() > 0.1 else -self.network(x))
    with pytest.raises(ExportError, match="cannot be traced for batches of any size"):
        export(folder, out=tmp_path / "model.onnx")


def test_a_check_that_is_not_a_number_fails(
    runs: Callable[..., RunFolder], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sitar.export import torch_file

    torch_runner = torch_file.runner

    def runner(content: bytes) -> Callable[[np.ndarray], list[np.ndarray]]:
        run = torch_runner(content)
        return lambda x: [run(x)[0], np.full((len(x), 2), np.nan, np.float32)]

    monkeypatch.setattr(torch_file, "runner", runner)
    with pytest.raises(ExportError, match="does not agree"):
        export(runs("erm"), "torch", out=tmp_path / "model.pt2")


def test_floats_go_in_as_floats(runs: Callable[..., RunFolder], tmp_path: Path) -> None:
    folder = runs("erm")
    done = export(folder, out=tmp_path / "model.onnx", floats=True)
    assert (done.description["input"]["dtype"], done.description["input"]["range"]) == ("float32", [0, 1])
    assert_agrees(done.path, folder, np.random.default_rng(0).uniform(0, 1, (300, 3, 14, 14)).astype(np.float32))
