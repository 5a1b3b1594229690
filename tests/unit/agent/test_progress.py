"""The progress of a job: the last line of a file, reported regularly."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import sys
import threading
from pathlib import Path

import pytest

from controlplane.agent import progress
from controlplane.agent.from_code import reported_file
from controlplane.agent.from_code.progress_file import TAIL_BYTES, ProgressFile
from controlplane.agent.from_code.reported_file import REPORT_PAUSE
from controlplane.agent.limits import MESSAGE_LIMIT
from controlplane.agent.processes.folder import Folder, clear
from tests.support.standin import eventually
from tests.unit.agent.test_logs import Now


@pytest.fixture
def clock(monkeypatch):
    clock = Now()
    monkeypatch.setattr(reported_file, "time", clock)
    return clock


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.setenv("JOB_PROGRESS", str(tmp_path / "progress"))
    return tmp_path / "progress"


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("0.4", {"progress": 0.4}), ("0.4 half a\n", {"progress": 0.4, "message": "half a"}), ("0", {"progress": 0}),
        ("1 done\r\n", {"progress": 1, "message": "done"}), ("0.1 a\n0.2 b\n\n", {"progress": 0.2, "message": "b"}),
        ("1.01 a", {"message": "1.01 a"}), ("-0.1", {"message": "-0.1"}), ("nan x", {"message": "nan x"}),
        ("copying", {"message": "copying"}), ("0.5 a\0b\xff", {"progress": 0.5, "message": "a\ufffdb\ufffd"}),
        ("0.5 " + "x" * (MESSAGE_LIMIT + 1), {"progress": 0.5, "message": "x" * MESSAGE_LIMIT}),
        ("y" * 2 * TAIL_BYTES + "\n0.5 end\n", {"progress": 0.5, "message": "end"}),
    ],
    ids=lambda value: str(value)[:20].encode("unicode_escape").decode(),
)  # fmt: skip
def test_the_last_line_counts(file, text, fields):
    file.write_bytes(text.encode("latin-1"))
    assert ProgressFile(file).take_reports() == [{"event": "PROGRESS", **fields}]


@pytest.mark.parametrize("content", [None, b"", b"\n", b" \n\n"])
def test_an_empty_file_reports_nothing(file, content):
    if content is not None:
        file.write_bytes(content)
    assert ProgressFile(file).take_reports() == []


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: os.symlink("/dev/zero", path)])
def test_the_agent_never_waits_for_a_strange_file_in_place_of_progress(file, make):
    make(file)
    assert ProgressFile(file).take_reports() == ProgressFile(file).close() == []


def test_python_reports_it_with_a_function(file):
    progress(0.25, "a\n quarter\0")
    assert ProgressFile(file).take_reports() == [{"event": "PROGRESS", "progress": 0.25, "message": "a quarter\ufffd"}]
    progress(7)
    assert ProgressFile(file).take_reports() == [{"event": "PROGRESS", "progress": 1.0}]


def test_outside_a_job_or_without_its_folder_the_function_does_nothing(file, monkeypatch):
    monkeypatch.setenv("JOB_PROGRESS", "/no/such/folder/x")
    progress(0.5)
    monkeypatch.delenv("JOB_PROGRESS")
    progress(0.5)
    assert not file.exists()


def test_a_change_within_a_second_waits_and_the_same_line_is_not_reported_again(file, clock):
    one = ProgressFile(file)
    progress(0.1)
    assert one.take_reports()
    one.record_answer()
    progress(0.2)
    clock.now += REPORT_PAUSE * 0.99
    assert (one.take_reports(), one.next_report_at()) == ([], 100 + REPORT_PAUSE)
    progress(0.3)
    clock.now += REPORT_PAUSE * 0.01
    assert one.take_reports() == [{"event": "PROGRESS", "progress": 0.3}]
    one.record_answer()
    clock.now += REPORT_PAUSE
    assert one.take_reports() == []


def test_while_one_is_not_answered_no_other_is_made_and_then_the_last(file, clock):
    one = ProgressFile(file)
    for done in (0.1, 0.2, 0.3):
        progress(done)
        reports = one.take_reports()
        assert bool(reports) == (done == 0.1)
        clock.now += REPORT_PAUSE
    assert one.next_report_at() is None
    one.record_answer()
    assert one.take_reports() == [{"event": "PROGRESS", "progress": 0.3}]


def test_the_last_line_is_reported_at_the_end(file, clock):
    one = ProgressFile(file)
    progress(0.1)
    one.take_reports()
    progress(0.2, "stuck")
    assert one.close() == [{"event": "PROGRESS", "progress": 0.2, "message": "stuck"}]


# The whole agent


def reported_progress(plane, attempt):
    with plane.lock:
        reports = [report for report in plane.reports if report["attempt"] == attempt and report["event"] == "PROGRESS"]
    return [(report.get("progress"), report.get("message")) for report in reports]


def test_scripts_and_callables_are_seen_on_their_way(plane, agent, tmp_path):
    go = tmp_path / "go"
    (tmp_path / "going.py").write_text(
        "import pathlib, time\n"
        "from controlplane.agent import progress\n"
        "def run(go):\n"
        "    progress(0.5, 'half')\n"
        "    while not pathlib.Path(go).exists():\n"
        "        time.sleep(0.02)\n"
        "    progress(0.75)\n"
        "    raise ValueError\n"
    )
    script = (
        f'echo "0.5 half" > "$JOB_PROGRESS"; while [ ! -e {go} ]; do sleep 0.02; done; echo 0.75 >> "$JOB_PROGRESS"'
    )
    agent()
    attempts = [plane.submit(script), plane.submit({"type": "callable", "path": "going:run"}, str(go))]
    for attempt in attempts:
        eventually(lambda attempt=attempt: reported_progress(plane, attempt) == [(0.5, "half")])
    go.touch()
    for attempt in attempts:
        eventually(lambda attempt=attempt: plane.final(attempt))
        assert reported_progress(plane, attempt) == [(0.5, "half"), (0.75, None)]
    assert [plane.final(attempt)["event"] for attempt in attempts] == ["COMPLETED", "FAILED"]


def test_a_chatty_job_costs_a_report_a_second(plane, agent, tmp_path):
    chatty = (
        "import json, os, time; from controlplane.agent import progress; until = time.monotonic() + 2.5\n"
        "while (left := until - time.monotonic()) > 0: progress(1 - left / 2.5)\n"
    )
    agent()
    attempt = plane.submit({"type": "script", "command": [sys.executable, "-c", chatty]})
    eventually(lambda: plane.final(attempt))
    assert 2 <= len(reported_progress(plane, attempt)) <= 4, json.dumps(reported_progress(plane, attempt))


def test_nothing_is_left_behind(plane, agent, tmp_path):
    worker = agent()
    attempt = plane.submit('dirname "$JOB_PROGRESS"; echo 1 > "$JOB_PROGRESS"; touch "$JOB_PROGRESS.draft"')
    folder = os.path.dirname(eventually(lambda: plane.final(attempt))["output"]["stdout"].strip())
    assert os.listdir(folder) == []
    worker.process.terminate()
    worker.exits()
    assert not os.path.exists(folder)


def test_a_worker_whose_folder_somebody_removed_runs_jobs(plane, agent):
    agent("--concurrency", "1")
    first = plane.submit('cd "$(dirname "$JOB_PROGRESS")/.." && pwd')
    folder = Path(eventually(lambda: plane.final(first))["output"]["stdout"].strip())
    shutil.rmtree(folder)
    again = plane.submit('echo "0.5" > "$JOB_PROGRESS"')
    assert eventually(lambda: plane.final(again))["event"] == "COMPLETED"
    assert reported_progress(plane, again)
    assert folder.stat().st_mode & 0o077 == 0


def test_a_folder_that_was_removed_and_made_again_is_held_by_its_agent_as_before(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    folder = Folder()
    shutil.rmtree(folder.path)
    assert folder.keep().is_dir()
    clear()  # as another agent does that starts
    assert folder.path.is_dir(), "it is no dead agent's"
    folder.remove()
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_another_agent_is_about_to_remove_is_made_when_it_has_done_so(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    folder = Folder()
    shutil.rmtree(folder.path)
    folder.path.mkdir()
    taken = os.open(folder.path, os.O_RDONLY)
    fcntl.flock(taken, fcntl.LOCK_EX)
    maker = threading.Thread(target=folder.keep)
    maker.start()
    shutil.rmtree(folder.path)
    os.close(taken)
    maker.join()
    clear()
    assert folder.path.is_dir()
    folder.remove()
