"""Have torch use deterministic algorithms alone, where `train.deterministic` asks for them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from sitar.errors import TrainingError

WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"  # cuBLAS adds in one order only if it has this workspace


@contextmanager
def deterministic(asked: bool) -> Iterator[None]:
    """Let the same run on the same GPU give the same bytes, and put the caller's settings back afterwards.

    An operation that has no deterministic algorithm ends the run with its name. On the CPU a run is deterministic
    without this, for one number of threads.
    """
    if not asked:
        yield
        return
    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    cudnn = torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark
    os.environ.setdefault(WORKSPACE, ":4096:8")
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = True, False
    try:
        yield
    except RuntimeError as error:
        if "deterministic" not in str(error):
            raise
        reason = str(error).partition(".")[0]
        raise TrainingError(
            f"train.deterministic=true, and this method needs an operation without a deterministic algorithm here: "
            f"{reason}. Train on the CPU, or set train.deterministic=false."
        ) from error
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])
        torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = cudnn
