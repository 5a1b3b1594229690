"""Origins of the values in the payload of a step: its inputs tab shows where each came from."""

import json
import re
from typing import Any
from uuid import UUID

from jobs.selectors.jobs import DetailedJob

STEP_IN_PATH = re.compile(r'\$\s*\.\s*steps\s*\.\s*(?:("(?:[^"\\]|\\.)*")|(\w+))')


def present_origins(job: DetailedJob) -> list[dict[str, Any]]:
    """Return a row for each value that came from the execution: its place, its path, and the steps that gave it."""
    paths = list((job.payload_from or {}).items())
    if job.loop is not None:
        paths.insert(0, ("the list of its items", job.loop["for_each"]))
    return [
        {"place": place or "the whole payload", "path": path, "steps": list_sources(path, job.sources or {})}
        for place, path in paths
    ]


def list_sources(path: str, sources: dict[str, str]) -> list[tuple[str, UUID]]:
    """Return the keys of the steps that a path names, with their jobs."""
    names = (json.loads(quoted) if quoted else plain for quoted, plain in STEP_IN_PATH.findall(path))
    return [(key, UUID(sources[key])) for key in dict.fromkeys(names) if key in sources]
