"""Executors in the pool of another Celery application. The processes of the pool together are one server.

Pool processes end and are replaced, for example after `worker_max_tasks_per_child` tasks. That is not a loss. The main
process of the worker runs none of our tasks, but it reports the end of the server.
"""

import atexit
import mmap
import os
import socket
from typing import Any
from uuid import uuid4

import structlog

from liveness.states import ServerType

log = structlog.get_logger()
INSTANCE = uuid4()  # inherited by the pool's forked processes
_is_registered = mmap.mmap(-1, 1)  # shared with them, too


def register_executor(**_: Any) -> None:
    """Register a process that runs the liveness check as an executor."""
    from billiard import current_process  # a part of Celery, which runs this code

    from controlplane.observability import presence

    parent = getattr(current_process(), "_parent_pid", None)
    if parent:
        _is_registered[0] = 1
    pid = parent or os.getpid()
    presence.register_process(ServerType.EXECUTOR, name_of(pid), instance_id=INSTANCE, pid=pid)


def name_of(pid: int) -> str:
    return f"executor@{socket.gethostname()}-{pid}"


@atexit.register
def leave() -> None:
    """Report the end of the executor. Pool processes never call this, because billiard ends them with `os._exit`."""
    if not _is_registered[0]:
        return
    from controlplane.observability import presence
    from liveness.services.presence import end_process

    try:
        presence.use_connection_of_its_own()
        end_process(ServerType.EXECUTOR, name_of(os.getpid()), os.getpid())
    except Exception as error:
        log.warning("The executor could not report its end", error=presence.first_error_line(error))
