"""Prepare the proof of a worker's death: a file lock that its main process, its pool and its heart hold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from celery.utils.log import get_logger

from controlplane.agent.api.leftovers import state_folder
from controlplane.agent.celery.options import CeleryOptions
from controlplane.agent.fence import read_uptime
from controlplane.agent.processes import host
from controlplane.agent.processes.server_file import lock_draft, servers_folder

log = get_logger(__name__)


@dataclass(frozen=True)
class ProofOfEnd:
    """Values that the heart needs for the file of this worker. Without a lock, the worker's death cannot be proved."""

    state: str | None = None
    lock: int | None = None
    began: float = 0.0
    ends_namespace: bool = False

    @classmethod
    def begin(cls, options: CeleryOptions, instance: str) -> Self:
        """Lock a file before the pool forks.

        The kernel frees the lock once the main process, the pool and the heart have ended.
        """
        if not options.fast_recovery or host.read_problem():
            return cls()
        state = state_folder(options.state_dir, None)
        try:
            lock = lock_draft(servers_folder(state), instance)
        except OSError as error:
            log.warning("A death of this worker cannot be proved: its tasks would wait for the timeout: %s", error)
            return cls(state=str(state))
        return cls(str(state), lock, read_uptime(), host.ends_namespace())
