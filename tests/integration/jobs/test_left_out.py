"""A row that cannot be written delays no other row. It is named in the log, in a metric and on the pages."""

import uuid

import pytest
from django.contrib.auth.models import User
from django.db import OperationalError, connection, transaction
from django.test import Client

from jobs.models import Attempt, Batch, BatchItem, Execution, TakenAttempt, WorkerJob
from jobs.services import batches, cancellation, execution_repair, recovery, retention, sweep, taken_attempts
from jobs.services.liveness_check import check_liveness, retire_servers
from liveness.models import LeftOut, Server
from liveness.selectors.clusters import list_maintenances
from liveness.services import detection, maintenance, tokens
from tests.integration.races.test_hot_paths import IMMEDIATELY, run, submit_many
from tests.support.clock import Clock
from tests.support.executions import SCRIPT, Run, step
from tests.support.http import Caller
from tests.support.queries import CapturedQueries


def break_row(table, *ids, when="update"):
    run("create or replace function broken() returns trigger language plpgsql as $$ begin raise 'a bad row'; end $$")
    listed = ", ".join(f"'{id}'" for id in ids)
    name = "broken_" + uuid.uuid4().hex
    run(f"create trigger {name} before {when} on {table} for each row when (old.id in ({listed}))"
        " execute function broken()")  # fmt: skip


def mend_rows():
    run("drop function broken() cascade")


def reported(one, *reports):
    results = one.report(*reports)
    return [(result["accepted"], result["code"]) for result in results]


def build_reports(event, *attempts, **more):
    return [{"attempt": attempt["id"], "event": event, **more} for attempt in attempts]


STORED, NOT_STORED = (True, None), (False, "not_stored")


@pytest.mark.parametrize("table", ["jobs_workerjob", "jobs_attempt"])
def test_only_the_report_that_cannot_be_written_must_be_sent_again(committed, table):
    submit_many(4)
    one = committed()
    held = one.claim(limit=4)
    bad = held[1]
    break_row(table, bad["id"] if table == "jobs_attempt" else bad["job"]["id"])
    started = reported(one, *build_reports("STARTED", *held), *build_reports("COMPLETED", *held, output=1))
    assert started == [STORED, NOT_STORED, STORED, STORED] * 2
    assert dict(LeftOut.objects.values_list("row", "step")) == {bad["id"]: "reports"}
    mend_rows()
    assert reported(one, *build_reports("STARTED", bad), *build_reports("COMPLETED", bad, output=1)) == [STORED, STORED]
    assert set(WorkerJob.objects.values_list("state", flat=True)) == {"COMPLETED"}


def test_lines_that_were_stored_before_one_could_not_be_are_stored_once(committed):
    submit_many(2)
    one = committed()
    held = one.claim(limit=2)
    one.report(*build_reports("STARTED", *held))
    break_row("jobs_workerjob", held[1]["job"]["id"])
    lines = build_reports("LOG", held[0], stream="STDOUT", lines=["x"])
    assert reported(one, *lines, *build_reports("COMPLETED", *held)) == [STORED, STORED, NOT_STORED]
    assert run("select count(*) from jobs_logline") == 1


@pytest.fixture
def begin(committed):
    client = Caller(tokens.create_token("a client", "client"))

    def begin(*steps, **more):
        answer = client.post("/executions", {"name": "torn", "steps": list(steps), **more})
        assert answer.status_code == 201, answer.json()
        return Run(client, answer.json()["id"])

    return begin


def test_an_unwritable_execution_delays_only_the_reports_on_its_steps(committed, begin):
    torn, sound = begin(step("a")), begin(step("b"))
    submit_many(1)
    one = committed()
    held = {attempt["job"]["step"]: attempt for attempt in one.claim(limit=3)}
    one.report(*build_reports("STARTED", *held.values()))
    break_row("jobs_execution", torn.id)
    assert reported(one, *build_reports("COMPLETED", held["a"], held["b"], held[None])) == [NOT_STORED, STORED, STORED]
    assert (torn.state, sound.state, torn.states()) == ("RUNNING", "COMPLETED", {"a": "RUNNING"})
    mend_rows()
    assert reported(one, *build_reports("COMPLETED", held["a"])) == [STORED]
    assert torn.state == "COMPLETED"


def test_a_late_report_that_cannot_be_kept_delays_no_other(committed):
    submit_many(2)
    one = committed()
    late, good = one.claim(limit=2)
    one.report(*build_reports("STARTED", late, good), *build_reports("COMPLETED", late, output=1))
    run("create function broken() returns trigger language plpgsql as $$ begin raise 'a bad row'; end $$;"
        " create trigger broken before insert on jobs_latereport for each row execute function broken()")  # fmt: skip
    again = build_reports("COMPLETED", late, output=2) + build_reports("COMPLETED", good)
    assert reported(one, *again) == [NOT_STORED, STORED]


@pytest.mark.parametrize("bad_ones", [1, 3])
def test_a_sweep_continues_in_whole_batches_after_a_bad_row(committed, bad_ones):
    submit_many(600)
    one = committed(max_concurrent=1000, config=IMMEDIATELY)
    held = one.claim(limit=600)
    break_row("jobs_workerjob", *[held[200 * n]["job"]["id"] for n in range(bad_ones)])
    one.beat(state="ERROR")
    with CapturedQueries(connection) as queries:
        recovery.recover_attempts(batch=100)
    assert WorkerJob.objects.filter(state="PENDING").count() == 600 - bad_ones
    writes = [query for query in queries if "update jobs_attempt" in query["sql"]]
    assert len(writes) < 10 + bad_ones * 20  # only halves with the bad row are split again
    assert LeftOut.objects.count() == bad_ones


@pytest.mark.parametrize("what", ["expire", "give_up", "stale"])
def test_every_sweep_of_jobs_continues_after_a_bad_row(committed, monkeypatch, what):
    jobs = submit_many(30, good_until="2000-01-01T00:00:00Z" if what == "expire" else None)
    if what == "stale":
        committed(max_concurrent=100).claim(limit=30)
    break_row("jobs_workerjob", jobs[0])
    Clock().advance(400)
    monkeypatch.setattr(recovery.sweep_in_batches, "__defaults__", (7, lambda count: None))
    {"expire": sweep.expire_jobs, "give_up": sweep.fail_unmatched_jobs, "stale": sweep.end_overdue_attempts}[what]()
    untouched = "CLAIMED" if what == "stale" else "PENDING"
    ended = WorkerJob.objects.exclude(pk=jobs[0])
    assert WorkerJob.objects.get(pk=jobs[0]).state == untouched
    if what == "stale":
        assert not Attempt.objects.filter(state="CLAIMED").exclude(job=jobs[0]).exists()
    else:
        assert set(ended.values_list("state", flat=True)) == {"EXPIRED" if what == "expire" else "FAILED"}


def test_the_steps_of_a_check_go_on_past_a_server_that_cannot_be_written(committed, settings):
    settings.LIVENESS = {"BRAKE_MINIMUM": None}
    bad, *good = [committed(name=f"w{n}", config=IMMEDIATELY) for n in range(8)]
    break_row("liveness_server", bad.id)
    for seconds, state in ((46, "DISCONNECTED"), (10, "NOT_RUNNING"), (10, "INACTIVE")):
        Clock().advance(seconds)
        check_liveness()
        assert set(Server.objects.exclude(pk=bad.id).values_list("state", flat=True)) == {state}
    assert Server.objects.get(pk=bad.id).state == "RUNNING"
    assert LeftOut.objects.get().times == 3 and len(good) == 7
    assert (retire_servers(), detection.deactivate_servers()) == (0, 0)


@pytest.mark.parametrize("bad", ["one", ""])
def test_maintenance_that_cannot_be_ended_keeps_no_other_from_ending(committed, bad):
    for cluster in ("one", "two"):
        committed(name=cluster, cluster=cluster)
        maintenance.enter_maintenance("operator:ann", "x", seconds=60, cluster=cluster)
    maintenance.enter_maintenance("operator:ann", "x", seconds=60)
    if bad:
        run("create function broken() returns trigger language plpgsql as $$ begin raise 'a bad row'; end $$")
        run("create trigger broken before delete on liveness_clustermaintenance for each row when (old.cluster = 'one')"
            " execute function broken()")  # fmt: skip
    else:
        break_row("liveness_instance", 1)
    Clock().advance(61)
    check_liveness()
    assert [row["cluster"] or "" for row in list_maintenances()] == [bad]
    assert list(LeftOut.objects.values_list("step", "row")) == [("end_expired_maintenance", bad)]
    mend_rows()
    check_liveness()
    assert list_maintenances() == []


@pytest.mark.parametrize("what", ["timeouts", "halts", "repairs"])
def test_each_execution_is_ended_and_repaired_by_itself(committed, begin, what):
    runs = [begin(step("a"), step("b", "a"), timeout_seconds=10) for _ in range(3)]
    bad, *good = sorted(it.id for it in runs)
    if what == "repairs":
        run("update jobs_workerjob set state = 'CANCELLED', finished_at = clock_timestamp() where step = 'a'")
    if what == "halts":
        cancellation.stop_executions([bad, *good], "CANCELLED", "by hand")
        break_row("jobs_workerjob", WorkerJob.objects.get(execution=bad, step="a").pk)
    else:
        break_row("jobs_execution", bad)
    Clock().advance(11)
    {
        "timeouts": cancellation.cancel_overdue_executions,
        "halts": cancellation.halt_all_trees,
        "repairs": execution_repair.repair_executions,
    }[what]()
    open_ones = Execution.objects.filter(state="CANCELLING" if what != "repairs" else "RUNNING")
    if what == "timeouts":
        assert {str(it.pk) for it in open_ones} == set(good)
    else:
        assert [str(it.pk) for it in open_ones] == [bad]
    assert LeftOut.objects.get().row == bad


@pytest.mark.parametrize("bad", ["item", "batch"])
def test_an_outcome_that_cannot_be_kept_delays_no_other_item_of_a_batch(committed, bad):
    first, second = (
        batches.begin_batch("cancel_job", "operator:ann", "x", {}, [(id, "") for id in submit_many(number)], chosen="")
        for number in (3, 2)
    )
    if bad == "item":
        break_row("jobs_batchitem", BatchItem.objects.filter(batch=first).earliest("id").pk, when="update of outcome")
    else:
        break_row("jobs_batch", first)
    batches.run_batches()
    assert list(BatchItem.objects.filter(batch=second).values_list("outcome", flat=True)) == ["DONE"] * 2
    outcomes = list(BatchItem.objects.filter(batch=first).order_by("id").values_list("outcome", flat=True))
    assert outcomes == ["PENDING", *(["DONE"] * 2 if bad == "item" else ["PENDING"] * 2)]
    mend_rows()
    Clock().advance(batches.LEASE)
    batches.run_batches()
    assert set(Batch.objects.values_list("state", "done", "refused")) == {("COMPLETED", 3, 0), ("COMPLETED", 2, 0)}


def test_one_bad_job_stops_no_claim(committed):
    jobs = submit_many(6)
    one = committed()
    break_row("jobs_workerjob", jobs[0], jobs[2])
    assert [attempt["job"]["id"] for attempt in one.claim(limit=2)] == [str(jobs[1]), str(jobs[3])]
    request = str(uuid.uuid4())
    second = one.claim(limit=5, request_id=request)
    assert [attempt["job"]["id"] for attempt in second] == [str(jobs[4]), str(jobs[5])]
    assert one.claim(limit=5, request_id=request) == second
    assert set(LeftOut.objects.values_list("row", flat=True)) == {str(jobs[0]), str(jobs[2])}


def test_a_server_that_returns_is_terminating_despite_an_unwritable_attempt(committed):
    submit_many(2)
    one = committed()
    bad, good = (attempt["id"] for attempt in one.claim(limit=2))
    Server.objects.update(state="DISCONNECTED", state_actor="liveness")
    break_row("jobs_attempt", bad)
    assert one.beat(state="TERMINATING", claimed=[bad, good]).json()["state"] == "TERMINATING"
    assert Server.objects.get().state == "TERMINATING"
    assert Attempt.objects.get(pk=good).heartbeat_at is not None


def test_a_heartbeat_is_recorded_despite_an_unwritable_attempt(committed):
    submit_many(5)
    one = committed()
    held = [attempt["id"] for attempt in one.claim(limit=5)]
    one.report(*[{"attempt": attempt, "event": "STARTED"} for attempt in held])
    break_row("jobs_attempt", held[2])
    unknown = str(uuid.uuid4())
    answer = one.beat(running=[{"attempt": attempt, "pid": 7} for attempt in [*held, unknown]])
    assert (answer.status_code, answer.json()["lost"]) == (200, [unknown])
    assert list(Attempt.objects.filter(pid=None).values_list("pk", flat=True)) == [uuid.UUID(held[2])]


def test_pruning_leaves_only_the_bad_row(committed, settings):
    settings.JOBS = {"JOB_RETENTION": 0}
    jobs = submit_many(20)
    run("update jobs_workerjob set state = 'CANCELLED', finished_at = clock_timestamp()")
    break_row("jobs_workerjob", jobs[7], when="delete")
    Clock().advance(1)
    with pytest.raises(retention.PruneFailed, match="jobs") as failed:
        retention.prune_old_rows()
    assert failed.value.done["jobs"] == 19
    assert WorkerJob.objects.get().pk == jobs[7]
    assert LeftOut.objects.get().row == str(jobs[7])


def test_what_is_left_out_is_on_the_pages_and_in_the_metrics(committed):
    (job,) = submit_many(1, good_until="2000-01-01T00:00:00Z")
    break_row("jobs_workerjob", job)
    sweep.expire_jobs()
    sweep.expire_jobs()
    User.objects.all().delete()
    reader = Client()
    reader.force_login(User.objects.create_superuser("ann"))
    try:
        for path in ("/admin/instance/", "/admin/instance/recovery/"):
            text = reader.get(path).content.decode()
            assert "1 row could not be written" in text
            assert str(job) in text and "a bad row" in text
        Clock().step(3601)
        assert "could not be written" not in reader.get("/admin/instance/").content.decode()
    finally:
        User.objects.all().delete()
    metrics = Caller(tokens.create_token("a viewer", "viewer")).client.get(
        "/metrics", headers={"Authorization": f"Bearer {tokens.create_token('viewer', 'viewer')}"}
    )
    assert 'controlplane_rows_left_out_total{step="expire_jobs"} 2.0' in metrics.content.decode()


def test_rows_that_were_repaired_long_ago_are_forgotten(committed):
    (first,) = submit_many(1, good_until="2000-01-01T00:00:00Z")
    break_row("jobs_workerjob", first)
    sweep.expire_jobs()
    mend_rows()
    (second,) = submit_many(1, good_until="2000-01-01T00:00:00Z")
    break_row("jobs_workerjob", second)
    Clock().step(90_000)  # more than a day, even if the clock of the machine is set back
    sweep.expire_jobs()
    assert LeftOut.objects.get().row == str(second)


def test_nothing_of_an_execution_that_is_being_cancelled_is_given_out_or_begins(committed, begin):
    """The state between the two transactions of a cancellation, or after a crash there."""
    it = begin(step("a"), step("b"), on_error=[{"key": "h", "action": SCRIPT}])
    one = committed()
    held = one.hold(running=False)
    cancellation.stop_executions([it.id], "CANCELLED", "by hand")
    assert one.claim() == []
    assert reported(one, *build_reports("STARTED", held)) == [(False, "execution_stopped")]
    assert it.states()[held["job"]["step"]] == "CANCELLED"
    assert Attempt.objects.get().state == "CANCELLED"
    cancellation.halt_all_trees()
    assert it.state == "CANCELLED"


def test_a_table_that_is_locked_is_no_fault_of_its_rows(committed, threads):
    """An index build locks the table for minutes: a second wait for each row would stop all checks."""
    submit_many(50)
    one = committed(max_concurrent=50)
    one.report(*build_reports("STARTED", *one.claim(limit=50)))
    one.beat(state="TERMINATED_GRACEFULLY")
    Clock().advance(1)

    def recover():
        run("set lock_timeout = '100ms'")
        try:
            return recovery.recover_attempts()
        finally:
            run("reset lock_timeout")

    with transaction.atomic():
        run("lock table jobs_workerjob in share mode")
        with pytest.raises(OperationalError, match="lock timeout"):
            threads(recover).result(30)
    assert not LeftOut.objects.exists()
    assert threads(recover).result(30) == {"RESUBMITTED": 50}


def test_a_taken_attempt_that_cannot_be_let_go_keeps_no_other_job_waiting(committed):
    submit_many(3)
    one = committed()
    held = one.claim(limit=3)
    one.report(*build_reports("STARTED", *held))
    operator = Caller(tokens.create_token("an operator", "operator"))
    for attempt in held:
        assert operator.post(f"/jobs/{attempt['job']['id']}/resubmit", {}).status_code == 200
    bad = TakenAttempt.objects.get(attempt_id=held[1]["id"])
    break_row("jobs_takenattempt", bad.pk, when="delete")
    one.beat(state="TERMINATED_GRACEFULLY")
    assert taken_attempts.release_taken_attempts() == 2
    assert list(TakenAttempt.objects.all()) == [bad]
    assert LeftOut.objects.get().row == str(bad.pk)
