"""TensorBoard reads files that lie in the run folder: `tensorboard --logdir runs` shows all runs below a folder."""

from __future__ import annotations

import yaml

from sitar.training.trackers.tracker import TrackedRun, Tracker, Values


class TensorBoardTracker(Tracker):
    @classmethod
    def check(cls) -> None:
        import torch.utils.tensorboard  # noqa: F401

    def __init__(self, run: TrackedRun) -> None:
        from torch.utils.tensorboard import SummaryWriter

        again = run.steps + 1 if run.folder.exists() else None  # what was logged after the checkpoint is hidden
        self.writer = SummaryWriter(str(run.folder), purge_step=again)
        self.settings = run.settings
        self.writer.add_text("settings", f"```\n{yaml.safe_dump(run.settings)}```", run.steps)

    def epoch(self, step: int, values: Values) -> None:
        for name, value in values.items():
            self.writer.add_scalar(name, value, step)
        self.writer.flush()

    def finish(self, results: Values) -> None:
        """Log the results beside the settings, for the page of hyper-parameters."""
        from torch.utils.tensorboard.summary import hparams

        simple = {key: value if isinstance(value, bool | int | float) else str(value)
                  for key, value in self.settings.items()}  # fmt: skip
        for summary in hparams(simple, results):
            self.writer._get_file_writer().add_summary(summary)
        for name, value in results.items():
            self.writer.add_scalar(name, value)

    def close(self, is_done: bool) -> None:
        self.writer.close()
