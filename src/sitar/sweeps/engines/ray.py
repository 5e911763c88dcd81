"""The Ray engine does jobs on a Ray cluster. All its machines must see the run folders under the same paths."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from sitar.errors import ConfigError, first_line
from sitar.sweeps.engines.job import RETRIES, Ended, Job, attempt, listen_to_sitar

LOOK_SECONDS = 0.5
KNOCK_SECONDS = 5.0


@dataclass
class RayEngine:
    """Does jobs as tasks of Ray, on a cluster of this machine, or on that at `address`.

    `resources` is what one run needs, such as {"cpu": 1, "gpu": 0.25}. Ray starts a run where these are free, and
    starts it again where a process or a machine was lost. `workers` limits how many run at a time.
    """

    address: str | None = None
    resources: Mapping[str, float] = field(default_factory=dict)
    workers: int | None = None
    retries: int = RETRIES
    device: str = "auto"
    _task: Any = None  # until a cluster is needed
    _needs: dict[str, float] = field(default_factory=dict)
    _known: dict[str, float] = field(default_factory=dict)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._task is not None:
            _ray().shutdown()
            self._task = None

    def room(self) -> int:
        if self.workers is not None:
            return self.workers
        self._connect()
        return max(
            1, min(int(amount / self._needs[name]) for name, amount in self._known.items() if self._needs.get(name))
        )

    def run(self, jobs: Iterable[Job]) -> Iterator[Ended | None]:
        """Yield each job as it ends, and None now and then while nothing does."""
        ray, waiting, running = _ray(), iter(jobs), {}
        try:
            while True:
                while self.workers is None or len(running) < self.workers:
                    job = next(waiting, None)
                    if job is None:
                        break
                    self._connect()
                    running[self._task.remote(job.to_dict(), os.getcwd())] = job
                if not running:
                    return
                done, _ = ray.wait(list(running), timeout=LOOK_SECONDS)
                for reference in done:
                    yield Ended(running.pop(reference), _outcome(reference))
                if not done:
                    yield None
        finally:
            for reference in running:
                ray.cancel(reference, force=True)

    def _connect(self) -> None:
        """Find the cluster, or start one on this machine, when it is first needed."""
        if self._task is not None:
            return
        ray = _ray()
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is reported to anybody
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        local = {} if self.address else {"include_dashboard": False}
        _knock(self.address)
        try:
            ray.init(address=self.address or "local", log_to_driver=False, logging_level=logging.ERROR, **local)
        except (ConnectionError, OSError, RuntimeError, ValueError) as error:
            where = f"The Ray cluster at {self.address!r} cannot be used" if self.address else "Ray cannot start here"
            hint = " It may need a token (RAY_AUTH_TOKEN), or another version of Ray." if self.address else ""
            raise ConfigError(f"{where}: {first_line(error)}.{hint}") from error
        try:
            self._task = self._made(ray)
        except BaseException:
            ray.shutdown()
            raise

    def _made(self, ray: Any) -> Any:
        """Return the task of one run, with what it needs. A cluster that can never have that much is refused."""
        known = {_short(name): amount for name, amount in ray.cluster_resources().items()}
        needs = {"cpu": 1.0} | {_short(name): amount for name, amount in self.resources.items()}
        if "gpu" not in needs and self.device != "cpu" and known.get("gpu"):
            needs["gpu"] = 1.0
        for name, amount in needs.items():
            if amount > known.get(name, 0):
                raise ConfigError(
                    f"A run needs {name}={amount:g}, and the cluster has {known.get(name, 0):g} in all. Ask for less "
                    "with --resources."
                )
        self._needs, self._known = needs, known
        others = {name: amount for name, amount in needs.items() if name not in ("cpu", "gpu")}
        return ray.remote(_attempt).options(
            num_cpus=needs["cpu"], num_gpus=needs.get("gpu", 0), resources=others, max_retries=self.retries
        )


def _knock(address: str | None) -> None:
    """Refuse an address HOST:PORT at which nobody listens. Ray itself would wait for minutes."""
    host, _, port = (address or "").removeprefix("ray://").rpartition(":")
    if not host or not port.isdecimal():
        return
    try:
        socket.create_connection((host, int(port)), timeout=KNOCK_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise ConfigError(f"There is no Ray cluster at {address!r}: {first_line(error)}.") from error


def _short(name: str) -> str:
    return name.lower() if name in ("CPU", "GPU") else name


def _attempt(values: dict[str, Any], folder: str) -> str | None:
    """Do a job in a process of the cluster, as if it had been started in `folder`."""
    os.chdir(folder)
    listen_to_sitar()
    return attempt(Job.from_dict(values))


def _outcome(reference: Any) -> str | None:
    """Return what went wrong, or None. Ray has tried lost runs again by itself."""
    ray = _ray()
    try:
        return ray.get(reference)
    except ray.exceptions.RayError as error:
        return f"Its process was lost, and starting it again did not help: {first_line(error)}."


def _ray() -> Any:
    try:
        import ray  # pyright: ignore[reportMissingImports]  (an extra, which the other checks do without)
    except ImportError as error:
        raise ConfigError('--engine ray needs Ray: pip install "sitar[ray]".') from error
    return ray
