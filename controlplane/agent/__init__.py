"""The worker: claims jobs, runs each in a child process, and reports. Imports no Django."""

from typing import TYPE_CHECKING, Any

from controlplane.agent.from_code.handlers import handler
from controlplane.agent.from_code.job_context import checkpoint, context, progress

if TYPE_CHECKING:
    from controlplane.agent.library import Heart, Worker

__all__ = ["Heart", "Worker", "checkpoint", "context", "handler", "progress"]


def __getattr__(name: str) -> Any:
    """Import Heart and Worker only when they are used, because the code of jobs does not need them."""
    if name in ("Heart", "Worker"):
        from controlplane.agent import library

        return getattr(library, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
