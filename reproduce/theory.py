"""Hold Theorem 1 against finished runs of SITAR. Those of docs/theory.md have the seeds 0, 1 and 2:

sitar train demo/sitar --seed 0 --set method.noise=axis --set method.beta=2 --set method.score_floor=true \\
    --set data.train_size=20000 --set data.eval_size=4000 --set train.batch_size=64 --set train.learning_rate=0.001
python reproduce/theory.py runs/demo/sitar/seed*    writes reproduce/records/theory.json and docs/theory.png
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from sitar.analysis.theory import examine_theory
from sitar.files import write_atomic
from sitar.presets import load_config
from sitar.reporting.figures.style import to_png
from sitar.reporting.figures.theory import theory_figure
from sitar.run_folder import RunFolder, flat

HERE = Path(__file__).parent
ENVIRONMENT = ("commit", "python", "versions", "device", "data_checksum")


def examined(folder: RunFolder) -> dict[str, Any]:
    """Return where a run was made, its accuracy, and what the theorem says of it."""
    config, result, environment = folder.read_config(), folder.result(), folder.environment()
    preset = flat(load_config(config["preset"], [], config["seed"]).to_dict())
    theory = examine_theory(folder, "cpu")
    comparison = theory["comparisons"][0]
    theory["noise_adds"] = comparison["exact"][-1] - theory["clean"]  # at alpha = 1
    theory["missed"] = comparison["remainder"][-1] / theory["noise_adds"]
    return {
        "preset": config["preset"],
        "seed": config["seed"],
        "overrides": [f"{key}={value}" for key, value in flat(config).items() if preset.get(key, value) != value],
        "environment": {key: environment[key] for key in ENVIRONMENT},
        "ood_test": round(result["splits"]["ood_test"]["average"], 4),
        "theory": theory,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path, help="folders of finished runs; docs/theory.png shows the first")
    runs = [examined(RunFolder(run)) for run in parser.parse_args().runs]
    write_atomic(HERE / "records" / "theory.json", (json.dumps({"runs": runs}, indent=1) + "\n").encode())
    write_atomic(HERE.parent / "docs" / "theory.png", to_png(theory_figure(runs[0]["theory"])))


if __name__ == "__main__":
    main()
