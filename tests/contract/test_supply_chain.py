"""What the package is made of is known: few dependencies, each used, locked with hashes, listed beside the wheel."""

from __future__ import annotations

import ast
import hashlib
import json
import re
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from helpers.scripts import ROOT, script

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
LOCK = (ROOT / "requirements-dev.lock").read_text(encoding="utf-8")
MINIMAL = {
    "torch": "torch", "numpy": "numpy", "scikit-learn": "sklearn", "scipy": "scipy", "pydantic": "pydantic",
    "pyyaml": "yaml", "filelock": "filelock", "typing-extensions": "typing_extensions", "safetensors": "safetensors",
    "jaxtyping": "jaxtyping", "typer": "typer", "rich": "rich", "matplotlib": "matplotlib", "pillow": "PIL",
    "timm": "timm", "captum": "captum", "jinja2": "jinja2",
}  # fmt: skip  # every package that `pip install sitar` asks for, and what it is imported as
COMES_WITH = {"pydantic_core": "pydantic", "fsspec": "torch", "markupsafe": "jinja2", "huggingface_hub": "timm"}


def imported() -> dict[str, set[str]]:
    """Return the packages that the source imports, with the files that do."""
    found: dict[str, set[str]] = {}
    for file in (ROOT / "src" / "sitar").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
                names = [node.module]
            for name in names:
                found.setdefault(name.partition(".")[0], set()).add(file.name)
    return {name: files for name, files in found.items() if name not in sys.stdlib_module_names and name != "sitar"}


def named(requirements: list[str]) -> set[str]:
    return {canonicalize_name(Requirement(one).name) for one in requirements}


def test_the_minimal_dependencies_are_these() -> None:
    """A new one is a decision: add it here and its reason to docs/decisions.md."""
    assert named(PROJECT["project"]["dependencies"]) == MINIMAL.keys()


def test_every_dependency_is_imported_and_every_import_is_a_dependency() -> None:
    used = imported()
    assert not {name for name, module in MINIMAL.items() if module not in used}
    extras = {name for one in PROJECT["project"]["optional-dependencies"].values() for name in named(one)}
    known = {*MINIMAL.values(), *COMES_WITH, *(name.replace("-", "_") for name in extras)}
    assert not {name: files for name, files in used.items() if name not in known}
    assert all(COMES_WITH[name] in MINIMAL and name in used for name in COMES_WITH)


def locked() -> dict[str, list[tuple[Version, list[str]]]]:
    found: dict[str, list[tuple[Version, list[str]]]] = {}
    for block in re.split(r"\n(?=\S)", LOCK):
        if match := re.match(r"([a-z0-9.-]+)(?:\[[^\]]+\])?==(\S+)", block):
            hashes = re.findall(r"--hash=sha256:([0-9a-f]{64})\b", block)
            found.setdefault(match[1], []).append((Version(match[2]), hashes))
    return found


def test_the_lock_has_a_version_and_hashes_for_everything() -> None:
    """`make lock` writes it. No host of an index stands in it."""
    assert "://" not in LOCK
    assert "--index-url" not in LOCK
    packages = locked()
    assert len(packages) > 100
    assert not [name for name, versions in packages.items() for _, hashes in versions if not hashes]
    groups = [PROJECT["dependency-groups"][group] for group in ("dev", "docs", "release")]
    for text in [*PROJECT["project"]["dependencies"], *(one for group in groups for one in group)]:
        wanted = Requirement(text)
        versions = packages.get(canonicalize_name(wanted.name))
        assert versions, f"requirements-dev.lock lacks {wanted.name}: make lock"
        assert any(wanted.specifier.contains(version, prereleases=True) for version, _ in versions), (
            f"{text}: make lock"
        )


def wheel(folder: Path) -> Path:
    """A wheel with the metadata of ours, as far as the bill reads it."""
    lines = ["Metadata-Version: 2.4", "Name: sitar", "Version: 9.8.7", "Summary: x", "License-Expression: MIT"]
    lines += [f"Requires-Dist: {one}" for one in PROJECT["project"]["dependencies"]]
    lines += ["Requires-Dist: nosuch-package; extra == 'nosuch'"]
    path = folder / "sitar-9.8.7-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("sitar-9.8.7.dist-info/METADATA", "\n".join(lines) + "\n")
    return path


def test_the_bill_of_materials_lists_what_the_wheel_needs(tmp_path: Path) -> None:
    file = wheel(tmp_path)
    bill = script(".ci/sbom.py").bill(file)
    assert json.loads(json.dumps(bill)) == script(".ci/sbom.py").bill(file), "the same wheel gives the same bill"
    about = bill["metadata"]["component"]
    assert (about["name"], about["version"]) == ("sitar", "9.8.7")
    assert about["hashes"] == [{"alg": "SHA-256", "content": hashlib.sha256(file.read_bytes()).hexdigest()}]
    names = {part["name"] for part in bill["components"]}
    assert MINIMAL.keys() <= names
    assert {"markupsafe", "sympy", "pydantic-core"} <= names, "what is needed by what is needed"
    assert not names & {"pytest", "hypothesis", "nosuch-package", "mlflow"}
    refs = {part["bom-ref"] for part in bill["components"]} | {about["bom-ref"]}
    assert {entry["ref"] for entry in bill["dependencies"]} == refs
    (root,) = [entry for entry in bill["dependencies"] if entry["ref"] == about["bom-ref"]]
    assert len(root["dependsOn"]) == len(MINIMAL)
    assert all(ref in refs for entry in bill["dependencies"] for ref in entry["dependsOn"])


def test_a_package_that_is_not_there_is_named(tmp_path: Path) -> None:
    path = tmp_path / "x-1-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x-1.dist-info/METADATA", "Name: x\nVersion: 1\nRequires-Dist: nosuch-package\n")
    with pytest.raises(SystemExit, match="nosuch-package is needed and not installed"):
        script(".ci/sbom.py").bill(path)


def test_vulnerabilities_are_listed_and_silence_is_said() -> None:
    verdict = script(".ci/vulnerabilities.py").verdict
    silent = [{"name": "a", "skip_reason": "not found"}]
    assert verdict({"pypi": None, "osv": silent})[0] == 0
    assert "NOT LOOKED UP" in verdict({"pypi": None, "osv": silent})[1]
    sound = {"name": "a", "version": "1", "vulns": []}
    assert verdict({"pypi": [sound, *silent]}) == (0, "1 of 2 packages were looked up at pypi: 0 vulnerabilities.")
    bad = {"name": "b", "version": "2", "vulns": [{"id": "CVE-1", "fix_versions": ["3"]}]}
    status, text = verdict({"pypi": silent, "osv": [sound, bad]})
    assert status == 1
    assert "b 2: CVE-1, mended in 3" in text
