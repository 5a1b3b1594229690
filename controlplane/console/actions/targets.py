"""Objects that the pages can act on, and the consequences of an action for their jobs."""

from typing import Any

from django.utils.html import format_html
from django.utils.safestring import SafeString

from controlplane.console.actions.jobs import (
    DUMP_STACK_ACTION,
    EXECUTION_ACTIONS,
    JOB_ACTIONS,
    QUARANTINE_ACTIONS,
    RESUBMIT_AGAIN_ACTION,
    RUN_NOW_ACTION,
)
from controlplane.console.actions.selection import Target
from controlplane.console.actions.servers import SERVER_ACTIONS, OperatorAction
from controlplane.console.actions.triggers import DELETE_ACTION, TRIGGER_ACTIONS
from controlplane.console.formatting import time_since
from controlplane.console.presenters.jobs import name_job, short_id
from controlplane.console.selectors.filters.executions import ExecutionListFilter, TriggerListFilter
from controlplane.console.selectors.filters.jobs import JobListFilter, QuarantineFilter
from controlplane.console.selectors.filters.servers import ServerListFilter
from jobs.models import Attempt
from jobs.selectors.executions import visible_executions
from jobs.selectors.jobs import DetailedJob, actionable_jobs, actionable_quarantine
from jobs.selectors.triggers import triggers_with_guards
from jobs.states import AttemptState
from jobs.verdict.servers import describe_fate_of_jobs
from liveness.selectors.servers import TimedServer, servers_with_timing
from liveness.states import Subject

HELD_SHOWN = 200


def list_consequences(name: str, servers: list[TimedServer]) -> list[tuple[Any, str, SafeString, str]]:
    """Return the attempts that these servers hold, and what would happen to each."""
    if name not in ("drain", "disconnect"):
        return []
    by_id = {server.pk: server for server in servers}
    held = Attempt.objects.live().filter(server__in=by_id).select_related("job").order_by("id")
    consequences = []
    for attempt in held[:HELD_SHOWN]:
        server = by_id[attempt.server_id]
        if name == "drain":
            then = "continues; its server returns it at the deadline if it has not ended"
        elif attempt.state == AttemptState.CLAIMED:
            then = "moves at once, because its code has not started"
        else:
            then = f"is ordered to end, {describe_fate_of_jobs(server, one=True)}"
        label = format_html(
            "{} on {}, for {}",
            name_job(attempt.job),
            server.name,
            time_since(attempt.claimed_at, server.now),
        )
        consequences.append((attempt.job_id, attempt.state, label, then))
    return consequences


def describe_server(server: TimedServer) -> str:
    return str(server.name)


def describe_job(job: DetailedJob) -> str:
    return f"{name_job(job)} (job {short_id(job.pk)})"


SERVERS = Target(
    "server", servers_with_timing, ServerListFilter, ("state", "cordoned_by", "drain_deadline"),
    "instance:servers", "instance:server", describe_server, consequences=list_consequences,
)  # fmt: skip
JOB_DECISIVE_COLUMNS = (
    "state",
    "kind",
    "is_step",
    "is_execution",
    "is_waiting",
    "is_cancelling",
    "is_quarantined",
    "is_resubmitted",
    "is_scheduled",
)
JOBS = Target(
    "job", actionable_jobs, JobListFilter, JOB_DECISIVE_COLUMNS, "instance:jobs", "instance:job",
    describe_job,
)  # fmt: skip
EXECUTIONS = Target(
    "execution", visible_executions, ExecutionListFilter, ("state", "sealed"), "instance:executions",
    "instance:execution", lambda execution: str(execution.name),
)  # fmt: skip
TRIGGERS = Target(
    "trigger", triggers_with_guards, TriggerListFilter, ("enabled", "in_flight"),
    "instance:triggers", "instance:trigger", str,
)  # fmt: skip
QUARANTINED = Target(
    "job", actionable_quarantine, QuarantineFilter, JOB_DECISIVE_COLUMNS, "instance:quarantine", "instance:job",
    describe_job,
)  # fmt: skip

ACTIONS: tuple[tuple[str, Target, dict[str, OperatorAction]], ...] = (
    ("servers", SERVERS, SERVER_ACTIONS),
    ("jobs", JOBS, JOB_ACTIONS | RUN_NOW_ACTION | DUMP_STACK_ACTION | RESUBMIT_AGAIN_ACTION),
    ("executions", EXECUTIONS, EXECUTION_ACTIONS),
    ("triggers", TRIGGERS, TRIGGER_ACTIONS | DELETE_ACTION),
    ("quarantine", QUARANTINED, QUARANTINE_ACTIONS),
)
"""Folder in the URL, target and actions for each list."""
PERMISSIONS = {action.operation: action.permission for _, _, actions in ACTIONS for action in actions.values()}
"""Permission that each operation needs."""
TARGETS = {Subject.SERVER: SERVERS, Subject.JOB: JOBS, Subject.EXECUTION: EXECUTIONS, Subject.TRIGGER: TRIGGERS}
