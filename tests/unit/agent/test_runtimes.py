"""The runtimes of a machine, with stand-ins for their programs."""

from __future__ import annotations

import os
import selectors

import pytest

from controlplane.agent.command_line import build_parser
from controlplane.agent.fitness import runtimes
from controlplane.agent.fitness.runtimes import COMMANDS, RuntimeWatch, find_runtimes, missing_runtimes
from controlplane.agent.fitness.self_cordon import SelfCordon
from controlplane.agent.options import read_options
from controlplane.agent.processes.supervisor import Supervisor
from tests.support.standin import eventually

PROGRAMS = {
    "node": "echo v20.11.1",
    "java": "echo 'openjdk version \"17.0.9\" 2023' >&2",
    "docker": "echo cannot connect >&2; exit 1",
    "nvidia-smi": "echo NVIDIA A100",
}


class Watched(Supervisor):
    """A supervisor with its own selector."""

    def __init__(self):
        self.selector = selectors.DefaultSelector()
        super().__init__(self.selector)

    def wait(self):
        self.transfer_ready(self.selector.select(0.02))
        return True


@pytest.fixture
def supervisor():
    made = Watched()
    yield made
    made.close()
    made.selector.close()


@pytest.fixture
def machine(tmp_path, monkeypatch):
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, text in PROGRAMS.items():
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    return folder


def test_a_program_that_answers_is_found_with_its_version(machine):
    found = find_runtimes(["node", "java", "docker", "gpu", "shell"], os.environ)
    assert found == {"node": "20.11.1", "java": "17.0.9", "gpu": "NVIDIA A100", "shell": "sh"}


def test_runtimes_become_tags_and_capabilities(plane, agent, machine):
    agent("--runtimes", "node,docker")
    eventually(lambda: plane.registrations)
    said = plane.calls[0][1]
    assert "runtime:node" in said["tags"] and "runtime:docker" not in said["tags"]
    assert said["capabilities"]["runtimes"] == {"node": "20.11.1"}


def test_programs_that_have_gone_are_missing(machine):
    assert missing_runtimes(["node", "java"]) == []
    (machine / "node").unlink()
    if missing := missing_runtimes(["node", "java"]):  # there may be another of the name behind it
        assert missing == ["node"]


def test_a_worker_whose_runtime_has_gone_is_cordoned_until_it_is_back(tmp_path, monkeypatch, supervisor):
    monkeypatch.setenv("PATH", str(tmp_path))
    cordon, changes = SelfCordon(), []
    watch = RuntimeWatch(["node"], supervisor, os.environ, cordon, lambda: changes.append(cordon.fields))
    watch.look()
    (tmp_path / "node").write_text("#!/bin/sh\n")
    (tmp_path / "node").chmod(0o755)
    watch.look()
    assert watch.missing == ["node"], "only once in a while"
    watch._look_at = 0.0
    watch.look()
    assert watch.missing == []
    assert changes == [
        {"schedulable": False, "reason": "no longer on this machine: node"},
        {"schedulable": True, "reason": "the runtimes are back"},
    ]


@pytest.mark.parametrize(("name", "program"), [("docker", "docker"), ("gpu", "nvidia-smi")])
def test_a_worker_is_cordoned_while_its_daemon_or_driver_does_not_answer(
    machine, supervisor, monkeypatch, name, program
):
    monkeypatch.setattr(runtimes, "LOOK_INTERVAL", 0.0)
    monkeypatch.setattr(runtimes, "DOUBTED_INTERVAL", 0.0)
    cordon = SelfCordon()
    watch = RuntimeWatch([name], supervisor, os.environ, cordon, lambda: None)

    def turn(times=1):
        """Run this number of checks."""
        for _ in range(times):
            watch.look()
            ended = eventually(lambda: supervisor.wait() and supervisor.reap_children())
            for child_exit in ended:
                watch.record_exit(child_exit)

    (machine / program).write_text("#!/bin/sh\nexit 0\n")
    turn()
    assert cordon.fields == {}
    (machine / program).write_text("#!/bin/sh\necho broken >&2; exit 9\n")
    turn()
    assert cordon.fields == {}, "the machine may have been busy"
    turn()
    assert cordon.fields == {"schedulable": False, "reason": f"no longer on this machine, or broken: {name}"}
    (machine / program).write_text("#!/bin/sh\nexit 0\n")
    turn()
    assert cordon.fields == {"schedulable": True, "reason": "the runtimes are back"} and watch.missing == []
    monkeypatch.setattr(runtimes, "PATIENCE", 0.1)
    (machine / program).write_text("#!/bin/sh\nexec sleep 600\n")
    eventually(lambda: watch.look() or (supervisor.wait() and [*map(watch.record_exit, supervisor.reap_children())]
               and watch.missing == [name]))  # fmt: skip


def test_an_agent_cordons_itself_while_its_gpus_do_not_answer(plane, agent, machine, monkeypatch):
    def says(schedulable):
        return lambda: any(body.get("schedulable") is schedulable for call, body in plane.calls if call == "heartbeat")

    (machine / "nvidia-smi").write_text(
        f"#!/bin/sh\ncd {machine}\n[ -e found ] || {{ touch found; exit 0; }}\n[ -e mended ]\n"
    )
    agent("--runtimes", "gpu")
    eventually(says(False))
    (machine / "mended").touch()
    eventually(says(True))


def test_a_server_is_cordoned_for_as_long_as_there_is_any_cause():
    cordon = SelfCordon()
    cordon.cordon("full", "probe")
    cordon.cordon("no node", "runtimes")
    cordon.lift("passed", "probe")
    assert cordon.fields == {"schedulable": False, "reason": "no node"}
    cordon.lift("back", "runtimes")
    assert cordon.fields == {"schedulable": True, "reason": "back"}


def test_an_unknown_runtime_is_refused_with_a_sentence():
    arguments = build_parser().parse_args(["--url", "http://x", "--token", "t", "--runtimes", "node,cobol"])
    with pytest.raises(ValueError, match="--runtimes cobol is unknown: use docker"):
        read_options(arguments)
    assert set(COMMANDS) >= {"node", "java", "docker", "podman", "kubectl", "shell", "gpu"}
