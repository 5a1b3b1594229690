"""Geometry of attempt lanes."""

import uuid
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace as Row

from controlplane.console.charts.heartbeats import Strip, build_cells
from controlplane.console.charts.lanes import OwnBeats, SignsOfLife, SupersededReport, build_job_chart
from controlplane.core.durations import describe_duration

START = datetime(2026, 1, 1, tzinfo=UTC)
LOST, HEIR = uuid.uuid4(), uuid.uuid4()


def at(seconds):
    return START + timedelta(seconds=seconds)


def attempt(number, server, claimed, started=None, finished=None, state="RUNNING", name="worker", progress=None):
    moments = {"claimed_at": claimed, "started_at": started, "finished_at": finished}
    when = {field: None if seconds is None else at(seconds) for field, seconds in moments.items()}
    fields = {"state": state, "progress": progress, "reason": ""}
    return Row(number=number, server_id=server, server=Row(name=name, timeout=45), **fields, **when)


def job(finished=None, state="RUNNING"):
    return Row(created_at=START, finished_at=None if finished is None else at(finished), state=state)


def bars(lane):
    return {span.kind: (span.x, span.width) for span in lane.spans}


def test_lanes_share_one_axis_and_a_resubmission_leads_to_the_next():
    attempts = [attempt(1, LOST, 10, 20, 50, "RESUBMITTED"), attempt(2, HEIR, 60, 60, 100, "COMPLETED")]
    first, second = build_job_chart(job(100, "COMPLETED"), attempts, [], {}, at(500)).lanes
    assert bars(first)["waiting"] == ("0.00%", "10.00%")
    assert bars(first)["running"] == ("20.00%", "30.00%")
    assert bars(second)["waiting"] == ("50.00%", "10.00%")
    assert (first.end.kind, first.end.x, first.arrow) == ("RESUBMITTED", "50.00%", True)
    assert (second.end.kind, second.end.x, second.arrow) == ("COMPLETED", "100.00%", False)


def test_a_job_without_an_attempt_is_a_lane_that_waits():
    (lane,) = build_job_chart(job(state="PENDING"), [], [], {}, at(100)).lanes
    assert bars(lane) == {"waiting": ("0.00%", "100.00%")}


def test_a_job_that_waits_again_has_a_lane_for_it():
    lanes = build_job_chart(job(state="PENDING"), [attempt(1, LOST, 0, 0, 40, "RESUBMITTED")], [], {}, at(100)).lanes
    assert bars(lanes[1]) == {"waiting": ("40.00%", "60.00%")}
    assert lanes[0].arrow


def test_a_running_attempt_shows_its_progress_and_an_ended_one_does_not():
    attempts = [attempt(1, LOST, 0, 0, 40, "RESUBMITTED", progress=0.9), attempt(2, HEIR, 40, 40, progress=0.0)]
    assert [lane.progress for lane in build_job_chart(job(), attempts, [], {}, at(100)).lanes] == ["", "0 %"]


def test_silence_is_hatched_and_the_loss_is_marked():
    signs = {LOST: SignsOfLife(3, [at(0), at(3), at(6)], [at(51)])}
    (lane,) = build_job_chart(job(), [attempt(1, LOST, 0, 0)], [], signs, at(100)).lanes
    assert lane.beats == ["0.00%", "3.00%", "6.00%"]
    assert [(gap.x, gap.width) for gap in lane.gaps] == [("6.00%", "94.00%")]
    assert [(mark.kind, mark.x) for mark in lane.marks] == [("lost", "51.00%")]


def test_the_timeout_is_hatched_for_a_server_lost_before_its_first_heartbeat():
    signs = {LOST: SignsOfLife(3, [], [at(51)])}
    (lane,) = build_job_chart(job(), [attempt(1, LOST, 0, 0)], [], signs, at(100)).lanes
    assert [(gap.x, gap.width) for gap in lane.gaps] == [("6.00%", "94.00%")]
    (lane,) = build_job_chart(job(), [attempt(1, LOST, 20, 20)], [], signs, at(100)).lanes
    assert [(gap.x, gap.width) for gap in lane.gaps] == [("20.00%", "80.00%")]
    (lane,) = build_job_chart(job(), [attempt(1, LOST, 60, 60)], [], signs, at(100)).lanes
    assert lane.gaps == [], "its loss was before, and of the rest nothing is known"


def test_steady_beats_leave_no_gap_however_long_the_job():
    beats = [at(3 * number) for number in range(1200)]
    (lane,) = build_job_chart(job(), [attempt(1, LOST, 0, 0)], [], {LOST: SignsOfLife(3, beats)}, at(3600)).lanes
    assert len(lane.beats) == 120
    assert lane.gaps == []


def test_a_report_that_came_much_later_does_not_squeeze_the_rest():
    attempts = [attempt(1, LOST, 0, 0, 40, "RESUBMITTED"), attempt(2, HEIR, 50, 50, 100, "COMPLETED")]
    late = [SupersededReport(1, at(90_000), "COMPLETED", "attempt_superseded")]
    first, second = build_job_chart(job(100, "COMPLETED"), attempts, late, {}, at(99_000)).lanes
    assert [(mark.kind, mark.x) for mark in first.marks] == [("superseded", "100.00%")]
    assert second.end.x == "80.00%"


def test_the_axis_has_few_and_round_numbers():
    words = [tick[1] for tick in build_job_chart(job(600, "FAILED"), [], [], {}, at(600)).axis]
    assert words == ["0 s", "2 min", "4 min", "6 min", "8 min", "10 min"]


def test_missing_heartbeats_are_hollow():
    drawn = build_cells([18, 6, 3, 0], 3, silence=6)
    assert drawn == [True, True, True, False, False, False, True, False]
    assert build_cells([0], 3, silence=90_000) == [False] * 60
    assert build_cells([], 3, silence=5) == []


def test_the_last_sixty_are_drawn_the_latest_at_the_right():
    beats = [3.0 * number for number in reversed(range(100))]
    assert build_cells(beats, 3, silence=None) == [True] * 60
    assert build_cells(beats, 3, silence=6) == [True] * 59 + [False]
    strip = Strip([True, True, False, True])
    assert strip.beats == "M448 8h14M472 8h6"
    assert strip.gaps.startswith("M464.75") and strip.missed == 1


def test_durations_have_at_most_two_units():
    texts = [describe_duration(seconds) for seconds in (0.9, 59, 60, 61, 599, 600, 3660, 36_000, 90_000)]
    assert texts == ["0 s", "59 s", "1 min", "1 min 1 s", "9 min 59 s", "10 min", "1 h 1 min", "10 h", "1 d 1 h"]


def own_lane(*seconds, interval=3, finished=None, last=None):
    own = OwnBeats(interval, [at(second) for second in seconds])
    own.add_last(last and at(last))
    beats = {LOST: SignsOfLife(3, [at(3 * number) for number in range(34)])}
    attempts = [attempt(1, LOST, 0, 0, finished, "COMPLETED" if finished else "RUNNING")]
    (lane,) = build_job_chart(job(finished), attempts, [], beats, at(100), own_beats={1: own}).lanes
    return lane


def test_a_hanging_attempt_is_hatched_while_its_server_sends_heartbeats():
    lane = own_lane(0, 3, 6)
    assert lane.own_beats == ["0.00%", "3.00%", "6.00%"]
    assert [(gap.x, gap.width) for gap in lane.own_gaps] == [("6.00%", "94.00%")]
    assert lane.gaps == []


def test_nothing_is_expected_of_an_attempt_after_its_end():
    assert own_lane(0, 30, 60, interval=30, finished=100).own_gaps == []


def test_without_kept_heartbeats_only_the_last_one_is_drawn_and_no_silence():
    lane = own_lane(last=50)
    assert (lane.own_beats, lane.own_gaps) == (["50.00%"], [])
    assert "not kept" in lane.own_title
