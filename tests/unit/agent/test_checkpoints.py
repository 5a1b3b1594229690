"""The checkpoint of a job for its next attempt: JSON in a file, reported regularly, and found by the next attempt."""

from __future__ import annotations

import json
import os

import pytest

from controlplane.agent import checkpoint, context
from controlplane.agent.from_code import reported_file
from controlplane.agent.from_code.checkpoint_file import CheckpointFile
from controlplane.agent.from_code.reported_file import REPORT_PAUSE
from controlplane.agent.limits import CHECKPOINT_LIMIT
from tests.support.standin import eventually
from tests.unit.agent.test_logs import Now


@pytest.fixture
def clock(monkeypatch):
    clock = Now()
    monkeypatch.setattr(reported_file, "time", clock)
    return clock


@pytest.fixture
def path(tmp_path, monkeypatch):
    monkeypatch.setenv("JOB_CHECKPOINT", str(tmp_path / "checkpoint"))
    return tmp_path / "checkpoint"


@pytest.fixture
def refusals():
    return []


@pytest.fixture
def file(path, refusals):
    return CheckpointFile(path, refusals.append)


def kept(value):
    return [{"event": "CHECKPOINT", "value": value}]


@pytest.mark.parametrize("value", [0, "", False, [], {}, "\u00e9\U0001f600", {"row": 40_000}, None, 1.5])
def test_python_keeps_json_and_finds_it(file, value):
    checkpoint(value)
    assert file.take_reports() == kept(value)
    assert context.checkpoint == value


def test_a_script_writes_json_however_it_is_spaced(file, path):
    path.write_text('\n{\n  "row": 1\n}\n')
    assert file.take_reports() == kept({"row": 1})


def test_the_checkpoint_of_an_earlier_attempt_is_found_and_not_reported_again(file, path):
    file.write_previous({"row": 1})
    assert json.loads(path.read_text()) == context.checkpoint == {"row": 1}
    assert file.take_reports() == file.close() == []


def test_without_one_there_is_no_file_and_nothing_is_found(file, path):
    file.write_previous(None)
    assert not path.exists()
    assert context.checkpoint is None


def test_outside_a_job_nothing_happens(monkeypatch):
    monkeypatch.delenv("JOB_CHECKPOINT", raising=False)
    checkpoint({"row": 1})
    assert (context.checkpoint, context.job, context.attempt) == (None, None, None)


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("x" * (CHECKPOINT_LIMIT - 1), f"the checkpoint has {CHECKPOINT_LIMIT + 1} bytes of JSON; the limit is 65536"),
        ({1, 2}, "the checkpoint is not JSON"),
        (float("nan"), "the checkpoint is not JSON"),
    ],
    ids=["too large", "a set", "not a number"],
)
def test_a_value_that_cannot_be_kept_raises_in_the_code_and_the_last_one_stays(file, value, why):
    checkpoint({"row": 1})
    with pytest.raises(ValueError, match=why):
        checkpoint(value)
    assert file.take_reports() == kept({"row": 1})


def test_the_largest_is_kept(file):
    checkpoint("x" * (CHECKPOINT_LIMIT - 2))
    assert file.take_reports() == kept("x" * (CHECKPOINT_LIMIT - 2))


def test_a_half_written_file_is_read_again_later(file, path, clock, refusals):
    path.write_text('{"row":')
    assert file.take_reports() == []
    path.write_text('{"row": 1}')
    clock.now += REPORT_PAUSE
    assert file.take_reports() == kept({"row": 1})
    assert refusals == []


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("row 1", "the checkpoint is not JSON: "),
        ("NaN", "the checkpoint is not JSON: "),
        ("1e999", "the checkpoint is not JSON: "),
        (json.dumps("x" * CHECKPOINT_LIMIT), "the checkpoint has 65538 bytes of JSON; the limit is 65536"),
        (" " * CHECKPOINT_LIMIT * 5, "the checkpoint has more than 65536 bytes of JSON"),
        ("[" * 200 + "]" * 200, "the checkpoint is nested more than 90 levels deep"),
    ],
    ids=["no JSON", "NaN", "infinite", "too large", "much too large", "too deep"],
)
def test_a_file_that_cannot_be_kept_is_reported_once(file, path, clock, refusals, text, why):
    path.write_text(text)
    for _ in range(3):
        assert file.take_reports() == []
        clock.now += REPORT_PAUSE
    assert len(refusals) == 1
    assert refusals[0].startswith(why)


def test_at_the_end_a_wrong_file_is_reported_at_once(file, path, refusals):
    path.write_text("no")
    assert file.close() == []
    assert len(refusals) == 1


def test_nul_and_lone_surrogates_are_replaced(file, path):
    path.write_text('"a\\u0000\\ud800"')
    assert file.take_reports() == kept("a\ufffd?")


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: os.symlink("/dev/zero", path)])
def test_the_agent_never_waits_for_a_strange_file_in_place_of_a_checkpoint(file, path, make):
    make(path)
    assert file.take_reports() == file.close() == []


def test_an_unanswered_report_delays_the_next_and_the_last_is_reported_at_the_end(file, path, clock):
    for row in (1, 2):
        checkpoint(row)
        assert file.take_reports() == (kept(1) if row == 1 else [])
        clock.now += REPORT_PAUSE
    assert file.next_report_at() is None
    file.record_answer()
    assert file.take_reports() == kept(2)
    checkpoint(3)
    assert file.close() == kept(3)


# The whole agent


def reported_checkpoints(plane, attempt):
    with plane.lock:
        reports = [report for report in plane.reports if report["attempt"] == attempt]
    return [report["value"] for report in reports if report["event"] == "CHECKPOINT"]


def test_scripts_and_callables_find_what_was_kept_and_keep_more(plane, agent, tmp_path):
    (tmp_path / "counting.py").write_text(
        "from controlplane.agent import checkpoint, context\n"
        "def run(_):\n"
        "    found = context.checkpoint\n"
        "    checkpoint({'row': found['row'] + 1})\n"
        "    return [found, context.attempt]\n"
    )
    script = 'cat "$JOB_CHECKPOINT"; echo \'{"row": 8}\' > "$JOB_CHECKPOINT"; exit 3'
    agent()
    attempts = [
        plane.submit(script, checkpoint={"row": 7}),
        plane.submit({"type": "callable", "path": "counting:run"}, checkpoint={"row": 7}),
    ]
    failed, completed = (eventually(lambda attempt=attempt: plane.final(attempt)) for attempt in attempts)
    assert failed["error"]["code"] == "EXIT_3"
    assert completed["output"] == [{"row": 7}, 1]
    assert [reported_checkpoints(plane, attempt) for attempt in attempts] == [[{"row": 8}]] * 2
    with plane.lock:
        lines = [line for report in plane.reports if report["event"] == "LOG" for line in report["lines"]]
    assert json.loads(lines[0]) == {"row": 7}
    for attempt in attempts:
        events = plane.events(attempt)
        assert events.index("CHECKPOINT") < len(events) - 1


def test_a_checkpoint_is_reported_while_the_code_runs(plane, agent, tmp_path):
    go = tmp_path / "go"
    agent()
    attempt = plane.submit(f'echo 1 > "$JOB_CHECKPOINT"; while [ ! -e {go} ]; do sleep 0.02; done')
    eventually(lambda: reported_checkpoints(plane, attempt) == [1])
    go.touch()
    assert eventually(lambda: plane.final(attempt))["event"] == "COMPLETED"


def test_code_that_is_given_back_keeps_its_last_word(plane, agent):
    worker = agent("--grace", "1")
    attempt = plane.submit(
        'trap \'echo 2 > "$JOB_CHECKPOINT"; exit 0\' TERM; echo 1 > "$JOB_CHECKPOINT"; while :; do sleep 0.02; done'
    )
    eventually(lambda: reported_checkpoints(plane, attempt) == [1])
    worker.process.terminate()
    worker.process.terminate()
    eventually(lambda: plane.final(attempt))
    assert reported_checkpoints(plane, attempt)[-1] == 2


def test_a_checkpoint_that_cannot_be_kept_is_in_the_log_of_the_job(plane, agent):
    agent()
    attempt = plane.submit('echo no > "$JOB_CHECKPOINT"')
    assert eventually(lambda: plane.final(attempt))["event"] == "COMPLETED"
    with plane.lock:
        lines = [line for report in plane.reports if report["event"] == "LOG" for line in report["lines"]]
    assert len(lines) == 1
    assert lines[0].startswith("the checkpoint is not JSON") and lines[0].endswith("it is not kept")
    assert reported_checkpoints(plane, attempt) == []
