"""Statements read few rows although statistics know none in the states that they look for, as after a quiet night."""

import re
from collections import Counter

import pytest
from django.db import connection

from controlplane.core.model_fields import ClockTimestamp
from jobs.models import WorkerJob
from jobs.selectors.instance import instance_figures
from jobs.services import recovery, submission, sweep
from liveness.models import Server
from liveness.services import tokens
from tests.integration.races.test_hot_paths import submit_many
from tests.support.emptying import table_names
from tests.support.executions import step
from tests.support.plans import plan_of_execution
from tests.support.transitions import put

pytestmark = pytest.mark.usefixtures("without_dead_rows", "settled", "seconds")
WAITING, AT_ONCE, MOST = 1500, 100, 600
SCRIPT = {"type": "script", "runner": "local", "command": "true"}
REMOVED = ("Rows Removed by Filter", "Rows Removed by Index Recheck")


class RowsRead:
    """The most rows that an execution of each prepared statement reads from each index or table.

    Each EXECUTE is explained before it runs, and what that changes is undone.
    """

    def __init__(self):
        self.most = Counter()
        self.explains = False

    def __call__(self, execute, statement, params, many, context):
        if not self.explains:
            self.explains = True
            for text in str(statement).split(";\n"):
                if found := re.match(r"execute controlplane_(\w+?)_\d+\b", text):
                    self.explain(found[1], context["cursor"].mogrify(text, params) if params else text)
            self.explains = False
        return execute(statement, params, many, context)

    def explain(self, name, execution):
        with connection.cursor() as cursor:
            cursor.execute("savepoint explanation")
            for node in plan_of_execution(execution):
                if where := node.get("Index Name") or node.get("Relation Name"):
                    read = node["Actual Rows"] + sum(node.get(removed, 0) for removed in REMOVED)
                    self.most[name, where] = max(self.most[name, where], read * node["Actual Loops"])
            cursor.execute("rollback to savepoint explanation")


@pytest.fixture
def without_dead_rows(db):
    """Remove what earlier tests have rolled back: plans depend on the sizes of tables and indexes."""
    with connection.cursor() as cursor:
        cursor.execute(f"truncate {', '.join(table_names())} cascade")


@pytest.fixture
def rows_read():
    return RowsRead()


@pytest.mark.parametrize("how", ["no rows", "ended rows"])
def test_statements_read_few_rows_when_statistics_know_none(worker, clock, operator, begin, rows_read, how):
    one, lost = (worker(name=name, max_concurrent=100_000) for name in ("one", "lost"))
    for pattern, rule in (("fair:*", {"fair": True}), ("few:*", {"running": 1}), ("many:*", {"running": 1000})):
        assert operator.caller.call("put", f"/limits/{pattern}", rule).status_code == 201
    if how == "ended rows":
        submit_many(WAITING)
        WorkerJob.objects.update(state="CANCELLED", finished_at=ClockTimestamp())
    with connection.cursor() as cursor:
        cursor.execute("analyze")
    submit_many(WAITING)
    clock.advance(5)
    owner = tokens.find_token(tokens.create_token("other", "client"))
    with connection.execute_wrapper(rows_read):
        for prefix in ("fair", "few", "many", "few"):
            keys = [f"{prefix}:{number}" for number in range(AT_ONCE)]
            submission.submit_jobs(owner, [{"action": SCRIPT, "limits": {key: 1}} for key in keys])
        begin(step("a"), step("b", "a"))
        for _ in range(2):
            attempts = one.claim(limit=AT_ONCE)
            for event in ("STARTED", "COMPLETED"):
                one.report(*({"attempt": attempt["id"], "event": event} for attempt in attempts))
        one.claim(limit=AT_ONCE), one.beat(), lost.claim(limit=AT_ONCE)
        put(Server.objects.get(pk=lost.id), "ERROR")
        assert recovery.recover_attempts()
        sweep.run_sweep()
        instance_figures()
    assert {name for name, _ in rows_read.most} >= {"claim_jobs", "settle_keys", "finish_attempts", "recover_attempts"}
    assert ("read_figures", "job_waiting") in rows_read.most
    # The figures count the open jobs of each state.
    assert {place: rows for place, rows in rows_read.most.items() if rows > MOST and place[0] != "read_figures"} == {}
