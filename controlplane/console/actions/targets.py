"""What can be acted on from the pages, and what would become of what it holds."""

from typing import Any

from django.db.models import Q
from django.utils.html import format_html
from django.utils.safestring import SafeString

from controlplane.console.actions.bulk_actions import Kind
from controlplane.console.presenters.jobs import action_said
from controlplane.console.presenters.outlook import fate
from controlplane.console.presenters.words import ago
from controlplane.console.selectors.filters import ExecutionFilter, JobFilter, QuarantineFilter, ServerFilter
from jobs import execution_selectors as selectors_of_executions
from jobs import selectors, states
from jobs.models import Attempt
from jobs.states import AttemptState
from liveness import selectors as liveness

HELD_SHOWN = 200


def what_would_move(name: str, servers: list[Any]) -> list[tuple[Any, str, SafeString, str]]:
    """The attempts that these servers hold, and what would become of each."""
    if name not in ("drain", "disconnect"):
        return []
    by_id = {server.pk: server for server in servers}
    held = Attempt.objects.filter(server__in=by_id, state__in=states.LIVE).select_related("job").order_by("id")
    found = []
    for attempt in held[:HELD_SHOWN]:
        server = by_id[attempt.server_id]
        if name == "drain":
            then = "goes on; given back at the deadline, if it has not ended"
        elif attempt.state == AttemptState.CLAIMED:
            then = "moves at once: its code has not begun"
        else:
            then = f"is told to end, {fate(server, one=True)}"
        label = format_html(
            "{} on {}, for {}", action_said(attempt.job.action), server.name, ago(attempt.claimed_at, server.now)
        )
        found.append((attempt.job_id, attempt.state, label, then))
    return found


def server_said(server: Any) -> str:
    return str(server.name)


def job_said(job: Any) -> str:
    return f"{action_said(job.action)} (job {str(job.pk)[-12:]})"


SERVERS = Kind(
    "server", liveness.judged, ServerFilter, ("state", "cordoned_by", "drain_deadline"),
    "instance:servers", "instance:server", server_said, consequences=what_would_move,
)  # fmt: skip
DECIDES = ("state", "is_step", "is_cancelling", "is_quarantined")
# What is done to a step locks its execution first.
NO_STEP = Q(execution=None)
JOBS = Kind(
    "job", selectors.bare_jobs, JobFilter, DECIDES, "instance:jobs", "instance:job", job_said, locks=NO_STEP
)  # fmt: skip
EXECUTIONS = Kind(
    "execution", selectors_of_executions.executions, ExecutionFilter, ("state",), "instance:executions",
    "instance:execution", lambda execution: str(execution.name), locks=Q(pk__in=[]),
)  # fmt: skip
QUARANTINED = Kind(
    "job", selectors.quarantined_jobs, QuarantineFilter, DECIDES, "instance:quarantine", "instance:job", job_said,
    locks=NO_STEP,
)  # fmt: skip
