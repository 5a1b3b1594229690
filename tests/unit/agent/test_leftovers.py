"""Reports that nobody answers before an agent ends are saved on disk. Its next start sends them."""

from __future__ import annotations

import json
import signal
import stat
import time
from pathlib import Path

import pytest

from controlplane.agent.api import leftovers
from controlplane.agent.api.client import AgentClient
from controlplane.agent.api.registration import RegisteredServer, ServerConfig
from controlplane.agent.shutdown import LAST_ANSWERS_TIMEOUT
from tests.support.standin import Refuse, eventually

CONFIG = ServerConfig(1.0, 4.0, 5.0, 30.0, 30.0, "IMMEDIATELY")


def kept(tmp_path):
    return list((tmp_path / "state" / "a%2F1").glob("*.json"))


def working(plane, agent, tmp_path, *arguments):
    """Return an agent, its running attempt, and a function that lets the job finish."""
    worker, go = agent(*arguments), tmp_path / "go"
    attempt = plane.submit(f"touch {go}.began; while [ ! -e {go} ]; do sleep 0.02; done; echo done")
    eventually((tmp_path / "go.began").exists)
    return worker, attempt, go.touch


def unheard(plane, agent, tmp_path):
    """Return the attempt of an agent that ended before the report of its completed job was answered."""
    worker, attempt, finish = working(plane, agent, tmp_path)
    plane.down = True
    finish()
    worker.process.send_signal(signal.SIGTERM)
    eventually(lambda: kept(tmp_path))
    worker.process.send_signal(signal.SIGTERM)
    assert worker.exits() == 1
    return attempt


def test_an_ending_agent_without_answers_retries_for_its_grace_period(plane, agent, tmp_path):
    worker, attempt, finish = working(plane, agent, tmp_path, "--grace", "600")
    plane.down = True
    worker.process.send_signal(signal.SIGTERM)
    finish()
    eventually(lambda: kept(tmp_path), "the report is on disk already")
    time.sleep(LAST_ANSWERS_TIMEOUT + 0.5)  # what it had until then
    assert worker.process.poll() is None
    plane.down = False
    assert worker.exits() == 0
    assert plane.final(attempt)["event"] == "COMPLETED"
    assert plane.states()[-1] == "TERMINATED_GRACEFULLY"
    assert kept(tmp_path) == []


def test_reports_unanswered_after_the_grace_period_are_sent_first_by_the_next_start(plane, agent, tmp_path):
    worker, attempt, finish = working(plane, agent, tmp_path, "--grace", "0.5")
    plane.down = True
    finish()
    worker.process.send_signal(signal.SIGTERM)
    assert worker.exits() == 1
    [file] = kept(tmp_path)
    assert (stat.S_IMODE(file.stat().st_mode), stat.S_IMODE(file.parent.stat().st_mode)) == (0o600, 0o700)
    assert "secret" not in file.read_text()  # the token of the fleet
    before = len(plane.calls)
    plane.down = False
    agent()
    eventually(lambda: plane.count("servers") == 2)
    assert [call for call, _ in plane.calls[before:]][:2] == ["reports", "servers"]
    assert plane.final(attempt)["output"]["stdout"] == "done\n"
    eventually(lambda: kept(tmp_path) == [])


def test_a_second_signal_ends_it_at_once_and_leaves_the_reports(plane, agent, tmp_path):
    attempt = unheard(plane, agent, tmp_path)
    assert len(kept(tmp_path)) == 1
    plane.down = False
    agent()
    assert eventually(lambda: plane.final(attempt))["event"] == "COMPLETED"


@pytest.mark.parametrize(
    ("status", "code"), [(409, "server_not_running"), (410, "server_unknown"), (401, "token_revoked")]
)
def test_refused_reports_of_an_earlier_start_are_dropped(plane, agent, tmp_path, status, code):
    unheard(plane, agent, tmp_path)

    def reports(_):
        raise Refuse(status, code)

    plane.script["reports"] = reports
    plane.down = False
    worker = agent()
    eventually(lambda: kept(tmp_path) == [])
    eventually(lambda: plane.count("servers") == 2)
    assert "Reports of an earlier start dropped" in worker.log


def test_superseded_reports_of_an_earlier_start_are_dropped_with_a_line(plane, agent, tmp_path):
    attempt = unheard(plane, agent, tmp_path)

    def reports(body):
        return {
            "results": [
                {"attempt": report["attempt"], "accepted": False, "code": "attempt_superseded"}
                for report in body["reports"]
            ]
        }

    plane.script["reports"] = reports
    plane.down = False
    worker = agent()
    eventually(lambda: kept(tmp_path) == [])
    line = f"Report refused attempt={attempt} report=COMPLETED code=attempt_superseded"
    eventually(lambda: line in " ".join(worker.log.split()))


def test_unanswered_reports_of_an_earlier_start_stay_and_are_sent_again(plane, agent, tmp_path):
    attempt = unheard(plane, agent, tmp_path)
    worker = agent()
    eventually(lambda: "unreachable" in worker.log)
    worker.process.send_signal(signal.SIGTERM)
    assert worker.exits() == 0
    assert len(kept(tmp_path)) == 1
    worker = agent()
    eventually(lambda: worker.log.count("unreachable") > 1)
    plane.down = False
    assert eventually(lambda: plane.final(attempt))["event"] == "COMPLETED"
    eventually(lambda: kept(tmp_path) == [])


def test_a_server_that_was_declared_dead_leaves_nothing(plane, agent, tmp_path):
    worker, _, finish = working(plane, agent, tmp_path)
    tried = []

    def reports(_):
        tried.append(1)
        raise Refuse(503)

    def heartbeat(_):
        if tried:
            raise Refuse(409, "server_not_running")

    plane.script.update(reports=reports, heartbeat=heartbeat)
    finish()
    assert worker.exits() == 1
    assert kept(tmp_path) == []


def test_an_unusable_folder_is_logged_and_does_not_keep_an_agent_from_ending(plane, agent, tmp_path):
    (tmp_path / "state").touch()
    worker, _, finish = working(plane, agent, tmp_path)
    plane.down = True
    finish()
    for _ in range(2):
        worker.process.send_signal(signal.SIGTERM)
        eventually(lambda: "Reports not kept" in worker.log)
    assert worker.exits() == 1


def test_reports_for_another_control_plane_or_in_unreadable_files_stay(tmp_path):
    here, there = AgentClient("http://here"), AgentClient("http://there")
    report = {"attempt": "a", "event": "COMPLETED", "output": "\ud800"}
    leftovers.save_reports(tmp_path / "x", RegisteredServer(there, "one", "token", CONFIG, None, 0.0), [report])
    (tmp_path / "x" / "two.json").write_text("{")
    assert leftovers.load_leftovers(tmp_path / "x", here) == []
    assert len(leftovers.load_leftovers(tmp_path / "x", there)) == 1
    assert json.loads((tmp_path / "x" / "one.json").read_text())["reports"] == [report]
    assert leftovers.load_leftovers(tmp_path / "none", here) == []


def test_a_folder_of_somebody_else_is_not_used(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "x").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(PermissionError):
        leftovers.save_reports(
            tmp_path / "x",
            RegisteredServer(AgentClient("http://here"), "one", "t", CONFIG, None, 0.0),
            [{"attempt": "a"}],
        )
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_the_folder_is_one_of_the_name_in_the_state_of_the_user(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert leftovers.state_folder(None, "a/1") == tmp_path / "controlplane-agent" / "a%2F1"
    assert leftovers.state_folder("/elsewhere", "b") == Path("/elsewhere/b")
    assert leftovers.state_folder(None, None) == leftovers.state_folder(None, None)
