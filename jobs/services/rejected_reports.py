"""Why the fence did not let a report through: it was applied before, or came too late. What is refused is kept."""

from hashlib import sha256
from typing import Any

import orjson
import structlog
from django.db.models import OuterRef, Subquery

from controlplane.core.transactions import retried_atomic
from jobs import states
from jobs.models import Attempt, LogLine
from jobs.services.reports import Event, Report, Result, explain_oversize
from jobs.sql import sql
from jobs.states import AttemptState
from liveness import states as server_states
from liveness.errors import ServerUnknown, TokenRevoked
from liveness.models import Server
from liveness.services.tokens import ServerToken

log = structlog.get_logger()

UNKEPT_EVENTS = {Event.PROGRESS, Event.CHECKPOINT, Event.LOG}  # when they come too late
KEPT = 20
"""Late reports of an attempt."""


@retried_atomic
def judge_rejected_reports(token: ServerToken, refused: list[Report]) -> list[Result]:
    """Why the fence let none of these through: said before and applied then, or too late."""
    server = Server.objects.filter(pk=token.server).first()
    if server is None:
        raise ServerUnknown
    if server.token_version != token.version:
        raise TokenRevoked("This server token was revoked: register again.")
    last = LogLine.objects.filter(attempt=OuterRef("pk")).order_by("-id").values("sequence")[:1]
    own = Attempt.objects.select_related("job").filter(server=server, pk__in=[report.attempt for report in refused])
    own = own.annotate(log_sequence=Subquery(last))
    attempts = {attempt.pk: attempt for attempt in own}
    is_gone = server.state in server_states.RETIRED
    results = [judge_report(report, attempts.get(report.attempt), is_gone=is_gone) for report in refused]
    store_superseded_reports(
        token,
        [
            (report, result)
            for report, result in zip(refused, results, strict=True)
            if result.code in ("attempt_superseded", "conflicting_report") and report.event not in UNKEPT_EVENTS
        ],
    )
    for report, result in zip(refused, results, strict=True):
        if not result.accepted:
            attempt = attempts.get(report.attempt)
            log.warning(
                "Report refused", server=str(token.server), job=attempt and str(attempt.job_id),
                attempt=str(report.attempt), report=str(report.event), state=result.state, reason=result.code,
            )  # fmt: skip
    return results


def store_superseded_reports(token: ServerToken, superseded_reports: list[tuple[Report, Result]]) -> None:
    """Store superseded reports, the same one once, for a worker that gets no answer says it again; of an attempt the
    first `KEPT`, of which the last says whether more came."""
    if not superseded_reports:
        return
    bodies = [
        {"output": report.output, "error": report.error, "reason": report.reason} for report, _ in superseded_reports
    ]
    rows = [
        {
            "attempt": report.attempt,
            "event": report.event,
            "reason": result.code,
            "body": body,
            "digest": digest([report.event, body]).hex(),
        }
        for (report, result), body in zip(superseded_reports, bodies, strict=True)
    ]
    sql.store_superseded_reports.after(sql.lock_jobs_of_superseded_reports).fetch_rows(
        attempts=[report.attempt for report, _ in superseded_reports],
        server=token.server,
        reports=orjson.dumps(rows).decode(),
        kept=KEPT,
    )


def judge_report(report: Report, attempt: Any, *, is_gone: bool) -> Result:
    """The result of a report that could not be applied to this attempt; whose server is gone has no say at all."""
    if attempt is None:
        return Result(report.attempt, accepted=False, replayed=False, state=None, code="attempt_unknown")

    def build_result(code: str | None = None, detail: str | None = None) -> Result:
        accepted = code is None
        return Result(report.attempt, accepted, replayed=accepted, state=attempt.state, code=code, detail=detail)

    if why := explain_oversize(report):
        return build_result(*why)
    if is_gone:
        return build_result("attempt_superseded")
    if report.sequence is not None and report.sequence <= (-1 if (last := attempt.log_sequence) is None else last):
        return build_result()
    if attempt.state in states.LIVE:
        match report.event:
            case Event.STARTED if attempt.state == AttemptState.RUNNING:
                return build_result()
            case Event.CANCELLED:
                return build_result("cancel_not_requested")
            case Event.STARTED | Event.RELEASED:
                return build_result("attempt_superseded")
            case _ if attempt.state == AttemptState.CLAIMED:
                return build_result("not_started")
            case _:
                return build_result("attempt_superseded")
    is_ended_by_worker = attempt.ended_by == "server"
    match report.event:
        case Event.STARTED if attempt.started_at and is_ended_by_worker:
            return build_result()
        case Event.PROGRESS if is_ended_by_worker:
            return build_result()
        case Event.CHECKPOINT if is_ended_by_worker and digest(attempt.job.checkpoint) == digest(report.value):
            return build_result()
        case Event.COMPLETED if attempt.state == AttemptState.COMPLETED:
            return build_result(None if repeats(attempt, report) else "conflicting_report")
        case Event.FAILED if is_ended_by_worker and attempt.error is not None:
            return build_result(None if repeats(attempt, report) else "conflicting_report")
        case Event.CANCELLED if attempt.state == AttemptState.CANCELLED and is_ended_by_worker:
            return build_result()
        case Event.RELEASED if is_ended_by_worker and attempt.error is None and attempt.reason == (report.reason or ""):
            return build_result(None if attempt.state != AttemptState.COMPLETED else "conflicting_report")
        case _:
            return build_result("attempt_superseded")


def repeats(attempt: Any, report: Report) -> bool:
    """Whether a report says the end that was stored. By digest: however many come, what was stored is read once."""
    if not hasattr(attempt, "digest"):
        attempt.digest = digest(attempt.job.output if attempt.state == AttemptState.COMPLETED else attempt.error)
    content = report.output if report.event == Event.COMPLETED else report.error
    return bool(attempt.digest == digest(content))


def digest(data: object) -> bytes:
    """Of JSON, however it is written; PostgreSQL writes a large float as a whole number."""
    return sha256(orjson.dumps(numbers_as_floats(data), option=orjson.OPT_SORT_KEYS)).digest()


def numbers_as_floats(data: object) -> Any:
    if isinstance(data, dict):
        return {key: numbers_as_floats(value) for key, value in data.items()}
    if isinstance(data, list):
        return [numbers_as_floats(item) for item in data]
    return float(data) if isinstance(data, int) and not isinstance(data, bool) else data
