"""Environment of containers: it reaches the code in the container, and never docker or podman itself."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from controlplane.agent.runners.docker import DockerRunner
from controlplane.agent.runners.pods import PodRunner
from controlplane.agent.runners.runner import CannotStart
from tests.support.programs import install_replacement
from tests.support.standin import eventually

INHERITED = {"PATH": os.environ["PATH"], "DOCKER_HOST": "unix:///run/of-the-operator.sock"}
LEADS_ASTRAY = dict.fromkeys((
    "BASH_ENV", "ENV", "DOCKER_HOST", "DOCKER_CONFIG", "REGISTRY_AUTH_FILE", "HTTPS_PROXY", "https_proxy",
    "NO_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR", "LD_PRELOAD", "LD_LIBRARY_PATH", "PATH", "HOME", "TMPDIR",
    "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "CONTAINERS_CONF", "CONTAINER_HOST", "STORAGE_OPTS",
    "DBUS_SESSION_BUS_ADDRESS", "GODEBUG", "GOTRACEBACK", "NOTIFY_SOCKET", "LISTEN_FDS", "KUBECONFIG", "PYTHONPATH",
    "_CONTAINERS_USERNS_CONFIGURED", "OTEL_EXPORTER_OTLP_ENDPOINT", "x",
), "by the job")  # fmt: skip
PEM = "-----BEGIN KEY-----\r\nabc $(touch x) `id` 'q' \"d\" \\n\n-----END KEY-----\n\n"


def claim(action):
    return {"id": "attempt", "number": 1, "job": {"id": "job", "action": action, "payload": None}}


def script(**fields):
    return {"type": "script", "runner": "docker", "image": "alpine:3", "command": "env", **fields}


def build(action, files=None, runner=DockerRunner):
    kind = "script" if action["type"] == "script" else "docker"
    return runner(kind, [], "docker", "a").build_command(claim(action), files or {}, INHERITED)


def env_file(command):
    (option,) = (part for part in command.argv if part.startswith("--env-file="))
    return Path(option.partition("=")[2])


def forget(command):
    """Run the part of the cleanup that removes the env file."""
    subprocess.run(["/bin/sh", "-c", command.cleanup[2].partition(";")[0]], check=True)


@pytest.mark.parametrize("action", [script(env=LEADS_ASTRAY), {"type": "docker", "image": "x", "env": LEADS_ASTRAY}])
def test_no_variable_of_a_job_is_in_the_environment_of_docker_itself(action):
    command = build(action)
    assert command.env == INHERITED
    lines = env_file(command).read_text().splitlines()
    assert {f"{name}={value}" for name, value in LEADS_ASTRAY.items()} <= set(lines)
    assert not any("by the job" in part for part in command.argv)
    forget(command)


def test_no_variable_of_a_job_is_in_the_environment_of_kubectl():
    command = build({"type": "pod", "image": "x", "env": LEADS_ASTRAY}, runner=PodRunner)
    assert {name: command.env[name] for name in INHERITED} == INHERITED
    assert command.env.keys() - INHERITED.keys() <= {"PYTHONPATH"} and "by the job" not in command.env["PYTHONPATH"]


def test_a_value_of_a_job_is_never_an_option_of_docker():
    for image in ("--privileged", "-v", "", " x", "x y", "x\n"):
        with pytest.raises(CannotStart, match="cannot be the name of an image"):
            build(script(image=image))
    for name in ("--privileged", "-e", "A B", "A=B", "", "1A", "A\n", "É", "#A"):
        with pytest.raises(CannotStart, match="cannot be the name of a variable"):
            build(script(env={name: "x"}))
    command = build(script(command=["--privileged"], cwd="--privileged"))
    assert {"--entrypoint=--privileged", "--workdir=--privileged"} <= set(command.argv)
    assert command.argv[-1] == "alpine:3" and "--privileged" not in command.argv
    forget(command)


def test_the_env_file_is_for_this_user_alone_and_not_seen_by_the_container(tmp_path):
    folder = tmp_path / "attempt"
    folder.mkdir()
    command = build(script(env={"A": "secret"}), {"JOB_PROGRESS": folder / "progress"})
    file = env_file(command)
    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert not file.is_relative_to(folder), "the container has that folder"
    forget(command)
    assert not file.parent.exists() and folder.exists()


def test_without_a_folder_of_the_attempt_the_env_file_has_a_private_one_too():
    command = build(script(env={"A": "secret"}))
    file = env_file(command)
    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    forget(command)
    assert not file.parent.exists()


@pytest.mark.parametrize("value", [PEM, "\n", "ends with \r", "x" * 70_000, "--privileged\nA=B"])
@pytest.mark.parametrize("command", ['printf %s "$BASH_ENV"', ["sh", "-c", 'printf %s "$BASH_ENV"']])
def test_a_value_that_no_line_can_hold_travels_by_a_name_of_ours(tmp_path, monkeypatch, value, command):
    monkeypatch.setenv("CALLS", str(tmp_path / "calls"))
    monkeypatch.setenv("CONTAINERS", str(tmp_path))
    built = build(script(command=command, env={"BASH_ENV": value, "B": "b"}))
    assert "BASH_ENV" not in built.env and not any(value in part for part in built.argv)
    places = {name: os.environ[name] for name in ("CALLS", "CONTAINERS")}
    argv = [str(install_replacement("docker", tmp_path)), *built.argv[1:]]
    ran = subprocess.run(argv, env={**built.env, **places}, capture_output=True, check=True)
    assert ran.stdout.decode() == value
    assert env_file(built).read_text().splitlines()[0] == "B=b"
    forget(built)


def test_the_code_of_a_script_does_not_see_the_name_of_ours(tmp_path, monkeypatch):
    monkeypatch.setenv("CALLS", str(tmp_path / "calls"))
    monkeypatch.setenv("CONTAINERS", str(tmp_path))
    built = build(script(env={"A": "a\nb", "C": "c\nd"}))
    places = {name: os.environ[name] for name in ("CALLS", "CONTAINERS")}
    argv = [str(install_replacement("docker", tmp_path)), *built.argv[1:]]
    seen = subprocess.run(argv, env={**built.env, **places}, capture_output=True, check=True).stdout.decode()
    assert "A=a\nb\n" in seen and "C=c\nd\n" in seen and "CONTROLPLANE_VALUE" not in seen
    forget(built)


@pytest.mark.parametrize("command", [{}, {"command": ["env"]}])
def test_an_image_that_runs_by_itself_cannot_have_such_a_value(tmp_path, command):
    with pytest.raises(CannotStart, match="The value of KEY has a line break or more than 60,000 bytes"):
        build({"type": "docker", "image": "x", "env": {"KEY": PEM}, **command})
    built = build({"type": "docker", "image": "x", "env": {"KEY": PEM}, "command": "env"})
    assert PEM in built.env.values() and "KEY" not in built.env
    forget(built)


def test_a_long_payload_reaches_the_container():
    item = claim(script())
    item["job"]["payload"] = "x" * 62_000
    command = DockerRunner("script", [], "docker", "a").build_command(item, {}, INHERITED)
    assert command.env["JOB_PAYLOAD"] == json.dumps("x" * 62_000)
    assert command.argv[command.argv.index("--env") + 1] == "JOB_PAYLOAD"
    forget(command)


@pytest.fixture
def programs(tmp_path, monkeypatch):
    for folder in ("bin", "containers"):
        (tmp_path / folder).mkdir()
    install_replacement("docker", tmp_path / "bin")
    monkeypatch.setenv("PATH", f"{tmp_path}/bin{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("CALLS", str(tmp_path / "calls"))
    monkeypatch.setenv("CONTAINERS", str(tmp_path / "containers"))


@pytest.mark.parametrize("ends", ["well", "killed"])
def test_the_env_file_is_gone_when_the_attempt_has_ended_also_if_its_agent_is_killed(
    plane, agent, programs, tmp_path, ends
):
    running = tmp_path / "running"
    nap = "sleep 1" if ends == "well" else "sleep 1000"
    attempt = plane.submit(script(command=f"echo $A; touch {running}; {nap}", env={"A": "secret"}))
    worker = agent("--allow", "script,docker")
    (file,) = eventually(lambda: list(tmp_path.rglob("*.private/environment")))
    if ends == "well":
        assert eventually(lambda: plane.final(attempt))["output"]["stdout"] == "secret\n"
    else:
        eventually(running.exists)  # from then on its reaper cleans up
        worker.process.kill()
    eventually(lambda: not file.parent.exists())
