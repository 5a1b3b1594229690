"""Files with the results of jobs that are Celery tasks. The worker's processes write them, and the heart reads them."""

from __future__ import annotations

from pathlib import Path


def pulse_file(result: str | Path) -> str:
    """Return the path of the file with the signs of life of a job. `result` is the path of its result."""
    return f"{result}.pulse"
