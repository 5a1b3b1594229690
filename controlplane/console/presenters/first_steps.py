"""First steps of a new instance: start a worker, submit a job, protect a Celery fleet."""

from collections.abc import Collection, Iterable
from typing import Any

from liveness.states import ServerType

JOBS_OF_A_NEW_INSTANCE = 100
"""An instance with more jobs is not new, and does not show the list."""
HIDDEN = "first-steps-hidden"
"""Cookie of a browser whose user has hidden the list."""
CELERY_TAG = "celery:"


def present_first_steps(
    by_type: Collection[dict[str, Any]] | None, servers: Iterable[Any], figures: dict[str, Any], sees: Collection[str]
) -> list[dict[str, Any]]:
    """Return the steps.

    Return none if all are done, if the instance is not new, or if the user may not view servers and jobs.
    """
    if by_type is None or "job" not in sees:
        return []
    jobs, known = sum(figures["counts"].values()), list(servers)
    has_celery = any(tag.startswith(CELERY_TAG) for server in known for tag in server.tags)
    has_worker = any(row["type"] == ServerType.WORKER for row in by_type)
    has_worker = has_worker or any(server.type == ServerType.WORKER for server in known)
    steps = [
        ("Start a worker", has_worker, "no_server"),
        ("Submit a job", bool(jobs), "no_job"),
        ("Protect a Celery fleet", has_celery, "no_celery"),
    ]
    if jobs > JOBS_OF_A_NEW_INSTANCE or all(is_done for _, is_done, _ in steps):
        return []
    return [
        {"label": label, "is_done": is_done, "template": f"admin/instance/_{name}.html"}
        for label, is_done, name in steps
    ]
