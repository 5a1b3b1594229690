"""The attempts of a job as lanes on one axis of time: rows in, geometry out. No database, no HTML."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from uuid import UUID

from controlplane.console.charts.axis import AXIS, Axis, Mark, Span, beat_resolution, build_grid
from controlplane.console.presenters.formatting import shorten
from jobs.models import Attempt
from jobs.selectors.jobs import DetailedJob

LANE, BAR, TICKS, OWN_TICKS = 88, 34, 52, 65
"""Pixels: of a lane, to the middle of its bar, to the heartbeats of its server and its own."""
NAME_LENGTH = 24


@dataclass(frozen=True)
class SupersededReport:
    """A report that was refused."""

    number: int
    at: datetime
    event: str
    reason: str


@dataclass(frozen=True)
class SignsOfLife:
    """What is known of a server: when it was heard, when it became DISCONNECTED, and how often it should beat."""

    interval: float
    beats: list[datetime] = field(default_factory=list)
    losses: list[datetime] = field(default_factory=list)


@dataclass
class OwnBeats:
    """The heartbeats of an attempt itself, of its code or of what waits to begin it."""

    interval: float
    beats: list[datetime] = field(default_factory=list)
    is_last_alone: bool = False
    """The others are not kept: of tasks of Celery, and of what is older than their retention."""

    def add_last(self, at: datetime | None) -> None:
        if at is not None and not self.beats:
            self.beats, self.is_last_alone = [at], True


@dataclass
class Lane:
    """One attempt; or, at the end, a job that waits for its next."""

    top: int
    label: str
    title: str
    state: str
    doubt: str = ""
    """Why it is not known to run, though it is live."""
    progress: str = ""
    """How far its code says that it has come."""
    spans: list[Span] = field(default_factory=list)
    claimed: str | None = None
    end: Mark | None = None
    arrow: bool = False
    ghost: tuple[str, str] | None = None
    marks: list[Mark] = field(default_factory=list)
    beats: list[str] = field(default_factory=list)
    gaps: list[Span] = field(default_factory=list)
    own_beats: list[str] = field(default_factory=list)
    own_gaps: list[Span] = field(default_factory=list)
    own_title: str = ""

    @property
    def middle(self) -> int:
        return self.top + BAR

    @property
    def pulse(self) -> int:
        return self.top + TICKS

    @property
    def own_pulse(self) -> int:
        return self.top + OWN_TICKS

    @property
    def next_lane(self) -> int:
        """Where the arrow to the next lane ends."""
        return self.middle + LANE - 11


@dataclass(frozen=True)
class Chart:
    lanes: list[Lane]
    axis: list[tuple[str, str, str]]
    """Where, what to write, and how it is anchored."""
    height: int
    floor: int


def drawn_period(job: DetailedJob, superseded: Iterable[SupersededReport], now: datetime) -> tuple[datetime, datetime]:
    """The time that is drawn: the job's own, and a little more where a refused report came after it."""
    end = max(job.finished_at or now, job.created_at + timedelta(seconds=1))
    limit = end + (end - job.created_at) / 4
    return job.created_at, max([end, *(min(report.at, limit) for report in superseded)])


def build_job_chart(
    job: DetailedJob,
    attempts: Sequence[Attempt],
    superseded: Sequence[SupersededReport],
    signs: Mapping[UUID, SignsOfLife],
    now: datetime,
    doubt: str = "",
    own_beats: Mapping[int, OwnBeats] | None = None,
) -> Chart:
    """Lanes of attempts (in order; with their servers), refused reports and signs of life by server; with why the live
    one is not known to run, and the heartbeats of attempts themselves by their number."""
    axis = Axis(*drawn_period(job, superseded, now))
    lanes: list[Lane] = []
    since = job.created_at
    for attempt in attempts:
        own = [report for report in superseded if report.number == attempt.number]
        lane = build_lane(attempt, len(lanes) * LANE, since, axis, own, now)
        draw_signs_of_life(lane, attempt, signs.get(attempt.server_id), axis, own, now)
        if own_signs := (own_beats or {}).get(attempt.number):
            draw_own_beats(lane, attempt, own_signs, axis, now)
        lane.doubt = doubt if attempt.finished_at is None else ""
        lanes.append(lane)
        since = attempt.finished_at or now
    if not attempts or (attempts[-1].finished_at and not job.finished_at):
        until = job.finished_at or now
        ended = f"{job.state}" if job.finished_at else "PENDING"
        lane = Lane(len(lanes) * LANE, "no attempt" if job.finished_at else "next attempt", "", ended)
        lane.spans.append(axis.build_span("waiting", since, until, "waiting for a worker"))
        lanes.append(lane)
    for before in lanes[:-1]:
        before.arrow = before.end is not None
    floor = len(lanes) * LANE
    return Chart(lanes, list(build_grid(axis)), floor + AXIS, floor)


def build_lane(
    attempt: Attempt, top: int, since: datetime, axis: Axis, superseded: Sequence[SupersededReport], now: datetime
) -> Lane:
    name = attempt.server.name
    lane = Lane(top, f"#{attempt.number} {shorten(name, NAME_LENGTH)}", name, attempt.state)
    if attempt.finished_at is None and attempt.progress is not None:
        lane.progress = f"{100 * attempt.progress:.0f} %"
    until = attempt.finished_at or now
    begun = attempt.started_at or until
    lane.spans.append(axis.build_span("waiting", since, attempt.claimed_at, "waiting"))
    lane.spans.append(axis.build_span("claimed", attempt.claimed_at, begun, "claimed, its code has not started"))
    lane.claimed = axis.x(attempt.claimed_at)
    if attempt.started_at:
        lane.spans.append(axis.build_span("running", attempt.started_at, until, "running", least=0.6))
    if attempt.finished_at:
        because = f": {attempt.reason}" if attempt.reason else ""
        lane.end = Mark(attempt.state, axis.x(until), f"{attempt.state} at {until:%H:%M:%S} UTC{because}")
        if superseded:
            lane.ghost = (axis.x(until), axis.x(max(report.at for report in superseded)))
    for report in superseded:
        title = f"superseded report at {report.at:%H:%M:%S} UTC: {report.event} ({report.reason})"
        lane.marks.append(Mark("superseded", axis.x(report.at), title))
    return lane


def draw_signs_of_life(
    lane: Lane,
    attempt: Attempt,
    signs: SignsOfLife | None,
    axis: Axis,
    superseded: Sequence[SupersededReport],
    now: datetime,
) -> None:
    """The heartbeats of the attempt's server under its lane, hatched where they stopped."""
    if signs is None:
        return
    until = min(axis.end, max([attempt.finished_at or now, *(report.at for report in superseded)]))
    losses = [at for at in signs.losses if attempt.claimed_at <= at <= until]
    for at in losses:
        lane.marks.append(Mark("lost", axis.x(at), f"its server became DISCONNECTED at {at:%H:%M:%S} UTC"))
    beats = sorted({axis.beat_slot(at, signs.interval) for at in signs.beats if attempt.claimed_at <= at <= until})
    lane.beats = [axis.x(at) for at in beats]
    if not beats:
        # They are kept for a while only: nothing known is nothing drawn, but what DISCONNECTED tells.
        for at in losses[:1]:
            silent = max(attempt.claimed_at, at - timedelta(seconds=attempt.server.timeout))
            lane.gaps.append(axis.build_span("silent", silent, until, "no heartbeat"))
        return
    longest = timedelta(seconds=max(3 * signs.interval, 3 * beat_resolution(axis.span)))
    for before, after in zip(beats, [*beats[1:], until], strict=True):
        if after - before > longest:
            lane.gaps.append(axis.build_span("silent", before, after, "no heartbeat"))


def draw_own_beats(lane: Lane, attempt: Attempt, own: OwnBeats, axis: Axis, now: datetime) -> None:
    """The heartbeats of the attempt itself, hatched where they stopped: its code may hang while its server beats on."""
    until = attempt.finished_at or now
    beats = sorted({axis.beat_slot(at, own.interval) for at in own.beats})
    lane.own_beats = [axis.x(at) for at in beats]
    lane.own_title = (
        "the last heartbeat of the attempt itself; the others are not kept"
        if own.is_last_alone
        else "heartbeats of the attempt itself"
    )
    if own.is_last_alone or not beats:
        return
    longest = timedelta(seconds=max(3 * own.interval, 3 * beat_resolution(axis.span)))
    for before, after in zip(beats, [*beats[1:], until], strict=True):
        if after - before > longest:
            lane.own_gaps.append(axis.build_span("silent", before, after, "no heartbeat of the attempt itself"))
