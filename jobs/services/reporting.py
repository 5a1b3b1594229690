"""What a worker says of its attempts, and the fence: its word counts while an attempt is its own.

At-least-once execution, at-most-once acceptance. What is refused is kept and shown, never applied.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

import orjson
import structlog
from django.db import DatabaseError

from controlplane.core.transactions import atomic, halved, named
from jobs.conf import conf
from jobs.services import cascade
from jobs.services.judging import judge
from jobs.services.reports import ENDS, Event, Report, Result, too_large
from jobs.sql import sql
from jobs.states import AttemptState
from liveness.services.tokens import ServerToken

log = structlog.get_logger()


STATEMENTS = {Event.STARTED: "start_attempts", Event.PROGRESS: "store_progress", Event.LOG: "store_log_lines"}
FINISH = "finish_attempts"  # for all others
LINES_KEPT = 10_000  # of an attempt
NOT_STORED, STOPPED = "not_stored", "execution_stopped"


def record(token: ServerToken, reports: list[Report]) -> list[Result]:
    """Apply each report for itself, in one round trip unless some are refused; a result for each, in order.

    One that the database does not take is `not_stored`, and what its call says of the same attempt after it: to be
    said again.
    """
    results: dict[int, Result] = {}
    unstored: set[UUID] = set()
    for turn in rounds(reports):
        results |= apply(token, reports, turn, unstored)
    return [results[place] for place in range(len(reports))]


@dataclass
class Round:
    """The places of reports that are applied at once, and of those that are only judged after that."""

    applied: list[int] = field(default_factory=list)
    judged: list[int] = field(default_factory=list)


@dataclass
class SoFar:
    """What a call says of an attempt before its next report: since its start, and `here`, in the round it is in."""

    round: int = 0
    events: set[Event] = field(default_factory=set)
    here: set[Event] = field(default_factory=set)


def rounds(reports: Iterable[Report]) -> list[Round]:
    """Cut where a report would have to be applied before its statement's turn: nearly always one round, and however
    many there are never more than a dozen, for the same event again is only judged."""
    made = [Round()]
    attempts: dict[UUID, SoFar] = {}
    for place, report in enumerate(reports):
        so_far, event = attempts.setdefault(report.attempt, SoFar()), report.event
        is_repeated = event in so_far.events and (event in ENDS or event == Event.STARTED)
        if not is_repeated:
            if so_far.here & ENDS or (event == Event.STARTED and so_far.here):
                so_far.round, so_far.here = so_far.round + 1, set()
            so_far.here.add(event)
        if so_far.round == len(made):
            made.append(Round())
        if is_repeated or (event in ENDS and too_large(report)):
            made[so_far.round].judged.append(place)
            continue
        made[so_far.round].applied.append(place)
        so_far.events = {event} if event == Event.STARTED else so_far.events | {event}
    return made


def apply(token: ServerToken, reports: Sequence[Report], turn: Round, unstored: set[UUID]) -> dict[int, Result]:
    """A result for each report of a round, by its place; attempts of which one could not be stored are added to
    `unstored`."""
    run = [reports[place] for place in turn.applied]
    applied = each(lambda some: write(token, some), run, unstored)
    for events in {Event.STARTED}, ENDS:
        refused = [nth for nth, state in enumerate(applied) if state is None and run[nth].event in events]
        of_steps = consequential(token, {run[nth].attempt for nth in refused})
        held_back = [nth for nth in refused if run[nth].attempt in of_steps]
        again = each(lambda some: write_steps(token, some), [run[nth] for nth in held_back], unstored)
        for nth, state in zip(held_back, again, strict=True):
            applied[nth] = state
    became: dict[int, Any] = dict(zip(turn.applied, applied, strict=True))
    late = sorted([place for place, state in became.items() if state is None] + turn.judged)
    judged = each(lambda some: judge(token, some), [reports[place] for place in late], unstored)
    became |= zip(late, judged, strict=True)
    return {place: result(reports[place], state) for place, state in became.items()}


def each(do: Callable[[list[Report]], list[Any]], reports: list[Report], unstored: set[UUID]) -> list[Any]:
    """Do it to all at once, and if the database does not take that, to as many at once as it takes, in order."""

    if not reports:
        return []

    def those_left(some: Sequence[Report]) -> list[Any]:
        left = [report for report in some if report.attempt not in unstored]
        done = iter(do(left) if left else [])
        return [NOT_STORED if report.attempt in unstored else next(done) for report in some]

    def leave_out(report: Report, error: DatabaseError) -> list[Any]:
        unstored.add(report.attempt)
        named("reports", report.attempt, error)
        return [NOT_STORED]

    return halved(those_left, reports, leave_out)


def result(report: Report, became: Any) -> Result:
    if isinstance(became, Result):
        return became
    if became == NOT_STORED:
        detail = "The control plane could not store this report; it is to be said again."
        return Result(report.attempt, accepted=False, replayed=False, state=None, code=NOT_STORED, detail=detail)
    if report.event == Event.STARTED and became != AttemptState.RUNNING:
        detail = "The execution that it is a step of is being cancelled, or has ended: nothing of it begins any more."
        return Result(report.attempt, accepted=False, replayed=False, state=became, code=STOPPED, detail=detail)
    return Result(report.attempt, accepted=True, replayed=False, state=became)


@atomic
def write_steps(token: ServerToken, run: list[Report]) -> list[str | None]:
    """Ends that have consequences, with these; a claim that is not to begin any more ends too."""
    return write(token, run, with_consequences=True)


def consequential(token: ServerToken, attempts: set[UUID]) -> set[UUID]:
    """Those of the live attempts whose end moves an execution or a trigger on."""
    if not attempts:
        return set()
    return {row.id for row in sql.rows("find_consequential_attempts", attempts=list(attempts), server=token.server)}


def write(token: ServerToken, run: list[Report], *, with_consequences: bool = False) -> list[str | None]:
    """Starts, then progress, then lines, then ends, each a guarded statement over all of them, in one round trip: the
    state of the attempt of each report, None where it was not applied. Their jobs are held first, all at once.

    What the end of a job moves on must be moved on in the same transaction: such ends are applied only
    `with_consequences`, in the caller's.
    """
    needed = {FINISH} if with_consequences else {statement_of(report.event) for report in run}
    locks = ["lock_reported_roots", "lock_reported_jobs"] if with_consequences else ["lock_reported_jobs"]
    statements = [name for name in (*STATEMENTS.values(), FINISH) if name in needed]
    states_now: dict[str, dict[UUID | int, str]] = {name: {} for name in statements}
    answers = sql.sets(
        *locks,
        *statements,
        attempts=[report.attempt for report in run],
        server=token.server,
        version=token.version,
        started=[report.attempt for report in run if report.event == Event.STARTED],
        progress=packed(latest_progress(run), {Event.PROGRESS}, "progress", "message"),
        logs=packed_logs(run),
        lines_kept=LINES_KEPT,
        ended=packed(
            run,
            ENDS | ({Event.STARTED} if with_consequences else set()),
            "event",
            "output",
            "error",
            "reason",
        ),
        max_resubmissions=conf().max_resubmissions,
        with_consequences=with_consequences,
    )[len(locks) :]
    for name, rows in zip(statements, answers, strict=True):
        for row in rows:
            states_now[name][row[0]] = row.attempt_state if name == FINISH else AttemptState.RUNNING.value
        if name == FINISH:
            log_otherwise(rows)
            cascade.run(rows)
    if with_consequences:
        return [states_now[FINISH].get(report.attempt) for report in run]
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
    return STATEMENTS.get(event, FINISH)


def latest_progress(run: list[Report]) -> list[Report]:
    """Of each attempt one report, with the last that is said of each field."""
    latest: dict[UUID, Report] = {}
    for report in run:
        if report.event == Event.PROGRESS:
            before = latest.get(report.attempt, report)
            progress = before.progress if report.progress is None else report.progress
            message = before.message if report.message is None else report.message
            latest[report.attempt] = replace(report, progress=progress, message=message)
    return list(latest.values())


def packed(run: list[Report], events: set[Event], *fields: str) -> str:
    """The reports of some events as a JSON array."""
    chosen = [report for report in run if report.event in events]
    rows = [{"attempt": r.attempt, **{field: getattr(r, field) for field in fields}} for r in chosen]
    return orjson.dumps(rows).decode()


def packed_logs(run: list[Report]) -> str:
    """The LOG reports as a JSON array, each with its place in the run."""
    fields = ("attempt", "stream", "sequence", "lines")
    logs = [(place, report) for place, report in enumerate(run) if report.event == Event.LOG]
    return orjson.dumps([{"place": n, **{field: getattr(r, field) for field in fields}} for n, r in logs]).decode()
