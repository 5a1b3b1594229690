"""Lock order: servers, roots of executions, jobs, attempts, each by id.

Every pair of transactions is tested step by step. The first transaction stops before the first, second or third row
that it writes, with all its locks. The second runs until it is done or waits. Then the first continues. PostgreSQL must
never find a deadlock.
"""

import time
from contextlib import suppress

import pytest
from django.db import DatabaseError, connection
from psycopg.errors import DeadlockDetected

from controlplane.core import transactions
from controlplane.core.problems import Problem
from jobs.models import Trigger, WorkerJob
from jobs.services import cancellation, evaluations, execution_repair, recovery, retention, sweep, triggers
from jobs.services.liveness_check import retire_servers
from liveness.services import detection, tokens
from tests.integration.races import test_hot_paths as hot
from tests.integration.races.test_hot_paths import run
from tests.support.executions import SCRIPT, Run, step
from tests.support.http import Caller
from tests.support.processes import eventually

STEPPED = """
    create sequence if not exists written;
    create or replace function paused() returns trigger language plpgsql as $$
    begin
        if current_setting('stepping.at', true) = nextval('written')::text then
            perform pg_advisory_lock_shared(42), pg_advisory_unlock_shared(42);
        end if;
        return new;
    end $$;
""" + "".join(
    f"create trigger paused before {event} on {table} for each row"
    " when (current_setting('stepping.at', true) <> '') execute function paused();"
    for event, table in [
        ("insert or update", "jobs_workerjob"), ("insert or update", "jobs_execution"), ("update", "jobs_attempt"),
        ("update", "liveness_server"), ("update", "jobs_triggerslot"),
    ]
)  # fmt: skip
CLEARED = "".join(  # faster than truncate
    f"delete from {table};"  # noqa: S608
    for table in [
        "jobs_latereport", "jobs_logline", "jobs_attempt", "jobs_stepdependency", "jobs_triggerslot", "jobs_workerjob",
        "jobs_executionevent", "jobs_execution", "jobs_trigger", "liveness_server",
    ]
)  # fmt: skip
WAIT = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"


class Scene:
    """Worker that holds plain jobs, steps, the step of a child, items of a loop and an evaluation.

    Each method is one transaction.
    """

    def __init__(self, client, operator, worker):
        self.client, self.operator, self.worker = client, operator, worker
        child = {"type": "execution", "name": "inner", "steps": [step("x")]}
        loop = step("l", for_each="$.inputs.list", payload={})
        steps = [step("a"), step("b"), step("c", "a", "b"), step("k", action=child), step("e", tags=["nobody"]), loop]
        hooks = [{"key": "h", "action": SCRIPT}]
        body = {"name": "stepped", "steps": steps, "on_error": hooks, "inputs": {"list": [1, 2]}}
        execution = client.post("/executions", body).json()
        self.run = Run(client, execution["id"])
        body = {"name": "open", "sealed": False, "steps": [step("o", tags=["nobody"])]}
        self.open = client.post("/executions", body).json()["id"]
        client.post("/jobs", [{"action": SCRIPT}] * 3)
        body = {
            "name": "t",
            "interval_seconds": 3600,
            "action": SCRIPT,
            "execution": {"name": "f", "steps": [step("s")]},
        }
        self.trigger = operator.post("/triggers", body).json()["id"]
        triggers.evaluate_trigger(self.trigger, "operator:x")
        self.held = {}
        plain = iter(["p1", "p2", "p3"])
        for attempt in worker.claim(limit=20):
            job = attempt["job"]
            self.held["t" if job["kind"] == "TRIGGER" else job["step"] or next(plain)] = attempt
        self.say("STARTED", "a", "x", "t", "p1", "p2", "0")

    def say(self, event, *names, **more):
        reports = [{"attempt": self.held[name]["id"], "event": event, **more} for name in names]
        return self.worker.post(f"/servers/{self.worker.id}/reports", {"reports": reports})

    def job(self, name):
        return self.held[name]["job"]["id"]

    def claim(self):
        self.client.post("/jobs", [{"action": SCRIPT}] * 2)
        self.worker.post(f"/servers/{self.worker.id}/claims", {"limit": 5})

    def heartbeat_with_lists(self):
        running = [{"attempt": self.held[name]["id"], "pid": 1} for name in ("t", "x", "p2", "p1", "a")]
        self.worker.beat(running=running, claimed=[self.held[name]["id"] for name in ("p3", "b")])

    def start(self):
        self.say("STARTED", "p3", "b")

    def progress_and_completed(self):
        events = [(name, {"event": "PROGRESS", "progress": 0.5}) for name in ("p2", "a")]
        events += [(name, {"event": "COMPLETED"}) for name in ("p1", "x")]
        reports = [{"attempt": self.held[name]["id"], **fields} for name, fields in events]
        self.worker.post(f"/servers/{self.worker.id}/reports", {"reports": reports})

    def log(self):
        self.say("LOG", "p2", "a", "p1", stream="STDOUT", lines=["x"], sequence=0)

    def finish_steps(self):
        self.say("FAILED", "x", "a", error={"code": "BAD", "message": "no"})

    def finish_all(self):
        self.say("COMPLETED", "t", "x", "p1", "a", output={"fire": True})

    def finish_items(self):
        self.say("FAILED", "0", error={"code": "BAD", "message": "no"})
        self.say("COMPLETED", "1")

    def release(self):
        self.say("RELEASED", "p3", "b", "a", reason="fenced")

    def cancel_job(self):
        self.operator.post(f"/jobs/{self.job('p1')}/cancel", {})

    def cancel_steps(self):
        for name in ("a", "c", "e"):
            self.operator.post(f"/jobs/{self.run.step(name)['job']}/cancel", {})

    def cancel_execution(self):
        self.run.cancel()

    def add_steps(self):
        self.operator.post(f"/executions/{self.open}/steps", {"steps": [step("late", "o", tags=["nobody"])]})

    def seal_execution(self):
        self.operator.post(f"/executions/{self.open}/seal", {})

    def resubmit(self):
        for name in ("p2", "b"):
            self.operator.post(f"/jobs/{self.job(name)}/resubmit", {})

    def fail(self):
        for name in ("x", "p1", "t"):
            self.operator.post(f"/jobs/{self.job(name)}/fail", {})

    def recover(self):
        run("update liveness_server set state = 'ERROR', state_actor = 'server' where state = 'RUNNING'")
        recovery.recover_attempts()

    def reactivate(self):
        run("update liveness_server set state = 'DISCONNECTED', state_actor = 'x', reactivate_on_heartbeat = true")
        listed = [{"attempt": self.held["p1"]["id"], "pid": 1}]
        self.worker.beat(state="RUNNING", running=listed, claimed=[])

    def sweep_stale(self):
        sweep.fail_stale_running(0, "operator:x")
        sweep.requeue_stale_claimed(0, "operator:x")

    def sweep_waiting(self):
        run("update jobs_workerjob set good_until = '2000-01-01' where step = 'e' and state = 'PENDING'")
        sweep.expire_jobs()
        sweep.fail_unmatched_jobs()

    def repair(self):
        execution_repair.repair_execution(self.run.id)
        execution_repair.repair_executions()

    def halt(self):
        cancellation.stop_executions([self.run.id], "CANCELLED", "x")
        cancellation.halt_all_trees()

    def detect_and_retire(self):
        detection.disconnect_silent_servers()
        detection.deactivate_servers()
        retire_servers()

    def submit_keys(self):
        self.client.post("/jobs", [{"action": SCRIPT, "key": key} for key in "kl"])

    def submit_keys_backwards(self):
        self.client.post("/jobs", [{"action": SCRIPT, "key": key} for key in "lk"])

    def evaluate(self):
        Trigger.objects.update(next_slot_at="2020-01-01T00:00:00Z")
        evaluations.evaluate_due_triggers()

    def prune(self):
        WorkerJob.objects.filter(state__in=["COMPLETED", "FAILED"]).update(finished_at="2000-01-01T00:00:00Z")
        retention.prune_old_rows()


ALL = [name for name in vars(Scene) if not name.startswith("_") and name not in ("say", "job")]


@pytest.fixture
def scene(committed):
    client, operator = (Caller(tokens.create_token(role, role)) for role in ("client", "operator"))
    run(STEPPED)

    def scene():
        run(CLEARED)
        run("alter sequence written restart")
        return Scene(client, operator, committed(max_concurrent=100))

    try:
        yield scene
    finally:
        run("drop function paused() cascade; drop sequence written")


def stepped(call, at, rings):
    """Call it, and stop before row number `at` is written. Collect its deadlocks in `rings`."""

    def collect_deadlocks(execute, *args):
        try:
            return execute(*args)
        except DatabaseError as error:
            if isinstance(error.__cause__, DeadlockDetected):
                rings.append(str(error))
            raise

    run("select set_config('stepping.at', %s, false), set_config('deadlock_timeout', '50ms', false)", [at])
    try:
        with connection.execute_wrapper(collect_deadlocks), suppress(Problem, DatabaseError):
            call()
    finally:
        run("select set_config('stepping.at', '', false), set_config('deadlock_timeout', '1s', false)")


def until_done_or_waiting(future, waiting):
    until = time.monotonic() + 60
    while not future.done():
        if run(WAIT) >= waiting:
            return True
        assert time.monotonic() < until
        time.sleep(0.002)
    return False


@pytest.mark.exhaustive
@pytest.mark.parametrize("first", ALL)
def test_no_two_transactions_ever_wait_for_each_other_in_a_ring(scene, threads, monkeypatch, first):
    monkeypatch.setattr(transactions, "TRIES", 1)
    monkeypatch.setattr(retention, "list_prunings", lambda: [retention.job_pruning(run("select now()"))])
    rings = {}
    own = ALL.index(first)
    # Each pair once. Its places decide which of the two stops, and before which row.
    seconds = [place for place in range(len(ALL)) if (own <= place) == ((own + place) % 2 == 0)]
    pairs = [(ALL[place], 1 + place % 2) for place in seconds]
    if first in ("start", "progress_and_completed"):  # these had deadlocks once
        pairs = [(second, row) for second in ALL for row in (1, 3)]
    for second, row in pairs:
        set_up, errors = scene(), []
        run("select pg_advisory_lock(42)")
        try:
            one = threads(stepped, getattr(set_up, first), str(row), errors)
            until_done_or_waiting(one, 1)
            other = threads(stepped, getattr(set_up, second), "", errors)
            until_done_or_waiting(other, 2)
        finally:
            run("select pg_advisory_unlock_all()")
        one.result(60)
        other.result(60)
        if errors:
            rings[second, row] = errors[0].split("\n")[0]
    assert rings == {}


def test_a_transaction_that_was_ended_by_a_deadlock_begins_again(committed, threads):
    """A change by hand in the database may lock in another order.

    PostgreSQL looks for a deadlock once in each wait, so the call must be the last to wait: it asks for the operator's
    lock (42) only when the operator waits for its row. Lock 43 says that the call has the row.
    """
    (first,) = hot.submit_many(1)
    operator = Caller(tokens.create_token("an operator", "operator"))
    run("create function broken() returns trigger language plpgsql as $$ begin"
        " perform pg_advisory_xact_lock(43);"
        " while exists (select from pg_locks where locktype = 'advisory' and objid = 42) and not exists"
        " (select from pg_locks where not granted and pg_backend_pid() = any(pg_blocking_pids(pid)))"
        " loop perform pg_sleep(0.01); end loop;"
        " perform set_config('lock_timeout', '0', true), pg_advisory_xact_lock(42); return new; end $$;"
        " create trigger broken before update on jobs_workerjob for each row execute function broken()")  # fmt: skip
    run("begin; select pg_advisory_xact_lock(42)")
    try:
        answer = threads(operator.post, f"/jobs/{first}/cancel", {})
        eventually(lambda: run("select count(*) from pg_locks where locktype = 'advisory' and objid = 43"))
        run("set local deadlock_timeout = '10min'; set local lock_timeout = 0")  # so that PostgreSQL ends the call
        run("select id from jobs_workerjob where id = %s for update", [first])
    finally:
        run("rollback")
    assert answer.result(30).status_code == 200
    assert WorkerJob.objects.get(pk=first).state == "CANCELLED"
