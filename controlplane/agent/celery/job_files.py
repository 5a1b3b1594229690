"""Files in which a job that is a Celery task leaves its result, shared by the worker's processes and the heart."""

from __future__ import annotations

from pathlib import Path


def pulse_file(result: str | Path) -> str:
    """Return the path of the signs of life of the job whose result is at `result`."""
    return f"{result}.pulse"
