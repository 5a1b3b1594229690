"""What a worker says of its attempts, and the fence: its word counts while an attempt is its own.

At-least-once execution, at-most-once acceptance. What is refused is kept and shown, never applied.
"""

from collections.abc import Iterable, Iterator
from typing import Any
from uuid import UUID

import orjson
import structlog
from django.db import transaction

from jobs import states
from jobs.conf import conf
from jobs.models import Attempt
from jobs.services import cascade
from jobs.services.judging import judge
from jobs.services.reports import ENDS, Event, Report, Result, too_large
from jobs.sql import sql
from jobs.states import AttemptState, JobKind
from liveness.services.tokens import ServerToken

log = structlog.get_logger()


STATEMENTS = {Event.STARTED: "start", Event.PROGRESS: "progress", Event.LOG: "log"}  # the others: "finish"
LINES_KEPT = 10_000  # of an attempt


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
