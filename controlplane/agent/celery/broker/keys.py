"""Keys in Redis. The unacknowledged messages of each worker are in a hash of its own."""

from __future__ import annotations

from typing import Any

HOLDERS = "controlplane:holders"  # set of the instances whose hash may hold messages
QUARANTINE = "controlplane:quarantine"  # hash: task id → the message and the reason
UNREPORTED = "controlplane:quarantine:unreported"  # set of quarantined tasks whose FAILURE is not stored yet
NEVER = 10 * 365 * 86400  # seconds; so large that no message is returned because of its age
MARK_KEPT = 7 * 86400  # seconds that a mark is kept, so that a worker that was frozen for long still finds it
# Seconds after the mark in which a lost worker's hash is still checked, because the worker may wake up.
HOLDER_KEPT = 3600


def unacked(instance: str) -> str:
    return f"unacked:{instance}"


def own_queue(instance: str) -> str:
    """Return the name of a worker's queue for the jobs that it claimed."""
    return f"controlplane.jobs.{instance}"


def condemned(instance: str) -> str:
    """Return the key of a worker's mark. The mark means that the worker's messages are about to be returned."""
    return f"controlplane:condemned:{instance}"


def reporting(task: str) -> str:
    """Return the key of the lock that a worker holds while it stores the failure of a quarantined task."""
    return f"controlplane:quarantine:reporting:{task}"


def transport_options(instance: str) -> dict[str, Any]:
    """Return kombu's options for a channel that records its unacknowledged messages under the keys of `instance`."""
    return {
        "unacked_key": unacked(instance),
        "unacked_index_key": f"unacked_index:{instance}",
        "unacked_mutex_key": f"unacked_mutex:{instance}",
        "visibility_timeout": NEVER,
    }
