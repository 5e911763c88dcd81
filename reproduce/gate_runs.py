"""Read SITAR's gate on the latents of finished control runs, as it would be read for swap noise.

python reproduce/gate_runs.py RUN [RUN ...]    writes reproduce/records/gate_runs.json
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import torch

from sitar.data.types import in_batches, observed
from sitar.evaluation.trained_model import load
from sitar.files import write_atomic
from sitar.functional.correlation import label_moments
from sitar.functional.gate import TAU, read_gate
from sitar.functional.noise import NOISES
from sitar.methods.sitar import SITAR

RECORD = Path(__file__).parent / "records" / "gate_runs.json"
SAID = ("rho", "label", "attribute", "partition", "image_size", "train_size")  # of the data, where it has them


def reading(path: str) -> dict[str, Any]:
    """Return what the gate says of the latent of a run, on the training samples that it would look at."""
    model = load(path, "cpu")
    assert isinstance(model.method, SITAR), f"{path} is no run of SITAR or its control"
    vae, data = model.method.vae, model.data if model.encoder is None else model.encoder.data(model.data)
    places = observed(len(data.train))
    y, classes = data.train.y[places], len(data.classes)
    both = in_batches(lambda x: torch.cat(vae.encode(x), 1), data.train.x[places], torch.device("cpu"), 512).double()
    mu, log_var = both.chunk(2, 1)
    covariance = torch.cov(mu.T, correction=0) + torch.diag(log_var.exp().mean(0))
    suspects = NOISES["swap"].suspects(label_moments(mu, y, classes), covariance.float()).double()
    found = read_gate(mu, y, classes, suspects, covariance)
    config = model.config.to_dict()
    return {
        "preset": config["preset"],
        "seed": config["seed"],
        "epochs": config["train"]["epochs"],
        **{key: config["data"][key] for key in SAID if config["data"].get(key) is not None},
        "whole": round(float(found.whole), 3),
        "suspects": round(float(found.suspects), 3),
        "rest": round(float(found.rest), 3),
        "share": round(float(found.share), 3),
        "open": bool(found.share >= TAU),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", help="folders of finished control runs")
    record = {"tau": TAU, "runs": [reading(run) for run in parser.parse_args().runs]}
    write_atomic(RECORD, (json.dumps(record, indent=2) + "\n").encode())
    print(json.dumps(record, indent=2))


if __name__ == "__main__":
    main()
