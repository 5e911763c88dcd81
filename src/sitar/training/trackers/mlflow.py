"""MLflow is told over its client, at MLFLOW_TRACKING_URI or where MLflow keeps runs by itself."""

from __future__ import annotations

import os
import re
import time
from typing import Any

from sitar.training.trackers.tracker import TrackedRun, Tracker, Values

EXPERIMENT = "sitar"  # MLFLOW_EXPERIMENT_NAME names another
PATIENCE = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1", "MLFLOW_HTTP_REQUEST_TIMEOUT": "10"}  # MLflow's own is minutes


class MlflowTracker(Tracker):
    @classmethod
    def check(cls) -> None:
        _client().search_experiments(max_results=1)

    def __init__(self, run: TrackedRun) -> None:
        self.client = _client()
        if run.id is not None:
            self.id = run.id
            self.client.update_run(self.id, status="RUNNING")
            return
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", EXPERIMENT)
        experiment = self.client.get_experiment_by_name(name)
        experiment_id = self.client.create_experiment(name) if experiment is None else experiment.experiment_id
        self.id = self.client.create_run(experiment_id, run_name=run.name).info.run_id
        for key, value in run.settings.items():
            self.client.log_param(self.id, key, value)

    def epoch(self, step: int, values: Values) -> None:
        self._log(values, step)

    def finish(self, results: Values) -> None:
        self._log(results, 0)

    def close(self, is_done: bool) -> None:
        self.client.set_terminated(self.id, "FINISHED" if is_done else "KILLED")

    def _log(self, values: Values, step: int) -> None:
        from mlflow.entities import Metric

        now = int(1000 * time.time())
        metrics = [Metric(_allowed(name), value, now, step) for name, value in values.items()]
        self.client.log_batch(self.id, metrics=metrics)


def _client() -> Any:
    for name, value in PATIENCE.items():
        os.environ.setdefault(name, value)
    from mlflow import MlflowClient

    return MlflowClient()


def _allowed(name: str) -> str:
    """Return a name without the characters that MLflow refuses, such as those of a group: label=0,site=1."""
    return re.sub(r"[^\w\-. /]", "_", name)
