"""The keys in Redis. What a worker has not acknowledged is under keys of its own, so that it is one hash."""

from __future__ import annotations

from typing import Any

HOLDERS = "controlplane:holders"  # set: the instances whose hash may hold something
QUARANTINE = "controlplane:quarantine"  # hash: task id → the message and why
UNREPORTED = "controlplane:quarantine:unreported"  # set: quarantined, and not yet FAILURE in the result backend
NEVER = 10 * 365 * 86400  # seconds: nothing is given back for its age
MARK_KEPT = 7 * 86400  # seconds: a worker that was frozen for so long still sees that it was condemned
HOLDER_KEPT = 3600  # seconds: so long a condemned worker's hash is looked at again, for it may have woken


def unacked(instance: str) -> str:
    return f"unacked:{instance}"


def own_queue(instance: str) -> str:
    """The queue of one worker, for jobs that it claimed."""
    return f"controlplane.jobs.{instance}"


def condemned(instance: str) -> str:
    return f"controlplane:condemned:{instance}"


def reporting(task: str) -> str:
    return f"controlplane:quarantine:reporting:{task}"


def transport_options(instance: str) -> dict[str, Any]:
    """Of kombu, for a channel whose unacknowledged messages are that instance's."""
    return {
        "unacked_key": unacked(instance),
        "unacked_index_key": f"unacked_index:{instance}",
        "unacked_mutex_key": f"unacked_mutex:{instance}",
        "visibility_timeout": NEVER,
    }
