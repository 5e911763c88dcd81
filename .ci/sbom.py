"""Write the bill of materials of a wheel: what it is made of and what it needs, as CycloneDX 1.5 in JSON.

    python .ci/sbom.py dist/sitar-0.1.0-py3-none-any.whl

It stands beside the wheel as NAME.cdx.json. Versions and licences are those of the environment that runs this script;
requirements-dev.lock has the hashes of the files that they come from. The same wheel in the same environment gives the
same file.
"""

from __future__ import annotations

import hashlib
import json
import sys
import uuid
import zipfile
from email.parser import HeaderParser
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name


def wheel_metadata(wheel: Path) -> Any:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        return HeaderParser().parsestr(archive.read(name).decode())


def needed(requirements: list[str], extras: frozenset[str] = frozenset()) -> list[Requirement]:
    """Return the requirements that hold here, without those of extras that nobody asked for."""
    parsed = [Requirement(text) for text in requirements]
    asked = [{"extra": extra} for extra in ("", *sorted(extras))]
    return [one for one in parsed if one.marker is None or any(one.marker.evaluate(extra) for extra in asked)]


def purl(name: str, version: str) -> str:
    return f"pkg:pypi/{canonicalize_name(name)}@{version}"


def licences(package: Any) -> list[dict[str, Any]]:
    if expression := package.get("License-Expression"):
        return [{"expression": expression}]
    text = (package.get("License") or "").strip()
    named = [
        line.rpartition(" :: ")[2] for line in package.get_all("Classifier") or () if line.startswith("License ::")
    ]
    found = [text] if text and len(text) < 100 else named
    return [{"license": {"name": name}} for name in found]


def component(package: Distribution) -> dict[str, Any]:
    name, version = package.metadata["Name"], package.version
    part: dict[str, Any] = {"type": "library", "name": canonicalize_name(name), "version": version}
    part |= {"bom-ref": purl(name, version), "purl": purl(name, version)}
    return part | ({"licenses": found} if (found := licences(package.metadata)) else {})


def bill(wheel: Path) -> dict[str, Any]:
    """Follow the requirements of the wheel, and of what it requires, to the end."""
    metadata = wheel_metadata(wheel)
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    root = purl(metadata["Name"], metadata["Version"])
    direct = needed(metadata.get_all("Requires-Dist") or [])
    parts: dict[str, dict[str, Any]] = {}
    graph: dict[str, set[str]] = {root: set()}
    waiting = [(root, one) for one in direct]
    while waiting:
        parent, requirement = waiting.pop()
        try:
            package = distribution(requirement.name)
        except PackageNotFoundError:
            sys.exit(f"{requirement.name} is needed and not installed here, so the bill would lack it.")
        ref = purl(package.metadata["Name"], package.version)
        graph[parent].add(ref)
        is_new = ref not in graph
        graph.setdefault(ref, set())
        parts[ref] = component(package)
        if is_new or requirement.extras:
            waiting += [(ref, one) for one in needed(package.requires or [], frozenset(requirement.extras))]
    about = {
        "type": "library", "name": metadata["Name"], "version": metadata["Version"], "bom-ref": root, "purl": root,
        "hashes": [{"alg": "SHA-256", "content": digest}], "licenses": licences(metadata),
        "description": metadata["Summary"],
    }  # fmt: skip
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.5.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, digest)}",
        "version": 1,
        "metadata": {"component": about},
        "components": [parts[ref] for ref in sorted(parts)],
        "dependencies": [{"ref": ref, "dependsOn": sorted(graph[ref])} for ref in sorted(graph)],
    }


def main() -> None:
    wheel = Path(sys.argv[1])
    out = wheel.with_suffix(".cdx.json")
    out.write_text(json.dumps(bill(wheel), indent=1) + "\n", encoding="utf-8")
    print(f"bill of materials: {out}")


if __name__ == "__main__":
    main()
