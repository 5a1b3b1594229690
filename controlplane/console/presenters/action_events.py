"""Actions of operators and clients on a job, an execution or a trigger."""

from datetime import datetime
from typing import Any

from controlplane.console.formatting import format_moment


def present_action_events(row: Any) -> list[tuple[Any, str]]:
    """Return the actions of operators and clients on a job or an execution, each with its time."""
    return [(event, format_moment(datetime.fromisoformat(event["at"]), row.now)) for event in row.action_events]
