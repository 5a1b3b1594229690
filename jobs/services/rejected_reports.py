"""Explain why the fence rejected reports: each was applied before, or is superseded. Store superseded reports."""

from decimal import Decimal
from hashlib import sha256
from typing import Any

import orjson
import structlog
from django.db.models import OuterRef, Subquery

from controlplane.core.json_bodies import write_json
from controlplane.core.transactions import retried_atomic
from jobs import states
from jobs.models import Attempt, LogLine
from jobs.services.reports import Report, ReportEvent, Result, explain_oversize
from jobs.sql import sql
from jobs.states import AttemptState
from liveness.errors import ServerUnknown, TokenRevoked
from liveness.models import Server
from liveness.services.tokens import ServerToken

log = structlog.get_logger()

UNKEPT_EVENTS = {ReportEvent.PROGRESS, ReportEvent.CHECKPOINT, ReportEvent.LOG, ReportEvent.STACK}
"""Reports that are not stored when they are superseded."""
KEPT = 20
"""Largest number of superseded reports that are stored for an attempt."""


@retried_atomic
def judge_rejected_reports(token: ServerToken, refused: list[Report]) -> list[Result]:
    """Decide for each rejected report whether it repeats an applied report or is superseded."""
    server = Server.objects.filter(pk=token.server).first()
    if server is None:
        raise ServerUnknown
    if server.token_version != token.version:
        raise TokenRevoked("This server token was revoked: register again.")
    last = LogLine.objects.filter(attempt=OuterRef("pk")).order_by("-id").values("sequence")[:1]
    own = Attempt.objects.select_related("job").filter(server=server, pk__in=[report.attempt for report in refused])
    own = own.annotate(log_sequence=Subquery(last))
    attempts = {attempt.pk: attempt for attempt in own}
    is_gone = server.has_ended
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
    """Store superseded reports, each once, because a worker repeats a report until it gets a response.

    Only the first `KEPT` reports of an attempt are stored. The last of them shows whether more came.
    """
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
        reports=write_json(rows).decode(),
        kept=KEPT,
    )


def judge_report(report: Report, attempt: Any, *, is_gone: bool) -> Result:
    """Return the result of a report that could not be applied. All reports of a retired server are superseded."""
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
    judge = judge_live_attempt if attempt.state in states.LIVE else judge_ended_attempt
    return build_result(judge(report, attempt))


def judge_live_attempt(report: Report, attempt: Any) -> str | None:
    """Return the error code of a report on an attempt that has not ended. None means that the report is a replay."""
    match report.event:
        case ReportEvent.STARTED if attempt.state == AttemptState.RUNNING:
            return None
        case ReportEvent.CANCELLED:
            return "cancel_not_requested"
        case ReportEvent.STARTED | ReportEvent.RELEASED:
            return "attempt_superseded"
        case _ if attempt.state == AttemptState.CLAIMED:
            return "not_started"
        case _:
            return "attempt_superseded"


def judge_ended_attempt(report: Report, attempt: Any) -> str | None:
    """Return the error code of a report on an attempt that has ended. None means that the report is a replay."""
    if attempt.ended_by != "server":  # the control plane ended the attempt, so its worker reports too late
        is_completed = report.event == ReportEvent.COMPLETED and attempt.state == AttemptState.COMPLETED
        return judge_repeated_end(report, attempt) if is_completed else "attempt_superseded"
    match report.event:
        case ReportEvent.STARTED if attempt.started_at:
            return None
        case ReportEvent.PROGRESS:
            return None
        case ReportEvent.CHECKPOINT if digest(attempt.job.checkpoint) == digest(report.value):
            return None
        case ReportEvent.COMPLETED if attempt.state == AttemptState.COMPLETED:
            return judge_repeated_end(report, attempt)
        case ReportEvent.FAILED if attempt.error is not None:
            return judge_repeated_end(report, attempt)
        case ReportEvent.CANCELLED if attempt.state == AttemptState.CANCELLED:
            return None
        case ReportEvent.RELEASED if attempt.error is None and attempt.reason == (report.reason or ""):
            return None if attempt.state != AttemptState.COMPLETED else "conflicting_report"
        case _:
            return "attempt_superseded"


def judge_repeated_end(report: Report, attempt: Any) -> str | None:
    return None if repeats(attempt, report) else "conflicting_report"


def repeats(attempt: Any, report: Report) -> bool:
    """Return True if a report repeats the stored end. The digest is kept, so the stored content is read only once."""
    if not hasattr(attempt, "digest"):
        attempt.digest = digest(attempt.job.output if attempt.state == AttemptState.COMPLETED else attempt.error)
    content = report.output if report.event == ReportEvent.COMPLETED else report.error
    return bool(attempt.digest == digest(content))


def digest(data: object) -> bytes:
    """Return the digest of JSON. It ignores how numbers are written: PostgreSQL writes a large float as an integer."""
    return sha256(write_json(with_whole_numbers(data), orjson.OPT_SORT_KEYS)).digest()


def with_whole_numbers(data: object) -> Any:
    """Return the data with each float that has no fraction as an integer, as PostgreSQL stores it."""
    if isinstance(data, dict):
        return {key: with_whole_numbers(value) for key, value in data.items()}
    if isinstance(data, list):
        return [with_whole_numbers(item) for item in data]
    return int(Decimal(repr(data))) if isinstance(data, float) and data.is_integer() else data
