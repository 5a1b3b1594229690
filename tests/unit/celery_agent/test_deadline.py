"""The deadline that the heart writes and the worker's processes read, and the check of a worker."""

from __future__ import annotations

import subprocess
import sys

from controlplane.agent.celery.deadline import Deadline, watch
from controlplane.agent.fence import read_uptime
from controlplane.agent.fitness import status_file
from tests.support.processes import eventually
from tests.support.standin import ROOT


def test_the_deadline_is_read_by_another_process_and_stops_it():
    deadline = Deadline.made()
    code = (
        "import sys, time; from controlplane.agent.celery.deadline import Deadline, watch;"
        f"watch(Deadline({deadline.descriptor})); time.sleep(60)"
    )
    child = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, pass_fds=[deadline.descriptor])
    deadline.write(read_uptime() + 3600)
    assert deadline.read() > read_uptime() and not deadline.has_passed()
    assert child.poll() is None
    deadline.write(read_uptime())
    assert child.wait(30) == -9


def test_no_deadline_never_passes():
    deadline = Deadline.made()
    assert deadline.read() is None and not deadline.has_passed()
    stopped = []
    deadline.write(read_uptime() - 1)
    watch(deadline, lambda: stopped.append(1))
    eventually(lambda: stopped)


def test_a_stuck_worker_with_heartbeats_fails_its_check(tmp_path, monkeypatch):
    monkeypatch.setenv("CONTROLPLANE_RUNTIME_DIR", str(tmp_path))
    status_file.write_status("w@host", "id", "RUNNING", 45, read_uptime())
    assert status_file.check_status("w@host") is None
    status_file.write_status("w@host", "id", "RUNNING", 45, read_uptime(), "it received nothing for 61 s")
    assert status_file.check_status("w@host") == "it received nothing for 61 s"
