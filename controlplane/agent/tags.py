"""The tags a worker is matched by."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from controlplane.agent.policy import ActionPolicy

TAG_OF_ACTION_TYPE = {"script": "script", "callable": "python"}


def list_worker_tags(policy: ActionPolicy, extra: Iterable[str] = ()) -> list[str]:
    """Sorted: one per kind of action and per handler that is allowed, the Python runtime, and what the user added."""
    runtime = f"runtime:python{sys.version_info.major}.{sys.version_info.minor}"
    type_tags = {tag for kind, tag in TAG_OF_ACTION_TYPE.items() if kind in policy.action_types}
    return sorted({runtime, *type_tags, *(f"handler:{name}" for name in policy.handlers), *filter(None, extra)})
