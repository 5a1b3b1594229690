"""Keys in Redis. Each worker has its own keys for its unacknowledged messages, so they are in one hash."""

from __future__ import annotations

from typing import Any

HOLDERS = "controlplane:holders"  # set of the instances whose hash may hold messages
QUARANTINE = "controlplane:quarantine"  # hash: task id → the message and the reason
UNREPORTED = "controlplane:quarantine:unreported"  # set of quarantined tasks whose FAILURE is not stored yet
NEVER = 10 * 365 * 86400  # seconds; no message returns because of its age
MARK_KEPT = 7 * 86400  # seconds; a worker that was frozen for this long still finds its mark
HOLDER_KEPT = 3600  # seconds after the mark during which a lost worker's hash is checked, because it may wake up


def unacked(instance: str) -> str:
    return f"unacked:{instance}"


def own_queue(instance: str) -> str:
    """Return the name of a worker's queue for the jobs that it claimed."""
    return f"controlplane.jobs.{instance}"


def condemned(instance: str) -> str:
    """Return the key of the mark: the messages of this worker are about to be returned."""
    return f"controlplane:condemned:{instance}"


def reporting(task: str) -> str:
    """Return the key of the lock for storing the failure of a quarantined task."""
    return f"controlplane:quarantine:reporting:{task}"


def transport_options(instance: str) -> dict[str, Any]:
    """Return kombu's options for a channel that records its unacknowledged messages under an instance's keys."""
    return {
        "unacked_key": unacked(instance),
        "unacked_index_key": f"unacked_index:{instance}",
        "unacked_mutex_key": f"unacked_mutex:{instance}",
        "visibility_timeout": NEVER,
    }
