"""Attempts of a job as lanes on one time axis. This module computes positions from rows, without database and HTML."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from uuid import UUID

from controlplane.console.charts.axis import AXIS, Axis, AxisSpan, Mark, beat_resolution, build_grid
from controlplane.console.charts.outages import ReadOutages, Silence, read_no_outages, split_silence
from controlplane.console.formatting import shorten
from controlplane.core.bounds import moment_after
from jobs.models import Attempt
from jobs.selectors.jobs import DetailedJob

LANE, BAR, TICKS, OWN_TICKS = 88, 34, 52, 65
"""Sizes in pixels: the height of a lane, then the offsets of its bar, of server heartbeats and of attempt
heartbeats."""
NAME_LENGTH = 24


@dataclass(frozen=True)
class SupersededReport:
    """Report that was refused, because its attempt had already ended."""

    number: int
    at: datetime
    event: str
    reason: str


@dataclass(frozen=True)
class SignsOfLife:
    """Heartbeats of a server, the times when it became DISCONNECTED, and its heartbeat interval."""

    interval: float
    beats: list[datetime] = field(default_factory=list)
    losses: list[datetime] = field(default_factory=list)


@dataclass
class OwnBeats:
    """Heartbeats of an attempt itself. The runner of its code sends them, or before the start the claiming worker."""

    interval: float
    beats: list[datetime] = field(default_factory=list)
    is_last_alone: bool = False
    """True if only the last heartbeat is stored, as for Celery tasks and after the retention time."""

    def add_last(self, at: datetime | None) -> None:
        if at is not None and not self.beats:
            self.beats, self.is_last_alone = [at], True


@dataclass
class AttemptLane:
    """Lane of one attempt, or of the wait for the next attempt at the end."""

    top: int
    label: str
    title: str
    state: str
    doubt: str = ""
    """Reason why a live attempt may not be running."""
    progress: str = ""
    """Progress that the code reported."""
    spans: list[AxisSpan] = field(default_factory=list)
    claimed: str | None = None
    end: Mark | None = None
    arrow: bool = False
    ghost: tuple[str, str] | None = None
    marks: list[Mark] = field(default_factory=list)
    beats: list[str] = field(default_factory=list)
    gaps: list[AxisSpan] = field(default_factory=list)
    own_beats: list[str] = field(default_factory=list)
    own_gaps: list[AxisSpan] = field(default_factory=list)
    own_title: str = ""
    silences: list[Silence] = field(default_factory=list)
    own_silences: list[Silence] = field(default_factory=list)
    longest: timedelta = timedelta(0)
    """A longer time between two heartbeats is a silence."""

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
        """Return the vertical position of the end of the arrow to the next lane."""
        return self.middle + LANE - 11


@dataclass(frozen=True)
class JobChart:
    lanes: list[AttemptLane]
    axis: list[tuple[str, str, str]]
    """Position, text and text anchor of each label."""
    height: int
    floor: int
    has_outage: bool = False
    """True if the control plane itself was down during a silence."""


def drawn_period(job: DetailedJob, superseded: Iterable[SupersededReport], now: datetime) -> tuple[datetime, datetime]:
    """Return the period to draw: the period of the job, or a little more if a refused report came later."""
    end = max(job.finished_at or now, moment_after(job.created_at, 1))
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
    read_outages: ReadOutages = read_no_outages,
) -> JobChart:
    """Return the lanes of the attempts, with superseded reports and heartbeats.

    `attempts` are in order and have their servers. `signs` is by server, `own_beats` is by attempt number. `doubt` is
    the reason why the live attempt may not be running. `read_outages` is called once, if there are silences.
    """
    axis = Axis(*drawn_period(job, superseded, now))
    lanes: list[AttemptLane] = []
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
        lane = AttemptLane(len(lanes) * LANE, "no attempt" if job.finished_at else "next attempt", "", ended)
        lane.spans.append(axis.build_span("waiting", since, until, "waiting for a worker"))
        lanes.append(lane)
    for before in lanes[:-1]:
        before.arrow = before.end is not None
    floor = len(lanes) * LANE
    has_outage = draw_silences(lanes, axis, read_outages)
    return JobChart(lanes, list(build_grid(axis)), floor + AXIS, floor, has_outage)


def draw_silences(lanes: Sequence[AttemptLane], axis: Axis, read_outages: ReadOutages) -> bool:
    """Draw the silences of all lanes. Return True if the control plane itself was down in one of them."""
    silences = [silence for lane in lanes for silence in (*lane.silences, *lane.own_silences)]
    if not silences:
        return False
    outages = read_outages(min(one.start for one in silences), max(one.end for one in silences))
    has_outage = False
    for lane in lanes:
        for found, gaps, of in (
            (lane.silences, lane.gaps, ""), (lane.own_silences, lane.own_gaps, " of the attempt"),
        ):  # fmt: skip
            for silence in found:
                for part in split_silence(silence, outages, lane.longest):
                    kind = "outage" if part.is_outage else "silent"
                    title = "the control plane was down" if part.is_outage else f"no heartbeat{of}"
                    gaps.append(axis.build_span(kind, part.start, part.end, title))
                    has_outage = has_outage or part.is_outage
    return has_outage


def build_lane(
    attempt: Attempt, top: int, since: datetime, axis: Axis, superseded: Sequence[SupersededReport], now: datetime
) -> AttemptLane:
    name = attempt.server.name
    lane = AttemptLane(top, f"#{attempt.number} {shorten(name, NAME_LENGTH)}", name, attempt.state)
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
    lane: AttemptLane,
    attempt: Attempt,
    signs: SignsOfLife | None,
    axis: Axis,
    superseded: Sequence[SupersededReport],
    now: datetime,
) -> None:
    """Draw the heartbeats of the attempt's server under its lane, with silences hatched."""
    if signs is None:
        return
    until = min(axis.end, max([attempt.finished_at or now, *(report.at for report in superseded)]))
    losses = [at for at in signs.losses if attempt.claimed_at <= at <= until]
    for at in losses:
        lane.marks.append(Mark("lost", axis.x(at), f"its server became DISCONNECTED at {at:%H:%M:%S} UTC"))
    beats = sorted({axis.beat_slot(at, signs.interval) for at in signs.beats if attempt.claimed_at <= at <= until})
    lane.beats = [axis.x(at) for at in beats]
    if not beats:
        # Old heartbeats are deleted. Without them, only DISCONNECTED shows that there was a silence.
        for at in losses[:1]:
            silent = max(attempt.claimed_at, moment_after(at, -attempt.server.timeout))
            lane.silences.append(Silence(silent, until))
        return
    lane.longest = longest = timedelta(seconds=max(3 * signs.interval, 3 * beat_resolution(axis.span)))
    for before, after in zip(beats, [*beats[1:], until], strict=True):
        if after - before > longest:
            lane.silences.append(Silence(before, after))


def draw_own_beats(lane: AttemptLane, attempt: Attempt, own: OwnBeats, axis: Axis, now: datetime) -> None:
    """Draw the heartbeats of the attempt itself, with silences hatched.

    The code may hang while its server still sends heartbeats.
    """
    until = attempt.finished_at or now
    beats = sorted({axis.beat_slot(at, own.interval) for at in own.beats})
    lane.own_beats = [axis.x(at) for at in beats]
    lane.own_title = (
        "last heartbeat of the attempt; earlier ones are not kept" if own.is_last_alone else "heartbeats of the attempt"
    )
    if own.is_last_alone or not beats:
        return
    longest = timedelta(seconds=max(3 * own.interval, 3 * beat_resolution(axis.span)))
    for before, after in zip(beats, [*beats[1:], until], strict=True):
        if after - before > longest:
            lane.own_silences.append(Silence(before, after))
