"""Applies the reports of workers. The fence: a report counts only while its worker still holds the attempt.

Execution is at-least-once, acceptance at-most-once. Refused ends are stored and shown, but never applied.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

import structlog
from django.db import DatabaseError

from controlplane.agent.limits import LINES_KEPT
from controlplane.core.json_bodies import write_json
from controlplane.core.statements import Statement, fetch_result_sets
from controlplane.core.transactions import record_left_out, retried_atomic, run_in_halves
from jobs.conf import conf
from jobs.services import propagation, stored_bytes
from jobs.services.hints import announce_work
from jobs.services.rejected_reports import judge_rejected_reports
from jobs.services.report_rounds import Round, split_into_rounds
from jobs.services.reports import ENDS, Report, ReportEvent, Result
from jobs.sql import sql
from jobs.sql.rows.interventions import EndedAttempt
from jobs.states import AttemptState, JobState
from liveness.services.tokens import ServerToken

log = structlog.get_logger()


STATEMENTS: dict[ReportEvent, Statement[Any]] = {
    ReportEvent.STARTED: sql.start_attempts,
    ReportEvent.PROGRESS: sql.store_progress,
    ReportEvent.CHECKPOINT: sql.store_checkpoints,
    ReportEvent.LOG: sql.store_log_lines,
    ReportEvent.STACK: sql.store_stacks,
}
FINISH = sql.finish_attempts  # for all other events
COUNTED = {sql.store_checkpoints, sql.store_log_lines, FINISH}
NOT_STORED, STOPPED = "not_stored", "execution_stopped"


def record_reports(token: ServerToken, reports: list[Report]) -> list[Result]:
    """Apply each report independently and return a result for each, in order. One round trip if none is refused.

    A report that the database cannot store gets the result `not_stored`, and so do the later reports of the call on the
    same attempt. The worker must send these again.
    """
    results: dict[int, Result] = {}
    unstored: set[UUID] = set()
    for turn in split_into_rounds(reports):
        results |= apply_reports(token, reports, turn, unstored)
    return [results[place] for place in range(len(reports))]


def apply_reports(token: ServerToken, reports: Sequence[Report], turn: Round, unstored: set[UUID]) -> dict[int, Result]:
    """Apply one round. Return a result for each report by its place.

    Attempts with a report that could not be stored are added to `unstored`.
    """
    run = [reports[place] for place in turn.applied]
    applied = apply_to_each(lambda some: write_reports(token, some), run, unstored)
    for events in {ReportEvent.STARTED}, ENDS:
        refused = [nth for nth, state in enumerate(applied) if state is None and run[nth].event in events]
        of_steps = find_consequential_attempts(token, {run[nth].attempt for nth in refused})
        held_back = [nth for nth in refused if run[nth].attempt in of_steps]
        again = apply_to_each(
            lambda some: write_consequential_ends(token, some), [run[nth] for nth in held_back], unstored
        )
        for nth, state in zip(held_back, again, strict=True):
            applied[nth] = state
    became: dict[int, Any] = dict(zip(turn.applied, applied, strict=True))
    rejected = sorted([place for place, state in became.items() if state is None] + turn.judged)
    judgements = apply_to_each(
        lambda some: judge_rejected_reports(token, some), [reports[place] for place in rejected], unstored
    )
    became |= zip(rejected, judgements, strict=True)
    return {place: build_result(reports[place], state) for place, state in became.items()}


def apply_to_each(do: Callable[[list[Report]], list[Any]], reports: list[Report], unstored: set[UUID]) -> list[Any]:
    """Call `do` with all reports, and if the database refuses that, with smaller parts of them, in order."""
    if not reports:
        return []

    def apply_to_remaining(some: Sequence[Report]) -> list[Any]:
        left = [report for report in some if report.attempt not in unstored]
        done = iter(do(left) if left else [])
        return [NOT_STORED if report.attempt in unstored else next(done) for report in some]

    def leave_out_report(report: Report, error: DatabaseError) -> list[Any]:
        unstored.add(report.attempt)
        record_left_out("reports", report.attempt, error)
        return [NOT_STORED]

    return run_in_halves(apply_to_remaining, reports, leave_out_report)


def build_result(report: Report, outcome: Any) -> Result:
    if isinstance(outcome, Result):
        return outcome
    if outcome == NOT_STORED:
        detail = "The control plane could not store this report; send it again."
        return Result(report.attempt, accepted=False, replayed=False, state=None, code=NOT_STORED, detail=detail)
    if report.event == ReportEvent.STARTED and outcome != AttemptState.RUNNING:
        detail = "Its execution is being cancelled or has ended, so this step may not begin."
        return Result(report.attempt, accepted=False, replayed=False, state=outcome, code=STOPPED, detail=detail)
    return Result(report.attempt, accepted=True, replayed=False, state=outcome)


@retried_atomic
def write_consequential_ends(token: ServerToken, run: list[Report]) -> list[str | None]:
    """Apply ends together with their consequences. A claim that may not begin any more ends too."""
    return write_reports(token, run, with_consequences=True)


def find_consequential_attempts(token: ServerToken, attempts: set[UUID]) -> set[UUID]:
    """Return the live attempts among these whose end has consequences for an execution or a trigger."""
    if not attempts:
        return set()
    return {row.id for row in sql.find_consequential_attempts.fetch_rows(attempts=list(attempts), server=token.server)}


def write_reports(token: ServerToken, run: list[Report], *, with_consequences: bool = False) -> list[str | None]:
    """Apply starts, progress, checkpoints, log lines and ends, in this order, in one round trip.

    Each is one guarded statement for all reports; their jobs are locked first, all at once. Returns the state of the
    attempt of each report, or None for a report that was not applied. Ends with consequences are applied only
    `with_consequences`, in the caller's transaction, because the consequences must be in the same transaction.
    """
    needed = {FINISH} if with_consequences else {statement_of_event(report.event) for report in run}
    locks = [sql.lock_reported_roots, sql.lock_reported_jobs] if with_consequences else [sql.lock_reported_jobs]
    statements = [statement for statement in (*STATEMENTS.values(), FINISH) if statement in needed]
    states_now: dict[Statement[Any], dict[UUID | int, str]] = {statement: {} for statement in statements}
    answers = fetch_result_sets(
        *locks,
        *(stored_bytes.counting(statement) if statement in COUNTED else statement for statement in statements),
        attempts=[report.attempt for report in run],
        server=token.server,
        version=token.version,
        started=[report.attempt for report in run if report.event == ReportEvent.STARTED],
        traces=write_json({str(report.attempt): report.traceparent for report in run if report.traceparent}).decode(),
        progress=pack_reports(latest_progress(run), {ReportEvent.PROGRESS}, "progress", "message"),
        checkpoints=pack_reports(latest_of(run, ReportEvent.CHECKPOINT), {ReportEvent.CHECKPOINT}, "value"),
        logs=pack_log_reports(run),
        stacks=pack_reports(latest_of(run, ReportEvent.STACK), {ReportEvent.STACK}, "text"),
        lines_kept=LINES_KEPT,
        no_room=stored_bytes.NO_ROOM,
        stored_limit=conf().stored_bytes_limit,
        ended=pack_reports(
            run,
            ENDS | ({ReportEvent.STARTED} if with_consequences else set()),
            "event",
            "output",
            "error",
            "reason",
            "begun",
        ),
        max_resubmissions=conf().max_resubmissions,
        with_consequences=with_consequences,
    )[len(locks) :]
    for statement, rows in zip(statements, answers, strict=True):
        for row in rows:
            states_now[statement][row[0]] = row.attempt_state if statement == FINISH else AttemptState.RUNNING.value
        if statement == FINISH:
            log_diverging_ends(rows)
            propagation.propagate_ends(rows)
            if any(row.job_state == JobState.PENDING for row in rows):
                announce_work()
    if with_consequences:
        return [states_now[FINISH].get(report.attempt) for report in run]
    return [
        states_now[statement_of_event(report.event)].get(place if report.event == ReportEvent.LOG else report.attempt)
        for place, report in enumerate(run)
    ]


def log_diverging_ends(rows: list[EndedAttempt]) -> None:
    """Log the attempts that ended in another state than their jobs."""
    for row in rows:
        if row.job_state != row.attempt_state:
            log.warning(
                f"Attempt {row.attempt_state}, job {row.job_state}",
                job=str(row.job),
                attempt=str(row.attempt),
                server=str(row.server),
                reason=row.reason,
            )


def statement_of_event(event: ReportEvent) -> Statement[Any]:
    return STATEMENTS.get(event, FINISH)


def latest_progress(run: list[Report]) -> list[Report]:
    """Return one report for each attempt, with the last value of each field."""
    latest: dict[UUID, Report] = {}
    for report in run:
        if report.event == ReportEvent.PROGRESS:
            before = latest.get(report.attempt, report)
            progress = before.progress if report.progress is None else report.progress
            message = before.message if report.message is None else report.message
            latest[report.attempt] = replace(report, progress=progress, message=message)
    return list(latest.values())


def latest_of(run: list[Report], event: ReportEvent) -> list[Report]:
    """Return the last report with this event of each attempt."""
    return list({report.attempt: report for report in run if report.event == event}.values())


def pack_reports(run: list[Report], events: set[ReportEvent], *fields: str) -> str:
    """Return the reports with these events as a JSON array."""
    chosen = [report for report in run if report.event in events]
    rows = [{"attempt": r.attempt, **{field: getattr(r, field) for field in fields}} for r in chosen]
    return write_json(rows).decode()


def pack_log_reports(run: list[Report]) -> str:
    """Return the LOG reports as a JSON array, each with its place in the run."""
    fields = ("attempt", "stream", "sequence", "lines")
    logs = [(place, report) for place, report in enumerate(run) if report.event == ReportEvent.LOG]
    return write_json([{"place": n, **{field: getattr(r, field) for field in fields}} for n, r in logs]).decode()
