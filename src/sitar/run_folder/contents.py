"""Read what a run has left: settings, metrics, weights, its result and its predictions."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sitar.earlier import todays_config
from sitar.errors import RunError
from sitar.fairness import group_columns, metric_frame
from sitar.run_folder.checksums import Arrays, Checked
from sitar.run_folder.schema import RESULT, RESULT_VERSION, Result, check
from sitar.splits import VAL, deciding_split
from sitar.yaml_text import read_yaml

if TYPE_CHECKING:
    from fairlearn.metrics import MetricFrame


class Contents(Checked):
    """These are the readers of what a run has left. Each of them refuses a file that is damaged."""

    def read_config(self) -> dict[str, Any]:
        """Return the settings of the run, in today's words where an earlier release wrote them."""
        if not self.path.is_dir():
            raise RunError(f"There is no run folder {str(self.path)!r}.")
        if not self.config_file.is_file():
            raise RunError(f"{str(self.path)!r} is not a run folder: it has no config.yaml.")
        try:
            config = read_yaml(self._bytes(self.config_file).decode())
        except ValueError as error:
            raise RunError(f"{str(self.config_file)!r} cannot be read: {error}.") from error
        if not isinstance(config, dict):
            raise RunError(f"{str(self.config_file)!r} holds no settings.")
        return todays_config(config)

    def environment(self) -> dict[str, Any] | None:
        """Return environment.json, or None if there is none yet."""
        if not self.environment_file.exists():
            return None
        try:
            environment = json.loads(self._bytes(self.environment_file))
            versions = dict(environment.get("versions") or {})
            return {**environment, "versions": versions, "data_checksum": str(environment["data_checksum"])}
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise RunError(f"{str(self.environment_file)!r} cannot be read: the run is damaged.") from error

    def metrics(self) -> list[dict[str, Any]]:
        """Return the lines of metrics.jsonl. A line that a kill has cut is left out."""
        if not self.metrics_file.exists():
            return []
        try:
            lines = self._bytes(self.metrics_file).splitlines(keepends=True)
            values = [json.loads(line) for line in lines if line.endswith(b"\n")]
        except (ValueError, RecursionError) as error:
            raise RunError(f"{str(self.metrics_file)!r} is damaged: {error}.") from error
        if not all(isinstance(value, dict) for value in values):
            raise RunError(f"{str(self.metrics_file)!r} is damaged: a line of it holds no values by name.")
        return values

    def model(self) -> bytes:
        return self._bytes(self.model_file)

    def encoder(self) -> bytes | None:
        """Return the weights of the frozen encoder, or None if the run has not kept any."""
        return self._bytes(self.encoder_file) if self.encoder_file.exists() else None

    def state_size(self) -> int:
        """Return how many bytes the last checkpoint has, before it is read. Without one it is 0."""
        return self.state_file.stat().st_size if self.state_file.exists() else 0

    def state(self) -> bytes | None:
        """Return the last checkpoint of an unfinished run, or None if it was stopped before the first."""
        return self._bytes(self.state_file) if self.state_file.exists() else None

    def result(self) -> Result:
        """Return result.json of a finished run."""
        if not self.is_done:
            self.read_config()
            raise RunError(f"The run in {str(self.path)!r} is not finished. Continue it with --resume.")
        try:
            result = json.loads(self._bytes(self.result_file))
        except (ValueError, RecursionError) as error:
            raise RunError(f"{str(self.result_file)!r} cannot be read: {error}.") from error
        if not isinstance(result, dict) or result.get("version") != RESULT_VERSION:
            raise RunError(
                f"{str(self.result_file)!r} is not of version {RESULT_VERSION}, the only one this release reads."
            )
        check(RESULT, result, self.result_file)
        return result  # type: ignore[return-value]

    def predictions(self) -> Arrays:
        """Return logits, labels and groups by split, such as "test/logits"."""
        return self._arrays(self.predictions_file)

    def to_metricframe(
        self,
        split: str | None = None,
        *,
        metrics: Mapping[str, Callable[..., Any]] | None = None,
        by: Sequence[str] | None = None,
    ) -> MetricFrame:
        """Return a `fairlearn.metrics.MetricFrame` of the predictions of a finished run (needs the extra fairlearn).

        `split` is by default the one that a model is judged by. `metrics` are functions of labels and predictions by
        name; by default accuracy and the number of samples. `by` names the columns that make groups: "label" and the
        attribute by default, which are the groups of result.json. Labels and predictions are numbers of classes.
        """
        result = self.result()
        split = split or deciding_split(result["splits"]) or VAL
        if split not in result["splits"]:
            raise RunError(f"{str(self.path)!r} has no split {split!r}. It has {', '.join(result['splits'])}.")
        arrays = self.predictions()
        names = list(result["splits"][split].get("groups", {}))
        if f"{split}/y" not in arrays or f"{split}/group" not in arrays or not names:
            raise RunError(
                f"{str(self.path)!r} keeps no groups of the split {split!r}. Groups need an attribute, such as "
                "data.attribute_column of a table."
            )
        columns = group_columns(arrays[f"{split}/group"], names, result.get("classes"), result.get("attributes"))
        return metric_frame(arrays[f"{split}/y"], arrays[f"{split}/logits"].argmax(1), columns, metrics, by)
