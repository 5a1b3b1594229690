"""Answers to steps that ask people. The first answer counts."""

from typing import Any
from uuid import UUID

import structlog

from controlplane.core.json_bodies import write_json
from controlplane.core.transactions import retried_atomic
from jobs.answer_fields import find_value_problems
from jobs.errors import JobUnknown, TryAgain
from jobs.execution_errors import AlreadyAnswered, NotInGroup, NotWaiting, WrongAnswer
from jobs.models import WorkerJob
from jobs.services.executions import advance_executions
from jobs.sql import sql
from liveness.services.action_events import ActionSubject, record_action
from liveness.states import Subject as SubjectType

log = structlog.get_logger()


@retried_atomic
def answer_step(
    job: UUID, choice: str, values: dict[str, Any], *, by: str, groups: frozenset[str] | None, note: str = ""
) -> None:
    """Answer a step that waits, given the id of its job. `reject` fails it, every other choice completes it.

    `groups` are those of the person who answers; None is a token of an operator, which no group limits. Raises
    JobUnknown, AlreadyAnswered, NotWaiting, NotInGroup, and WrongAnswer, which names the field.
    """
    step = WorkerJob.objects.filter(pk=job).first()
    if step is None:
        raise JobUnknown
    ensure_may_answer(step, groups)
    wait = step.waiting_for or {}
    if choice not in wait["choices"]:
        raise WrongAnswer(errors={"choice": [f"It must be one of {', '.join(wait['choices'])}."]})
    if problems := find_value_problems(wait["fields"], values):
        raise WrongAnswer(errors={"values": {name: [problem] for name, problem in problems.items()}})
    ended = sql.answer_step.after(sql.lock_roots).fetch_rows(
        executions=[step.execution_id], job=job, answer=choice, values=write_json(values).decode(), by=by, note=note
    )
    if not ended:
        # Another answer, a timeout or a cancellation had the lock first.
        step.refresh_from_db()
        ensure_may_answer(step, groups)
        raise TryAgain("The step could not be answered at this moment. Send the same call again.")
    record_action("answer_execution", by, note, ActionSubject(SubjectType.JOB, job))
    advance_executions([step.execution_id] if step.execution_id else [])
    log.info("Step answered", job=str(job), choice=choice, actor=by)


def ensure_may_answer(step: WorkerJob, groups: frozenset[str] | None) -> None:
    """Raise AlreadyAnswered, NotWaiting or NotInGroup if the step cannot be answered by a person of these groups."""
    wait = step.waiting_for
    if wait is None or wait["what"] != "answer":
        if (given := answer_of(step)) is not None:
            raise AlreadyAnswered(
                f"The step was already answered: {given['choice']}, by {given['by'] or 'its timeout'}.",
                by=given["by"], choice=given["choice"], at=given["at"],
            )  # fmt: skip
        raise NotWaiting(f"The step is {step.state} and does not wait for an answer.", state=step.state)
    if groups is not None and wait["group"] is not None and wait["group"] not in groups:
        raise NotInGroup(f"Only people of the group {wait['group']} may answer this step.", group=wait["group"])


def answer_of(step: WorkerJob) -> dict[str, Any] | None:
    """Return the answer of a person or of the timeout that ended an approval, or None."""
    return step.output if step.action.get("type") == "approval" and step.finished_at is not None else None


def groups_of(person: Any) -> frozenset[str]:
    """Return the names of the groups of a user."""
    return frozenset(person.groups.values_list("name", flat=True))
