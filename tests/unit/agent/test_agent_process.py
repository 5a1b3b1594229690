"""The whole agent, as a process, against a scripted control plane."""

from __future__ import annotations

import signal
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

from tests.support.standin import ControlPlane, Refuse, alive, eventually

NAP = "echo $$ > {0}; sleep 100 & echo $! >> {0}; wait"


def pids(file: Path) -> list[int]:
    """Return the process ids of the shell and of the child that it started with NAP."""
    return eventually(lambda: (words := file.read_text().split()) and len(words) == 2 and [int(x) for x in words]
                      if file.exists() else None, "both pids")  # fmt: skip


def napping(plane: ControlPlane, file: Path) -> tuple[str, list[int]]:
    attempt = plane.submit(NAP.format(file))
    return attempt, pids(file)


def gone(processes: list[int]) -> bool:
    return not any(alive(pid) for pid in processes)


def test_it_registers_and_sends_heartbeats_and_claims_and_reports(plane, agent):
    attempt = plane.submit({"type": "script", "command": ["sh", "-c", "cat; echo $JOB_ATTEMPT $JOB_ID"]}, {"n": 1})
    worker = agent("--tags", "gpu", "--cluster", "blue")
    final = eventually(lambda: plane.final(attempt))
    job = next(item["job"] for items in plane.claims.values() for item in items)
    assert final == {
        "attempt": attempt, "event": "COMPLETED", "output": {"exit_code": 0, "stdout": f'{{"n": 1}}1 {job["id"]}\n'}
    }  # fmt: skip
    calls = [call for call, _ in plane.calls]
    assert calls[0] == "servers" and calls.index("heartbeat") < calls.index("claims")
    registration = plane.calls[0][1]
    assert (registration["type"], registration["cluster"], registration["max_concurrent"]) == ("WORKER", "blue", 4)
    assert {"gpu", "script", "python"} <= set(registration["tags"])
    eventually(lambda: worker.check().returncode == 0)
    assert f"Worker registered with ID: {plane.registrations[0]}" in worker.log
    assert "Heartbeat sent successfully" in worker.log


def test_its_heartbeats_have_the_cpu_and_memory_of_its_own_process_and_of_its_tasks(plane, agent):
    def of_last_beat():
        beats = [body["metrics"] for call, body in plane.calls if call == "heartbeat" and "metrics" in body]
        return beats[-1] if beats else {}

    agent()
    idle = eventually(of_last_beat)
    assert idle["process_memory_mib"] > 10 and idle["process_cpu_percent"] >= 0
    assert (idle["tasks_cpu_seconds"], idle["tasks_memory_mib"]) == (0, 0)
    plane.submit("while :; do :; done")
    eventually(lambda: of_last_beat()["tasks_cpu_seconds"] > 0 and of_last_beat()["tasks_memory_mib"] > 0)
    assert all(type(value) in (int, float) for value in of_last_beat().values()), "else a heartbeat is no plain one"


def test_code_begins_only_after_its_start_was_accepted(plane, agent, tmp_path):
    witness = tmp_path / "ran"
    attempt = plane.submit(f"touch {witness}")
    plane.superseded.add(attempt)
    worker = agent("--concurrency", "1")
    eventually(lambda: plane.refused)
    later = plane.submit("true")
    eventually(lambda: plane.final(later))
    assert not witness.exists() and [report["event"] for report in plane.refused] == ["STARTED"]
    assert "attempt_superseded" in worker.log


def test_a_claim_whose_answer_was_lost_is_repeated_with_the_same_request_id(plane, agent):
    bodies = []

    def claims(body):
        bodies.append(body)
        if len(bodies) == 1:
            plane._claims(body)  # it was applied, but the answer is lost
            raise Refuse(500)

    plane.script["claims"] = claims
    attempt = plane.submit("true")
    agent()
    assert eventually(lambda: plane.final(attempt))["event"] == "COMPLETED"
    assert bodies[0] == bodies[1]


def test_failures_have_a_reason(plane, agent):
    cases = {
        plane.submit("echo oops >&2; exit 3"): ("EXIT_3", "exited with status 3", "oops\n"),
        plane.submit("kill -9 $$"): ("WORKER_CRASHED", "SIGKILL", ""),
        plane.submit({"type": "script", "command": ["/no/such/command"]}): ("CANNOT_START", "/no/such/command", ""),
        plane.submit({"type": "script", "command": []}): ("CANNOT_START", "not empty", ""),
        plane.submit("sleep 100", timeout=0.2): ("STEP_TIMEOUT", "exceeded its timeout of 0.2 s", ""),
    }
    agent()
    for attempt, (code, message, traceback) in cases.items():
        error = eventually(lambda attempt=attempt: plane.final(attempt))["error"]
        assert (error["code"], error["traceback"]) == (code, traceback)
        assert message in error["message"]


def test_callables_run_with_the_working_directory_importable(plane, agent, tmp_path):
    (tmp_path / "mine.py").write_text(
        "import os\n"
        "def double(n):\n    print('noise' * 100_000)\n    return {'n': 2 * n, 'attempt': os.environ['JOB_ATTEMPT']}\n"
        "def odd(_):\n    return 'a\\0b\\ud800'\n"
        "def fail(_):\n    raise LookupError('no such thing')\n"
        "def strange(_):\n    return {1, 2}\n"
        "def huge(_):\n    return 'x' * 2_000_000\n"
        "def secret(_):\n    return os.environ.get('CONTROLPLANE_TOKEN')\n"
        "def exit(_):\n    os._exit(0)\n"
    )

    def call(name, payload=None):
        return plane.submit({"type": "callable", "path": f"mine:{name}"}, payload)

    names = ["double", "odd", "fail", "strange", "huge", "secret", "exit", "missing"]
    attempts = {name: call(name, 21) for name in names}
    agent()
    finals = {name: eventually(lambda id=id: plane.final(id)) for name, id in attempts.items()}
    assert finals["double"]["output"] == {"n": 42, "attempt": "1"}
    assert finals["odd"]["output"] == "a\N{REPLACEMENT CHARACTER}b?"
    assert finals["secret"]["output"] is None
    assert {name: final["error"]["code"] for name, final in finals.items() if final["event"] == "FAILED"} == {
        "fail": "LookupError",
        "strange": "RESULT_NOT_JSON",
        "huge": "OUTPUT_TOO_LARGE",
        "exit": "NO_RESULT",
        "missing": "AttributeError",
    }
    assert "no such thing" in finals["fail"]["error"]["traceback"]


def test_a_handler_is_called_with_the_payload(plane, agent, tmp_path):
    (tmp_path / "mails.py").write_text("def send(payload):\n    return {'sent': payload}\n")
    known, unknown = ({"type": "handler", "name": name} for name in ("mail", "post"))
    attempts = [plane.submit(known, "hello"), plane.submit(unknown)]
    agent("--allow", "handler", "--handler", "mail=mails:send")
    assert eventually(lambda: plane.final(attempts[0]))["output"] == {"sent": "hello"}
    assert eventually(lambda: plane.final(attempts[1]))["reason"] == "not_allowed"
    registration = plane.calls[0][1]
    assert "handler:mail" in registration["tags"] and "script" not in registration["tags"]


def test_an_action_that_is_not_allowed_is_given_back_before_it_starts(plane, agent):
    cases = [{"type": "script", "runner": "docker", "command": "true"}, {"type": "callable", "path": "os:getcwd"}]
    attempts = [plane.submit(action) for action in cases]
    agent("--allow", "script,callable:myapp.*")
    for attempt in attempts:
        final = eventually(lambda attempt=attempt: plane.final(attempt))
        assert final == {"attempt": attempt, "event": "RELEASED", "reason": "not_allowed", "begun": False}
        assert plane.events(attempt) == ["RELEASED"]


def test_cancel_kills_the_whole_process_group(plane, agent, tmp_path):
    agent()
    attempt, processes = napping(plane, tmp_path / "pids")
    plane.heartbeat["cancel"] = [attempt]
    assert eventually(lambda: plane.final(attempt)) == {"attempt": attempt, "event": "CANCELLED"}
    eventually(lambda: gone(processes))
    assert plane.events(attempt) == ["STARTED", "CANCELLED"]


def test_a_lost_attempt_is_killed_and_not_reported(plane, agent, tmp_path):
    agent()
    attempt, processes = napping(plane, tmp_path / "pids")
    plane.heartbeat["lost"] = [attempt]
    eventually(lambda: gone(processes))
    later = plane.submit("true")
    eventually(lambda: plane.final(later))
    assert plane.events(attempt) == ["STARTED"]


def test_a_lost_attempt_is_listed_as_stopped_at_once_but_not_before_it_has_stopped(plane, agent, tmp_path):
    agent()
    attempt, processes = napping(plane, tmp_path / "pids")
    running_when_said = []

    def heartbeat(body):
        if attempt in body["stopped"]:
            running_when_said.append([pid for pid in processes if alive(pid)])

    plane.script["heartbeat"] = heartbeat
    # Nothing is due for a minute after that answer: a heartbeat within this test comes at once.
    plane.heartbeat |= {"lost": [attempt], "heartbeat_interval_seconds": 60.0}
    eventually(lambda: running_when_said)
    assert running_when_said[0] == []


def test_an_agent_frozen_while_terminating_stops_its_jobs_by_the_shorter_fence(plane, agent, tmp_path):
    plane.fence_after = 60.0  # what an answer to RUNNING promised
    plane.config |= {"timeout_seconds": 2.0, "termination_grace_period_seconds": 0.5}
    worker = agent()
    _, processes = napping(plane, tmp_path / "pids")

    def heartbeat(body):
        if body["state"] == "TERMINATING":
            worker.process.send_signal(signal.SIGSTOP)
            raise Refuse(503, "the answer is lost")

    plane.script["heartbeat"] = heartbeat
    worker.process.send_signal(signal.SIGTERM)
    eventually(lambda: gone(processes))
    worker.process.send_signal(signal.SIGCONT)


def test_code_whose_start_is_accepted_past_the_fence_does_not_begin(plane, agent, tmp_path):
    plane.fence_after = 0.5
    agent()
    ran = tmp_path / "ran"
    down = threading.Event()

    def reports(_):
        # Accepted, but the answer comes when the fence has passed, because no heartbeat was answered until then.
        if not down.is_set():
            down.set()
            plane.script["heartbeat"] = lambda _: (_ for _ in ()).throw(Refuse(503))
            plane.lock.release()
            try:
                time.sleep(1.0)  # past the fence: what is tested is this moment
            finally:
                plane.lock.acquire()

    plane.script["reports"] = reports
    attempt = plane.submit(f"touch {ran}")
    released = {"attempt": attempt, "event": "RELEASED", "reason": "fenced", "begun": False}
    assert eventually(lambda: plane.final(attempt)) == released
    assert not ran.exists()


def test_runner_heartbeats_list_what_runs(plane, agent, tmp_path):
    agent()
    attempt, processes = napping(plane, tmp_path / "pids")
    listed = {"attempt": attempt, "pid": processes[0]}
    eventually(lambda: any(listed in body.get("running", []) for call, body in plane.calls if call == "heartbeat"))


def wait_for_beats(plane):
    beats = plane.count("heartbeat")
    eventually(lambda: plane.count("heartbeat") > beats + 3)


def test_maintenance_is_reported_and_stops_claims(plane, agent):
    agent()
    eventually(lambda: plane.count("claims"))
    plane.heartbeat["maintenance"] = True
    eventually(lambda: plane.states()[-1] == "MAINTENANCE")
    wait_for_beats(plane)  # a claim that was under way has been answered
    attempt = plane.submit("true")
    wait_for_beats(plane)
    assert plane.events(attempt) == []
    plane.heartbeat["maintenance"] = False
    eventually(lambda: plane.final(attempt))
    assert plane.states() == ["RUNNING", "MAINTENANCE", "RUNNING"]


def test_a_drain_past_its_deadline_gives_back_what_is_left(plane, agent, tmp_path):
    agent()
    attempt, processes = napping(plane, tmp_path / "pids")
    plane.heartbeat["drain"] = {"deadline": (datetime.now(UTC) + timedelta(seconds=1)).isoformat()}
    assert eventually(lambda: plane.final(attempt))["reason"] == "drain_deadline"
    assert gone(processes)


def test_an_error_before_the_end_of_a_drain_is_failed_and_a_kill_by_the_drain_is_not(plane, agent, tmp_path):
    go = tmp_path / "go"
    wait = "while [ ! -e {} ]; do sleep 0.02; done"
    attempts = {
        "own": plane.submit(f"touch {go}.own; {wait.format(go)}; exit 3"),
        "interrupted": plane.submit(f"trap 'exit 1' TERM; touch {go}.interrupted; {wait.format('/no/such/file')}"),
    }
    agent()
    for name in attempts:
        eventually((tmp_path / f"go.{name}").exists)
    plane.heartbeat["drain"] = {"deadline": (datetime.now(UTC) + timedelta(seconds=30)).isoformat()}
    beats = plane.count("heartbeat")
    eventually(lambda: plane.count("heartbeat") > beats + 1)  # it knows about the drain
    go.touch()
    eventually(lambda: plane.final(attempts["own"]))
    plane.heartbeat["drain"] = {"deadline": datetime.now(UTC).isoformat()}
    finals = {name: eventually(lambda id=id: plane.final(id)) for name, id in attempts.items()}
    assert (finals["own"]["event"], finals["own"]["error"]["code"]) == ("FAILED", "EXIT_3")
    assert (finals["interrupted"]["event"], finals["interrupted"]["reason"]) == ("RELEASED", "drain_deadline")


def test_a_report_that_cannot_be_read_does_not_hold_up_the_others(plane, agent):
    def reports(body):
        if any(report.get("output", {}).get("stdout") == "bad\n" for report in body["reports"]):
            raise Refuse(400, "invalid", "cannot read this")

    plane.script["reports"] = reports
    bad, good = plane.submit("echo bad"), plane.submit("echo good")
    agent()
    assert eventually(lambda: plane.final(good))["event"] == "COMPLETED"
    assert eventually(lambda: plane.final(bad))["error"]["code"] == "REPORT_REFUSED"


def test_a_report_refused_for_its_size_becomes_a_failure_and_is_not_sent_again(plane, agent, tmp_path):
    refused = []

    def reports(body):
        results = []
        for report in body["reports"]:
            code = next(
                (f"{field}_too_large" for field in ("output", "error") if len(str(report.get(field))) > 5000), None
            )
            (refused if code else plane.reports).append(report)
            results.append({"attempt": report["attempt"], "accepted": not code, "code": code, "detail": "5001; 5000"})
        return {"results": results}

    plane.script["reports"] = reports
    (tmp_path / "wordy.py").write_text("def fail(_):\n    raise LookupError('x' * 9000)\n")
    large = plane.submit("head -c 9000 /dev/zero | tr '\\0' 'a'")
    wordy = plane.submit({"type": "callable", "path": "wordy:fail"})
    agent()
    error = eventually(lambda: plane.final(large))["error"]
    assert error == {"code": "OUTPUT_TOO_LARGE", "message": "5001; 5000", "traceback": ""}
    error = eventually(lambda: plane.final(wordy))["error"]
    assert error == {"code": "LookupError", "message": "x" * 1000, "traceback": ""}
    later = plane.submit("true")
    eventually(lambda: "COMPLETED" in plane.events(later))
    assert sorted(report["attempt"] for report in refused) == sorted([large, wordy])


def test_megabytes_of_output_do_not_block(plane, agent):
    attempt = plane.submit("head -c 5000000 /dev/zero | tr '\\0' 'a'; printf 'end\\0\\377'")
    agent()
    stdout = eventually(lambda: plane.final(attempt))["output"]["stdout"]
    assert len(stdout) == 16 * 1024 and stdout.endswith("aend\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}")


def test_a_refused_token_is_reported_plainly(plane, agent):
    def servers(_):
        raise Refuse(401, "not_authenticated", "The token has expired.")

    plane.script["servers"] = servers
    worker = agent()
    assert worker.exits() == 2
    assert "the token was refused: The token has expired." in worker.log


def test_a_refused_registration_shows_what_is_wrong(plane, agent):
    def servers(_):
        raise Refuse(400, "invalid", "Invalid input.", errors={"config.timeout_seconds": ["45 < 2 x 30"]})

    plane.script["servers"] = servers
    worker = agent("--timeout", "45")
    assert worker.exits() == 2
    assert "config.timeout_seconds: 45 < 2 x 30" in worker.log


def test_registration_is_repeated_with_the_same_instance_id(plane, agent):
    def servers(_):
        if plane.count("servers") < 3:
            raise Refuse(503)

    plane.script["servers"] = servers
    agent()
    eventually(lambda: plane.count("heartbeat"))
    assert len({body["instance_id"] for call, body in plane.calls if call == "servers"}) == 1


def test_a_signal_before_registration_ends_it_at_once(plane, agent):
    plane.down = True
    worker = agent()
    eventually(lambda: "unreachable" in worker.log)
    worker.process.send_signal(signal.SIGTERM)
    assert worker.exits() == 0
    assert "Received SIGTERM signal" in worker.log


def test_an_unreachable_control_plane_does_not_keep_an_idle_worker_from_ending(plane, agent):
    worker = agent("--grace", "600")
    eventually(lambda: plane.count("claims"))
    plane.down = True
    worker.process.send_signal(signal.SIGTERM)
    assert worker.exits() == 1


def test_a_report_that_could_not_be_stored_is_sent_again_and_delays_no_other(plane, agent):
    bad, good = plane.submit("echo bad"), plane.submit("echo good")
    refused = []

    def reports(body):
        if len(refused) > 2 and plane.final(good):
            return None
        results = plane._reports({"reports": [report for report in body["reports"] if report["attempt"] != bad]})[
            "results"
        ]
        refused.extend(report["event"] for report in body["reports"] if report["attempt"] == bad)
        answers = {True: {"attempt": bad, "accepted": False, "replayed": False, "state": None, "code": "not_stored"}}
        return {"results": [answers.get(report["attempt"] == bad) or results.pop(0) for report in body["reports"]]}

    plane.script["reports"] = reports
    agent("--concurrency", "2")
    assert eventually(lambda: plane.final(good))["event"] == "COMPLETED"
    assert set(refused) == {"STARTED"}
    assert eventually(lambda: plane.final(bad))["event"] == "COMPLETED"
    assert plane.events(bad)[0] == "STARTED"
