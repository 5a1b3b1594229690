"""Random sequences of kills and stops with default settings: two attempts of a job never overlap.

The code of the jobs itself writes how long it lives. A failed sequence runs again with its number as the parameter.
"""

import os
import random
import signal
import subprocess
import time
from contextlib import suppress

import psutil
import pytest

from tests.support.processes import SHORT, eventually, fleet, freeze

pytestmark = pytest.mark.acceptance
SOON = 60  # seconds: far below the 345 s of the defaults, and enough for a busy machine
HELD = 1.0  # seconds for which nothing may happen while there is no proof
CONTAINER = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    defaults = dict.fromkeys(SHORT, "")
    with fleet(tmp_path_factory.mktemp("sequences"), CELERY_BROKER_URL="filesystem://", **defaults) as running:
        for name in SHORT:
            del running.env[name]
        running.url = running.web()
        running.executor("executor", "--beat")
        yield running


class Machine:
    """Agents with one state folder, and the jobs that they run. `random` chooses what dies when."""

    def __init__(self, running, number):
        self.running, self.random = running, random.Random(number)
        self.name = f"sequence-{number}-{time.monotonic_ns()}"
        self.agents, self.jobs, self.suspended = {}, [], []
        self.in_container = not subprocess.run([*CONTAINER, "true"], check=False).returncode

    # Agents and jobs

    def start(self, *, contained=False):
        """Start an agent, without waiting for its registration."""
        name = f"{self.name}-{len(self.agents)}"
        options = ["--tags", self.name, "--concurrency", "1", "--grace", "5"]
        prefix = CONTAINER if contained else ()
        self.agents[name] = self.running.agent(name, self.running.url, *options, is_fast=True, prefix=prefix)
        return name

    def is_ready(self, name):
        return "registered with ID" in (self.running.folder / f"{name}.log").read_text()

    def living(self):
        return [name for name, process in self.agents.items() if process.poll() is None]

    def begin_job(self):
        """Submit a job and wait until both of its processes live. Return the job and the agent that has it."""
        notes = self.running.folder / f"{self.name}-job-{len(self.jobs)}"
        body = {
            "action": {"type": "callable", "path": "tests.support.living:live"}, "tags": [self.name],
            "payload": str(notes),
        }  # fmt: skip
        client = self.running.token("client")
        job = self.running.call("POST", f"{self.running.url}/api/v1/jobs", client, body)["id"]
        self.jobs.append(notes)
        eventually(lambda: len({line[3] for line in self.lines(notes) if line[2] == "lives"}) == 2, why="it lives")
        [attempt] = self.read(job)["attempts"]
        return job, attempt["server"]["name"]

    def read(self, job):
        return self.running.call("GET", f"{self.running.url}/api/v1/jobs/{job}", self.running.token("client"))

    def lines(self, notes):
        """Return the complete lines of a job's code as lists: uptime, attempt, what happened, process."""
        return [line.split() for line in notes.read_text().split("\n")[:-1]] if notes.exists() else []

    def has_second_attempt(self):
        return any(line[1] == "2" for line in self.lines(self.jobs[-1]))

    def end_of(self, job):
        """Wait until the job has ended, and return it. It must not wait for a timeout."""
        why = f"{self.name}: the job runs again and ends"
        return eventually(lambda: (now := self.read(job))["finished_at"] and now, within=SOON, why=why)

    def pause(self, most):
        time.sleep(self.random.uniform(0, most))

    def helpers(self, name, *words):
        """Return the processes of an agent's sentinel ("sentinel") and reapers ("reaper.py", "fork_server")."""
        found = []
        for child in psutil.Process(self.agents[name].pid).children():
            with suppress(psutil.Error):
                if any(word in part for part in child.cmdline() for word in words):
                    found.append(child)
        return found

    # Deaths. Each gets the name of the agent that runs the job.

    def kill_agent(self, name):
        self.agents[name].kill()

    def kill_sentinel_then_agent(self, name):
        for sentinel in self.helpers(name, "sentinel"):
            sentinel.kill()
        self.pause(0.1)
        self.agents[name].kill()

    def kill_reapers_then_agent(self, name):
        for reaper in self.helpers(name, "reaper.py", "fork_server"):
            reaper.kill()
        self.agents[name].kill()

    def kill_group(self, name):
        os.killpg(self.agents[name].pid, signal.SIGKILL)

    def kill_all_in_any_order(self, name):
        victims = [*self.helpers(name, "sentinel", "reaper.py", "fork_server"), psutil.Process(self.agents[name].pid)]
        self.random.shuffle(victims)
        for victim in victims:
            with suppress(psutil.NoSuchProcess):
                victim.kill()
            self.pause(0.01)

    def terminate_then_kill(self, name):
        self.agents[name].terminate()
        self.pause(0.5)
        self.agents[name].kill()

    def stop_then_kill(self, name):
        freeze(self.agents[name])
        time.sleep(HELD)
        assert not self.has_second_attempt(), "a stopped agent proves nothing"
        self.agents[name].kill()

    def stop_reaper_and_kill_agent(self, name):
        reapers = self.helpers(name, "reaper.py", "fork_server")
        for reaper in reapers:
            reaper.suspend()
        self.agents[name].kill()
        time.sleep(HELD)
        assert not self.has_second_attempt(), "a stopped reaper holds the proof back"
        for reaper in reapers:
            with suppress(psutil.NoSuchProcess):
                self.random.choice([reaper.resume, reaper.kill])()

    def stop_sentinel_and_kill_agent(self, name):
        for sentinel in self.helpers(name, "sentinel"):
            sentinel.suspend()
            self.suspended.append(sentinel)
        self.agents[name].kill()

    def kill_all_agents(self, name):
        """Kill all agents with everything that could report their death, as in a power cut."""
        for other in self.living():
            self.kill_all_in_any_order(other)

    DEATHS = (
        kill_agent, kill_sentinel_then_agent, kill_reapers_then_agent, kill_group, kill_all_in_any_order,
        terminate_then_kill, stop_then_kill, stop_reaper_and_kill_agent, stop_sentinel_and_kill_agent, kill_all_agents,
    )  # fmt: skip

    def die(self, death):
        """Let a job begin, and its agent die and start again. Wait until the job has run again."""
        while len(self.living()) < 2:
            self.start()
        job, name = self.begin_job()
        self.pause(0.2)
        death(self, name)
        self.start()
        done = self.end_of(job)
        crashed = death is Machine.kill_reapers_then_agent and (done["error"] or {}).get("code") == "WORKER_CRASHED"
        assert done["state"] == "COMPLETED" or crashed, done
        self.release_suspended()

    def release_suspended(self):
        while self.suspended:
            with suppress(psutil.NoSuchProcess):
                self.suspended.pop().resume()

    def end_container(self):
        """End a container with its agent and start it again: a PID namespace stands for it."""
        self.running.end(self.living())
        first = self.start(contained=True)
        job, _ = self.begin_job()
        os.killpg(self.agents[first].pid, signal.SIGKILL)
        self.agents[first].wait(60)
        second = self.start(contained=True)
        self.end_of(job)
        os.killpg(self.agents[second].pid, signal.SIGKILL)

    def check(self):
        """No line of an attempt is later than the first line of the next one."""
        for notes in self.jobs:
            lines = self.lines(notes)
            begins = [float(line[0]) for line in lines if line[1] == "2" and line[2] == "begin"]
            late = [line for line in lines if line[1] == "1" and begins and float(line[0]) >= begins[0]]
            assert late == [], (self.name, notes.name, begins, late[:3])


@pytest.fixture
def machine(running, request):
    machine = Machine(running, request.param)
    yield machine
    machine.release_suspended()
    for name in machine.living():
        machine.kill_all_in_any_order(name)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("machine", [33], indirect=True)
def test_no_two_attempts_overlap_whatever_dies(machine):
    run_sequence(machine, rounds=1)


@pytest.mark.exhaustive
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("machine", range(4), indirect=True)
def test_no_two_attempts_overlap_in_long_sequences(machine):
    run_sequence(machine, rounds=5)


def run_sequence(machine, rounds):
    """Each round has all deaths in another order."""
    for _ in range(rounds):
        for death in machine.random.sample(Machine.DEATHS, len(Machine.DEATHS)):
            machine.die(death)
        if machine.in_container:
            machine.end_container()
    machine.check()
