"""Frequent statements are planned once for each connection."""

import pytest
from django.db import connection

from controlplane.core import prepared
from jobs.models import BatchItem, WorkerJob
from jobs.services import batches, evaluations
from jobs.services.liveness_check import check_liveness
from liveness.models import LeftOut
from liveness.services import tokens
from tests.integration.races.test_hot_paths import BROKEN, run, submit_many
from tests.support.clock import Clock
from tests.support.executions import SCRIPT, step
from tests.support.http import Caller

PLANS = """
    select coalesce(sum(generic_plans), 0), coalesce(sum(custom_plans), 0)
      from pg_prepared_statements where statement like '%%' || %s || '%%'
"""


def plans(statement):
    """Return how often this connection ran a prepared statement with its generic plan, and with custom plans."""
    with connection.cursor() as cursor:
        cursor.execute(PLANS, [statement])
        return cursor.fetchone()


def run_step(one, submit):
    submit.client.post("/executions", {"name": "n", "steps": [step("a", priority=100)]})
    one.complete(one.hold())


@pytest.mark.parametrize(
    ("statement", "call"),
    [
        ("picked_jobs", lambda one, submit: one.claim()),
        ("begun_jobs", lambda one, submit: one.hold()),
        ("updated_jobs", lambda one, submit: one.complete(one.hold())),
        ("new_jobs", lambda one, submit: submit()),
        ("lost_servers", lambda one, submit: check_liveness()),
        ("ended_jobs", lambda one, submit: run_step(one, submit)),
    ],
    ids=["claims", "starts", "ends", "submissions", "checks", "ends of steps"],
)
def test_a_call_that_is_made_all_the_time_is_planned_once(worker, submit, statement, call):
    submit_many(20)
    one = worker(max_concurrent=20)
    before = plans(statement)
    for _ in range(6):
        call(one, submit)
    kept, others = plans(statement)
    assert kept - before[0] >= 6
    assert others == before[1]


def test_the_transaction_of_a_caller_is_planned_as_before(submit):
    names = ("plan_cache_mode", "enable_seqscan", "jit")
    settings = "select concat_ws(' ', " + ", ".join(f"current_setting('{name}')" for name in names) + ")"
    run("set local plan_cache_mode = force_custom_plan; set local jit = on")
    submit()
    assert run(settings) == "force_custom_plan on on"


def test_the_settings_of_a_call_outside_a_transaction_end_with_it(committed):
    names = ("plan_cache_mode", "enable_seqscan", "jit")
    settings = "select concat_ws(' ', " + ", ".join(f"current_setting('{name}')" for name in names) + ")"
    before = run(settings)
    submit_many(1)
    one = committed()
    one.complete(one.hold())
    assert run(settings) == before
    assert plans("updated_jobs")[1] == 0


def test_the_settings_are_restored_in_a_transaction_that_django_does_not_know(committed):
    assert prepared.list_commands([]) == (prepared.BEGIN, len(prepared.BEGIN))
    with connection.connection.transaction():
        assert prepared.list_commands([]) == ([prepared.SAVE_AND_BEGIN, prepared.END], 1)


NOTED_SETTING = """
    create temporary table compiled as select '' as setting where false;
    create function pg_temp.note() returns trigger language plpgsql as
        $$ begin insert into compiled select current_setting('jit'); return new; end $$;
    create trigger noted before insert on jobs_workerjob for each row execute function pg_temp.note()
"""


def test_prepared_statements_are_not_compiled_at_each_call_on_a_host_database(submit):
    run("set local jit = on")
    run(NOTED_SETTING)
    submit()
    assert run("select setting from compiled") == "off"


def test_a_plan_made_for_a_small_table_scans_no_large_table(worker):
    submit_many(10)
    one = worker(max_concurrent=2000)
    run("analyze jobs_workerjob, jobs_attempt, liveness_server")
    for _ in range(3):
        one.complete(one.hold())
    submit_many(1000)
    for _ in range(2):
        one.claim(limit=500)
    held = [attempt["id"] for attempt in one.claim(limit=3)]
    before = rows_read_whole()
    one.report(*[{"attempt": attempt, "event": "STARTED"} for attempt in held])
    one.report(*[{"attempt": attempt, "event": "COMPLETED", "output": 1} for attempt in held])
    assert rows_read_whole() - before < 100


def rows_read_whole():
    """Return the number of rows of jobs and attempts that this transaction has read by sequential scans."""
    return run(
        "select sum(seq_tup_read) from pg_stat_xact_user_tables where relname in ('jobs_workerjob', 'jobs_attempt')"
    )


def forget_prepared(command):
    path = run("show search_path")
    run(command)
    run("select set_config('search_path', %s, false)", [path])  # the clock of the tests is there


@pytest.mark.parametrize("gone", ["deallocate all", "discard all"])
def test_a_connection_that_lost_its_prepared_statements_prepares_again(committed, gone):
    submit_many(1)
    forget_prepared(gone)
    for _ in range(2):
        submit_many(1)
    assert WorkerJob.objects.count() == 3
    assert plans("new_jobs") == (2, 0)


@pytest.mark.parametrize("by", ["a batch", "the timetable"])
def test_lost_prepared_statements_leave_out_no_rows_of_a_transaction(committed, by):
    operator = Caller(tokens.create_token("an operator", "operator"))
    body = {"name": "n", "action": SCRIPT, "interval_seconds": 60, "execution": {"name": "n", "steps": [step("a")]}}
    trigger = operator.post("/triggers", body).json()["id"]
    submit_many(1)
    forget_prepared("deallocate all")
    if by == "a batch":
        batches.begin_batch("evaluate_trigger", "operator:ann", "x", {"key": ""}, [(trigger, "")], chosen="")
        batches.run_batches()
        assert BatchItem.objects.get().outcome == "DONE"
    else:
        Clock().advance(60)
        assert evaluations.evaluate_due_triggers() == 1
    assert WorkerJob.objects.filter(kind="TRIGGER").count() == 1
    assert not LeftOut.objects.exists()


def test_a_statement_that_fails_leaves_what_its_connection_has_prepared(committed):
    (job,) = submit_many(1)
    one = committed()
    held = one.hold()
    run(BROKEN.format("jobs_workerjob"), [job])
    for _ in range(2):
        assert not one.complete(held)["accepted"]
    run("drop function broken cascade")
    assert one.complete(held)["accepted"]
    assert WorkerJob.objects.get().state == "COMPLETED"


def test_where_statements_are_not_to_be_prepared_none_is(worker, submit, monkeypatch):
    monkeypatch.setattr(connection.connection, "prepare_threshold", None)
    before = run("select count(*) from pg_prepared_statements")
    submit()
    worker().hold()
    assert run("select count(*) from pg_prepared_statements") == before
