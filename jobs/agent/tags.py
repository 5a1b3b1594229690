"""The tags a worker is matched by."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from jobs.agent.allow import Allowances

TAG_OF_KIND = {"script": "script", "callable": "python"}


def tags_for(allowances: Allowances, extra: Iterable[str] = ()) -> list[str]:
    """Sorted: one tag per kind of action that is allowed, the Python runtime, and what the user added."""
    runtime = f"runtime:python{sys.version_info.major}.{sys.version_info.minor}"
    return sorted({runtime, *(TAG_OF_KIND[kind] for kind in allowances.kinds), *filter(None, extra)})
