"""Jobs on Ray: on an instance of this machine, or on the machines of a cluster, all of which have dncfl installed.

The results come back to this process, so nothing but Ray is shared. When this process is killed, the workers of its local
instance end at once; two idle helpers of Ray's may stay for two minutes.
"""

import os
import socket
import sys
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import contextmanager, redirect_stdout
from typing import Any

from dncfl.common.errors import ConfigError, NetworkError
from dncfl.common.running import gone_at_signal
from dncfl.common.sockets import parse_address
from dncfl.launch.sweep.jobs import LOOK_SECONDS, Job, Result, compute, failed

QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
"""Nothing is reported to Ray's makers, and devices are left as they are."""

NO_TOKEN = "InvalidAuthToken"
"""What Ray's own errors hold when a cluster wants a token. Ray sends none to an address that is given unless it is told to."""

HOW_TO_GIVE_IT = "set RAY_AUTH_MODE=token, and RAY_AUTH_TOKEN unless it is in ~/.ray/auth_token"

RETRIES = 2
"""How often a cluster computes a job again whose machine it lost; on this machine the job itself is more likely to blame."""

CONNECT_SECONDS = 5.0
"""How long a cluster may take to accept a connection: Ray itself goes on trying for longer than anybody waits."""


class OnRay:
    """At most so many jobs at a time: by an own instance of so many workers, or, with an address, in a cluster."""

    def __init__(self, num_workers: int | None, address: str | None = None) -> None:
        """Raises ConfigError where Ray is not installed, NetworkError for an address that is none."""
        try:
            import ray  # distributes tasks over machines; optional and slow to import
        except ModuleNotFoundError:
            raise ConfigError("--on ray: Ray is not installed here; pip install 'dncfl[ray]', or pip install ray") from None
        self._ray: Any = ray
        self.num_workers = num_workers
        self.is_here = address is None
        self._address = address or "local"
        self._endpoint = None if address in (None, "auto") else parse_address(address.removeprefix("ray://"))

    def results(self, jobs: Sequence[Job]) -> Generator[list[Result], None, None]:
        """As for every executor. Raises NetworkError where the cluster cannot be joined."""
        ray = self._ray
        waiting, busy = deque(jobs), dict[Future[list[Result]], Job]()
        with redirect_stdout(sys.stderr), self._joined():  # what Ray notices it prints on stdout
            task = ray.remote(num_cpus=1, max_retries=0 if self.is_here else RETRIES)(compute)
            while waiting or busy:
                while waiting and len(busy) < (self.num_workers or len(jobs)):
                    job = waiting.popleft()
                    busy[task.remote(job).future()] = job
                ended = wait(busy, LOOK_SECONDS, FIRST_COMPLETED).done  # ray.wait would break at a signal
                if not ended:
                    yield []
                for future in ended:
                    job = busy.pop(future)
                    try:
                        results = future.result()
                    except ray.exceptions.RayError as error:
                        results = failed(job, f"its worker process was lost: {type(error).__name__}: {error}")
                    yield results

    @contextmanager
    def _joined(self) -> Iterator[None]:
        os.environ.update(QUIET)
        options = {"num_cpus": self.num_workers, "include_dashboard": False} if self.is_here else {}
        if self._endpoint is not None:
            _require_answer(self._endpoint)
        try:
            with gone_at_signal():  # restores the handlers afterwards, in whose place Ray puts its own
                self._ray.init(address=self._address, logging_level="error", log_to_driver=False, **options)
        except (ConnectionError, ValueError, RuntimeError, self._ray.exceptions.RayError) as error:
            reason = str(error).strip().rpartition("\n")[2]  # above it may be the traceback of a process of Ray's
            if NO_TOKEN in f"{error.__context__}":
                reason = "it asks for a token, or for another one; " + HOW_TO_GIVE_IT
            raise NetworkError(f"the Ray cluster at {self._address} cannot be joined: {reason}") from None
        try:
            yield
        finally:
            self._ray.shutdown()


def _require_answer(endpoint: tuple[str, int]) -> None:
    """Raises NetworkError unless somebody accepts connections at this host and port."""
    try:
        socket.create_connection(endpoint, CONNECT_SECONDS).close()
    except OSError as error:
        host, port = endpoint
        raise NetworkError(f"no Ray cluster answers at {host}:{port}: {error.strerror or error}") from None
