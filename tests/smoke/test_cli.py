"""The command line as a person meets it: real data, exit codes and messages."""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from helpers.cli import sitar, sitar_error
from helpers.made_runs import make_run

TINY = ["--set", "data.image_size=14", "--set", "data.train_size=400", "--set", "data.eval_size=400"]
TINY += ["--set", "model.channels=[4]", "--set", "train.epochs=2", "--set", "train.batch_size=64"]


def process(*arguments: object, cwd: Path, expect: int = 0) -> subprocess.CompletedProcess[str]:
    """As `sitar`, in a process of its own: for what an interpreter does at its start and end."""
    command = [sys.executable, "-m", "sitar", *map(str, arguments)]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == expect, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which two tiny runs were trained."""
    root = tmp_path_factory.mktemp("cli")
    sitar("train", "color_mnist/sitar", *TINY, "--seed", 1, "--out", "runs/a", cwd=root)
    sitar("train", "color_mnist/erm", *TINY, "--seed", 1, "--out", "runs/b", cwd=root)
    return root


def test_help_needs_no_torch(tmp_path: Path) -> None:
    code = "import sys; sys.argv = ['sitar', '--help']\nfrom sitar.cli.main import main\n"
    code += "try:\n  main()\nexcept SystemExit: pass\n"
    code += "assert not {'torch', 'sklearn'} & set(sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, cwd=tmp_path, check=False
    )
    assert done.returncode == 0, done.stderr
    for name in ("train", "evaluate", "compare", "report", "audit", "explain", "theory", "presets", "doctor", "demo"):
        assert name in done.stdout


def test_version(tmp_path: Path) -> None:
    from sitar import __version__

    assert __version__ in process("--version", cwd=tmp_path).stdout


def test_presets(tmp_path: Path) -> None:
    names = json.loads(sitar("presets", "--json", cwd=tmp_path).stdout)
    wanted = {f"color_mnist/{m}" for m in ("erm", "control", "sitar", "sitar_best")}
    assert wanted | {f"demo/{m}" for m in ("erm", "control", "sitar")} <= set(names)
    assert "# source:" in sitar("presets", "--show", "color_mnist/sitar", cwd=tmp_path).stdout
    complete = json.loads(sitar("presets", "--show", "color_mnist/sitar", "--json", cwd=tmp_path).stdout)
    assert complete["method"]["lambda"] == 10.0
    assert complete["data"]["label_noise"] == 0.25
    assert "color_mnist/sitar_best" in sitar("presets", cwd=tmp_path).stdout


def test_the_papers_preset_is_the_paper(tmp_path: Path) -> None:
    shown = json.loads(sitar("presets", "--show", "color_mnist/sitar", "--json", cwd=tmp_path).stdout)
    method = shown["method"]
    assert (method["noise"], method["alpha"], method["beta"], method["lambda"]) == ("axis", 1.0, 2.0, 10.0)
    assert (shown["model"]["latent_dim"], shown["model"]["activation"]) == (10, "gelu")


def test_doctor(tmp_path: Path) -> None:
    checks = json.loads(sitar("doctor", "--json", cwd=tmp_path).stdout)
    assert {"python", "torch", "MNIST", "this folder"} <= {check["what"] for check in checks}
    assert "60,000" in sitar("doctor", cwd=tmp_path).stdout


def test_train_leaves_the_whole_run_folder(folder: Path) -> None:
    names = {path.name for path in (folder / "runs/a").iterdir()}
    assert names == {"config.yaml", "metrics.jsonl", "result.json", "predictions.npz", "environment.json",
                     "checkpoint", "done"}  # fmt: skip


def test_train_json_and_default_folder(tmp_path: Path) -> None:
    done = process("train", "color_mnist/erm", *TINY, "--json", "--quiet", cwd=tmp_path)
    result = json.loads(done.stdout)
    assert result["preset"] == "color_mnist/erm"
    assert done.stderr == ""
    (run,) = (tmp_path / "runs/color_mnist/erm").iterdir()
    assert re.fullmatch(r"seed0-[0-9a-f]{8}", run.name)


def test_evaluate_agrees_with_the_record(folder: Path) -> None:
    recorded = json.loads((folder / "runs/a/result.json").read_text())["splits"]
    assert json.loads(sitar("evaluate", "runs/a", "--json", cwd=folder).stdout) == recorded
    assert "digits 5-9, color green" in sitar("evaluate", "runs/a", cwd=folder).stdout  # and not label=1,color=0


def test_compare(folder: Path) -> None:
    rows = json.loads(sitar("compare", "runs/a", "runs/b", "--json", cwd=folder).stdout)
    recorded = json.loads((folder / "runs/b/result.json").read_text())["splits"]["ood_test"]["average"]
    assert [row["seeds"] for row in rows] == [[1], [1]]
    assert rows[1]["splits"]["ood_test"]["average"]["mean"] == recorded
    table = sitar("compare", "runs/a", "runs/b", cwd=folder).stdout
    assert "knows nothing (chance)" in table
    assert "What the predictions know and follow" in table
    assert f"{100 * recorded:.1f}" in table
    assert "auroc" in sitar("compare", "runs/a", "--metric", "auroc", cwd=folder).stdout


def test_real_runs_have_stored_what_every_metric_is_computed_from(folder: Path) -> None:
    """The shortcut AUC and the adjusted average need the groups of the training split. The data is not asked."""
    names = ("average", "worst_group", "adjusted_average", "core_auc", "shortcut_auc")
    arguments = [f"--metric={name}" for name in names]
    row, _ = json.loads(
        sitar("compare", "runs/a", "runs/b", "--against", "erm", "--json", *arguments, cwd=folder).stdout
    )
    ours, theirs = (json.loads((folder / f"runs/{run}/result.json").read_text())["splits"] for run in "ab")
    for split in ("id_test", "ood_test"):
        for name in names:
            one, other = ours[split][name], theirs[split][name]
            expected = abs(other - 0.5) - abs(one - 0.5) if name == "shortcut_auc" else one - other
            assert row["splits"][split][name]["against"]["better_by"] == pytest.approx(expected, abs=1e-12)


def test_theory(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder / "runs", tmp_path / "runs")
    done = sitar("theory", "runs/a", cwd=tmp_path)
    assert "Theorem 1, axis noise (gaussian), lambda 10" in done.stdout
    assert "gaussian noise: the remainder falls as alpha^" in done.stdout
    assert "Figure: runs/a/artifacts/theory.png" in done.stdout
    assert (tmp_path / "runs/a/artifacts/theory.png").read_bytes().startswith(b"\x89PNG")
    printed = json.loads(sitar("theory", "runs/a", "--noise", "direction", "--json", cwd=tmp_path).stdout)
    assert printed == json.loads((tmp_path / "runs/a/artifacts/theory.json").read_text())
    assert printed["noise"] == "direction"
    assert "of another method, 'erm'" in sitar_error("theory", "runs/b", cwd=tmp_path)
    assert not (tmp_path / "runs/b/artifacts").exists()


def test_explain(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder / "runs", tmp_path / "runs")
    done = sitar("explain", "runs/b", "runs/a", "--box", "0.2,0.2,0.8,0.8", cwd=tmp_path)
    assert done.stderr == ""
    assert "What the models use" in done.stdout
    assert "On the axes of color_mnist/sitar, seed 1" in done.stdout
    assert "runs/b: no traversals. This method has no VAE." in done.stdout
    assert "Findings: runs/a/artifacts/explain.json" in done.stdout
    names = {path.name for path in (tmp_path / "runs/a/artifacts").iterdir()}
    assert names == {"explain.json", "traversals.npz", "gradcam.npz", "mistakes.npz"}
    printed = json.loads(sitar("explain", "runs/b", "--axes", "runs/a", "--json", cwd=tmp_path).stdout)
    found = json.loads((tmp_path / "runs/b/artifacts/explain.json").read_text())
    assert printed == [{"run": "runs/b", **found}]
    assert found["shared_axes"]["run"] == "runs/a"
    assert found["gradcam"]["mass_in_box"] is None
    assert "no VAE that decodes images" in sitar_error("explain", "runs/a", "--axes", "runs/b", cwd=tmp_path)
    shutil.copytree(folder / "runs" / "b", tmp_path / "runs" / "copy")
    words = sitar("explain", "runs/b", "runs/copy", cwd=tmp_path).stdout.split()
    assert {"b", "copy"} <= set(words), "they have the same preset and seed"
    for box in ("0,0,1", "0.5,0,0.2,1", "0,0,1,1.5", "0,0,nan,1", "left"):
        assert "is no box" in sitar_error("explain", "runs/a", "--box", box, cwd=tmp_path)


def test_audit_of_a_preset_and_of_its_run(tmp_path: Path) -> None:
    options = ["color_mnist", *TINY, "--seed", 2, "--out", "run", "--quiet"]
    done = sitar("audit", *options, cwd=tmp_path)
    assert "Audit of color_mnist/vae, seed 2" in done.stdout
    assert "AUC color" in done.stdout
    assert "Findings: run/artifacts/audit/audit.json" in done.stdout
    found = json.loads((tmp_path / "run/artifacts/audit/audit.json").read_text())
    assert found["verdict"]["words"] in done.stdout
    for picture in re.findall(r"\S+\.png", done.stdout):
        assert (tmp_path / picture).read_bytes().startswith(b"\x89PNG")
    weights = (tmp_path / "run/checkpoint/model.safetensors").stat().st_mtime_ns
    for arguments in (options, ["run"]):  # a finished VAE is loaded, not trained again
        again = json.loads(sitar("audit", *arguments, "--json", cwd=tmp_path).stdout)
        assert again == {"run": "run", **found}
    assert (tmp_path / "run/checkpoint/model.safetensors").stat().st_mtime_ns == weights
    assert "leave --out and --seed out" in sitar_error("audit", "run", "--seed", 3, cwd=tmp_path)
    assert "settings are fixed" in sitar_error("audit", "run", "--set", "train.epochs=1", cwd=tmp_path)


def test_audit_of_own_data(tmp_path: Path) -> None:
    """A folder a class, the same images in a table, and features; class names as strange as people give them."""
    import numpy as np
    from PIL import Image

    random = np.random.default_rng(0)
    lines = ["path,label,site"]
    for i in range(240):
        label = ("a [b] c", "<script>alert(1)</script>".replace("/", "_"))[i % 2]
        (tmp_path / "images" / label).mkdir(parents=True, exist_ok=True)
        pixels = random.integers(0, 120, (16, 16, 3), dtype=np.uint8)
        pixels[..., 0] += 130 * (i % 2)
        Image.fromarray(pixels).save(tmp_path / "images" / label / f"{i}.png")
        lines.append(f'"{label}/{i}.png","{label}",{i // 2 % 2}')
    (tmp_path / "samples.csv").write_text("\n".join(lines) + "\n")
    x = random.normal(size=(240, 8)) + np.eye(240, 8) + (np.arange(240) % 2)[:, None] * [9, 0, 0, 0, 0, 0, 0, 0]
    np.savez(tmp_path / "features.npz", x=x, y=np.arange(240) % 2)
    quick = ["--set", "data.val_share=0.4", "--set", "train.epochs=2", "--quiet", "--json"]
    small = [*quick, "--set", "data.image_size=16", "--set", "model.channels=[4]"]
    table = ["samples.csv", "--root", "images", "--set", "data.attribute_column=site"]
    for arguments in (["images", *small], [*table, *small], ["features.npz", *quick]):
        audit = json.loads(sitar("audit", *arguments, cwd=tmp_path).stdout)
        assert audit["held_out"]["n"] > 60
        assert audit["verdict"]["kind"] in ("one", "several", "none", "unclear", "nothing encoded")
        assert bool(audit["pictures"]) == (arguments[0] != "features.npz")
        assert (audit["attribute"] or {}).get("name") == ("site" if arguments[0] == "samples.csv" else None)
        assert audit["run"].startswith(f"runs/{audit['preset']}/seed0-")
    few = [*small, "--set", "data.val_share=0.1", "--set", "data.test_share=0.5"]
    assert json.loads(sitar("audit", "images", *few, cwd=tmp_path).stdout)["verdict"]["kind"] == "too few"


def test_the_first_look_of_an_audit_trains_nothing(tmp_path: Path) -> None:
    """A folder with images and a table: it says at once what tells the label, and the whole audit can follow."""
    import numpy as np
    from PIL import Image

    random = np.random.default_rng(0)
    (tmp_path / "scans" / "images").mkdir(parents=True)
    lines = ["path,label,hospital,patient"]
    for i in range(160):
        pixels = random.integers(0, 200, (16, 16, 3), dtype=np.uint8)
        pixels[:2, -2:] = 255 * (i % 2)
        Image.fromarray(pixels).save(tmp_path / "scans" / "images" / f"{i}.png")
        lines.append(f"images/{i}.png,{('ill', 'well')[i % 2]},{('A', 'B')[i % 2]},p{i}")
    (tmp_path / "scans" / "samples.csv").write_text("\n".join(lines) + "\n")
    done = sitar("audit", "scans", "--first", "--set", "data.image_size=16", "--quiet", cwd=tmp_path)
    assert "Top right corner tells the label: it alone gets 100 %" in done.stdout
    assert "label and top right corner apart in this data: 0 of 112 training samples contradict." in done.stdout
    assert "Hospital follows the label one to one. Either it is the label under another name" in done.stdout
    assert "Left out of the first look: patient has values of fewer than 10 samples each" in done.stdout
    assert "Only the first look was taken" in done.stdout
    for picture in re.findall(r"\S+\.png", done.stdout):
        assert (tmp_path / picture).read_bytes().startswith(b"\x89PNG")
    (place,) = (tmp_path / "runs" / "table" / "vae").iterdir()
    assert place.name.endswith("-first")
    assert sorted(path.name for path in place.iterdir()) == [".lock", "artifacts"]  # no run
    found = json.loads((place / "artifacts/audit/audit.json").read_text())
    printed = sitar("audit", "scans", "--first", "--set", "data.image_size=16", "--json", "--quiet", cwd=tmp_path)
    assert json.loads(printed.stdout) == {"run": str(place.relative_to(tmp_path)), **found}


def test_the_first_look_of_a_run(tmp_path: Path) -> None:
    """A run without a VAE has one, and a whole audit is not replaced by one."""
    sitar("train", "color_mnist/erm", *TINY, "--out", "erm", "--quiet", cwd=tmp_path)
    said = sitar("audit", "erm", "--first", cwd=tmp_path).stdout
    assert "Color tells the label" in said
    assert "mean colour" in said
    assert "First look." in sitar("report", "erm", "--out", "report.html", cwd=tmp_path).stdout + (
        tmp_path / "report.html"
    ).read_text(encoding="utf-8")
    sitar("audit", "color_mnist", *TINY, "--out", "vae", "--quiet", cwd=tmp_path)
    assert "Leave --first out" in sitar_error("audit", "vae", "--first", cwd=tmp_path)


def test_audit_of_one_class_is_refused(tmp_path: Path) -> None:
    import numpy as np

    np.savez(tmp_path / "one.npz", x=np.eye(100), y=np.zeros(100, dtype=int))
    assert "class" in sitar_error("audit", "one.npz", cwd=tmp_path)
    assert not (tmp_path / "runs").exists()


def test_report_says_what_it_leaves_out(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", explained=False).path
    out = tmp_path / "r.html"
    done = sitar("report", run, tmp_path / "nothing", "--out", out, cwd=tmp_path)
    reason = f"There is no run folder {str(tmp_path / 'nothing')!r}."
    assert f"Left out: {tmp_path / 'nothing'}: {reason}" in " ".join(done.stdout.split())
    done = sitar("report", run, tmp_path / "nothing", "--out", out, "--json", cwd=tmp_path)
    assert json.loads(done.stdout)["left_out"] == [{"run": str(tmp_path / "nothing"), "reason": reason}]


def test_report_without_a_usable_run_is_one_message(tmp_path: Path) -> None:
    done = sitar("report", tmp_path / "nothing", "--out", tmp_path / "r.html", cwd=tmp_path, expect=2)
    assert done.stderr.startswith("Error: No finished run to report on.")
    assert not (tmp_path / "r.html").exists()


def test_demo(tmp_path: Path) -> None:
    quick = [*TINY, "--set", "train.epochs=1", "--out", "demo", "--seed", 3]
    done = sitar("demo", *quick, cwd=tmp_path)
    assert (tmp_path / "demo/demo-seed3.png").read_bytes().startswith(b"\x89PNG")
    for preset in ("demo/erm", "demo/control", "demo/sitar"):
        assert preset in done.stdout
    assert "Figure: demo/demo-seed3.png" in done.stdout
    report = tmp_path / "demo/report-seed3.html"
    assert f"Report, to open in a browser: {report}" in " ".join(done.stdout.split())
    page = report.read_text(encoding="utf-8")
    for section in ("summary0", "traversals0", "sensitivity0", "mistakes0", "gradcam0"):
        assert f'id="{section}"' in page
    assert "digits 0-4" in page
    assert "sitar train demo/sitar --seed 3 --set" in page
    again = json.loads(sitar("demo", *quick, "--json", cwd=tmp_path).stdout)  # finished runs are kept
    assert set(again["runs"]) == {"ERM", "control", "SITAR"}
    assert (tmp_path / again["report"]) == report
    assert (tmp_path / again["figure"]).exists()
    assert "ERM stopped" in sitar("demo", *quick, "--set", "train.epochs=2", cwd=tmp_path, expect=2).stderr


BAD = {
    "preset": (["train", "color_mnist/sitr"], "Did you mean 'color_mnist/sitar'"),
    "method": (["train", "color_mnist/erm", "--set", "method.name=ermm"], "Unknown method 'ermm'"),
    "dataset": (["train", "color_mnist/erm", "--set", "data.name=mnist"], "Unknown dataset 'mnist'"),
    "key": (["train", "color_mnist/sitar", "--set", "method.lamda=1"], "Did you mean 'lambda'"),
    "section": (["train", "color_mnist/sitar", "--set", "methods.alpha=1"], "Did you mean 'method'"),
    "leftover": (
        ["train", "color_mnist/sitar", "--set", "method.name=erm", "--set", "method.alpha=1"],
        "Unknown key 'method.alpha'",
    ),
    "value": (["train", "color_mnist/sitar", "--set", "train.epochs=many"], "train.epochs = 'many' is not allowed"),
    "no value": (["train", "color_mnist/sitar", "--set", "train.epochs"], "not of the form key=value"),
    "rho above": (["train", "color_mnist/sitar", "--set", "data.rho=1.01"], "data.rho = 1.01 is not allowed"),
    "rho below": (["train", "color_mnist/sitar", "--set", "data.rho=-0.1"], "data.rho = -0.1 is not allowed"),
    "rho nan": (["train", "color_mnist/sitar", "--set", "data.rho=.nan"], "data.rho = nan is not allowed"),
    "empty": (["train", "color_mnist/sitar", "--set", "data.train_size=0"], "training split is empty"),
    "one class": (["train", "color_mnist/sitar", "--set", "data.train_size=1"], "of one class"),
    "no mnist": (["train", "color_mnist/sitar", "--set", "data.root=/nonexistent"], "No MNIST files"),
    "device": (["train", "color_mnist/sitar", "--device", "tpu"], "Device 'tpu' cannot be used here"),
    "selection": (
        ["train", "color_mnist/sitar", "--set", "train.selection=val_worst_group", "--set", "data.rho=1.0"],
        "has no sample in val",
    ),
    "channels": (["train", "color_mnist/sitar", "--set", "model.channels=[8,8,8,8,8,8]"], "too many"),
    "no run": (["evaluate", "nothing"], "There is no run folder"),
    "not a run": (["compare", "."], "is not a run folder"),
    "audit of nothing": (["audit", "colour_mnist"], "There is no file or folder of that name either"),
    "audit without axes": (["audit", "color_mnist/erm"], "the method 'erm' has none"),
    "audit setting": (["audit", "color_mnist", "--set", "method.bet=1"], "Did you mean 'beta'"),
    "audit of one class": (["audit", "color_mnist", "--set", "data.train_size=1"], "of one class"),
    "explain nothing": (["explain", "nothing"], "There is no run folder"),
    "metric": (["compare", ".", "--metric", "acuracy"], "Unknown metric"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_message_and_exit_2(case: str, tmp_path: Path) -> None:
    arguments, message = BAD[case]
    done = sitar(*arguments, cwd=tmp_path, expect=2)
    assert done.stderr.startswith("Error: ")
    assert message in done.stderr
    assert done.stdout == ""
    assert list(tmp_path.iterdir()) == []


def test_damaged_mnist(tmp_path: Path) -> None:
    import sitar.data.benchmarks

    embedded = Path(sitar.data.benchmarks.__file__).parent / "mnist"
    own = tmp_path / "own"
    own.mkdir()
    for file in embedded.glob("*.gz"):
        (own / file.name).write_bytes(file.read_bytes()[:-100] if "t10k-images" in file.name else file.read_bytes())
    done = sitar_error("train", "color_mnist/erm", "--set", f"data.root={own}", cwd=tmp_path)
    assert "t10k-images-idx3-ubyte.gz" in done
    assert "is damaged" in done


def test_used_and_unwritable_folders(folder: Path) -> None:
    before = {path: path.read_bytes() for path in (folder / "runs/a").rglob("*") if path.is_file()}
    assert "already used" in sitar_error("train", "color_mnist/sitar", *TINY, "--out", "runs/a", cwd=folder)
    other = sitar_error("train", "color_mnist/sitar", *TINY, "--seed", 2, "--out", "runs/a", "--resume", cwd=folder)
    assert "seed: 2 asked for, 1 in the folder" in other
    assert "Cannot write" in sitar_error(
        "train", "color_mnist/sitar", *TINY, "--out", "runs/a/config.yaml/below", cwd=folder
    )
    assert before == {path: path.read_bytes() for path in (folder / "runs/a").rglob("*") if path.is_file()}


def test_ctrl_c_leaves_a_run_that_resumes(tmp_path: Path) -> None:
    # Ctrl-C reaches the process itself, so it is started without a shell
    long = ["train", "color_mnist/erm", *TINY, "--set", "train.epochs=40", "--set", "train.checkpoint_seconds=0"]
    long += ["--out", "run"]
    process = subprocess.Popen(
        [sys.executable, "-m", "sitar", *long], cwd=tmp_path, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    metrics = tmp_path / "run/metrics.jsonl"
    deadline = time.monotonic() + 60
    while not (metrics.exists() and metrics.read_text().count("\n") >= 3):
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "--resume" in error
    assert "Traceback" not in error
    sitar(*long, "--resume", cwd=tmp_path)
    assert (tmp_path / "run/done").exists()
    assert [json.loads(line)["epoch"] for line in metrics.read_text().splitlines()] == list(range(1, 41))
    assert "Run folder: run" in sitar(*long, "--resume", cwd=tmp_path).stdout  # a finished run is left as it is


def test_names_that_are_no_text_are_printed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", "utf-8:strict")
    for name in ("ok", os.fsdecode(b"caf\xe9")):
        (folder / "drinks" / name).mkdir(parents=True)
        for i in range(10):
            (folder / "drinks" / name / f"{i}.png").touch()
    call = ["data", "check", "folder", "--root", "drinks"]
    assert "caf\\xe9 " in sitar(*call, cwd=folder).stdout
    assert "caf\\xe9" in json.loads(sitar(*call, "--json", cwd=folder).stdout)["counts"]["train"]
    out = os.fsdecode(b"caf\xe9.html")
    assert "Report: caf\\udce9.html" in sitar("report", "runs/a", "--out", out, cwd=folder).stdout


def test_own_arrays_are_listed_and_checked(tmp_path: Path) -> None:
    import numpy as np

    np.savez(tmp_path / "data.npz", x=np.eye(40), y=np.arange(40) % 2, site=np.arange(40) // 2 % 2)
    listed = json.loads(sitar("data", "list", "--json", cwd=tmp_path).stdout)
    assert listed["npz"]["files"].startswith("data.file: a NumPy .npz file")
    options = ["--set", "file=data.npz", "--set", "attribute_key=site"]
    checked = json.loads(sitar("data", "check", "npz", *options, "--json", cwd=tmp_path).stdout)
    assert sum(split["total"] for split in checked["counts"].values()) == 40
    assert "label 0: 0, 1: 1; site 0: 0, 1: 1" in sitar("data", "check", "npz", *options, cwd=tmp_path).stdout
    refused = sitar("data", "prepare", "npz", *options, cwd=tmp_path, expect=2)
    assert "nothing to prepare" in refused.stderr


def test_features_are_prepared(tmp_path: Path) -> None:
    lines = [f"{i / 7},{i % 3},{'ab'[i % 2]}" for i in range(60)]
    (tmp_path / "table.csv").write_text("\n".join(["f0,f1,label", *lines]) + "\n")
    options = ["features", "--set", "file=table.csv", "--set", "feature_columns=f*"]
    assert "The features of 60 samples are ready." in sitar("data", "prepare", *options, cwd=tmp_path).stdout
    assert json.loads(sitar("data", "prepare", *options, "--json", cwd=tmp_path).stdout) == {"ready": 60}


def test_a_home_of_nobody_is_one_message(tmp_path: Path) -> None:
    assert "no such user" in sitar_error("data", "check", "celeba", "--root", "~nosuchuser/x", cwd=tmp_path)


def test_a_model_that_needs_more_memory_than_there_is_is_one_message(tmp_path: Path) -> None:
    settings = ["--set", "model.latent_dim=999999999", "--set", "data.train_size=100"]
    assert "too small for this model" in sitar_error(
        "train", "color_mnist/sitar", *settings, "--out", "r", cwd=tmp_path
    )


@pytest.mark.skipif(sys.platform == "win32", reason="a shell of Unix closes and cuts standard output")
@pytest.mark.parametrize("end", [">&-", "| head -n 1 > /dev/null"])
def test_output_that_nobody_reads_is_no_traceback(end: str, tmp_path: Path) -> None:
    code = f"{sys.executable} -c 'from sitar.cli.main import main; main()' presets {end}"
    done = subprocess.run(["sh", "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr
    assert "Exception" not in done.stderr


def test_evaluating_on_changed_data_is_said(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(90, 4))
    np.savez(tmp_path / "data.npz", x=x, y=np.arange(90) % 2)
    given = ["--set", f"data.file={tmp_path / 'data.npz'}", "--set", "train.epochs=1"]
    sitar("train", "npz/erm", *given, "--out", "run", cwd=tmp_path)
    assert "has changed" not in sitar("evaluate", "run", cwd=tmp_path).stderr
    np.savez(tmp_path / "data.npz", x=x + 1, y=np.arange(90) % 2)
    assert "The data has changed since the run" in sitar("evaluate", "run", cwd=tmp_path).stderr


def test_a_log_line_does_not_steer_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    from sitar.cli.main import _Printable

    record = logging.LogRecord("sitar", logging.WARNING, "", 0, "bad: %s", ("a\x1b]0;owned\x07.png",), None)
    assert _Printable("%(levelname)s: %(message)s").format(record) == "WARNING: bad: a\\x1b]0;owned\\x07.png"
