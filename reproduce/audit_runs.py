"""Audits of ColorMNIST, of several seeds, as a record: `python reproduce/audit_runs.py [--out runs/audit]`.

Finished runs are kept, stopped ones continue. Writes reproduce/records/audit_color_mnist.json.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from sitar.audit.shortcuts import audit_run
from sitar.training.run import train

RECORD = Path(__file__).parent / "records" / "audit_color_mnist.json"
PRESET = "color_mnist/vae"
RUNS = [(0.9, seed) for seed in range(5)] + [(0.5, 0)]


def summary(rho: float, seed: int, out: Path) -> dict[str, Any]:
    folder = train(PRESET, seed=seed, overrides=[f"data.rho={rho}"], out=out / f"rho{rho}-seed{seed}", resume=True)
    audit = audit_run(folder)
    first, second = audit["axes"][:2]
    environment = json.loads(folder.environment_file.read_text(encoding="utf-8"))
    return {
        "rho": rho,
        "seed": seed,
        "verdict": audit["verdict"]["kind"],
        "axis": first["axis"],
        **{name: round(first[name], 3) for name in ("accuracy", "correlation", "wasserstein")},
        "next_accuracy": round(second["accuracy"], 3),
        "color_auc": round(audit["attribute"]["attribute_auc"][first["axis"]], 3),
        "label_auc": round(audit["attribute"]["label_auc"][first["axis"]], 3),
        "commit": environment["commit"],
        "device": environment["device"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("runs/audit"))
    out = parser.parse_args().out
    rows = [summary(rho, seed, out) for rho, seed in RUNS]
    RECORD.write_text(json.dumps({"preset": PRESET, "runs": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
