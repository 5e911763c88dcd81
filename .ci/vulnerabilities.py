"""Look up known vulnerabilities of everything in requirements-dev.lock with pip-audit, where a service answers.

    python .ci/vulnerabilities.py

Exit status 1: there are some, and they are listed. Where no service knows the packages, that is said, and is no error:
a machine without a network can still work.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

LOCK = Path(__file__).resolve().parents[1] / "requirements-dev.lock"
SERVICES = ("pypi", "osv")
SECONDS = 300


def looked_up(service: str) -> list[dict[str, Any]] | None:
    """Return what a service says of each package, or None if it does not answer."""
    command = [sys.executable, "-m", "pip_audit", "--requirement", str(LOCK), "--require-hashes", "--disable-pip"]
    command += ["--vulnerability-service", service, "--progress-spinner", "off", "--format", "json"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
        return json.loads(done.stdout)["dependencies"]
    except (subprocess.TimeoutExpired, ValueError, KeyError, TypeError):
        return None


def verdict(services: dict[str, list[dict[str, Any]] | None]) -> tuple[int, str]:
    """Return the exit status and what to say, from the answers of services."""
    for service, packages in services.items():
        known = [one for one in packages or [] if "vulns" in one]
        if not known:
            continue
        bad = [
            f"  {one['name']} {one['version']}: {vuln['id']}, mended in {', '.join(vuln['fix_versions']) or 'none'}"
            for one in known
            for vuln in one["vulns"]
        ]
        said = (
            f"{len(known)} of {len(packages or [])} packages were looked up at {service}: {len(bad)} vulnerabilities."
        )
        return bool(bad), "\n".join([said, *bad])
    return 0, f"NOT LOOKED UP: neither of {', '.join(services)} answers here, so nothing is known of vulnerabilities."


if __name__ == "__main__":
    answers: dict[str, list[dict[str, Any]] | None] = {}
    for name in SERVICES:
        answers[name] = looked_up(name)
        if verdict(answers)[1][0].isdigit():
            break
    status, text = verdict(answers)
    print(text)
    sys.exit(status)
