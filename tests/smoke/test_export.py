"""`sitar export` and `sitar card` on the command line, and the lines of docs/export.md that run a file without us."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from helpers import made_data
from helpers.cli import sitar, sitar_error
from helpers.runs import TINY_MODEL, run, settings

PAGE = Path(__file__).parents[2] / "docs" / "export.md"
WITHOUT = "import runpy, sys\nfor name in ('torch', 'sitar'): sys.modules[name] = None\n"
WITHOUT += "del sys.argv[0]\nrunpy.run_path(sys.argv[0], run_name='__main__')"
RESIZED = {"stretched": {}, "cut": {"crop_pct": 0.875}, "gray": {"channels": 1}}


def train(home: Path, **data: object) -> Path:
    """A finished run on images, which are gone, and photographs of odd sizes in home/new."""
    (home / "data").mkdir()
    config = settings(
        "sitar", data=made_data.table(home / "data").model_dump() | data, model=TINY_MODEL,
        train={"epochs": 2, "batch_size": 16},
    )  # fmt: skip
    run(config, home / "run")
    shutil.rmtree(home / "data")
    (home / "new").mkdir()
    random = np.random.default_rng(0)
    for number, (height, width) in enumerate([(40, 40), (31, 57), (64, 20), (9, 12)]):
        small = random.integers(0, 256, (3, 4, 3), dtype=np.uint8)
        picture = Image.fromarray(small).resize((width, height), Image.Resampling.BICUBIC)
        exif = Image.Exif()
        exif[0x0112] = 6 if number == 1 else 1  # held on its side
        picture.save(home / "new" / f"{number}.{'jpg' if number < 2 else 'png'}", exif=exif)
    return home / "run"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(tmp_path_factory.mktemp("export"))


def lines_of_the_page() -> str:
    (block,) = [code for code in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S) if "sys.argv" in code]
    return block


@pytest.mark.parametrize("how", ["stretched", *(pytest.param(h, marks=pytest.mark.ci) for h in ("cut", "gray"))])
def test_the_lines_of_the_page_agree_with_predict(how: str, tmp_path: Path) -> None:
    finished = train(tmp_path, **RESIZED[how])
    sitar("export", finished, "--out", tmp_path / "model.onnx")
    files = sorted((tmp_path / "new").iterdir())
    predicted = sitar("predict", finished, *files, "--device", "cpu").stdout.splitlines()
    (tmp_path / "classify.py").write_text(lines_of_the_page())
    words = [sys.executable, "-c", WITHOUT, "classify.py", "model.onnx", *map(str, files)]
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    expected = [row.split(",") for row in predicted[1:]]
    assert len(expected) == len(files)
    for line, (name, prediction, p_a, p_b, _) in zip(done.stdout.splitlines(), expected, strict=True):
        found = re.fullmatch(r"(.*): (\w) \(a (0\.\d+), b (0\.\d+)\)", line)
        assert found is not None, line
        assert found[1] == name
        assert found[2] == prediction
        np.testing.assert_allclose([float(found[3]), float(found[4])], [float(p_a), float(p_b)], atol=1e-5)
    assert len({row[2] for row in expected}) == len(files), "the images are told apart"


def test_the_lines_are_about_thirty() -> None:
    code = [line for line in lines_of_the_page().splitlines() if line.strip()]
    assert len(code) <= 30
    assert not re.search(r"import (torch|sitar)", "\n".join(code))


def test_sitar_and_torch_cannot_be_imported_there(tmp_path: Path) -> None:
    """The test above can fail: what it forbids is forbidden."""
    for name in ("torch", "sitar"):
        (tmp_path / "x.py").write_text(f"import {name}")
        words = [sys.executable, "-c", WITHOUT, tmp_path / "x.py"]
        done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
        assert "ModuleNotFoundError" in done.stderr


def test_it_says_what_it_wrote(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "model.onnx"
    said = sitar("export", folder, "--out", out).stdout
    assert "Input: images, uint8, batch x 3 x 16 x 16, stretched" in said
    assert "Outputs: probabilities, logits of a, b" in said
    assert "Largest difference to the model, over 256 inputs" in said
    assert f"File: {out}" in said
    content = out.read_bytes()
    assert "already there" in sitar_error("export", folder, "--out", out)
    assert out.read_bytes() == content
    printed = json.loads(sitar("export", folder, "--out", out, "--force", "--license", "mit", "--json").stdout)
    assert (printed["file"], printed["bytes"], printed["licence"]) == (str(out), out.stat().st_size, "mit")
    assert printed["checked"]["probabilities"] < 1e-4


def copied(folder: Path, tmp_path: Path) -> Path:
    shutil.copytree(folder, tmp_path / "copy")
    return tmp_path / "copy"


def test_a_run_that_cannot_be_used_is_one_message(folder: Path, tmp_path: Path) -> None:
    assert "There is no run folder" in sitar_error("export", tmp_path / "nowhere")
    damaged = copied(folder, tmp_path)
    weights = damaged / "checkpoint" / "model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:100])
    assert "is damaged" in sitar_error("export", damaged)
    weights.unlink()
    assert "cannot be read" in sitar_error("export", damaged)
    weights.write_bytes(whole)
    result = damaged / "result.json"
    content = result.read_text()
    (damaged / "done").write_bytes(b"")  # without checksums
    result.write_text(content.replace('"version": 1', '"version": 99'))
    assert "not of version 1" in sitar_error("export", damaged)
    assert "not of version 1" in sitar_error("card", damaged, "--out", tmp_path / "card.md")
    result.write_text(content)
    (damaged / "done").unlink()
    assert "is not finished" in sitar_error("export", damaged)
    assert not (damaged / "export").exists()


def test_a_place_that_cannot_be_written_is_one_message(folder: Path, tmp_path: Path) -> None:
    assert "There is no folder" in sitar_error("export", folder, "--out", tmp_path / "no" / "model.onnx")
    assert "end its name in .onnx" in sitar_error("export", folder, "--out", tmp_path / "model.pt2")
    assert "Unknown format 'tflite'" in sitar_error("export", folder, "--format", "tflite")
    if Path("/proc").is_dir():  # where nobody may write, not even root
        assert "Cannot write" in sitar_error("export", folder, "--out", "/proc/model.onnx")
        assert "Cannot write" in sitar_error("card", folder, "--out", "/proc/card.md")


def test_a_missing_package_is_named(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for package in ("onnx", "onnxruntime", "onnxscript"):
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, package, None)
            assert 'pip install "sitar[onnx]"' in sitar_error("export", folder, "--out", tmp_path / "model.onnx")
            sitar("export", folder, "--format", "torch", "--out", tmp_path / f"{package}.pt2")  # needs none of them


def test_features_have_no_floats_to_choose(tmp_path: Path) -> None:
    data = made_data.npz(tmp_path).model_dump()
    run(settings("erm", data=data, model=TINY_MODEL, train={"epochs": 1}), tmp_path / "run")
    assert "reads features" in sitar_error("export", tmp_path / "run", "--floats")


def test_a_card_needs_no_torch(folder: Path, tmp_path: Path) -> None:
    code = "import sys; sys.modules['torch'] = None\nfrom sitar.cli.main import main\nmain()"
    words = [sys.executable, "-c", code, "card", str(folder), "--out", "README.md"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    card = (tmp_path / "README.md").read_text()
    assert "images of 16 x 16 pixels and 3 channels as uint8, stretched to this size" in card
    assert "Licence of the data: yours" in card
    assert str(folder.parent) not in card
