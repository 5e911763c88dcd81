"""Weights & Biases is online where a key is known, and else writes files that `wandb sync` uploads later."""

from __future__ import annotations

import netrc
import os
from urllib.parse import urlsplit

from sitar.training.trackers.tracker import TrackedRun, Tracker, Values

PROJECT = "sitar"  # WANDB_PROJECT names another
START_SECONDS = 30  # for a server that does not answer


class WandbTracker(Tracker):
    @classmethod
    def check(cls) -> None:
        import wandb  # noqa: F401

    def __init__(self, run: TrackedRun) -> None:
        import wandb

        run.folder.mkdir(parents=True, exist_ok=True)
        self.run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", PROJECT),
            name=run.name,
            config=run.settings,
            dir=run.folder.resolve(),
            id=run.id,
            resume=None if run.id is None else "allow",
            mode=None if "WANDB_MODE" in os.environ or _has_key() else "offline",
            reinit="create_new",  # a run of the caller's own is left alone
            settings=wandb.Settings(console="off", silent=True, init_timeout=START_SECONDS),
        )
        self.id = self.run.id

    def epoch(self, step: int, values: Values) -> None:
        self.run.log(values, step=step)

    def finish(self, results: Values) -> None:
        self.run.summary.update(results)

    def close(self, is_done: bool) -> None:
        self.run.finish(exit_code=0 if is_done else 1)


def _has_key() -> bool:
    """Say whether wandb finds a key in the environment, or in the file to which `wandb login` writes it."""
    if os.environ.get("WANDB_API_KEY"):
        return True
    host = urlsplit(os.environ.get("WANDB_BASE_URL", "https://api.wandb.ai")).hostname
    try:
        return host is not None and netrc.netrc(os.environ.get("NETRC")).authenticators(host) is not None
    except (OSError, netrc.NetrcParseError):
        return False
