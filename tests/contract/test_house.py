"""The rules of the house that a test can keep: who may know what, and what an import may do."""

from __future__ import annotations

import ast
import inspect
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import sitar
from sitar.registry import METHODS

SOURCE = Path(sitar.__file__).parent
ROOT = Path(__file__).parents[2]
NAMELESS = ("training", "evaluation", "data", "reporting", "export", "cli")
TORCHLESS = (
    "sitar",
    "sitar.errors",
    "sitar.plugins",
    "sitar.registry",
    "sitar.config",
    "sitar.presets",
    "sitar.run_folder",
    "sitar.reporting",
    "sitar.reporting.card",
    "sitar.export.bundle",
    "sitar.export.hub",
)


def trees(*places: str) -> Iterator[tuple[Path, ast.Module]]:
    for place in places:
        path = SOURCE / place
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            yield file, ast.parse(file.read_text(encoding="utf-8"))


def strings(node: ast.AST) -> list[ast.Constant]:
    return [part for part in ast.walk(node) if isinstance(part, ast.Constant) and isinstance(part.value, str)]


def deciding(tree: ast.Module) -> Iterator[ast.Constant]:
    """String literals by which code can choose: compared, matched, looked up, or keys to look up."""
    for node in ast.walk(tree):
        match node:
            case ast.Compare():
                for side in (node.left, *node.comparators):
                    yield from strings(side)
            case ast.MatchValue(value=value):
                yield from strings(value)
            case ast.Dict(keys=keys):
                for key in keys:
                    yield from strings(key) if key is not None else ()
            case ast.Subscript(slice=index):
                yield from strings(index)
            case ast.Call(func=ast.Attribute(attr="get" | "startswith" | "endswith" | "register"), args=arguments):
                for argument in arguments:
                    yield from strings(argument)


def branches(tree: ast.Module, names: set[str], package: str) -> list[int]:
    """Lines with a method's name as a literal. The package shares its name with a method, so that one literal may
    stand where it decides nothing: in a list of packages, as the name of a program."""
    free = {id(node) for node in strings(tree) if node.value == package} - {id(node) for node in deciding(tree)}
    return [node.lineno for node in strings(tree) if node.value in names and id(node) not in free]


@pytest.mark.parametrize("place", NAMELESS)
def test_no_method_is_known_by_name(place: str) -> None:
    assert (SOURCE / place).is_dir()
    names = set(METHODS.names())
    found = [
        f"{file.relative_to(SOURCE)}:{line}" for file, tree in trees(place) for line in branches(tree, names, "sitar")
    ]
    assert not found, f"a method's name is written in {found}: ask the method instead"


@pytest.mark.parametrize(
    ("code", "wrong"),
    [
        ("x = 'erm'", True),
        ("if config.method.name == 'sitar': pass", True),
        ("if name in ('a', 'sitar'): pass", True),
        ("match name:\n  case 'sitar' | 'erm': pass", True),
        ("match name:\n  case 'sitar': pass", True),
        ("COLORS = {'sitar': 'red'}", True),
        ("COLORS['sitar']", True),
        ("METHODS.get('sitar')", True),
        ("PACKAGES = ('sitar', 'torch')", False),
        ("version('sitar')", False),
        ("'''erm and sitar'''", False),
        ("train('color_mnist/erm')", False),
    ],
)
def test_the_search_for_names_finds_them(code: str, wrong: bool) -> None:
    assert bool(branches(ast.parse(code), {"sitar", "erm"}, "sitar")) == wrong


def reads_groups(tree: ast.Module) -> list[int]:
    """Lines that read an attribute of groups, by a dot, by getattr, or through the type that has them."""
    lines = []
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(attr=name) if name == "environment" or (name.startswith(("group", "train_group"))):
                lines.append(node.lineno)
            case ast.Call(func=ast.Name(id="getattr"), args=[_, ast.Constant(value=str(name)), *_]) if "group" in name:
                lines.append(node.lineno)
            case ast.alias(name="EvalSplit" | "Data" | "GroupBatch" | "GroupSplit" | "GroupTask" | "TrainGroups"):
                lines.append(node.lineno)
    return lines


def test_only_methods_that_declare_it_read_groups() -> None:
    """`methods/__init__.py` hands out the view of the data that a method may see, and is the one other reader."""
    classes = {cls for name in METHODS.names() for cls in METHODS.get(name).__mro__}
    declared = {inspect.getsourcefile(cls) for cls in classes if getattr(cls, "needs_groups", False)}
    found = [
        f"{file.relative_to(SOURCE)}:{line}"
        for file, tree in trees("methods", "functional", "models", "training/step.py", "training/optimise.py")
        if str(file) not in declared and file != SOURCE / "methods" / "__init__.py"
        for line in reads_groups(tree)
    ]
    assert not found, f"groups are read without `needs_groups` in {found}"


@pytest.mark.parametrize(
    ("code", "wrong"),
    [
        ("loss = worst(batch.group)", True),
        ("getattr(batch, 'group')", True),
        ("from sitar.data.types import EvalSplit", True),
        ("from sitar.data.types import GroupBatch", True),
        ("risk = per_group(batch.environment)", True),
        ("from sitar.data.types import TrainBatch", False),
        ("optimiser.param_groups", False),
    ],
)
def test_the_search_for_groups_finds_them(code: str, wrong: bool) -> None:
    assert bool(reads_groups(ast.parse(code))) == wrong


def isolated(code: str) -> str:
    """What a fresh interpreter prints."""
    command = [sys.executable, "-W", "error::DeprecationWarning:sitar", "-c", code]
    path = str(SOURCE.parent)
    finished = subprocess.run(
        command, capture_output=True, text=True, timeout=120, check=False, env={"PYTHONPATH": path, "PATH": ""}
    )
    assert finished.returncode == 0, finished.stderr
    return finished.stdout


EFFECTS = """
import importlib, json, logging, os, pkgutil, random, signal, sys, warnings
import numpy, torch
import matplotlib.pyplot, rich, sklearn.metrics, typer, yaml, pydantic  # what others do on import is theirs

def state():
    return {
        "torch random": torch.get_rng_state().tolist(),
        "numpy random": numpy.random.get_state()[1].tolist(),
        "python random": repr(random.getstate()),
        "threads": [torch.get_num_threads(), torch.get_num_interop_threads()],
        "dtype": str(torch.get_default_dtype()),
        "determinism": [torch.are_deterministic_algorithms_enabled(), torch.backends.cudnn.benchmark,
                        torch.backends.cuda.matmul.allow_tf32],
        "handlers": [repr(logging.root.handlers), logging.root.level,
                     repr(logging.getLogger("sitar").handlers), logging.getLogger("sitar").level],
        "environment": dict(os.environ),
        "interrupt": repr(signal.getsignal(signal.SIGINT)),
        "folder": [os.getcwd(), sorted(os.listdir())],
        "hook": repr(sys.excepthook),
    }

before = state()
import sitar
names = sorted(module.name for module in pkgutil.walk_packages(sitar.__path__, "sitar."))
for name in names:
    if not name.endswith("__main__"):
        importlib.import_module(name)
after = state()
changed = [key for key in before if before[key] != after[key]]
print(json.dumps({"modules": names, "changed": changed, "diffusers": "diffusers" in sys.modules}))
"""


def test_importing_has_no_effects_and_prints_nothing() -> None:
    (printed,) = isolated(EFFECTS).splitlines()
    report = json.loads(printed)
    assert report["changed"] == []
    assert not report["diffusers"], "it takes seconds, and one method needs it"
    assert set(report["modules"]) > {
        "sitar.training.run",
        "sitar.evaluation.trained_model",
        "sitar.methods.sitar",
        "sitar.methods.diffusion",
        "sitar.data.benchmarks.color_mnist",
    }


def test_what_needs_no_torch_imports_none() -> None:
    code = "import importlib, pkgutil, sys\n"
    code += f"for name in {TORCHLESS!r}:\n    module = importlib.import_module(name)\n"
    code += "    for inner in pkgutil.iter_modules(getattr(module, '__path__', [])) if name != 'sitar' else ():\n"
    code += "        importlib.import_module(f'{name}.{inner.name}')\n"
    code += "print('torch' in sys.modules)"
    assert isolated(code).split() == ["False"]


def test_a_run_imports_only_what_it_needs(tmp_path: Path) -> None:
    """scikit-learn takes two seconds to import, matplotlib, timm and torch's compiler one each. Features need none."""
    code = f"""
import sys, numpy
from typer.testing import CliRunner
from sitar.cli.main import app
random = numpy.random.default_rng(0)
numpy.savez({str(tmp_path / "f.npz")!r}, x=random.normal(size=(60, 4)).astype("float32"), y=numpy.arange(60) % 2)
words = ["train", "npz/erm", "--set", "data.file={tmp_path / "f.npz"}", "--set", "train.epochs=1", "--device", "cpu"]
assert CliRunner().invoke(app, [*words, "--out", {str(tmp_path / "run")!r}]).exit_code == 0
heavy = ("sklearn", "scipy", "pandas", "matplotlib", "timm", "torchvision", "captum", "diffusers", "torch._dynamo")
print(sorted(set(heavy) & set(sys.modules)))
"""
    assert isolated(code).splitlines()[-1] == "[]"


def test_presets_are_read_without_torch() -> None:
    """Listing and showing presets is text; validating one asks the method's class, which needs torch."""
    code = "import sys\nfrom sitar.presets import preset_names, preset_text\n"
    code += "print(len([preset_text(name) for name in preset_names()]) > 3, 'torch' in sys.modules)"
    assert isolated(code).split() == ["True", "False"]


def test_the_floors_of_the_house_hold() -> None:
    tool = Path(sys.executable).parent / "lint-imports"
    if not tool.exists():
        pytest.skip("import-linter is not installed")
    environment = {"PYTHONPATH": str(SOURCE.parent), "PATH": str(tool.parent), "HOME": str(ROOT)}
    command = [str(tool), "--config", str(ROOT / "pyproject.toml"), "--no-cache"]
    finished = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env=environment)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert "0 broken" in finished.stdout


def test_the_package_tells_type_checkers_that_it_has_types() -> None:
    assert (SOURCE / "py.typed").is_file()
