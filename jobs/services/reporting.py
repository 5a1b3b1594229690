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
from django.db.models import OuterRef, Subquery

from jobs import states
from jobs.conf import conf
from jobs.models import Attempt, LateReport, LogLine
from jobs.services import cascade
from jobs.sql import sql
from jobs.states import AttemptState, JobKind
from liveness import states as server_states
from liveness.errors import ServerUnknown, TokenRevoked
from liveness.models import Server, Tally
from liveness.services.tokens import ServerToken

log = structlog.get_logger()


class Event(StrEnum):
    STARTED = "STARTED"
    PROGRESS = "PROGRESS"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"
    RELEASED = "RELEASED"
    LOG = "LOG"


STATEMENTS = {Event.STARTED: "start", Event.PROGRESS: "progress", Event.LOG: "log"}  # the others: "finish"
LINES_KEPT = 10_000  # of an attempt
UNKEPT = {Event.PROGRESS, Event.LOG}  # when they come too late
SIZE_LIMIT = 256 * 1024
"""Bytes of an output, and of an error, as compact JSON in UTF-8. Escaped to ASCII it is at most three times as long,
so it fits a body of 1 MiB however a worker writes it."""
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
    stream: str | None = None
    lines: list[str] | None = None
    sequence: int | None = None


@dataclass(frozen=True)
class Result:
    """What became of a report: accepted (replayed: it had been before), or refused with a code."""

    attempt: UUID
    accepted: bool
    replayed: bool
    state: str | None
    code: str | None = None
    detail: str | None = None


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
        again = report.event in before and report.event != Event.LOG
        if before & ENDS or again or (report.event == Event.STARTED and before):
            yield run
            run, said = [], {}
        run.append(report)
        said.setdefault(report.attempt, set()).add(report.event)
    if run:
        yield run


def apply(token: ServerToken, run: list[Report]) -> list[Result]:
    """A result for each report, in order."""
    applied = write(token, run)
    refused = [place for place, state in enumerate(applied) if state is None]
    ends = [place for place in refused if run[place].event in ENDS]
    if of_steps := consequential(token, {run[place].attempt for place in ends}):
        held_back = [place for place in ends if run[place].attempt in of_steps]
        with transaction.atomic():
            again = write(token, [run[place] for place in held_back], with_consequences=True)
        for place, state in zip(held_back, again, strict=True):
            applied[place] = state
    late = [report for report, state in zip(run, applied, strict=True) if state is None]
    judged = iter(judge(token, late) if late else [])
    return [
        next(judged) if state is None else Result(report.attempt, accepted=True, replayed=False, state=state)
        for report, state in zip(run, applied, strict=True)
    ]


def consequential(token: ServerToken, attempts: set[UUID]) -> set[UUID]:
    """Those of the live attempts whose end moves an execution or a trigger on."""
    if not attempts:
        return set()
    live = Attempt.objects.filter(pk__in=attempts, server=token.server, state__in=states.LIVE)
    found = live.exclude(job__execution=None, job__kind=JobKind.TASK)
    return set(found.values_list("pk", flat=True))


def write(token: ServerToken, run: list[Report], *, with_consequences: bool = False) -> list[str | None]:
    """Starts, then progress, then lines, then ends, each a guarded statement over all of them, in one round trip: the
    state of the attempt of each report, None where it was not applied.

    What the end of a job moves on must be moved on in the same transaction: such ends are applied only
    `with_consequences`, in the caller's.
    """
    needed = {statement_of(report.event) for report in run}
    needed |= {"log_lock"} & {f"{name}_lock" for name in needed}
    statements = [name for name in ("start", "progress", "log_lock", "log", "finish") if name in needed]
    states_now: dict[str, dict[UUID | int, str]] = {name: {} for name in statements}
    answers = sql.sets(
        *statements,
        server=token.server,
        version=token.version,
        started=[report.attempt for report in run if report.event == Event.STARTED],
        progress=packed(run, {Event.PROGRESS}, "progress", "message"),
        logged=[report.attempt for report in run if report.event == Event.LOG],
        logs=packed_logs(run),
        lines_kept=LINES_KEPT,
        ended=packed([r for r in run if not too_large(r)], ENDS, "event", "output", "error", "reason"),
        max_resubmissions=conf().max_resubmissions,
        with_consequences=with_consequences,
    )
    for name, rows in zip(statements, answers, strict=True):
        for row in rows:
            states_now[name][row[0]] = row.attempt_state if name == "finish" else AttemptState.RUNNING.value
        if name == "finish":
            log_otherwise(rows)
            cascade.run(rows)
    return [
        states_now[statement_of(report.event)].get(place if report.event == Event.LOG else report.attempt)
        for place, report in enumerate(run)
    ]


def too_large(report: Report) -> tuple[str, str] | None:
    """The code and the sentence with which a report is refused for its size."""
    for name in ("output", "error"):
        content = getattr(report, name)
        if content is not None and (size := len(orjson.dumps(content))) > SIZE_LIMIT:
            return f"{name}_too_large", f"The {name} has {size} bytes of JSON; the limit is {SIZE_LIMIT}."
    return None


def log_otherwise(rows: list[Any]) -> None:
    """Say which attempts ended otherwise than their jobs."""
    for row in rows:
        if row.job_state != row.attempt_state:
            log.warning(
                f"Attempt {row.attempt_state}, job {row.job_state}",
                job=str(row.job),
                attempt=str(row.attempt),
                server=str(row.server),
                reason=row.reason,
            )


def statement_of(event: Event) -> str:
    return STATEMENTS.get(event, "finish")


def packed(run: list[Report], events: set[Event], *fields: str) -> str:
    """The reports of some events as a JSON array; sorted, so that two calls never wait for each other in a ring."""
    chosen = sorted((report for report in run if report.event in events), key=lambda report: report.attempt)
    rows = [{"attempt": r.attempt, **{field: getattr(r, field) for field in fields}} for r in chosen]
    return orjson.dumps(rows).decode()


def packed_logs(run: list[Report]) -> str:
    """The LOG reports as a JSON array, each with its place in the run."""
    fields = ("attempt", "stream", "sequence", "lines")
    logs = [(place, report) for place, report in enumerate(run) if report.event == Event.LOG]
    return orjson.dumps([{"place": n, **{field: getattr(r, field) for field in fields}} for n, r in logs]).decode()


@transaction.atomic
def judge(token: ServerToken, refused: list[Report]) -> list[Result]:
    """Why the fence let none of these through: said before and applied then, or too late."""
    server = Server.objects.filter(pk=token.server).first()
    if server is None:
        raise ServerUnknown
    if server.token_version != token.version:
        raise TokenRevoked("This server token was revoked: register anew.")
    last = LogLine.objects.filter(attempt=OuterRef("pk")).order_by("-id").values("sequence")[:1]
    own = Attempt.objects.select_related("job").filter(server=server, pk__in=[report.attempt for report in refused])
    own = own.annotate(log_sequence=Subquery(last))
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
        if result.code in ("attempt_superseded", "conflicting_report") and report.event not in UNKEPT
    ]
    keep(late)
    for result in results:
        if not result.accepted:
            log.warning(
                "Report refused", server=str(token.server), attempt=str(result.attempt), state=result.state,
                reason=result.code,
            )  # fmt: skip
    return results


def keep(late: list[LateReport]) -> None:
    """Store late reports, the same one once: a worker that gets no answer says it again."""
    before = LateReport.objects.filter(attempt__in=[report.attempt_id for report in late])
    known = {worded(report) for report in before} if late else set()
    new = {worded(report): report for report in late if worded(report) not in known}
    if new:
        LateReport.objects.bulk_create(new.values())
        Tally.objects.create(name="late_reports", number=len(new))


def worded(report: LateReport) -> tuple[UUID, str, bytes]:
    body = orjson.dumps(as_floats(report.body), option=orjson.OPT_SORT_KEYS)
    return report.attempt_id, str(report.event), body


def verdict(report: Report, attempt: Any, *, is_gone: bool) -> Result:
    """The result of a report that could not be applied to this attempt; whose server is gone has no say at all."""
    if attempt is None:
        return Result(report.attempt, accepted=False, replayed=False, state=None, code="attempt_unknown")

    def result(code: str | None = None, detail: str | None = None) -> Result:
        accepted = code is None
        return Result(report.attempt, accepted, replayed=accepted, state=attempt.state, code=code, detail=detail)

    if why := too_large(report):
        return result(*why)
    if is_gone:
        return result("attempt_superseded")
    if report.sequence is not None and report.sequence <= (-1 if (last := attempt.log_sequence) is None else last):
        return result()
    if attempt.state in states.LIVE:
        match report.event:
            case Event.STARTED if attempt.state == AttemptState.RUNNING:
                return result()
            case Event.COMPLETED | Event.FAILED | Event.PROGRESS | Event.LOG if attempt.state == AttemptState.CLAIMED:
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
