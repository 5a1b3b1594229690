"""The tags a worker is matched by."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from controlplane.agent.allow import Allowances

TAG_OF_KIND = {"script": "script", "callable": "python"}


def tags_for(allowances: Allowances, extra: Iterable[str] = ()) -> list[str]:
    """Sorted: one per kind of action and per handler that is allowed, the Python runtime, and what the user added."""
    runtime = f"runtime:python{sys.version_info.major}.{sys.version_info.minor}"
    kinds = {tag for kind, tag in TAG_OF_KIND.items() if kind in allowances.kinds}
    return sorted({runtime, *kinds, *(f"handler:{name}" for name in allowances.handlers), *filter(None, extra)})
