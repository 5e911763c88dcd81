"""Run examples/loops/frozen.py with several seeds, on two random bodies, and record the worst groups."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch

from sitar.files import write_atomic

ROOT = Path(__file__).resolve().parents[1]
RECORD = ROOT / "reproduce" / "records" / "loops.json"


def main() -> None:
    sys.path.insert(0, str(ROOT / "examples" / "loops"))
    from frozen import compare  # type: ignore[reportMissingImports]

    torch.set_num_threads(1)
    runs = []
    for body in (0, 1):
        for seed in (0, 1, 2):
            for model, accuracy in compare(seed, body).items():
                runs.append({"body": body, "seed": seed, "model": model, "worst_group": round(accuracy, 4)})
            print(*runs[-3:], sep="\n", flush=True)
    write_atomic(RECORD, (json.dumps({"about": __doc__, "device": "cpu", "runs": runs}, indent=2) + "\n").encode())


if __name__ == "__main__":
    main()
