"""What a worker says of its attempts, and the fence: its word counts while an attempt is its own.

At-least-once execution, at-most-once acceptance. What is refused is kept and shown, never applied.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any
from uuid import UUID

import orjson
import structlog
from django.db import transaction

from jobs import states
from jobs.conf import conf
from jobs.models import Attempt, LateReport
from jobs.services import recovery
from jobs.sql import sql
from jobs.states import AttemptState
from liveness import states as server_states
from liveness.errors import ServerUnknown, TokenRevoked
from liveness.models import Server
from liveness.services.tokens import ServerToken

log = structlog.get_logger()


class Event(StrEnum):
    STARTED = "STARTED"
    PROGRESS = "PROGRESS"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"
    RELEASED = "RELEASED"


ENDS = {Event.COMPLETED, Event.FAILED, Event.CANCELLED, Event.RELEASED}


@dataclass(frozen=True)
class Report:
    """One event of one attempt."""

    attempt: UUID
    event: Event
    output: Any = None
    error: dict[str, Any] | None = None
    reason: str | None = None
    progress: float | None = None
    message: str | None = None


@dataclass(frozen=True)
class Result:
    """What became of a report: accepted (replayed: it had been before), or refused with a code."""

    attempt: UUID
    accepted: bool
    replayed: bool
    state: str | None
    code: str | None = None


def record(token: ServerToken, reports: list[Report]) -> list[Result]:
    """Apply each report for itself, in one round trip unless some are refused; a result for each, in order."""
    results: list[Result] = []
    for run in runs(reports):
        results += apply(token, run)
    return results


def runs(reports: Iterable[Report]) -> Iterator[list[Report]]:
    """Cut where a report would have to be applied before its statement's turn: nearly always one run."""
    run: list[Report] = []
    said: dict[UUID, set[Event]] = {}
    for report in reports:
        before = said.get(report.attempt, set())
        if before & ENDS or report.event in before or (report.event == Event.STARTED and before):
            yield run
            run, said = [], {}
        run.append(report)
        said.setdefault(report.attempt, set()).add(report.event)
    if run:
        yield run


def apply(token: ServerToken, run: list[Report]) -> list[Result]:
    """Starts, then progress, then ends, each a guarded statement over all of them."""
    states_now: dict[str, dict[UUID, str]] = {event: {} for event in ("start", "progress", "finish")}
    statements = [
        name
        for name, events in {"start": {Event.STARTED}, "progress": {Event.PROGRESS}, "finish": ENDS}.items()
        if any(report.event in events for report in run)
    ]
    answers = sql.sets(
        *statements,
        server=token.server,
        version=token.version,
        started=[report.attempt for report in run if report.event == Event.STARTED],
        progress=packed(run, {Event.PROGRESS}, "progress", "message"),
        ended=packed(run, ENDS, "event", "output", "error", "reason"),
        max_resubmissions=conf().max_resubmissions,
    )
    for name, rows in zip(statements, answers, strict=True):
        for row in rows:
            states_now[name][row[0]] = row.attempt_state if name == "finish" else AttemptState.RUNNING.value
        if name == "finish":
            recovery.report([row for row in rows if row.job_state != row.attempt_state])
    applied = [states_now[statement_of(report.event)].get(report.attempt) for report in run]
    refused = [report for report, state in zip(run, applied, strict=True) if state is None]
    judged = iter(judge(token, refused) if refused else [])
    return [
        next(judged) if state is None else Result(report.attempt, accepted=True, replayed=False, state=state)
        for report, state in zip(run, applied, strict=True)
    ]


def statement_of(event: Event) -> str:
    return {Event.STARTED: "start", Event.PROGRESS: "progress"}.get(event, "finish")


def packed(run: list[Report], events: set[Event], *fields: str) -> str:
    """The reports of some events as a JSON array; sorted, so that two calls never wait for each other in a ring."""
    chosen = sorted((report for report in run if report.event in events), key=lambda report: report.attempt)
    rows = [{"attempt": r.attempt, **{field: getattr(r, field) for field in fields}} for r in chosen]
    return orjson.dumps(rows).decode()


@transaction.atomic
def judge(token: ServerToken, refused: list[Report]) -> list[Result]:
    """Why the fence let none of these through: said before and applied then, or too late."""
    server = Server.objects.filter(pk=token.server).first()
    if server is None:
        raise ServerUnknown
    if server.token_version != token.version:
        raise TokenRevoked("This server token was revoked: register anew.")
    own = Attempt.objects.select_related("job").filter(server=server, pk__in=[report.attempt for report in refused])
    attempts = {attempt.pk: attempt for attempt in own}
    is_gone = server.state in server_states.GONE
    results = [verdict(report, attempts.get(report.attempt), is_gone=is_gone) for report in refused]
    late = [
        LateReport(
            attempt_id=report.attempt,
            job_id=attempts[report.attempt].job_id,
            event=report.event,
            reason=result.code,
            body={"output": report.output, "error": report.error, "reason": report.reason},
        )
        for report, result in zip(refused, results, strict=True)
        if result.code in ("attempt_superseded", "conflicting_report") and report.event != Event.PROGRESS
    ]
    LateReport.objects.bulk_create(late)
    for result in results:
        if not result.accepted:
            log.warning(
                "Report refused", server=str(token.server), attempt=str(result.attempt), state=result.state,
                reason=result.code,
            )  # fmt: skip
    return results


def verdict(report: Report, attempt: Attempt | None, *, is_gone: bool) -> Result:
    """The result of a report that could not be applied to this attempt; whose server is gone has no say at all."""
    if attempt is None:
        return Result(report.attempt, accepted=False, replayed=False, state=None, code="attempt_unknown")

    def result(code: str | None = None) -> Result:
        return Result(report.attempt, accepted=code is None, replayed=code is None, state=attempt.state, code=code)

    if is_gone:
        return result("attempt_superseded")
    if attempt.state in states.LIVE:
        match report.event:
            case Event.STARTED if attempt.state == AttemptState.RUNNING:
                return result()
            case Event.COMPLETED | Event.FAILED | Event.PROGRESS if attempt.state == AttemptState.CLAIMED:
                return result("not_started")
            case Event.CANCELLED:
                return result("cancel_not_requested")
            case _:
                return result("attempt_superseded")
    said_by_worker = attempt.ended_by == "server"
    match report.event:
        case Event.STARTED if attempt.started_at and said_by_worker:
            return result()
        case Event.PROGRESS if said_by_worker:
            return result()
        case Event.COMPLETED if attempt.state == AttemptState.COMPLETED:
            return result(None if same(attempt.job.output, report.output) else "conflicting_report")
        case Event.FAILED if said_by_worker and attempt.error is not None:
            return result(None if same(attempt.error, report.error) else "conflicting_report")
        case Event.CANCELLED if attempt.state == AttemptState.CANCELLED and said_by_worker:
            return result()
        case Event.RELEASED if said_by_worker and attempt.error is None and attempt.reason == (report.reason or ""):
            return result(None if attempt.state != AttemptState.COMPLETED else "conflicting_report")
        case _:
            return result("attempt_superseded")


def same(stored: Any, said: Any) -> bool:
    """Whether what was stored is what is said now; PostgreSQL writes a large float as a whole number."""
    return stored == said or as_floats(stored) == as_floats(said)


def as_floats(data: Any) -> Any:
    if isinstance(data, dict):
        return {key: as_floats(value) for key, value in data.items()}
    if isinstance(data, list):
        return [as_floats(item) for item in data]
    return float(data) if isinstance(data, int) and not isinstance(data, bool) else data
