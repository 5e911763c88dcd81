"""Audit data with a generated shortcut on several seeds: `python reproduce/audit_runs.py color_mnist | sites`.

Finished runs are kept, and stopped runs continue. The record is reproduce/records/audit_NAME.json.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from sitar.analysis.audit.audit import audit_run
from sitar.files import write_atomic
from sitar.run_folder import Run
from sitar.training.run import train

RHO = {"color_mnist": 0.9, "sites": 0.98}  # the last run of each has rho = 0.5: no shortcut
SEEDS = range(5)


def summary(name: str, rho: float, seed: int, out: Path) -> dict[str, Any]:
    folder = train(
        f"{name}/vae", seed=seed, overrides=[f"data.rho={rho}"], out=out / f"rho{rho}-seed{seed}", resume=True
    )
    audit = audit_run(folder)
    first, second = audit["axes"][:2]
    environment = Run.read(folder).environment
    return {
        "rho": rho,
        "seed": seed,
        "verdict": audit["verdict"]["kind"],
        "axis": first["axis"],
        **{name: round(first[name], 3) for name in ("accuracy", "correlation", "wasserstein")},
        "next_accuracy": round(second["accuracy"], 3),
        "attribute_auc": round(audit["attribute"]["attribute_auc"][first["axis"]], 3),
        "label_auc": round(audit["attribute"]["label_auc"][first["axis"]], 3),
        "commit": environment["commit"],
        "device": environment["device"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=list(RHO))
    parser.add_argument("--out", type=Path, help="folder for the runs (default: runs/audit/NAME)")
    options = parser.parse_args()
    name, out = options.name, options.out or Path("runs", "audit", options.name)
    rows = [summary(name, rho, seed, out) for rho, seed in [*((RHO[name], seed) for seed in SEEDS), (0.5, 0)]]
    record = Path(__file__).parent / "records" / f"audit_{name}.json"
    write_atomic(record, (json.dumps({"preset": f"{name}/vae", "runs": rows}, indent=2) + "\n").encode())


if __name__ == "__main__":
    main()
