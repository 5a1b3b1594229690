"""Costs of the calls of workers, and what happens when many of them come at once, with real commits and connections."""

import time
import uuid
from contextlib import suppress

import pytest
from django.db import DatabaseError, connection, transaction

from controlplane.core.sql_book import compose_statement
from controlplane.core.statements import prefer_key_lookups
from jobs.models import Attempt, WorkerJob
from jobs.services import claiming, execution_rows, executions, recovery, submission
from jobs.services.liveness_check import CheckFailed, check_liveness
from jobs.sql import sql
from liveness.models import ApiToken, Server, ServerEvent
from liveness.services import tokens
from tests.support.clock import Clock
from tests.support.http import Caller, Worker
from tests.support.plans import executed, nodes, plan_of_execution
from tests.support.queries import CapturedQueries

SCRIPT = {"type": "script", "runner": "local", "command": "true"}
IMMEDIATELY = {"worker_task_restart_strategy": "IMMEDIATELY"}
BROKEN = """
    create function broken() returns trigger language plpgsql as $$ begin raise 'a bad row'; end $$;
    create trigger broken before update on {} for each row when (old.id = %s) execute function broken()
"""


def run(statement, params=None):
    with connection.cursor() as cursor:
        cursor.execute(statement, params)
        return cursor.fetchone()[0] if cursor.description else None


def submit_many(number, **fields):
    owner = ApiToken.objects.filter(role="client").first() or tokens.find_token(tokens.create_token("owner", "client"))
    return [job.id for job in submission.submit_jobs(owner, [{"action": SCRIPT, **fields}] * number)]


def someone_waits(deadline=10):
    """Return True if a statement waits for a lock of this connection before the deadline."""
    until = time.monotonic() + deadline
    while time.monotonic() < until:
        run("select pg_stat_clear_snapshot()")
        if run("select count(*) from pg_stat_activity where pg_backend_pid() = any(pg_blocking_pids(pid))"):
            return True
        time.sleep(0.01)
    return False


def round_trips(caller, path, body):
    with CapturedQueries(connection) as queries:
        assert caller.post(path, body).status_code in (200, 201)
    return len(queries)


def test_a_start_and_a_heartbeat_change_no_index_of_their_attempt(worker, submit):
    """PostgreSQL calls such an update HOT: the index entries of the old row version find the new one."""

    def updates():
        """Return the number of updates and of HOT updates. Updates of earlier tests may be included."""
        figures = "n_tup_upd || ' ' || n_tup_hot_upd from pg_stat_xact_user_tables where relname = 'jobs_attempt'"
        return [int(number) for number in run(f"select {figures}").split()]

    submit()
    one = worker()
    attempt = one.claim()[0]
    updated, hot = updates()
    one.start(attempt)
    assert updates() == [updated + 1, hot + 1]
    one.beat(running=[{"attempt": attempt["id"], "pid": 1}])
    assert updates() == [updated + 2, hot + 2]


def test_each_call_of_a_worker_is_one_round_trip(worker, submit, api):
    for _ in range(3):
        submit()
    registrar, one = api("worker"), worker()
    first, second = one.hold(running=False)["id"], one.hold()["id"]
    body = {"type": "WORKER", "name": "w", "instance_id": str(uuid.uuid4())}
    beat = {"state": "RUNNING", "metrics": {"a": 1}, "claimed": [first], "running": [{"attempt": second, "pid": 1}]}
    started, progress = {"attempt": first, "event": "STARTED"}, {"attempt": second, "event": "PROGRESS", "progress": 1}
    path = f"/servers/{one.id}"
    assert round_trips(registrar, "/servers", body) == 1
    assert round_trips(registrar, "/servers", body) == 1
    assert round_trips(one, f"{path}/heartbeat", beat) == 1
    assert round_trips(one, f"{path}/claims", {"limit": 5, "request_id": str(uuid.uuid4())}) == 1
    completed = {"attempt": first, "event": "COMPLETED", "output": 1}
    assert round_trips(one, f"{path}/reports", {"reports": [started, progress, completed]}) == 1


SERVERS = """
    insert into liveness_server (state, type, name, token_id, instance_id, heartbeat_interval, timeout, tags,
                                 termination_grace_period, worker_task_restart_strategy, heard_observed)
    select 'RUNNING', 'WORKER', 's' || n, s.token_id, uuid7(), 15, 45, '{}', 300, 'IMMEDIATELY', observed_now()
      from liveness_server s, generate_series(1, 2000) n
"""
SERVERS_READ = """
    select seq_tup_read + idx_tup_fetch from pg_stat_xact_user_tables where relname = 'liveness_server'
"""


def make_servers(and_then=""):
    with connection.cursor() as cursor:
        cursor.execute("set local session_replication_role = replica")  # without checks of transitions
        cursor.execute(f"{SERVERS}; {and_then}")
        cursor.execute("set local session_replication_role = origin; analyze liveness_server")


def test_a_check_reads_each_server_once_if_all_send_heartbeats(worker):
    worker()
    make_servers()
    before = run(SERVERS_READ)
    assert check_liveness()["disconnected"] == 0
    assert run(SERVERS_READ) - before < 2100


def test_the_end_of_a_server_reads_no_server_that_ended_before(worker):
    submit_many(1)
    one = worker()
    one.hold()
    make_servers("update liveness_server set state = 'INACTIVE' where name like 's%'")
    before = run(SERVERS_READ)
    recovery.recover_server(uuid.UUID(one.id))
    assert run(SERVERS_READ) - before < 100


def test_a_heartbeat_for_a_hundred_attempts_is_one_round_trip(worker):
    submit_many(100)
    one = worker(max_concurrent=100)
    held = [attempt["id"] for attempt in one.claim(limit=100)]
    beat = {"claimed": held[:50], "running": [{"attempt": attempt} for attempt in held[50:]]}
    assert round_trips(one, f"/servers/{one.id}/heartbeat", beat) == 1
    assert not Attempt.objects.filter(heartbeat_at=None).exists()


def test_a_claim_walks_over_none_of_the_jobs_that_it_may_not_have(worker):
    submit_many(20_000, tags=["other"], priority=5)
    (wanted,) = submit_many(1)
    run("analyze jobs_workerjob")
    one = worker()
    with CapturedQueries(connection) as queries:
        assert [attempt["job"]["id"] for attempt in one.claim()] == [str(wanted)]
    (wanted,) = submit_many(1)
    plan = plan_of_execution(executed(queries, "claim_jobs"))
    assert WorkerJob.objects.get(pk=wanted).state == "CLAIMED"
    of_jobs = [node for node in plan if node.get("Relation Name") == "jobs_workerjob"]
    reads = [node for node in of_jobs if node["Node Type"] != "ModifyTable"]
    assert "job_to_claim" in {node.get("Index Name") for node in reads}
    assert not [node for node in reads if "Seq Scan" in node["Node Type"]]
    assert sum(node["Actual Rows"] * node["Actual Loops"] for node in reads) < 20
    assert sum(node.get("Rows Removed by Filter", 0) for node in reads) < 20


def test_the_search_for_stalled_executions_reads_no_table_as_a_whole(db):
    steps = [{"key": f"s{n}", "action": SCRIPT, "depends_on": [f"s{n - 1}"] if n else []} for n in range(10)]
    executions.begin_executions([execution_rows.ExecutionPlan({"name": "x", "steps": steps}, None, {})] * 1000)
    submit_many(40_000)  # a few steps among many jobs, as after a month
    run("update jobs_workerjob set state = 'CANCELLED', finished_at = clock_timestamp() where execution_id is null")
    run("analyze jobs_execution, jobs_workerjob, jobs_stepdependency")
    first, last = uuid.UUID(int=0), uuid.UUID(int=2**128 - 1)
    parameters = {"batch": 100, "after": first, "since": first, "until": last}
    (plan,) = run("explain (format json) " + compose_statement("jobs", "find_stalled_executions"), parameters)
    whole = [node["Relation Name"] for node in nodes(plan["Plan"]) if "Seq Scan" in node["Node Type"]]
    assert not {"jobs_workerjob", "jobs_stepdependency"} & set(whole)


def test_a_batch_of_the_recovery_reads_what_it_ends_and_not_all_that_is_lost(worker):
    for _ in range(5):
        submit_many(1000)
    one = worker(max_concurrent=5000)
    assert len(one.claim(limit=5000)) == 5000
    run("analyze jobs_workerjob, jobs_attempt")
    Server.objects.update(state="ERROR", state_actor="server")
    with CapturedQueries(connection) as queries:
        (counted,) = sql.recover_attempts.sweep_rows(batch=100, max_resubmissions=3, server=None)
    assert counted.jobs == 100
    with prefer_key_lookups():
        plan = plan_of_execution(executed(queries, "recover_attempts"))
    reads = [node for node in plan if node.get("Relation Name") in ("jobs_workerjob", "jobs_attempt")]
    read = [node["Actual Loops"] * (node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) for node in reads]
    assert len(read) >= 6
    assert max(read) < 500


@pytest.mark.parametrize(("request_id", "given"), [(None, 7), (uuid.uuid4(), 5)], ids=["others", "the same"])
def test_claims_of_one_server_at_once_never_exceed_its_capacity_and_the_same_is_one(
    committed, threads, request_id, given
):
    submit_many(100)
    token = tokens.read_server_token(committed(max_concurrent=7).token)
    futures = [threads(claiming.claim_jobs, token, 5, request_id) for _ in range(8)]
    claims = [future.result(30)[0] for future in futures]
    assert len({attempt.id for claim in claims for attempt in claim}) == Attempt.objects.count() == given
    assert request_id is None or {len(claim) for claim in claims} == {5}


@pytest.mark.parametrize("path", ["/servers", "/jobs"])
def test_the_same_thing_made_twice_at_once_is_made_once(committed, threads, path):
    caller = Caller(tokens.create_token("a racer", "worker" if path == "/servers" else "client"))
    server, job = {"type": "WORKER", "name": "w", "instance_id": str(uuid.uuid4())}, {"action": SCRIPT, "key": "k"}
    body = server if path == "/servers" else job
    with transaction.atomic():
        first = caller.post(path, body)
        second = threads(Caller(caller.token).post, path, body)
        assert someone_waits()
    assert (first.status_code, second.result(10).status_code) == (201, 200)
    assert first.json() == second.result().json()


def test_a_heartbeat_that_is_being_written_beats_the_check(committed, threads):
    one = committed()
    Clock().advance(46)
    with transaction.atomic():
        one.beat()
        threads(check_liveness).result(10)
    check_liveness()
    assert Server.objects.get().state == "RUNNING"
    assert not ServerEvent.objects.filter(to_state="DISCONNECTED").exists()


@pytest.mark.parametrize("first", ["completion", "recovery"])
def test_of_a_completion_and_a_recovery_the_first_written_wins(committed, threads, first):
    submit_many(1)
    one = committed(config=IMMEDIATELY)
    attempt = one.hold()
    one.beat(state="ERROR")
    with transaction.atomic():
        if first == "completion":
            assert one.complete(attempt, 42)["accepted"]
            assert threads(recovery.recover_attempts).result(10) == {}
        else:
            assert recovery.recover_attempts() == {"RESUBMITTED": 1}
            late = threads(Worker(one.token, id=one.id).complete, attempt, 42)
            assert someone_waits()
    if first == "recovery":
        assert (late.result(10)["accepted"], late.result()["code"]) == (False, "attempt_superseded")
    assert recovery.recover_attempts() == {}
    expected = ("COMPLETED", 42) if first == "completion" else ("PENDING", None)
    assert WorkerJob.objects.values_list("state", "output").get() == expected


def test_ten_checks_at_once_do_what_one_does(committed, threads, settings):
    settings.LIVENESS = {"BRAKE_MINIMUM": None}
    submit_many(40)
    for number in range(4):
        one = committed(name=f"w{number}", config=IMMEDIATELY)
        for attempt in one.claim(limit=10)[:5]:
            one.start(attempt)
    for wait, state in ((100, "DISCONNECTED"), (10, "NOT_RUNNING"), (10, "INACTIVE")):
        Clock().advance(wait)
        done = [future.result(30) for future in [threads(check_liveness) for _ in range(10)]]
        assert set(Server.objects.values_list("state", flat=True)) == {state}
        if state == "DISCONNECTED":
            assert sum(one["disconnected"] for one in done) == 4
            assert [sum(one["recovered"].get(end, 0) for one in done) for end in ("RESUBMITTED", "REQUEUED")] == [
                20,
                20,
            ]
    assert ServerEvent.objects.filter(actor="liveness").count() == 12
    ends = sorted(Attempt.objects.values_list("state", flat=True))
    assert ends == ["REQUEUED"] * 20 + ["RESUBMITTED"] * 20


@pytest.mark.parametrize("table", ["jobs_workerjob", "jobs_attempt", "liveness_server"])
def test_a_bad_row_delays_only_itself(committed, table):
    submit_many(2)
    bad, good = (committed(name=name, config=IMMEDIATELY) for name in ("bad", "good"))
    attempt, other = bad.hold(), good.hold()
    Clock().advance(46)
    rows = {"jobs_workerjob": attempt["job"]["id"], "jobs_attempt": attempt["id"], "liveness_server": bad.id}
    run(BROKEN.format(table), [rows[table]])
    with suppress(CheckFailed):
        check_liveness()
    assert Server.objects.get(pk=good.id).state == "DISCONNECTED"
    assert Attempt.objects.get(pk=other["id"]).state == "RESUBMITTED"


WAITING = """
    select max(pid) from pg_stat_activity
     where datname = current_database() and pid <> pg_backend_pid() and wait_event_type = 'Lock'
"""
HOLD_UP = """
    create function broken() returns trigger language plpgsql as
        $$ begin perform pg_advisory_xact_lock(42); return new; end $$;
    create trigger hold_up before update on jobs_attempt for each row execute function broken()
"""


@pytest.fixture
def lost(committed):
    """Return a silent worker that holds three running attempts and a claimed one."""
    submit_many(4)
    one = committed(config=IMMEDIATELY)
    for attempt in one.claim(limit=4)[:3]:
        one.start(attempt)
    Clock().advance(46)
    return one


def waiting():
    """Wait for a backend that waits for a lock of this connection, and return its process id."""
    until = time.monotonic() + 10
    while time.monotonic() < until:
        run("select pg_stat_clear_snapshot()")  # otherwise a transaction sees the first snapshot of the statistics only
        if pid := run(WAITING):
            return pid
        time.sleep(0.02)
    raise AssertionError("nobody waits")


def assert_finished_by_one_clean_check():
    check_liveness()
    assert sorted(Attempt.objects.values_list("state", flat=True)) == ["REQUEUED"] + ["RESUBMITTED"] * 3
    assert Server.objects.get().state == "DISCONNECTED"
    assert ServerEvent.objects.filter(actor="liveness").count() == 1


def test_a_check_that_meets_a_deadlock_is_finished_by_the_next(lost, threads):
    run(HOLD_UP)
    with suppress(DatabaseError), transaction.atomic():  # PostgreSQL may end either of the two
        run("select pg_advisory_xact_lock(42)")
        interrupted = threads(check_liveness)
        waiting()  # it has locked the server, and waits for this connection
        run("select id from liveness_server for update")  # now this connection waits for it: a deadlock
    with suppress(CheckFailed):
        interrupted.result(20)
    run("drop function broken() cascade")
    assert_finished_by_one_clean_check()
