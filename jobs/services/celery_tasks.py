"""Record tasks that Celery workers report. Each task is a job.

The broker gives out its attempts, not the control plane. Such a job is never claimed. If its worker is lost it waits,
like any job, until another worker has the message.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from django.db import DatabaseError

from controlplane.core.json_bodies import write_json
from controlplane.core.statements import fetch_result_sets
from controlplane.core.transactions import record_left_out, run_in_halves
from jobs.conf import conf
from jobs.errors import TooOften
from jobs.sql import sql
from jobs.states import TaskState
from liveness.errors import ServerNotRunning, ServerUnknown, TokenRevoked
from liveness.services.tokens import ServerToken

BATCH_LIMIT = 500
"""Tasks in one call."""
SAME_LIMIT = 10
"""Reports on one task in one call. Each is applied by itself."""
NAMES_LIMIT = 500
"""Task names that are counted for each worker."""

ALWAYS = ("lock_reported_tasks", "set_ended_tasks_aside", "add_tasks")
GOING_ON = ("move_redelivered_tasks", "begin_tasks", "start_tasks", "keep_tasks_alive")
ENDING = ("move_redelivered_tasks", "begin_tasks", "start_tasks", "end_tasks")
STATEMENTS: dict[TaskState, tuple[str, ...]] = {
    TaskState.HELD: GOING_ON,
    TaskState.RUNNING: GOING_ON,
    TaskState.QUARANTINED: (*ENDING, "quarantine_waiting_tasks"),
    TaskState.SENT: ("confirm_sent_tasks",),
}
"""Statements for each reported state, besides ALWAYS; ENDING for all other states. They run in the order of ORDER."""
ORDER = (*ALWAYS, *GOING_ON, "end_tasks", "quarantine_waiting_tasks", "confirm_sent_tasks", "judge_reported_tasks")


@dataclass(frozen=True)
class Judgement:
    """Result of a call: attempts to cancel, attempts whose report is superseded (`late`), and reports to repeat."""

    cancel: list[UUID] = field(default_factory=list)
    late: list[UUID] = field(default_factory=list)
    again: list[UUID] = field(default_factory=list)


def record_tasks(
    token: ServerToken, tasks: list[dict[str, Any]], tally: list[dict[str, Any]], counter: UUID | None
) -> Judgement:
    """Record the tasks that a worker reports. One round trip, unless a call has several reports on one task.

    A repeated report changes nothing. A task that the database refuses is left out. Raises ServerUnknown, TokenRevoked,
    ServerNotRunning and TooOften.
    """
    judged = Judgement()
    turns = list(divide_into_turns(tasks))
    for number, turn in enumerate(turns):
        is_last = number == len(turns) - 1
        for row in record_turn(token, turn, tally if is_last else [], counter):
            getattr(judged, row.verdict).append(row.attempt)
    return judged


def divide_into_turns(tasks: list[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """Yield lists in which each task occurs once, in order. There is nearly always one list. Raises TooOften."""
    turns: list[list[dict[str, Any]]] = [[]]
    seen: dict[str, int] = {}
    for task in tasks:
        turn = seen[task["id"]] = seen.get(task["id"], -1) + 1
        if turn == SAME_LIMIT:
            raise TooOften(f"A call may have {SAME_LIMIT} reports on one task; this one has more on {task['id']}.")
        if turn == len(turns):
            turns.append([])
        turns[turn].append(task)
    yield from turns


def record_turn(
    token: ServerToken, tasks: list[dict[str, Any]], tally: list[dict[str, Any]], counter: UUID | None
) -> list[Any]:
    """Record tasks that occur once each. Return a row for each attempt to cancel and each superseded report."""

    def record_some(some: Sequence[dict[str, Any]], counts: Sequence[dict[str, Any]] = ()) -> list[Any]:
        needed = {name for task in some for name in STATEMENTS.get(task["state"], ENDING)}
        names = [name for name in ORDER if some and (name in needed or name in (*ALWAYS, "judge_reported_tasks"))]
        server, *answers = fetch_result_sets(
            sql.read_reporting_server,
            *(getattr(sql, name) for name in names),
            *([sql.count_tasks] if counts else []),
            server=token.server,
            version=token.version,
            tasks=write_json(list(some)).decode(),
            tally=write_json(list(counts)).decode(),
            counter=counter,
            names_kept=NAMES_LIMIT,
            kept=conf().job_retention,
            max_resubmissions=conf().max_resubmissions,
        )
        refuse_server(token, server)
        return answers[names.index("judge_reported_tasks")] if names else []

    def leave_out_task(task: dict[str, Any], error: DatabaseError) -> list[Any]:
        record_left_out("Celery tasks", task["attempt"], error)
        return []

    if not tally:
        return run_in_halves(record_some, tasks, leave_out_task)
    try:
        return record_some(tasks, tally)
    except DatabaseError:
        # These are separate calls, so that counts are stored even if a task cannot be stored.
        rows = run_in_halves(record_some, tasks, leave_out_task) if tasks else []
        record_some([], tally)
        return rows


def refuse_server(token: ServerToken, rows: list[Any]) -> None:
    """Raise the error if this server may not report tasks. The statements have changed nothing then."""
    if not rows:
        raise ServerUnknown
    if rows[0].token_version != token.version:
        raise TokenRevoked("This server token was revoked: register again.")
    if rows[0].has_ended:
        raise ServerNotRunning
