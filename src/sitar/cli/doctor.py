from __future__ import annotations

import os
import sys
from typing import Any

import typer

from sitar.cli.output import Json, print_json, print_table
from sitar.errors import SitarError
from sitar.reporting.tables.table import Table


def command(as_json: Json = False) -> None:
    """Check this installation: versions, devices and data. The exit status is 1 if something does not work."""
    checks = _checks()
    if as_json:
        print_json(checks)
    else:
        rows = [[check["what"], "ok" if check["ok"] else "FAILED", check["found"]] for check in checks]
        print_table(Table("sitar doctor", ["what", "state", "found"], rows))
    if not all(check["ok"] for check in checks):
        raise typer.Exit(1)


def _checks() -> list[dict[str, Any]]:
    import torch

    from sitar.data.benchmarks.mnist_files import load_mnist
    from sitar.devices import device_name
    from sitar.training.environment import EXTRAS, versions

    def check(what: str, value: Any, ok: bool = True) -> dict[str, Any]:
        return {"what": what, "ok": ok, "found": str(value)}

    checks = [check("python", sys.version.split()[0])]
    checks += [check(name, version or "not found", version is not None) for name, version in versions().items()]
    for package, extra in EXTRAS.items():
        if package not in versions():
            checks.append(check(package, f'not installed; optional: pip install "{extra}"'))
    checks.append(check("cpu", f"{os.cpu_count()} cores, torch uses {torch.get_num_threads()} threads"))
    for i in range(torch.cuda.device_count()):
        device = torch.device("cuda", i)
        memory = torch.cuda.get_device_properties(device).total_memory / 2**30
        checks.append(check(f"cuda:{i}", f"{device_name(device)}, {memory:.0f} GiB"))
    if torch.backends.mps.is_available():
        checks.append(check("mps", "the GPU of this Mac; what it cannot do needs --device cpu"))
    elif not torch.cuda.is_available():
        checks.append(check("cuda", "none: training runs on the CPU"))
    try:
        mnist = load_mnist()
        checks.append(check("MNIST", f"embedded, {len(mnist.train_digits):,} + {len(mnist.test_digits):,} digits"))
    except SitarError as error:
        checks.append(check("MNIST", error, ok=False))
    checks.append(check("this folder", "runs can be written here" if os.access(".", os.W_OK) else "not writable",
                        os.access(".", os.W_OK)))  # fmt: skip
    return checks
