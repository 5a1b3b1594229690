"""The output of jobs: split into lines, limited, sent in order before the end."""

from __future__ import annotations

import sys
import threading
import time

import pytest

from controlplane.agent.from_code import logs
from controlplane.agent.from_code.logs import BUFFER, DELAY, LINES_WITHOUT_DELAY, OVERHEAD, AttemptLog, LineSplitter
from controlplane.agent.limits import LINE_LIMIT, LINES_KEPT
from tests.support.standin import Refuse, eventually


class Now:
    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Now()
    monkeypatch.setattr(logs, "time", clock)
    return clock


def lines_of(reports):
    return [line for report in reports for line in report["lines"]]


def split(*chunks):
    splitter = LineSplitter()
    return [line for chunk in chunks for line in splitter.split_chunk(chunk)] + list(splitter.close())


def test_lines_are_split_wherever_the_chunks_end():
    data = "a\n\nlänger\r\nlast".encode()
    for cut in range(len(data)):
        assert split(data[:cut], data[cut:]) == ["a", "", "länger", "last"]


def test_undecodable_bytes_and_nul_are_made_safe():
    assert split(b"a\xff\0b\n") == ["a\ufffd\ufffdb"]


def test_a_line_at_the_limit_is_whole_and_one_beyond_is_cut():
    assert split(b"x" * LINE_LIMIT + b"\n") == ["x" * LINE_LIMIT]
    (cut,) = split(b"x" * (LINE_LIMIT + 1) + b"\n")
    assert cut == "x" * (LINE_LIMIT - 3) + "…"


def test_a_line_that_never_ends_is_cut_once_and_held_no_longer():
    splitter = LineSplitter()
    lines = [line for _ in range(100) for line in splitter.split_chunk(b"x" * 5000)]
    assert len(lines) == 1
    assert len(splitter._rest) <= LINE_LIMIT
    assert list(splitter.split_chunk(b"y\nnext\n")) == ["next"]


def test_a_cut_is_not_amid_a_character():
    for shift in range(4):
        (cut,) = split(b"x" * shift + "\U0001f600".encode() * LINE_LIMIT)
        assert "\ufffd" not in cut
        assert len(cut.encode()) <= LINE_LIMIT


def test_a_line_waits_for_others_half_a_second_and_a_hundred_wait_for_none(clock):
    log = AttemptLog()
    log.write_chunk("STDOUT", b"a\n")
    assert log.take_reports() == []
    clock.now += DELAY
    assert log.take_reports() == [{"event": "LOG", "stream": "STDOUT", "lines": ["a"], "sequence": 0}]
    log.record_answer()
    log.write_chunk("STDOUT", b"x\n" * (LINES_WITHOUT_DELAY - 1))
    assert log.take_reports() == []
    log.write_chunk("STDOUT", b"x\n")
    assert len(lines_of(log.take_reports())) == LINES_WITHOUT_DELAY


def test_nothing_more_is_given_before_the_answer(clock):
    log = AttemptLog()
    log.write_chunk("STDOUT", b"a\n")
    log.write_chunk("STDERR", b"b\n")
    clock.now += DELAY
    assert len(log.take_reports()) == 2
    log.write_chunk("STDOUT", b"c\n" * LINES_WITHOUT_DELAY)
    log.record_answer()
    assert log.next_report_at() is None
    log.record_answer()
    assert len(lines_of(log.take_reports())) == LINES_WITHOUT_DELAY


def test_the_streams_stay_separate_and_in_order(clock):
    log = AttemptLog()
    for stream, chunk in (("STDOUT", b"1\n2\n"), ("STDERR", b"3\n"), ("STDOUT", b"4\n5")):
        log.write_chunk(stream, chunk)
    reports = log.close()
    assert [(report["sequence"], report["stream"], report["lines"]) for report in reports] == [
        (0, "STDOUT", ["1", "2"]), (1, "STDERR", ["3"]), (2, "STDOUT", ["4", "5"]),
    ]  # fmt: skip


def test_lines_for_a_full_buffer_are_dropped_with_one_mark(clock):
    log = AttemptLog()
    line = b"x" * 4000 + b"\n"
    fit = -(-BUFFER // (4000 + OVERHEAD))
    for _ in range(fit + 7):
        log.write_chunk("STDERR", line)
    kept = []
    while reports := log.take_reports():
        kept += lines_of(reports)
        for _ in reports:
            log.record_answer()
        log.write_chunk("STDOUT", b"still full\n" if len(kept) < fit else b"")
        clock.now += DELAY
    assert len(kept) == fit
    log.write_chunk("STDOUT", b"room again\n")
    mark, room = lines_of(log.close())
    assert mark.startswith("… ") and "lines were dropped" in mark
    assert room == "room again"


def test_after_as_many_lines_as_are_kept_one_more_is_sent_and_no_work_done(clock):
    log = AttemptLog()
    for number in range(LINES_KEPT + 10):
        log.write_chunk("STDOUT", b"%d\n" % number)
    assert len(lines_of(log.close())) == LINES_KEPT + 1
    log.write_chunk("STDOUT", b"x" * 100)
    assert log.close() == []


def test_reports_are_never_larger_than_a_call_may_carry(clock):
    log = AttemptLog()
    for _ in range(200):
        log.write_chunk("STDOUT", b"\1" * LINE_LIMIT + b"\n")
    reports = log.close()
    assert all(sum(map(len, report["lines"])) <= 2 * 64 * 1024 for report in reports)
    assert all(len(report["lines"]) <= 1000 for report in reports)


# The whole agent


def logged(plane, attempt):
    with plane.lock:
        reports = [report for report in plane.reports if report["attempt"] == attempt and report["event"] == "LOG"]
    return [(report["stream"], line) for report in reports for line in report["lines"]]


def finished(plane, attempt):
    def final():
        report = plane.final(attempt)
        return report if report and report["event"] != "LOG" else None

    return eventually(final)


def test_the_lines_of_a_script_come_before_its_end(plane, agent):
    agent()
    attempt = plane.submit("echo out; echo err >&2; printf 'a\\377\\n'")
    assert finished(plane, attempt)["output"]["stdout"] == "out\na\ufffd\n"
    assert sorted(logged(plane, attempt)) == [("STDERR", "err"), ("STDOUT", "a\ufffd"), ("STDOUT", "out")]
    assert plane.events(attempt)[-1] == "COMPLETED"


def test_lines_are_seen_while_the_code_runs(plane, agent, tmp_path):
    (tmp_path / "printing.py").write_text(
        "import time, pathlib\n"
        "def run(go):\n"
        "    print('begun')\n"
        "    while not pathlib.Path(go).exists():\n"
        "        time.sleep(0.02)\n"
    )
    agent()
    go = tmp_path / "go"
    attempts = [
        plane.submit(f"echo begun; while [ ! -e {go} ]; do sleep 0.02; done"),
        plane.submit({"type": "callable", "path": "printing:run"}, str(go)),
    ]
    for attempt in attempts:
        eventually(lambda attempt=attempt: logged(plane, attempt) == [("STDOUT", "begun")])
    go.touch()
    for attempt in attempts:
        assert finished(plane, attempt)["event"] == "COMPLETED"
        assert logged(plane, attempt) == [("STDOUT", "begun")]


def test_a_burst_of_thousands_of_lines_arrives_whole_and_in_order(plane, agent):
    agent()
    attempt = plane.submit("seq 1 9000")
    finished(plane, attempt)
    assert [line for _, line in logged(plane, attempt)] == [str(number) for number in range(1, 9001)]


def test_a_child_that_prints_megabytes_ends_soon_and_is_cut(plane, agent):
    agent()
    attempt = plane.submit(f"{sys.executable} -c \"print(('x' * 99 + chr(10)) * 500_000)\"")
    other = plane.submit("echo small")
    assert finished(plane, other)["event"] == "COMPLETED"
    assert finished(plane, attempt)["event"] == "COMPLETED"
    assert len(logged(plane, attempt)) <= LINES_KEPT + 1


def test_lines_of_an_unreachable_control_plane_come_later_once(plane, agent, tmp_path):
    plane.config["timeout_seconds"] = 1.0
    agent()
    go = tmp_path / "go"
    attempt = plane.submit(f"touch {go}.b; while [ ! -e {go} ]; do sleep 0.02; done; echo late")
    eventually((tmp_path / "go.b").exists)
    plane.down = True
    go.touch()
    time.sleep(0.3)  # nothing to poll for: the test needs a silent control plane
    plane.down = False
    finished(plane, attempt)
    assert logged(plane, attempt) == [("STDOUT", "late")]


def test_a_lost_answer_makes_the_same_lines_come_again_with_their_sequence(plane, agent):
    lost = threading.Event()

    def reports(body):
        if not lost.is_set() and any(report["event"] == "LOG" for report in body["reports"]):
            lost.set()
            plane._reports(body)
            raise Refuse(503)
        return None

    plane.script["reports"] = reports
    agent()
    attempt = plane.submit("echo once")
    finished(plane, attempt)

    def sent():
        with plane.lock:
            calls = [body["reports"] for call, body in plane.calls if call == "reports"]
        return [report for reports in calls for report in reports if report["event"] == "LOG"]

    eventually(lambda: len(sent()) >= 2)
    assert all(one == sent()[0] for one in sent()), "an answer may be late, and then the lines come once more"
    assert logged(plane, attempt) == [("STDOUT", "once")]


def test_refused_lines_are_dropped_silently(plane, agent):
    def reports(body):
        attempts = [(report["attempt"], report["event"] != "LOG") for report in body["reports"]]
        plane._reports(body)
        return {"results": [{"attempt": id, "accepted": accepted, "code": "x"} for id, accepted in attempts]}

    plane.script["reports"] = reports
    worker = agent()
    attempt = plane.submit("echo a; sleep 0.7; echo b")
    assert finished(plane, attempt)["event"] == "COMPLETED"
    assert "refused" not in worker.log
