"""Containers, with stand-ins for docker and kubectl that note their calls."""

from __future__ import annotations

import json
import os
import selectors
import signal
from pathlib import Path

import pytest

from controlplane.agent.api.outbox import Outbox
from controlplane.agent.attempts import AttemptTracker
from controlplane.agent.fence import Fence
from controlplane.agent.fitness.machine_watch import MachineWatch
from controlplane.agent.fitness.self_cordon import SelfCordon
from controlplane.agent.processes.child_process import ChildExit
from controlplane.agent.processes.folder import Folder
from controlplane.agent.processes.supervisor import Supervisor
from controlplane.agent.runners.docker import DockerRunner, is_podman
from controlplane.agent.runners.pods import PodRunner
from controlplane.agent.runners.policy import ActionPolicy
from tests.support.programs import install_replacement
from tests.support.standin import eventually
from tests.unit.agent.test_probe import reported_cordons

SCRIPT = {"type": "script", "runner": "docker", "image": "alpine:3"}


@pytest.fixture(autouse=True)
def programs(tmp_path, monkeypatch):
    for folder in ("bin", "containers"):
        (tmp_path / folder).mkdir()
    for name in ("docker", "kubectl"):
        install_replacement(name, tmp_path / "bin")
    monkeypatch.setenv("PATH", f"{tmp_path}/bin{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("CALLS", str(tmp_path / "calls"))
    monkeypatch.setenv("CONTAINERS", str(tmp_path / "containers"))


@pytest.fixture
def calls(tmp_path):
    def read(*begin: str) -> list[list[str]]:
        file = tmp_path / "calls"
        lines = file.read_text().splitlines() if file.exists() else []
        return [call for call in map(json.loads, lines) if call[: len(begin)] == [*begin]]

    return read


@pytest.fixture
def containers(tmp_path):
    return lambda: sorted(file.name for file in (tmp_path / "containers").iterdir())


def env_file(command):
    (option,) = (part for part in command.argv if part.startswith("--env-file="))
    return Path(option.partition("=")[2])


def start(agent, *more):
    return agent("--allow", "script,docker,pod", *more)


def test_a_script_runs_in_a_container_that_is_named_and_labelled_for_its_attempt(plane, agent, calls, containers):
    action = {**SCRIPT, "command": "cat; echo $GREETING $JOB_ATTEMPT", "env": {"GREETING": "secret words"},
              "cwd": "/srv", "resources": {"cpus": 1.5, "memory": "512M", "gpus": 1}}  # fmt: skip
    attempt = plane.submit(action, {"n": 1})
    start(agent)
    final = eventually(lambda: plane.final(attempt))
    assert final["output"] == {"exit_code": 0, "stdout": '{"n": 1}secret words 1\n'}
    (arguments,) = calls("run")
    job = next(item["job"] for items in plane.claims.values() for item in items)
    assert arguments[arguments.index("--name") + 1] == f"controlplane-{attempt}"
    assert {f"controlplane.job={job['id']}", f"controlplane.attempt={attempt}"} <= set(arguments)
    assert {"--cpus=1.5", "--memory=512M", "--gpus=1", "--workdir=/srv", "--entrypoint=/bin/sh"} <= set(arguments)
    assert arguments[-3:] == ["alpine:3", "-c", action["command"]]
    assert not any("secret words" in part for part in arguments), "who lists processes reads no values"
    assert containers() == []
    assert {"docker", "kubernetes", "script"} <= set(plane.calls[0][1]["tags"])


def test_its_code_finds_the_last_checkpoint_and_reports_by_files(plane, agent, calls, tmp_path):
    keep = 'cat "$JOB_CHECKPOINT"; echo 8 > "$JOB_CHECKPOINT"; echo "0.5 half" > "$JOB_PROGRESS"; exit 3'
    attempt = plane.submit({**SCRIPT, "command": keep}, checkpoint=7)
    start(agent)
    assert eventually(lambda: plane.final(attempt))["event"] == "FAILED"
    reports = [report for report in plane.reports if report["attempt"] == attempt]
    assert {"attempt": attempt, "event": "CHECKPOINT", "value": 8} in reports
    assert {"attempt": attempt, "event": "PROGRESS", "progress": 0.5, "message": "half"} in reports
    assert "7" in [line for report in reports if report["event"] == "LOG" for line in report["lines"]]
    (arguments,) = calls("run")
    folder, inside, _ = arguments[arguments.index("--volume") + 1].split(":")
    assert inside == "/run/controlplane" and folder.endswith(attempt), "it sees no other attempt's files"
    assert not Path(folder).exists() and Path(folder).is_relative_to(tmp_path)


def test_any_user_of_the_image_may_write_its_files_and_no_other_user_of_this_machine(tmp_path):
    folder = tmp_path / "attempt"
    folder.mkdir(mode=0o700)
    files = {"JOB_PROGRESS": folder / "progress", "JOB_CHECKPOINT": folder / "checkpoint"}
    files["JOB_CHECKPOINT"].write_text("7")
    item = {"id": "attempt", "number": 1, "job": {"id": "job", "action": {**SCRIPT, "command": "true"}, "payload": 1}}
    command = DockerRunner("script", [], "docker", "a").build_command(item, files, {})
    assert command.argv[command.argv.index("--volume") + 1] == f"{folder}:/run/controlplane:Z"
    lines = env_file(command).read_text().splitlines()
    assert {"JOB_CHECKPOINT=/run/controlplane/checkpoint", "JOB_PROGRESS=/run/controlplane/progress"} <= set(lines)
    assert folder.stat().st_mode & 0o777 == 0o777 and files["JOB_CHECKPOINT"].stat().st_mode & 0o777 == 0o666
    agents = Folder()
    assert agents.path.stat().st_mode & 0o077 == 0, "in which the folders of attempts are"
    agents.remove()


def test_an_image_runs_by_itself_or_with_a_command(plane, agent):
    by_itself = plane.submit({"type": "docker", "image": "alpine"})
    fails = plane.submit({"type": "docker", "image": "alpine", "command": "exit 3"})
    no_image = plane.submit({"type": "docker", "image": "missing"})
    no_name = plane.submit({"type": "docker", "image": "--privileged"})
    start(agent)
    assert eventually(lambda: plane.final(by_itself))["output"]["stdout"] == "by itself\n"
    assert eventually(lambda: plane.final(fails))["error"]["code"] == "EXIT_3"
    error = eventually(lambda: plane.final(no_image))["error"]
    assert (error["code"], error["message"]) == ("CANNOT_START", "no such image: missing")
    assert "cannot be the name of an image" in eventually(lambda: plane.final(no_name))["error"]["message"]


@pytest.mark.parametrize(("runner", "most"), [("docker", "64 MiB"), ("pod", "64Mi")])
def test_code_that_the_kernel_killed_at_the_limit_of_its_container_was_out_of_memory(
    plane, agent, containers, runner, most
):
    kill = {**SCRIPT, "runner": runner, "image": "hungry", "command": "exit 137"}
    limited = plane.submit({**kill, "resources": {"memory": "64M"}})
    unlimited = plane.submit(kill)
    by_somebody = plane.submit({**kill, "image": "alpine"})
    goes_on = plane.submit({**kill, "command": "exit 3"})
    start(agent)
    error = eventually(lambda: plane.final(limited))["error"]
    assert error["code"] == "OUT_OF_MEMORY"
    assert error["message"] == f"the kernel killed it: its container may have {most} of memory"
    error = eventually(lambda: plane.final(unlimited))["error"]
    assert error["code"] == "WORKER_CRASHED", "the memory may have been another's"
    assert error["message"] == "its container was killed by the kernel, which had run out of memory"
    assert eventually(lambda: plane.final(by_somebody))["error"]["code"] == "EXIT_137"
    assert eventually(lambda: plane.final(goes_on))["error"]["code"] == "EXIT_3", "only a part of it was killed"
    assert containers() == []


@pytest.mark.parametrize("runner", ["docker", "pod"])
def test_a_job_is_given_back_while_what_runs_its_containers_is_away(plane, agent, tmp_path, runner):
    (tmp_path / "away").touch()
    attempt = plane.submit({**SCRIPT, "runner": runner, "command": "true"})
    start(agent)
    final = eventually(lambda: plane.final(attempt))
    assert final["event"] == "RELEASED" and "onnect to the" in final["reason"]
    eventually(lambda: reported_cordons(plane)[-1][0] is False)
    # A claim may have begun before the cordon. Wait until only heartbeats come.
    eventually(lambda: {call for call, _ in plane.calls[-4:]} == {"heartbeat"})
    waiting = plane.submit({**SCRIPT, "runner": runner, "command": "true"})
    (tmp_path / "away").unlink()
    assert eventually(lambda: plane.final(waiting))["event"] == "COMPLETED"
    missing = plane.submit({**SCRIPT, "image": "missing", "command": "true"})
    assert eventually(lambda: plane.final(missing))["error"]["code"] == "CANNOT_START", "that is the job's fault"


@pytest.mark.parametrize("runner", ["docker", "pod"])
def test_a_cancelled_container_is_removed_before_that_is_reported(plane, agent, containers, runner):
    attempt = plane.submit({**SCRIPT, "runner": runner, "command": "trap '' TERM; while :; do sleep 0.1; done"})
    start(agent)
    eventually(lambda: containers() == [f"controlplane-{attempt}"])
    plane.script["reports"] = lambda body: ends.extend(
        containers() for item in body["reports"] if item["event"] == "CANCELLED"
    )
    ends: list[list[str]] = []
    plane.heartbeat["cancel"] = [attempt]
    assert eventually(lambda: plane.final(attempt))["event"] == "CANCELLED"
    assert containers() == [] and not any(ends)


def test_ended_code_keeps_its_result_while_its_container_is_removed(plane, agent, containers, calls, tmp_path):
    (tmp_path / "busy").touch()
    attempt = plane.submit({**SCRIPT, "command": "echo well"})
    worker = start(agent)
    eventually(lambda: calls("rm"))
    plane.heartbeat["cancel"] = [attempt]
    eventually(lambda: "Job cancelled" in worker.log)
    assert plane.final(attempt) is None
    (tmp_path / "busy").unlink()
    assert eventually(lambda: plane.final(attempt))["output"]["stdout"] == "well\n"
    assert containers() == []


def test_a_timeout_that_passes_while_a_container_is_removed_is_looked_at_once(tmp_path, calls):
    (tmp_path / "busy").touch()
    job = {"id": "job", "action": {**SCRIPT, "command": "echo well"}, "payload": 1, "timeout_seconds": 0.001}
    outbox, ended, folder = Outbox(), list[ChildExit](), Folder()
    with selectors.DefaultSelector() as selector:
        supervisor = Supervisor(selector)

        def turn() -> bool:
            supervisor.transfer_ready(selector.select(0.02))
            ended.extend(supervisor.reap_children())
            return True

        policy = ActionPolicy.parse_options("script,docker")
        machine = MachineWatch(supervisor, folder, os.environ, SelfCordon(), lambda: None)
        attempts = AttemptTracker(supervisor, outbox, policy, Fence(), machine, folder, dict(os.environ))
        attempts.accept_claims([{"id": "attempt", "number": 1, "job": job}])
        attempts.record_answer({"attempt": "attempt", "event": "STARTED"}, {"accepted": True})
        eventually(lambda: turn() and calls("rm"))
        attempts.ends.enforce_timeouts()
        assert attempts.ends.next_timeout_at() is None, "the agent does not turn in circles"
        (tmp_path / "busy").unlink()
        attempts.record_exit(eventually(lambda: turn() and ended)[0])
        supervisor.close()
    folder.remove()
    assert outbox.unanswered_reports()[-1]["event"] == "COMPLETED"


@pytest.mark.parametrize(("program", "folder"), [("docker", None), ("podman", "attempt"), ("called/docker", "attempt")])
def test_podman_starts_in_the_folder_of_the_attempt_where_it_notes_killed_code(tmp_path, program, folder):
    (tmp_path / "called").mkdir()
    (tmp_path / "called" / "docker").symlink_to(tmp_path / "podman")
    (tmp_path / "attempt").mkdir()
    item = {"id": "attempt", "number": 1, "job": {"id": "job", "action": {**SCRIPT, "command": "true"}, "payload": 1}}
    files = {"JOB_PROGRESS": tmp_path / "attempt" / "progress"}
    command = DockerRunner("script", [], str(tmp_path / program), "a").build_command(item, files, {})
    assert command.cwd == (folder and str(tmp_path / folder))
    assert command.cleanup[-1] == str(tmp_path / "attempt" / "oom")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_an_agent_that_is_dead_or_stopped_keeps_no_container_past_its_fence(plane, agent, containers, number):
    attempt = plane.submit({**SCRIPT, "command": "sleep 1000"})
    worker = start(agent)
    eventually(lambda: containers() == [f"controlplane-{attempt}"])
    if number == signal.SIGSTOP:
        plane.lower_fence(2)
    worker.process.send_signal(number)
    eventually(lambda: containers() == [])


def test_an_agent_that_starts_removes_what_a_dead_one_of_its_name_left(plane, agent, containers, calls, tmp_path):
    def leave(container, kind, name, status="Up 2 hours"):
        runner = {"docker": DockerRunner, "pod": PodRunner}[kind](kind, [], kind, name)
        labels = {"controlplane.agent": runner.agent}
        text = {"--label": [f"{key}={value}" for key, value in labels.items()], "status": [status],
                "metadata": {"labels": labels}}  # fmt: skip
        Path(tmp_path, "containers", container).write_text(json.dumps(text))

    leave("docker-of-a", "docker", "a/1")
    leave("pod-of-a", "pod", "a/1")
    leave("docker-of-b", "docker", "b")
    leave("ended-of-b", "docker", "b", "Exited (137) 2 hours ago")
    leave("just-ended-of-b", "docker", "b", "Exited (0) Less than a second ago")
    start(agent)
    eventually(lambda: plane.registrations)
    assert containers() == ["docker-of-b", "just-ended-of-b"], "what b lives with or looks at is its own"
    begun = calls("ps"), calls("delete")
    start(agent)  # of the same name, beside it
    eventually(lambda: len(plane.registrations) == 2)
    assert (calls("ps"), calls("delete")) == begun and all(begun), "what a living agent has is its own"


def test_a_pod_is_followed_to_its_end_and_deleted(plane, agent, calls, containers):
    action = {**SCRIPT, "runner": "pod", "command": "echo $JOB_PAYLOAD; exit 4",
              "resources": {"cpus": 0.5, "memory": "1G", "gpus": 2}}  # fmt: skip
    fails = plane.submit(action, [1], timeout=100)
    well = plane.submit({"type": "pod", "image": "busybox", "command": ["echo", "well"]})
    refused = plane.submit({"type": "pod", "image": "missing", "command": "true"})
    start(agent)
    error = eventually(lambda: plane.final(fails))["error"]
    assert error["code"] == "EXIT_4"
    lines = [line for report in plane.reports if report["event"] == "LOG" and report["attempt"] == fails
             for line in report["lines"]]  # fmt: skip
    assert "[1]" in lines
    assert eventually(lambda: plane.final(refused))["error"]["code"] == "CANNOT_START"
    assert eventually(lambda: plane.final(well))["output"] == {"exit_code": 0, "stdout": "well\n"}
    assert containers() == [] and calls("delete", "pod", f"controlplane-{fails}")


def test_a_pod_reports_by_lines_and_finds_the_last_checkpoint(plane, agent):
    code = """echo "was $JOB_CHECKPOINT_VALUE"; echo '::progress 0.5 half'; echo '::checkpoint {"row": 8}'; exit 3"""
    attempt = plane.submit({**SCRIPT, "runner": "pod", "command": code}, checkpoint={"row": 7, "at": "$(date) Bärn"})
    start(agent)
    assert eventually(lambda: plane.final(attempt))["error"]["code"] == "EXIT_3"
    reports = [report for report in plane.reports if report["attempt"] == attempt]
    assert {"attempt": attempt, "event": "CHECKPOINT", "value": {"row": 8}} in reports, "though the pod ended at once"
    assert {"attempt": attempt, "event": "PROGRESS", "progress": 0.5, "message": "half"} in reports
    lines = [line for report in reports if report["event"] == "LOG" for line in report["lines"]]
    assert lines == ['was {"row":7,"at":"$(date) Bärn"}'], "reports are no output"


def test_a_wrong_checkpoint_of_a_pod_is_refused_in_its_log_as_in_a_file(plane, agent):
    attempt = plane.submit({**SCRIPT, "runner": "pod", "command": "echo '::checkpoint row 8'"})
    start(agent)
    assert eventually(lambda: plane.final(attempt))["event"] == "COMPLETED"
    reports = [report for report in plane.reports if report["attempt"] == attempt]
    assert "CHECKPOINT" not in [report["event"] for report in reports]
    assert any("the checkpoint is not JSON" in line for report in reports for line in report.get("lines", []))


def test_a_manifest_describes_what_the_action_does():
    runner = PodRunner("pod", ["kubernetes"], "kubectl", "a")
    action = {"type": "pod", "image": "busybox", "command": ["echo", "$(A)"], "env": {"A": "$(B)"}, "cwd": "/srv",
              "resources": {"cpus": 0.5, "memory": "1G", "gpus": 2}}  # fmt: skip
    item = {
        "id": "attempt",
        "number": 2,
        "job": {"id": "job", "action": action, "payload": None, "timeout_seconds": 10},
    }
    command = runner.build_command(item, {}, {})
    pod = json.loads(command.stdin)
    (container,) = pod["spec"]["containers"]
    assert pod["metadata"]["name"] == "controlplane-attempt" and pod["metadata"]["labels"]["controlplane.job"] == "job"
    assert pod["spec"]["restartPolicy"] == "Never" and pod["spec"]["activeDeadlineSeconds"] == 70
    # A job gets no credential for the cluster.
    assert pod["spec"]["automountServiceAccountToken"] is False and "serviceAccountName" not in pod["spec"]
    assert container["args"] == ["echo", "$$(A)"] and container["workingDir"] == "/srv"
    assert {"name": "A", "value": "$$(B)"} in container["env"] and {"name": "JOB_ATTEMPT", "value": "2"} in container[
        "env"
    ]
    assert container["resources"] == {"limits": {"cpu": "0.5", "memory": "1Gi", "nvidia.com/gpu": "2"}}


@pytest.mark.parametrize(
    ("program", "options"),
    [("docker", ["--gpus=2"]), ("/usr/bin/podman", ["--device=nvidia.com/gpu=0", "--device=nvidia.com/gpu=1"])],
)
def test_gpus_are_devices_to_podman_which_would_ignore_that_they_are_asked_for(program, options):
    action = {**SCRIPT, "command": "true", "resources": {"gpus": 2}}
    item = {"id": "attempt", "number": 1, "job": {"id": "job", "action": action, "payload": None}}
    argv = DockerRunner("script", [], program, "a").build_command(item, {}, {}).argv
    assert [part for part in argv if part.startswith(("--gpus", "--device"))] == options


def test_a_script_that_hands_all_on_to_podman_is_podman(tmp_path):
    script = tmp_path / "docker"
    script.write_text('#!/bin/sh\n[ "$1" = --version ] && echo podman version 4.3.1\n')
    script.chmod(0o755)
    assert DockerRunner("script", [], str(script), "a").is_podman
    script.write_text("#!/bin/sh\necho Docker version 28.2.2, build e6534b4\n")
    is_podman.cache_clear()
    assert not DockerRunner("script", [], str(script), "a").is_podman


def test_containers_are_allowed_by_name_where_there_is_a_program(monkeypatch):
    assert set(ActionPolicy.parse_options("docker").runners) == {"docker"}
    assert set(ActionPolicy.parse_options("script,pod").runners) == {"script", "pod", "script/pod"}
    assert "docker" not in ActionPolicy.parse_options(None).list_tags()
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(ValueError, match="there is no docker or podman on this machine"):
        ActionPolicy.parse_options("docker")
