"""Functions that the operator named run one after the other in processes that stay."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from controlplane.agent.secrets.values import MARK
from tests.support.standin import Agent, ControlPlane, alive, eventually

pytestmark = pytest.mark.usefixtures("module")

WORK = """
import asyncio, os, signal, subprocess, sys, threading, time
from controlplane.agent import checkpoint, context, progress
KEPT, LOADED = [], time.time()
def where(payload):
    print("called with", payload)
    return {"pid": os.getpid(), "parent": os.getppid(), "loaded": LOADED, "job": context.job,
            "attempt": context.attempt,
            "variables": sorted(name for name in os.environ if name.startswith("JOB_")), "reading": sys.stdin.read(),
            "cwd": os.getcwd(), "left": os.environ.get("LEFT"), "usr1": str(signal.getsignal(signal.SIGUSR1)),
            "fds": len(os.listdir("/proc/self/fd")), "threads": threading.active_count()}
async def later(payload):
    await asyncio.sleep(0)
    return os.getpid()
def fail(payload):
    raise ValueError(payload)
def die(payload):
    os.kill(os.getpid(), 9)
def hang(path):
    child = subprocess.Popen(["setsid", "sleep", "1000"])
    with open(path + ".draft", "w") as file: file.write(f"{child.pid} {os.getpid()} {os.getppid()}")
    os.rename(path + ".draft", path)
    time.sleep(1000)
def report(payload):
    before = context.checkpoint
    progress(0.5, payload)
    checkpoint({"of": payload})
    return [before, context.checkpoint]
def change_surroundings(payload):
    os.chdir("/"); os.environ["LEFT"] = "x"; signal.signal(signal.SIGUSR1, signal.SIG_IGN); signal.alarm(1)
    os.environ.pop("JOB_ID"); sys.stdout = open(os.devnull, "w"); sys.stdout = None
    return os.getpid()
def leave_child(payload):
    KEPT.append(subprocess.Popen(["sleep", "1000"]))
    return [os.getpid(), KEPT[-1].pid]
def leave_orphan(payload):
    return [os.getpid(), int(subprocess.check_output("setsid sleep 1000 >&- 2>&- & echo $!", shell=True))]
def leave_file(payload):
    KEPT.append(open(payload))
    return os.getpid()
def connect(payload):
    import socket
    KEPT.append(socket.socketpair())
    return os.getpid()
def disconnect(payload):
    for one in KEPT.pop(): one.close()
    return os.getpid()
def leave_thread(payload):
    threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
    return os.getpid()
def start_tracker(payload):
    if not KEPT:
        KEPT.append(threading.Thread(target=time.sleep, args=(1000,), daemon=True)); KEPT[0].start()
    return os.getpid()
def swallow_memory(payload):
    KEPT.append(b"x" * payload)
    return os.getpid()
def fill(payload):
    KEPT.append("x" * payload); time.sleep(1000)
def use_memory(payload):
    used = b"x" * payload; time.sleep(1.5)
    return os.getpid()
def report_forever():
    while True:
        progress(0.1, "of an earlier attempt"); checkpoint("of an earlier attempt"); time.sleep(0.01)
def leave_reporters(payload):
    threading.Thread(target=report_forever, daemon=True).start()
    threading.Thread(target=leave_late_reporter, daemon=True).start()
    return os.getpid()
def leave_late_reporter():
    time.sleep(0.5)
    threading.Thread(target=report_forever, daemon=True).start()
def nap(payload):
    time.sleep(payload)
    return os.getpid()
def report_in_thread(payload):
    thread = threading.Thread(target=progress, args=(0.5, payload)); thread.start(); thread.join()
def report_in_kept_executor(payload):
    import concurrent.futures, contextvars
    if not KEPT: KEPT.append(concurrent.futures.ThreadPoolExecutor(1))
    KEPT[0].submit(contextvars.copy_context().run, progress, 0.5, payload).result()
def fail_with_thread(payload):
    threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
    raise ValueError(os.getpid())
"""


@pytest.fixture
def module(tmp_path: Path) -> None:
    (tmp_path / "work.py").write_text(WORK)


@pytest.fixture
def pooled(agent: Callable[..., Agent]) -> Callable[..., Agent]:
    return lambda *options: agent("--allow", "callable:work", "--concurrency", "1", *options)


def submit(plane: ControlPlane, function: str, payload: Any = None, **fields: Any) -> str:
    return plane.submit({"type": "callable", "path": f"work:{function}"}, payload, **fields)


def call(plane: ControlPlane, function: str, payload: Any = None, **fields: Any) -> dict[str, Any]:
    attempt = submit(plane, function, payload, **fields)
    return dict(eventually(lambda: plane.final(attempt)))


def output(plane: ControlPlane, function: str, payload: Any = None, **fields: Any) -> Any:
    ended = call(plane, function, payload, **fields)
    assert ended["event"] == "COMPLETED", ended
    return ended["output"]


def test_named_functions_share_a_process_and_each_attempt_has_its_own_context(plane, pooled):
    pooled()
    one, two = output(plane, "where", "one"), output(plane, "where", "two")
    assert (one["pid"], one["parent"], one["loaded"]) == (two["pid"], two["parent"], two["loaded"])
    assert one["job"] != two["job"] and one["attempt"] == 1 and one["reading"] == ""
    assert {"JOB_ID", "JOB_ATTEMPT_ID", "JOB_PAYLOAD", "JOB_PROGRESS"} < set(one["variables"])
    assert output(plane, "later") == one["pid"]
    logs = [report["lines"] for report in plane.reports if report["event"] == "LOG"]
    assert logs == [["called with one"], ["called with two"]]


def test_an_error_of_one_attempt_ends_only_that_one(plane, pooled):
    pooled()
    first = output(plane, "where")["pid"]
    failed = call(plane, "fail", "broken")["error"]
    assert (failed["code"], failed["message"]) == ("ValueError", "broken") and "work.py" in failed["traceback"]
    assert call(plane, "missing")["error"]["code"] == "AttributeError"
    assert output(plane, "where")["pid"] == first


def test_a_killed_pool_process_costs_the_one_attempt_it_runs(plane, pooled):
    pooled()
    first = output(plane, "where")["pid"]
    assert call(plane, "die")["error"]["code"] == "WORKER_CRASHED"
    assert output(plane, "where")["pid"] != first


def test_progress_and_checkpoint_are_those_of_the_current_attempt(plane, pooled):
    pooled()
    assert output(plane, "report", "one", checkpoint={"of": "before"}) == [{"of": "before"}, {"of": "one"}]
    assert output(plane, "report", "two") == [None, {"of": "two"}]
    kept = [report["value"] for report in plane.reports if report["event"] == "CHECKPOINT"]
    assert kept == [{"of": "one"}, {"of": "two"}]
    assert [report["message"] for report in plane.reports if report["event"] == "PROGRESS"] == ["one", "two"]


def test_a_thread_that_outlives_its_attempt_reports_nothing_for_the_next_one(plane, pooled):
    pooled()
    for _ in range(20):
        first = output(plane, "leave_reporters")
        attempt = submit(plane, "nap", 1.5)
        then = eventually(lambda attempt=attempt: plane.final(attempt))["output"]
        assert plane.events(attempt) == ["STARTED", "COMPLETED"]
        if then == first:
            return
        # The thread had its file open at the end of the attempt, so the process was replaced.
    pytest.fail("the process was replaced each time")


def test_a_thread_reports_for_the_attempt_that_started_it(plane, pooled):
    pooled()
    for function in ("report_in_thread", "report_in_kept_executor", "report_in_kept_executor"):
        attempt = submit(plane, function, function)
        eventually(lambda attempt=attempt: plane.final(attempt))
        assert plane.events(attempt) == ["STARTED", "PROGRESS", "COMPLETED"], function


def test_a_failed_attempt_that_leaves_a_thread_is_the_last_one_of_its_process(plane, pooled):
    worker = pooled()
    first = output(plane, "where")["pid"]
    assert call(plane, "fail_with_thread")["error"]["message"] == str(first)
    assert output(plane, "where")["pid"] != first and not alive(first)
    assert "it failed and left the thread" in worker.log


def test_a_call_that_a_dying_process_has_not_begun_goes_to_another_one(plane, pooled):
    worker = pooled()
    dying = output(plane, "where")["pid"]
    os.kill(dying, signal.SIGSTOP)
    attempt = submit(plane, "nap", 0)
    eventually(lambda: worker.log.count("Job started") == 2)
    os.kill(dying, signal.SIGKILL)
    ended = eventually(lambda: plane.final(attempt))
    assert ended["event"] == "COMPLETED" and ended["output"] != dying


@pytest.mark.parametrize("options", [(), ("--isolation", "process")])
def test_a_job_or_the_agent_can_demand_a_process_for_each_attempt(plane, pooled, options):
    pooled(*options)
    job = {} if options else {"isolation": "process"}
    pids = {output(plane, "where", **job)["pid"] for _ in range(2)}
    assert len(pids) == 2 and not any(map(alive, pids))


def test_a_job_with_secrets_has_a_process_of_its_own(plane, pooled):
    pooled()
    shared = output(plane, "where")["pid"]
    own = output(plane, "where", {"key": {MARK: "hidden"}})["pid"]
    assert own != shared and not alive(own) and alive(shared)


def test_without_a_pattern_callables_run_in_processes_of_their_own(plane, agent):
    agent("--allow", "callable")
    assert not alive(output(plane, "where")["pid"])


def test_with_the_option_pool_all_callables_share_a_process(plane, agent):
    agent("--allow", "callable", "--isolation", "pool", "--concurrency", "1")
    assert output(plane, "where")["pid"] == output(plane, "where")["pid"]


def test_what_an_attempt_changes_is_put_back(plane, pooled, tmp_path):
    pooled()
    before = output(plane, "where")
    assert output(plane, "change_surroundings") == before["pid"]
    after = output(plane, "where")
    changing = {"job", "reading"}
    assert [after[k] for k in after if k not in changing] == [before[k] for k in before if k not in changing]


@pytest.mark.parametrize("function", ["leave_child", "leave_orphan"])
def test_child_processes_that_are_left_end_before_the_attempt_does(plane, pooled, function):
    worker = pooled()
    first, child = output(plane, function)
    assert not alive(first) and not alive(child)
    assert output(plane, "where")["pid"] != first
    assert "Pool process replaced" in worker.log and "it left the child process" in worker.log


def test_an_open_file_does_not_reach_the_next_attempt(plane, pooled, tmp_path):
    worker = pooled()
    first = output(plane, "leave_file", str(tmp_path / "work.py"))
    assert output(plane, "where")["pid"] != first
    assert "it left files open" in worker.log and not alive(first)


def test_a_connection_may_stay_open_and_be_closed_by_a_later_attempt(plane, pooled):
    pooled()
    used = [output(plane, function) for function in ("connect", "where", "disconnect", "connect", "disconnect")]
    assert {pid if isinstance(pid, int) else pid["pid"] for pid in used} == {used[0]}


def test_a_growing_number_of_threads_replaces_the_process_and_one_thread_does_not(plane, pooled):
    worker = pooled()
    tracked = [output(plane, "start_tracker") for _ in range(5)]
    assert len(set(tracked)) == 1
    leaking = [output(plane, "leave_thread") for _ in range(4)]
    assert leaking[:3] == [tracked[0]] * 3 and leaking[3] != tracked[0]
    assert "its threads grew in 3 attempts in a row" in worker.log


def test_a_pool_process_is_replaced_after_so_many_tasks(plane, pooled):
    pooled("--max-tasks-per-child", "2")
    pids = [output(plane, "where")["pid"] for _ in range(4)]
    assert pids[0] == pids[1] != pids[2] == pids[3]
    eventually(lambda: not alive(pids[0]))


def test_a_pool_process_that_keeps_too_much_memory_is_replaced(plane, pooled):
    worker = pooled("--max-memory-per-child", "100M")
    first = output(plane, "where")["pid"]
    assert output(plane, "swallow_memory", 150_000_000) == first
    assert output(plane, "where")["pid"] != first
    assert "a pool process may keep 100 MiB" in worker.log


def test_a_changed_source_file_replaces_the_process(plane, pooled, tmp_path):
    pooled()
    first = output(plane, "where")["pid"]
    (tmp_path / "work.py").write_text("import os\ndef where(_):\n    return {'pid': os.getpid(), 'is': 'new'}\n")
    changed = eventually(lambda: (answer := output(plane, "where")).get("is") == "new" and answer)
    assert changed["pid"] != first


def hanging(file: Path) -> list[int]:
    """Return the process ids of a hanging attempt: of its child, its pool process and the reaper."""
    return [int(pid) for pid in eventually(lambda: file.exists() and file.read_text().split())]


def test_cancel_and_timeout_kill_the_pool_process_with_everything_below_it(plane, pooled, tmp_path):
    pooled()
    first = output(plane, "where")["pid"]
    cancelled = submit(plane, "hang", str(tmp_path / "cancelled"))
    pids = hanging(tmp_path / "cancelled")
    assert pids[1] == first
    plane.heartbeat["cancel"] = [cancelled]
    assert eventually(lambda: plane.final(cancelled))["event"] == "CANCELLED"
    assert not any(map(alive, pids))
    late = call(plane, "hang", str(tmp_path / "late"), timeout=5)
    assert late["error"]["code"] == "STEP_TIMEOUT"
    assert not any(map(alive, hanging(tmp_path / "late")))
    assert output(plane, "where")["pid"] not in pids


def test_the_memory_limit_kills_the_pool_process_of_that_attempt_alone(plane, pooled):
    pooled("--memory-limit", "200M")
    first = output(plane, "where")["pid"]
    assert call(plane, "fill", 300_000_000)["error"]["code"] == "OUT_OF_MEMORY"
    assert not alive(first) and output(plane, "where")["pid"] != first


def test_a_task_does_not_count_for_the_memory_that_earlier_ones_left(plane, pooled):
    pooled("--memory-limit", "200M")
    first = output(plane, "swallow_memory", 50_000_000)
    assert output(plane, "use_memory", 150_000_000) == first


def test_a_pool_process_may_keep_half_of_the_memory_limit(plane, pooled):
    worker = pooled("--memory-limit", "240M")
    first = output(plane, "swallow_memory", 130_000_000)
    assert output(plane, "where")["pid"] != first
    assert "a pool process may keep 120 MiB" in worker.log


def test_a_process_is_not_replaced_for_the_memory_that_a_new_one_has_too(plane, pooled):
    pooled("--max-memory-per-child", "1M")
    first = output(plane, "where")["pid"]
    assert output(plane, "swallow_memory", 100_000_000) == first
    assert output(plane, "where")["pid"] != first


@pytest.mark.parametrize("victims", ["agent", "agent and reaper"])
def test_nothing_of_a_pool_process_outlives_its_agent(plane, pooled, tmp_path, victims):
    worker = pooled()
    idle = output(plane, "where")["pid"]
    submit(plane, "hang", str(tmp_path / "pids"))
    pids = hanging(tmp_path / "pids")
    worker.process.send_signal(signal.SIGSTOP)  # or it would end what a killed reaper leaves
    if victims == "agent and reaper":
        os.kill(pids[2], signal.SIGKILL)
    worker.process.kill()
    eventually(lambda: not any(map(alive, [idle, pids[1]])))
    if victims == "agent":
        eventually(lambda: not any(map(alive, pids)))
    else:
        os.kill(pids[0], signal.SIGKILL)  # a successor finds it by its mark: see test_fast_recovery.py


def test_the_fence_kills_pool_processes(plane, pooled, tmp_path):
    pooled()
    submit(plane, "hang", str(tmp_path / "pids"))
    pids = hanging(tmp_path / "pids")
    plane.lower_fence(1)
    plane.down = True
    eventually(lambda: not any(map(alive, pids)))


def test_code_that_ignores_sigterm_is_killed_and_its_late_result_is_not_used(plane, pooled, tmp_path):
    (tmp_path / "work.py").write_text(
        WORK + "def stubborn(path):\n    signal.signal(signal.SIGTERM, lambda *_: KEPT.append(1))\n"
        "    open(path, 'w').close()\n    while not KEPT: time.sleep(0.01)\n    return os.getpid()\n"
    )
    pooled()
    first = output(plane, "where")["pid"]
    attempt = submit(plane, "stubborn", str(tmp_path / "begun"))
    eventually((tmp_path / "begun").exists)
    plane.heartbeat["cancel"] = [attempt]
    assert eventually(lambda: plane.final(attempt))["event"] == "CANCELLED"
    assert not alive(first)


def test_a_spare_process_is_ready_when_one_dies(plane, pooled):
    pooled()
    first = output(plane, "where")
    assert call(plane, "die")["event"] == "FAILED"
    second = output(plane, "where")
    assert second["pid"] != first["pid"]


def test_the_agent_ends_with_all_its_pool_processes(plane, pooled):
    worker = pooled()
    pid = output(plane, "where")["pid"]
    worker.process.send_signal(signal.SIGTERM)
    assert worker.process.wait(30) == 0
    assert not alive(pid)


def test_forked_pool_processes_keep_what_the_import_has_set(plane, agent, tmp_path, monkeypatch):
    monkeypatch.setenv("JOB_REGION", "eu")
    (tmp_path / "setting.py").write_text(
        "import os, sys\nHOME = os.getpid()\nos.environ['API_KEY'] = 'of the import'\n"
        "class Plain:\n    write = flush = lambda *_: None\nsys.stdout = Plain()\n"
        "def run(_): return [HOME, os.getpid(), os.environ['API_KEY'], os.environ['JOB_ID']]\n"
    )
    agent("--allow", "callable:setting", "--concurrency", "1")
    attempt = plane.submit({"type": "callable", "path": "setting:run"})
    home, pid, key, job = eventually(lambda: plane.final(attempt))["output"]
    assert home != pid and alive(home)
    assert (key, job) == ("of the import", next(item["job"]["id"] for items in plane.claims.values() for item in items))


def test_pool_processes_are_forked_from_one_that_has_imported_what_can_be_shared(plane, agent, tmp_path):
    (tmp_path / "forking.py").write_text("import os\nHOME = os.getpid()\ndef run(_): return [HOME, os.getpid()]\n")
    strange = "import socket\nPAIR = socket.socketpair()\n"
    (tmp_path / "connected.py").write_text(f"{strange}{(tmp_path / 'forking.py').read_text()}")
    worker = agent("--allow", "callable:connected,callable:forking,callable:broken", "--concurrency", "1")

    def run(module: str) -> Any:
        attempt = plane.submit({"type": "callable", "path": f"{module}:run"})
        return eventually(lambda: plane.final(attempt))

    home, pid = run("forking")["output"]
    assert home != pid and alive(home)
    # Processes cannot share the sockets of a module, so each imports that module by itself.
    other_home, pid = run("connected")["output"]
    assert other_home == pid
    assert run("broken")["error"]["code"] == "ModuleNotFoundError"

    os.kill(home, signal.SIGKILL)
    os.kill(pid, signal.SIGKILL)

    def is_forked_again() -> bool:
        new_home, new_pid = run("forking")["output"]
        os.kill(new_pid, signal.SIGKILL)
        return new_home not in (home, new_pid)

    eventually(is_forked_again, "another process has imported the modules")
    worker.process.kill()
