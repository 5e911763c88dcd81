"""What a release needs fits together: one version, workflows whose commands exist, a Dockerfile that can work."""

from __future__ import annotations

import itertools
import json
import re
import shlex
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.main import get_command

import sitar
from helpers.scripts import ROOT
from sitar.cli.main import app

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
WORKFLOWS = {
    path.name: yaml.safe_load(path.read_text(encoding="utf-8")) for path in ROOT.glob(".github/workflows/*.yml")
}


def steps(workflow: str) -> list[dict[str, Any]]:
    return [step for job in WORKFLOWS[workflow]["jobs"].values() for step in job["steps"]]


def test_the_version_stands_in_one_place() -> None:
    """Other files follow it, and this test says which does not."""
    assert re.fullmatch(r"\d+\.\d+\.\d+", sitar.__version__)
    assert PROJECT["project"]["dynamic"] == ["version"]
    assert PROJECT["tool"]["hatch"]["version"]["path"] == "src/sitar/__init__.py"
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))["version"] == sitar.__version__
    for path in (ROOT / "Dockerfile", ROOT / "mkdocs.yml", *ROOT.glob(".github/workflows/*")):
        text = re.sub(r"#.*", "", path.read_text(encoding="utf-8"))
        assert sitar.__version__ not in text, f"{path.name} repeats the version"


@pytest.mark.parametrize("workflow", WORKFLOWS)
def test_the_commands_of_a_workflow_exist(workflow: str) -> None:
    found = 0
    for step in steps(workflow):
        assert ("uses" in step) != ("run" in step)
        if "uses" in step:
            assert re.fullmatch(r"[\w.-]+/[\w.-]+@(v\d+|release/v\d+)", step["uses"])
            continue
        found += 1
        words = [word for word in shlex.split(step["run"]) if not re.match(r"[A-Z_]+=", word)]
        assert words[0] in ("bash", "python")
        if words[0] == "bash":
            assert (ROOT / words[1]).is_file(), f"{workflow}: {words[1]} does not exist"
            assert subprocess.run(["bash", "-n", ROOT / words[1]], check=False).returncode == 0
        else:
            assert words[1] == "-m"
            assert words[2] in ("pip", "pytest", "sitar")
            if words[2] == "sitar":
                assert words[3] in get_command(app).commands  # type: ignore[attr-defined]
        for option, value in itertools.pairwise(words):
            assert option != "--group" or value in PROJECT["dependency-groups"], f"{workflow}: no group {value}"
        for word in words:
            assert not word.startswith("tests/") or (ROOT / word).exists(), f"{workflow}: no {word}"
    assert found


def test_units_run_on_every_system_and_every_python_that_we_claim() -> None:
    claimed = [line.rsplit(" ", 1)[1] for line in PROJECT["project"]["classifiers"] if re.search(r":: 3\.\d+$", line)]
    matrix = WORKFLOWS["ci.yml"]["jobs"]["units"]["strategy"]["matrix"]
    assert matrix["python"] == claimed == ["3.11", "3.12", "3.13"]
    assert {name.split("-")[0] for name in matrix["os"]} == {"ubuntu", "macos", "windows"}
    assert PROJECT["project"]["requires-python"] == f">={claimed[0]}"


def test_only_a_tag_publishes_and_no_password_is_needed() -> None:
    release = WORKFLOWS["release.yml"]
    assert release[True] == {"push": {"tags": ["v*"]}}  # YAML reads the key `on` as true
    build, publish = release["jobs"]["build"], release["jobs"]["publish"]
    assert publish["needs"] == "build"
    assert publish["permissions"] == {"id-token": "write"}
    assert "id-token" not in json.dumps([release["permissions"], build.get("permissions", {})])
    assert "secrets" not in json.dumps(release)
    first = next(step["run"] for step in build["steps"] if "run" in step)
    assert first == 'bash .ci/tag "$GITHUB_REF_NAME"'


def checked_tag(tmp_path: Path, tag: str, changelog: str) -> subprocess.CompletedProcess[str]:
    (tmp_path / ".ci").mkdir()
    (tmp_path / "src/sitar").mkdir(parents=True)
    shutil.copy(ROOT / ".ci/tag", tmp_path / ".ci/tag")
    shutil.copy(ROOT / "src/sitar/__init__.py", tmp_path / "src/sitar")
    (tmp_path / "CHANGELOG.md").write_text(changelog)
    return subprocess.run(["bash", tmp_path / ".ci/tag", tag], capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("tag", "changelog", "status", "says"),
    [
        (f"v{sitar.__version__}", f"## [{sitar.__version__}]\n", 0, sitar.__version__),
        ("v99.0.0", f"## [{sitar.__version__}]\n", 1, f"the tag must be v{sitar.__version__}"),
        (f"v{sitar.__version__}", "## [Unreleased]\n", 1, "CHANGELOG.md has no section"),
    ],
)
def test_a_tag_must_be_the_version(tag: str, changelog: str, status: int, says: str, tmp_path: Path) -> None:
    done = checked_tag(tmp_path, tag, changelog)
    assert (done.returncode, says in done.stdout) == (status, True)


def instructions(name: str) -> list[str]:
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    return re.findall(rf"^{name} (.*)$", text, flags=re.MULTILINE)


def test_the_dockerfile_copies_what_exists_and_runs_a_command_that_exists() -> None:
    """It cannot be built here, so its lines are held against the repository."""
    kept = (ROOT / ".dockerignore").read_text().splitlines()
    for line in instructions("COPY"):
        *sources, _ = line.split()
        for source in sources:
            assert (ROOT / source).exists()
            assert f"!{source}" in kept, f".dockerignore keeps {source} from Docker"
    (image,) = instructions("FROM")
    assert image.removeprefix("python:").removesuffix("-slim") in {
        line.rsplit(" ", 1)[1] for line in PROJECT["project"]["classifiers"]
    }
    (extras,) = (match[1] for line in instructions("RUN") if (match := re.search(r"/sitar\[(.*?)\]", line)))
    assert set(extras.split(",")) <= set(PROJECT["project"]["optional-dependencies"])
    (program,), command = (json.loads(instructions(name)[0]) for name in ("ENTRYPOINT", "CMD"))
    assert program in PROJECT["project"]["scripts"]
    get_command(app).commands[command[0]].make_context(command[0], command[1:])  # type: ignore[attr-defined]


def test_the_docker_image_has_what_the_build_of_the_package_reads() -> None:
    kept = {line.removeprefix("!") for line in (ROOT / ".dockerignore").read_text().splitlines()}
    for path in [PROJECT["project"]["readme"], *PROJECT["project"]["license-files"]]:
        assert path.split("/")[0] in kept


def test_every_third_party_file_has_its_notice() -> None:
    """Data of others that we pass on, and where its notice stands."""
    data = [*ROOT.glob("examples/**/*.np[zy]"), *ROOT.glob("src/**/*ubyte.gz")]
    assert data
    for path in data:
        notice = path.parent / "NOTICE"
        assert notice.is_file(), f"{path.name} has no notice"
        assert "licen" in notice.read_text(encoding="utf-8").lower()
    assert "LICENSE" in PROJECT["project"]["license-files"]
    assert sum(path.stat().st_size for path in ROOT.glob("examples/**/*.npz")) < 2_500_000


def test_the_page_of_the_installation_names_every_extra() -> None:
    page = (ROOT / "docs/install.md").read_text(encoding="utf-8")
    named = re.findall(r"`sitar\[(\w+)\]`", page.partition("| extra |")[2])
    assert sorted(named) == sorted(PROJECT["project"]["optional-dependencies"])


def test_the_page_and_the_dockerfile_run_the_image_alike() -> None:
    page, file = ((ROOT / path).read_text(encoding="utf-8") for path in ("docs/install.md", "Dockerfile"))
    shown = re.findall(r"^(docker .*?|mkdir .*?)(?:  +#.*)?$", page, flags=re.MULTILINE)
    assert shown == re.findall(r"^#   (.*)$", file, flags=re.MULTILINE)
    assert all("--user" in line for line in shown if line.startswith("docker run"))  # or it cannot write there
