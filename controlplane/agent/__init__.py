"""The worker: claims jobs, runs each in a child process, reports. Imports no Django."""

from typing import TYPE_CHECKING, Any

from controlplane.agent.handlers import handler
from controlplane.agent.job_context import checkpoint, context, progress

if TYPE_CHECKING:
    from controlplane.agent.library import Heart, Worker

__all__ = ["Heart", "Worker", "checkpoint", "context", "handler", "progress"]


def __getattr__(name: str) -> Any:
    """What a job's code has no need of is imported when it is asked for."""
    if name in ("Heart", "Worker"):
        from controlplane.agent import library

        return getattr(library, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
