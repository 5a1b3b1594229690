"""Jobs of a killed agent run elsewhere at once with default settings, because its machine proves its death."""

import json
import os
import shutil
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

import pytest

from tests.support.missing import skip_without
from tests.support.processes import ROOT, SHORT, eventually, fleet, freeze, thaw

pytestmark = pytest.mark.acceptance
SOON = 60  # seconds: far below the 345 s of the defaults, and enough for a busy machine
LINKS = """
import os

def list_links(payload):
    paths = [f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd")]
    return [os.readlink(path) for path in paths if os.path.lexists(path)]
"""
LIVING = """
import os, signal, time
from controlplane.agent import context

def live(payload):
    is_forked = b"fork_server" in open("/proc/self/cmdline", "rb").read()
    attempt = context.attempt
    if not payload or attempt != 1:
        note(payload, f"{attempt} {is_forked} 0")
        return is_forked
    if os.fork() == 0:  # no exec: its environment is that of the process which imported this module
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while True:
        note(payload, f"1 {is_forked} {os.getpid()}")
        time.sleep(0.002)

def note(path, text):
    if path:
        with open(path, "a") as file:
            file.write(f"{time.clock_gettime(time.CLOCK_BOOTTIME)} {text}\\n")
"""
POOLED = """
import subprocess, time
from controlplane.agent import context
from living import note

def count(path):
    with open(path, "a") as file:
        file.write(context.job + "\\n")

def live(path):
    attempt = context.attempt
    note(path, f"{attempt} pool 0")
    if attempt == 1:
        line = "echo $(cut -d' ' -f1 /proc/uptime) 1 pool $$ >> " + path
        subprocess.Popen(["setsid", "sh", "-c", f"trap '' TERM; while :; do {line}; sleep 0.01; done"])
        from living import live
        live(path)
"""
HEART = """
import sys, time
from controlplane.agent import Heart

with Heart(name=sys.argv[1], work_ends_with_process=sys.argv[2] == "True"):
    time.sleep(600)
"""
WORKER = """
import sys
from controlplane.agent import Worker, handler

@handler("wait")
def wait(payload):
    import time
    time.sleep(payload)

sys.exit(Worker(name=sys.argv[1], tags=[sys.argv[2]], runtimes="shell").run())
"""
DEFAULTS = dict.fromkeys(SHORT, "")


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    with fleet(tmp_path_factory.mktemp("fast"), CELERY_BROKER_URL="filesystem://", **DEFAULTS) as running:
        for name in SHORT:
            del running.env[name]
        running.url = running.web()
        running.executor("executor", "--beat")
        yield running
        running.end([name for name in running.processes if name not in ("web", "executor")])


@pytest.fixture(autouse=True)
def tag(running):
    """Give each test its own tag, so that its agents get no jobs of other tests."""
    running.tag = f"fast-{uuid4().hex[:8]}"


@pytest.fixture
def start(running):
    """Start agents with one state folder, and end them with the test."""
    started = []

    def start(name, *options):
        started.append(name)
        running.agent(name, running.url, "--concurrency", "2", "--tags", running.tag, *options, is_fast=True)
        eventually(lambda: "registered with ID" in (running.folder / f"{name}.log").read_text(), why=f"{name} starts")
        return running.processes[name]

    yield start
    for name in started:
        if running.processes[name].poll() is None:
            thaw(running.processes[name])
    running.end(started)


def file_of(running, name):
    """Return the file of an agent's server."""
    log = (running.folder / f"{name}.log").read_text()
    server = log.partition("registered with ID: ")[2].split()[0]
    path = running.folder / "state/servers" / f"{server}.json"
    assert eventually(path.exists)
    return path


class Job:
    """A job that writes the begin and the end of each of its processes into a file."""

    def __init__(self, running, command="sleep 600", **fields):
        self.running, self.notes = running, running.folder / f"notes-{time.monotonic_ns()}"
        script = f'echo "$JOB_ATTEMPT begin $$" >> {self.notes}; [ "$JOB_ATTEMPT" = 1 ] || exit 0; {command}'
        body = {"action": {"type": "script", "command": script}, "tags": [running.tag], **fields}
        self.id = running.call("POST", f"{running.url}/api/v1/jobs", running.token("client"), body)["id"]

    def read(self):
        return self.running.call("GET", f"{self.running.url}/api/v1/jobs/{self.id}", self.running.token("client"))

    def begun(self, attempt=1):
        return self.notes.exists() and f"{attempt} begin" in self.notes.read_text()

    def attempt_id(self):
        return self.read()["attempts"][0]["id"]


def sentinel_of(process):
    """Return the process id of an agent's sentinel."""

    def find():
        for path in Path(f"/proc/{process.pid}/task").glob("*/children"):
            for pid in path.read_text().split():
                with suppress(OSError):
                    if b"sentinel" in Path(f"/proc/{pid}/cmdline").read_bytes():
                        return int(pid)
        return None

    return eventually(find, why="the sentinel runs")


def marked(attempt):
    """Return the living processes of an attempt."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if f"JOB_ATTEMPT_ID={attempt}".encode() in path.read_bytes().split(b"\0"):
                found.append(int(path.parent.name))
    return found


def recovered(job, *, within=SOON):
    began = time.monotonic()
    eventually(lambda: job.begun(2), within=within, why="the second attempt begins")
    return time.monotonic() - began


def test_a_killed_agents_job_runs_elsewhere_at_once_with_the_default_settings(running, start):
    victim = start("victim")
    sentinel_of(victim)
    job = Job(running)
    eventually(job.begun, why="the job runs")
    attempt = job.attempt_id()
    start("heir")
    victim.kill()
    recovered(job)
    done = eventually(lambda: (now := job.read())["state"] == "COMPLETED" and now)
    assert [attempt["state"] for attempt in done["attempts"]] == ["RESUBMITTED", "COMPLETED"]
    lost = next(entry for entry in done["timeline"] if entry["state"] == "RESUBMITTED")
    assert "nothing of it runs any more" in lost["reason"]
    assert marked(attempt) == []
    server = done["attempts"][0]["server"]["id"]
    events = running.call("GET", f"{running.url}/api/v1/servers/{server}/events", running.token("operator"))["items"]
    assert [(event["to"], event["actor"]) for event in events][:2] == [("RUNNING", "server"), ("ERROR", "server")]
    assert not list((running.folder / "state/servers").glob(f"{server}*"))


def test_agent_sentinel_and_reapers_killed_together_are_reported_by_the_next_agent(running, start):
    victim = start("first")
    sentinel = sentinel_of(victim)
    job = Job(running, "(env; exec setsid sh -c 'trap \"\" TERM; sleep 600') & sleep 600")
    eventually(job.begun, why="the job runs")
    attempt = job.attempt_id()
    eventually(lambda: len(marked(attempt)) > 1, why="the grandchild runs")
    for pid in reapers_of(victim):
        os.kill(pid, signal.SIGSTOP)
    for pid in (sentinel, victim.pid, *reapers_of(victim)):
        os.kill(pid, signal.SIGKILL)
    victim.wait(60)
    start("second")
    recovered(job)
    assert marked(attempt) == []


def test_no_process_of_a_forked_call_outlives_the_proof(running, start):
    """A child of a forked call that never started another program has no environment of its own."""
    (running.folder / "living.py").write_text(LIVING)
    running.env |= {"PYTHONPATH": f"{ROOT}:{running.folder}"}
    victim = start("forker")
    sentinel = sentinel_of(victim)
    action = {"type": "callable", "path": "living:live"}
    notes = running.folder / "living.notes"

    def submit(payload):
        body = {"action": action, "tags": [running.tag], "payload": payload}
        return running.call("POST", f"{running.url}/api/v1/jobs", running.token("client"), body)["id"]

    def output(job):
        path = f"{running.url}/api/v1/jobs/{job}"
        return running.call("GET", path, running.token("client"))["output"]

    for _ in range(20):
        job = submit(None)
        if eventually(lambda job=job: (value := output(job)) is not None and [value]) == [True]:
            break
    submit(str(notes))
    eventually(lambda: notes.exists() and len({line.split()[3] for line in read_lines(notes)}) == 2, why="both run")
    for pid in (sentinel, *reapers_of(victim), victim.pid):
        os.kill(pid, signal.SIGKILL)
    victim.wait(60)
    start("next")
    eventually(lambda: any(line.split()[1] == "2" for line in read_lines(notes)), within=SOON, why="it runs again")
    time.sleep(1)
    lines = [line.split() for line in read_lines(notes)]
    begins = min(float(at) for at, attempt, *_ in lines if attempt == "2")
    assert {forked for _, attempt, forked, _ in lines if attempt == "1"} == {"True"}
    assert [line for line in lines if line[1] == "1" and float(line[0]) > begins] == []


def test_no_process_of_a_pool_process_outlives_the_proof(running, start):
    """The child processes of an attempt also have the mark of its pool process, with and without exec."""
    (running.folder / "living.py").write_text(LIVING)
    (running.folder / "pooled.py").write_text(POOLED)
    running.env |= {"PYTHONPATH": f"{ROOT}:{running.folder}"}
    victim = start("pool-owner", "--allow", "callable:pooled")
    sentinel = sentinel_of(victim)
    notes = running.folder / "pooled.notes"
    body = {"action": {"type": "callable", "path": "pooled:live"}, "tags": [running.tag], "payload": str(notes)}
    running.call("POST", f"{running.url}/api/v1/jobs", running.token("client"), body)
    eventually(lambda: notes.exists() and len({line.split()[3] for line in read_lines(notes)}) == 4, why="all run")
    for pid in (sentinel, *reapers_of(victim), victim.pid):
        os.kill(pid, signal.SIGKILL)
    victim.wait(60)
    start("pool-heir", "--allow", "callable:pooled")
    eventually(lambda: any(line.split()[1] == "2" for line in read_lines(notes)), within=SOON, why="it runs again")
    time.sleep(1)
    lines = [line.split() for line in read_lines(notes)]
    begins = min(float(at) for at, attempt, *_ in lines if attempt == "2")
    assert [line for line in lines if line[1] == "1" and float(line[0]) > begins] == []


def test_a_killed_agent_with_claims_ahead_loses_only_what_ran(running, start):
    (running.folder / "living.py").write_text(LIVING)
    (running.folder / "pooled.py").write_text(POOLED)
    running.env |= {"PYTHONPATH": f"{ROOT}:{running.folder}"}
    victim = start("quick", "--allow", "callable:pooled")
    sentinel_of(victim)
    notes = running.folder / "counted.notes"
    job = {"action": {"type": "callable", "path": "pooled:count"}, "tags": [running.tag], "payload": str(notes)}
    jobs = running.call("POST", f"{running.url}/api/v1/jobs", running.token("client"), [job] * 500)["items"]
    eventually(lambda: notes.exists() and len(read_lines(notes)) > 200, why="many have run")
    victim.kill()
    start("quick-heir", "--allow", "callable:pooled")
    ids = [job["id"] for job in jobs]

    def ended():
        with running.connected() as connection:
            query = "select state, resubmissions from jobs_workerjob where id = any(%s)"
            rows = connection.execute(query, [ids]).fetchall()
        return all(state == "COMPLETED" for state, _ in rows) and sum(count for _, count in rows) + 1

    lost = eventually(ended, why="all are done") - 1
    runs = [read_lines(notes).count(id) for id in ids]
    assert min(runs) == 1 and lost <= 2, "only what ran is tried again: one for each slot"
    assert sum(runs) - len(runs) <= 2
    with running.connected() as connection:
        query = "select state, started_at is not null from jobs_attempt where job_id = any(%s)"
        attempts = connection.execute(query, [ids]).fetchall()
    assert attempts.count(("RESUBMITTED", True)) == lost, "what had not begun was not interrupted"
    assert ("RELEASED", True) not in attempts


def start_stranger(pid):
    """Start a process that has nothing to do with the agent, with the process id of one that has ended.

    Return None if another process of this machine gets the id first.
    """
    last = Path("/proc/sys/kernel/ns_last_pid")
    if not os.access(last, os.W_OK):
        skip_without("process ids cannot be chosen")

    for _ in range(50):
        last.write_text(str(pid - 1))
        one = subprocess.Popen(["sleep", "600"])
        if one.pid == pid:
            return one
        end_strangers([one])
        time.sleep(0.1)
    return None


def end_strangers(strangers):
    for one in strangers:
        one.kill()
        one.wait()


def test_a_process_that_got_the_id_of_a_dead_one_is_left_alone_and_hides_no_death(running, start):
    for number in range(3):
        victim = start(f"reused-{number}")
        sentinel = sentinel_of(victim)
        job = Job(running)
        eventually(job.begun, why="the job runs")
        attempt = job.attempt_id()
        dead = [sentinel, victim.pid, *reapers_of(victim)]
        for pid in dead:
            os.kill(pid, signal.SIGKILL)
        victim.wait(60)
        strangers = [one for pid in dead if (one := start_stranger(pid))]
        if len(strangers) == len(dead):
            break
        end_strangers(strangers)
    else:
        pytest.fail("other processes had got the ids")
    try:
        start("reuser")
        recovered(job)
        assert marked(attempt) == []
        assert [stranger.poll() for stranger in strangers] == [None] * len(dead)
    finally:
        end_strangers(strangers)


def read_lines(path):
    """Return the complete lines of a file."""
    return path.read_text().split("\n")[:-1]


def reapers_of(process):
    found = []
    for path in Path(f"/proc/{process.pid}/task").glob("*/children"):
        for pid in path.read_text().split():
            with suppress(OSError):
                command = Path(f"/proc/{pid}/cmdline").read_bytes()
                if b"reaper.py" in command or b"fork_server" in command:
                    found.append(int(pid))
    return found


def test_an_agent_that_ran_out_of_memory_is_reported_at_once(running, start):
    """The kernel ends a process without memory by SIGKILL, as this test does with the whole session of the agent."""
    victim = start("hungry")
    sentinel_of(victim)
    job = Job(running)
    eventually(job.begun, why="the job runs")
    start("neighbour")
    os.killpg(victim.pid, signal.SIGKILL)
    recovered(job)


def test_a_killed_sentinel_is_started_again(running, start):
    agent = start("watched")
    first = sentinel_of(agent)
    os.kill(first, signal.SIGKILL)
    assert eventually(lambda: sentinel_of(agent) != first)


def test_a_stopped_agent_proves_nothing(running, start):
    agent = start("stopped", "--grace", "1")
    job = Job(running)
    eventually(job.begun, why="the job runs")
    start("other")
    freeze(agent)
    time.sleep(3)
    assert not job.begun(2)
    assert job.read()["state"] == "RUNNING"


def test_a_stopped_reaper_holds_the_proof_back_until_it_has_ended(running, start):
    agent = start("held")
    job = Job(running)
    eventually(job.begun, why="the job runs")
    [reaper] = reapers_of(agent)
    start("waiting")
    os.kill(reaper, signal.SIGSTOP)
    agent.kill()
    time.sleep(3)
    assert not job.begun(2)
    os.kill(reaper, signal.SIGCONT)
    recovered(job)


def test_an_agent_that_ends_by_itself_leaves_no_file_and_no_sentinel(running, start):
    agent = start("polite")
    sentinel = sentinel_of(agent)
    path = file_of(running, "polite")
    agent.terminate()
    assert agent.wait(60) == 0
    eventually(lambda: not Path(f"/proc/{sentinel}").exists(), why="the sentinel ends")
    assert not list(path.parent.glob(f"{path.stem}*"))


def start_program(running, name, code, *arguments):
    """Start a user's program that is a server with this name."""
    server = {"CONTROLPLANE_URL": running.url, "CONTROLPLANE_TOKEN": running.token("worker")}
    program = running.folder / f"{name.replace('-', '_')}.py"
    program.write_text(code)
    process = running.start(name, str(program), name, *arguments, **server)
    eventually(lambda: state_of(running, name) == "RUNNING", why=f"{name} registers")
    return process


def state_of(running, name):
    items = running.call("GET", f"{running.url}/api/v1/servers?search={name}", running.token("operator"))["items"]
    return next((server["state"] for server in items if server["name"] == name), "NOT_RUNNING")


@pytest.mark.parametrize("with_sentinel", [False, True], ids=["alone", "with-its-sentinel"])
def test_a_process_whose_work_ends_with_it_is_reported_at_once(running, with_sentinel):
    name, heir = f"nightly-{with_sentinel}", f"next-nightly-{with_sentinel}"
    process = start_program(running, name, HEART, "True")
    sentinel = sentinel_of(process)
    eventually(lambda: list((running.folder / "state/servers").glob("*.json")), why="its file is there")
    if with_sentinel:
        os.kill(sentinel, signal.SIGKILL)
    process.kill()
    process.wait(60)
    if with_sentinel:
        start_program(running, heir, HEART, "True")
    eventually(lambda: state_of(running, name) in ("ERROR", "NOT_RUNNING"), within=SOON, why="its end is reported")
    running.end({name, heir} & {*running.processes})


def test_a_process_whose_work_may_go_on_elsewhere_waits_for_the_timeout(running):
    process = start_program(running, "elsewhere", HEART, "False")
    process.kill()
    process.wait(60)
    time.sleep(3)
    assert state_of(running, "elsewhere") == "RUNNING"


def test_a_worker_in_a_program_of_ones_own_is_reported_at_once(running, start):
    victim = start_program(running, f"own-{running.tag}", WORKER, running.tag)
    sentinel_of(victim)
    body = {"action": {"type": "handler", "name": "wait"}, "tags": [running.tag], "payload": 600}
    job = running.call("POST", f"{running.url}/api/v1/jobs", running.token("client"), body)
    path = f"{running.url}/api/v1/jobs/{job['id']}"

    def attempts():
        return running.call("GET", path, running.token("client"))["attempts"]

    eventually(lambda: [attempt["state"] for attempt in attempts()] == ["RUNNING"], why="the job runs")
    victim.kill()
    eventually(lambda: attempts()[0]["state"] == "RESUBMITTED", within=SOON, why="it is taken from the dead worker")


def test_a_copied_file_proves_nothing(running, start):
    agent = start("original", "--grace", "1")
    job = Job(running)
    eventually(job.begun, why="the job runs")
    path = file_of(running, "original")
    copy = running.folder / "copy"
    (copy / "servers").mkdir(parents=True, mode=0o700)
    (copy / "servers" / path.name).write_bytes(path.read_bytes())
    start("cloned", "--state-dir", str(copy))
    time.sleep(2)
    assert job.read()["state"] == "RUNNING"
    assert agent.poll() is None
    assert "its file is a copy" in (running.folder / "cloned.log").read_text()


def test_an_agent_without_a_state_folder_works_and_warns_once(running, start):
    blocked = running.folder / "blocked"
    blocked.write_text("a file, not a folder")
    start("homeless", "--state-dir", str(blocked / "state"))
    job = Job(running, "true")
    eventually(job.begun, why="it works")
    assert (running.folder / "homeless.log").read_text().count("cannot be proved") == 1


def test_a_removed_state_folder_takes_the_proof_and_no_job(running, start):
    state = running.folder / f"state-of-{running.tag}"
    agent = start("robbed", "--state-dir", str(state))
    job = Job(running)
    eventually(job.begun, why="the job runs")
    shutil.rmtree(state)
    later = Job(running, "true")
    eventually(later.begun, why="it works on")
    assert (running.folder / "robbed.log").read_text().count("cannot be proved any more") == 1
    start("afterwards")
    agent.kill()
    time.sleep(3)
    assert not job.begun(2)
    assert job.read()["state"] == "RUNNING"


def test_an_agent_on_a_full_disk_works_without_proofs(running, start):
    disk = running.folder / f"disk-of-{running.tag}"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k,mode=700", "tmpfs", str(disk)]
    if subprocess.run(mount, check=False, stderr=subprocess.DEVNULL).returncode:
        pytest.skip("this user cannot mount a file system")
    try:
        agent = start("full", "--state-dir", str(disk))
        eventually(lambda: any(disk.glob("servers/*")), why="its proof is prepared")
        with suppress(OSError), (disk / "filler").open("wb") as filler:
            filler.write(bytes(128 * 1024))
        job = Job(running)
        eventually(job.begun, why="it works")
        log = running.folder / "full.log"
        eventually(lambda: "cannot be proved any more" in log.read_text(), why="it warns")
        start("roomy")
        agent.kill()
        time.sleep(3)
        assert job.read()["state"] == "RUNNING"
        agent.wait(60)
        eventually(lambda: marked(job.attempt_id()) == [], why="its code has ended")
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=False)


def test_a_container_that_is_started_again_reports_its_first_life(running, start):
    """A PID namespace stands for the container: the kernel ends all of it with its first process."""
    state = running.folder / "container"
    contain = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
    agent = [running.python, "-m", "controlplane.agent", "--url", running.url, "--name", "contained", "--poll", "0.2"]
    command = [*contain, *agent, "--runtimes", "", "--tags", running.tag, "--state-dir", str(state)]
    if subprocess.run([*contain, "true"], check=False).returncode:
        pytest.skip("this machine makes no PID namespaces")
    env = {**running.env, "CONTROLPLANE_TOKEN": running.token("worker")}
    first = subprocess.Popen(command, env=env, start_new_session=True)
    try:
        job = Job(running)
        eventually(job.begun, why="the job runs")
        os.killpg(first.pid, signal.SIGKILL)
        first.wait(60)
        second = subprocess.Popen(command, env=env, start_new_session=True)
        try:
            recovered(job)
        finally:
            os.killpg(second.pid, signal.SIGKILL)
            second.wait(60)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(first.pid, signal.SIGKILL)


def test_a_death_is_reported_when_the_control_plane_is_back(running, start):
    port = int(running.url.rpartition(":")[2])
    agent = start("early")
    job = Job(running)
    eventually(job.begun, why="the job runs")
    running.end(["web"])
    path = file_of(running, "early")
    agent.kill()
    agent.wait(60)
    time.sleep(1)
    assert path.exists(), "the sentinel waits for an answer"
    running.web(port=port)
    start("late")
    recovered(job)


def test_what_ended_before_the_death_is_reported_before_it(running, start):
    """An agent that ends while nobody answers keeps its reports; the sentinel sends them, then reports the end."""
    port = int(running.url.rpartition(":")[2])
    agent = start("last", "--grace", "5")
    release = running.folder / "release"
    wait = f'while [ ! -e "{release}" ]; do sleep 0.1; done; echo done'
    body = {"action": {"type": "script", "command": wait}, "tags": [running.tag]}
    job = running.call("POST", f"{running.url}/api/v1/jobs", running.token("client"), body)
    path = f"{running.url}/api/v1/jobs/{job['id']}"
    eventually(lambda: running.call("GET", path, running.token("client"))["state"] == "RUNNING")
    running.end(["web"])
    release.touch()
    eventually(lambda: "Job ended" in (running.folder / "last.log").read_text(), why="the code ends")
    agent.terminate()
    agent.wait(60)
    running.web(port=port)
    done = eventually(lambda: (now := running.call("GET", path, running.token("client")))["finished_at"] and now)
    assert (done["state"], len(done["attempts"])) == ("COMPLETED", 1)


@pytest.mark.parametrize("forked", [False, True], ids=["new", "forked"])
def test_code_of_a_job_never_holds_the_lock(running, start, forked):
    """A forked call is the second and each later one of a module in the same agent."""
    (running.folder / "links.py").write_text(LINKS)
    agent_env = {"PYTHONPATH": f"{running.env['PYTHONPATH']}:{running.folder}"}
    running.env |= agent_env
    start("lender")
    action = {"type": "callable", "path": "links:list_links"}
    for _ in range(4 if forked else 1):
        body = {"action": action, "tags": [running.tag], "payload": None}
        job = running.call("POST", f"{running.url}/api/v1/jobs", running.token("client"), body)
        path = f"{running.url}/api/v1/jobs/{job['id']}"
        done = eventually(
            lambda path=path: (now := running.call("GET", path, running.token("client")))["output"] and now
        )
    links = done["output"]
    assert links and not [link for link in links if "/servers/" in link]


def test_the_file_of_a_server_holds_no_token(running, start):
    start("careful")
    path = file_of(running, "careful")
    assert set(json.loads(path.read_text())) == {
        "server", "instance", "url", "token_check", "boot", "machine", "namespace", "ends_namespace", "inode",
    }  # fmt: skip
    assert running.token("worker") not in path.read_text()
    assert path.stat().st_mode & 0o777 == 0o600
