"""Access rules (ACL) of Redis: the key patterns that a protected worker needs, and an error message that names them."""

from __future__ import annotations

from redis.exceptions import NoPermissionError

KEYS = "~controlplane* ~unacked* ~_kombu.* ~*.celery.pidbox*"
"""Key patterns of the protection. The application also needs the keys of its queues and results."""


def explain(error: BaseException) -> str:
    """Return the text of an error. If an access rule caused the error, add advice."""
    # Errors inside a script have the second text.
    if not isinstance(error, NoPermissionError) and "The user executing the script can't" not in str(error):
        return str(error)
    return (
        f"An access rule of Redis refuses something that protection needs ({error}). Give the worker's user the keys"
        f" {KEYS}, those of its queues and results, and the commands in docs/how-to/give-celery-redis-rights.md."
    )
