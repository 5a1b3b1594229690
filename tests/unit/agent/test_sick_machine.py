"""A machine on which no code can start: its worker gives jobs back, and takes none until the machine is well."""

from __future__ import annotations

import contextlib
import os
import resource
import selectors
import time
from pathlib import Path

import pytest

from controlplane.agent.fitness import machine_watch
from controlplane.agent.fitness.machine_watch import TIMES_GIVEN_BACK, MachineWatch
from controlplane.agent.fitness.self_cordon import SelfCordon
from controlplane.agent.lasting_log import LastingRenderer, LastingStream
from controlplane.agent.processes.folder import Folder, remove_tree
from controlplane.agent.processes.machine_errors import MachineError
from controlplane.agent.processes.supervisor import Supervisor
from tests.support.standin import eventually
from tests.unit.agent.test_probe import reported_cordons


class Disk:
    """The temporary directory of an agent, in whose place a file may stand."""

    def __init__(self, place):
        self.place, self.kept = place, place.with_name("kept")

    def take_away(self):
        self.place.rename(self.kept)
        self.place.touch()

    def give_back(self):
        self.place.unlink()
        self.kept.rename(self.place)


@pytest.fixture
def disk(tmp_path):
    return Disk(tmp_path / "tmp")


def break_at_the_next_claim(plane, break_it):
    """Call `break_it` when the agent asks for the job that waits."""

    def script(body):
        if plane.pending and plane.script.pop("claims", None):
            break_it()

    plane.script["claims"] = script


def run_one(plane):
    attempt = plane.submit("true")
    assert eventually(lambda: plane.final(attempt))["event"] == "COMPLETED"


def is_cordoned(plane):
    return reported_cordons(plane)[-1][0] is False


def test_without_a_disk_jobs_are_given_back_and_none_is_taken(plane, agent, disk):
    agent()
    run_one(plane)
    break_at_the_next_claim(plane, disk.take_away)
    attempts = [plane.submit("true") for _ in range(3)]
    taken = eventually(lambda: [a for a in attempts if plane.final(a)])
    for attempt in taken:
        assert plane.final(attempt)["event"] == "RELEASED", "the job did nothing wrong"
        assert "Not a directory" in plane.final(attempt)["reason"]
    eventually(lambda: is_cordoned(plane))
    assert "Not a directory" in reported_cordons(plane)[-1][1]
    beats = plane.count("heartbeat")
    eventually(lambda: plane.count("heartbeat") > beats + 2)  # a claim that was on its way has its answer
    waiting = plane.submit("true")
    time.sleep(machine_watch.FIRST_PAUSE + 0.5)  # a check has found it still sick
    assert not plane.events(waiting)
    disk.give_back()
    assert eventually(lambda: plane.final(waiting))["event"] == "COMPLETED", "nobody lifted the cordon by hand"
    eventually(lambda: reported_cordons(plane)[-1] == (None, ""))


def test_without_file_descriptors_jobs_are_given_back_and_heartbeats_go_on(plane, agent):
    worker = agent()
    run_one(plane)
    pid = worker.process.pid
    soft, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)

    def use_up():
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (len(os.listdir(f"/proc/{pid}/fd")), hard))

    break_at_the_next_claim(plane, use_up)
    attempt = plane.submit("true")
    final = eventually(lambda: plane.final(attempt))
    assert final["event"] == "RELEASED" and "Too many open files" in final["reason"]
    eventually(lambda: is_cordoned(plane))
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (soft, hard))
    run_one(plane)


def test_an_error_of_a_job_fails_it_and_cordons_no_worker(plane, agent, tmp_path):
    agent()
    missing = plane.submit({"type": "script", "command": ["/no/such/program"]})
    nowhere = plane.submit({"type": "script", "command": "true", "cwd": "/no/such/place"})
    (tmp_path / "text").write_text("no program")
    no_program = plane.submit({"type": "script", "command": [str(tmp_path / "text")]})
    too_long = plane.submit({"type": "script", "command": f": {'x' * 200_000}"})
    for attempt in (missing, nowhere, no_program, too_long):
        assert eventually(lambda attempt=attempt: plane.final(attempt))["error"]["code"] == "CANNOT_START"
    run_one(plane)
    assert reported_cordons(plane) == [(None, "")]


def test_a_function_whose_module_meets_an_error_of_the_machine_is_given_back(plane, agent, tmp_path):
    (tmp_path / "full.py").write_text("import errno, os\nraise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))\n")
    (tmp_path / "raises.py").write_text("def f(_):\n    raise OSError(28, 'No space left on device')\n")
    agent()
    within = plane.submit({"type": "callable", "path": "raises:f"})
    assert eventually(lambda: plane.final(within))["error"]["code"] == "OSError", "its code had begun"
    before = plane.submit({"type": "callable", "path": "full:f"})
    final = eventually(lambda: plane.final(before))
    assert final["event"] == "RELEASED" and "No space left on device" in final["reason"]


def test_a_function_that_ends_at_once_has_begun(plane, agent, tmp_path):
    (tmp_path / "ends.py").write_text("import os\ndef f(_):\n    os._exit(3)\n")
    agent()
    attempts = [plane.submit({"type": "callable", "path": "ends:f"}) for _ in range(6)]
    for attempt in attempts:
        assert eventually(lambda attempt=attempt: plane.final(attempt))["error"]["code"] == "EXIT_3"


def test_a_result_is_not_lost_when_the_disk_is_full_at_the_end(plane, agent, disk, tmp_path):
    (tmp_path / "waits.py").write_text(
        f"import os, time\ndef f(_):\n    open('{tmp_path}/on', 'w').close()\n"
        f"    while not os.path.exists('{tmp_path}/go'):\n        time.sleep(0.02)\n    return 'done'\n"
    )
    agent()
    attempt = plane.submit({"type": "callable", "path": "waits:f"})
    eventually((tmp_path / "on").exists)
    disk.take_away()
    (tmp_path / "go").touch()
    assert eventually(lambda: plane.final(attempt))["output"] == "done"


def test_a_secret_that_cannot_be_asked_for_gives_the_job_back(plane, agent, disk):
    agent("--secret-command", "echo found")
    run_one(plane)
    break_at_the_next_claim(plane, disk.take_away)
    action = {"type": "script", "command": "true", "env": {"A": {"secret": "a"}}}
    attempt = plane.submit(action)
    assert eventually(lambda: plane.final(attempt))["event"] == "RELEASED"
    assert plane.events(attempt) == ["RELEASED"], "it was never started"


def test_a_log_that_cannot_be_written_ends_no_worker():
    with contextlib.suppress(OSError), open("/dev/full", "w") as full:
        stream = LastingStream(full)
        for _ in range(3):
            assert stream.write("x" * 100_000) == 100_000
            stream.flush()


def test_an_event_that_cannot_be_rendered_is_logged_by_its_name():
    def fails(logger, method, event):
        raise OSError("Too many open files")

    assert "'Job started'" in LastingRenderer(fails)(None, "info", {"event": "Job started"})


class Machine:
    """A watch on this machine with a supervisor of its own."""

    def __init__(self, folder):
        self.selector = selectors.DefaultSelector()
        self.supervisor, self.folder = Supervisor(self.selector), Folder()
        self.cordon = SelfCordon()
        self.watch = MachineWatch(self.supervisor, self.folder, os.environ, self.cordon, lambda: None)

    def turn(self):
        self.supervisor.transfer_ready(self.selector.select(0.01))
        for child_exit in self.supervisor.reap_children():
            self.watch.record_exit(child_exit)
        self.watch.advance()
        return True

    def close(self):
        self.supervisor.close()
        self.folder.remove()
        self.selector.close()


@pytest.fixture
def machine(tmp_path, monkeypatch):
    monkeypatch.setattr(machine_watch, "FIRST_PAUSE", 0.01)
    monkeypatch.setattr(machine_watch, "LONGEST_PAUSE", 0.02)
    monkeypatch.setattr(machine_watch, "CHECK_INTERVAL", 0.05)
    machine = Machine(tmp_path)
    yield machine
    machine.close()


def get_well(machine):
    eventually(lambda: machine.turn() and not machine.watch.reason)


def test_a_job_that_brings_its_error_is_given_back_a_few_times_at_most(machine):
    error = MachineError("Input/output error: '/broken/share'")
    for _ in range(TIMES_GIVEN_BACK):
        assert machine.watch.record_error("job", error)
        assert machine.cordon.fields["schedulable"] is False
        get_well(machine)
        assert machine.cordon.fields["schedulable"] is True
    assert not machine.watch.record_error("job", error), "no endless loop of release and claim"
    assert machine.cordon.fields["schedulable"] is True, "and no cordon for the fault of a job"
    assert machine.watch.record_error("another", error)


def test_a_job_is_given_back_whenever_the_check_finds_a_sick_machine(machine, tmp_path):
    broken = tmp_path / "broken"
    error = MachineError("Cannot connect", ["/bin/sh", "-c", f"[ ! -e {broken} ]"])
    for _ in range(TIMES_GIVEN_BACK + 2):
        broken.touch()
        assert machine.watch.record_error("job", error)
        eventually(lambda: machine.turn() and not machine.watch._suspects)
        assert machine.watch.reason, "it is sick"
        broken.unlink()
        get_well(machine)


def test_an_error_of_the_agents_own_process_is_never_blamed_on_a_job(machine):
    for _ in range(TIMES_GIVEN_BACK + 2):
        assert machine.watch.record_error("job", MachineError("No space left on device", is_certain=True))
        get_well(machine)


def test_after_a_failed_job_the_machine_is_checked(machine, monkeypatch):
    monkeypatch.setattr(machine_watch, "FORK_COMMAND", ["/bin/sh", "-c", "echo no more processes >&2; exit 2"])
    machine.watch.check_soon()
    eventually(lambda: machine.turn() and machine.watch.reason)
    assert "no more processes" in machine.watch.reason
    monkeypatch.undo()
    machine.watch._check_at = 0.0
    get_well(machine)


def test_a_check_that_hangs_has_failed(machine, monkeypatch):
    monkeypatch.setattr(machine_watch, "PATIENCE", 0.1)
    monkeypatch.setattr(machine_watch, "FORK_COMMAND", ["/bin/sh", "-c", "sleep 1000"])
    machine.watch.check_soon()
    eventually(lambda: machine.turn() and machine.watch.reason)
    assert "longer than" in machine.watch.reason


READ_ONLY = 0o500


def remove_as_another_user(folder):
    """Remove a folder as a user who is not root, because root may do anything."""
    if pid := os.fork():
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    status = 1
    try:
        os.chdir(folder.parent)
        if os.getuid() == 0:
            os.setresuid(65534, 65534, 65534)
        remove_tree(Path(folder.name))
        status = 0
    finally:
        os._exit(status)


def test_folders_that_a_job_leaves_read_only_are_removed(tmp_path):
    top = tmp_path / "attempt"
    inner = top / "cache" / "package"
    inner.mkdir(parents=True)
    (inner / "file").touch()
    if os.getuid() == 0:
        tmp_path.chmod(0o777)
        for path in (top, inner.parent, inner, inner / "file"):
            os.chown(path, 65534, 65534)
    for path in (inner, inner.parent, top):
        path.chmod(READ_ONLY if path is not inner else 0)
    assert remove_as_another_user(top) == 0
    assert not top.exists()


def test_very_deep_folders_are_removed_and_what_links_lead_to_stays(tmp_path):
    top, outside = tmp_path / "attempt", tmp_path / "outside"
    outside.mkdir()
    (outside / "file").touch()
    top.mkdir()
    (top / "link").symlink_to(outside)
    here = os.open(top, os.O_RDONLY)
    for _ in range(3000):
        os.mkdir("deep", dir_fd=here)
        inner = os.open("deep", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.close(here)
    remove_tree(top)
    assert not top.exists() and (outside / "file").exists()
    top.symlink_to(outside)
    remove_tree(top)
    assert not top.is_symlink() and (outside / "file").exists()
