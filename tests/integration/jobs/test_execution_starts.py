"""Starts of waiting executions: jobs beside them, keys that are not noted, and one that cannot start."""

from datetime import timedelta

import pytest
from django.utils import timezone

from jobs.models import LimitRecheck, LimitSlot, WorkerJob
from jobs.services import execution_starts, limits
from jobs.sql import sql
from liveness.models import LeftOut
from tests.integration.jobs.test_left_out import break_row, mend_rows
from tests.support.executions import SCRIPT, step

KEY, OTHER = "customer:42", "customer:43"
pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("settled")]


@pytest.fixture
def rule(api):
    operator = api("operator")
    return lambda pattern=KEY, **fields: operator.call("put", f"/limits/{pattern}", fields)


@pytest.fixture
def limited(begin):
    return lambda *steps, **fields: begin(*(steps or [step("a")]), **{"limits": [KEY], **fields})


@pytest.fixture
def jobs_with_key(submit):
    return lambda number, **fields: [submit(limits=[KEY], unmatched="wait", **fields)["id"] for _ in range(number)]


def claimable():
    return WorkerJob.objects.filter(state="PENDING", parked_by__isnull=True, execution=None).count()


def waits(run):
    return run.read()["parked_by"] is not None


def test_jobs_do_not_overtake_an_execution_that_needs_several_slots(rule, limited, jobs_with_key, worker):
    rule(running=2)
    one = worker(max_concurrent=10)
    jobs_with_key(5)
    first, second = one.claim(limit=10)
    large = limited(limits={KEY: 2})
    one.start(first), one.complete(first)
    assert (claimable(), one.claim(limit=10), waits(large)) == (0, [], True)
    one.start(second), one.complete(second)
    assert (claimable(), waits(large)) == (0, False)
    large.cancel()
    assert claimable() == 2


def test_an_unblocked_step_does_not_overtake_an_execution_that_needs_more_slots(rule, limited, begin, worker, submit):
    """Nobody parks it before a worker reads it, so the claim must respect the reserved slots."""
    rule(running=2)
    one = worker(max_concurrent=10)
    submit(limits=[KEY])
    [held] = one.claim()
    begin(step("x"), step("y", "x", limits=[KEY]))
    large = limited(limits={KEY: 2})
    one.complete(one.hold())
    assert (one.claim(limit=10), waits(large)) == ([], True)
    assert WorkerJob.objects.filter(step="y", parked_by={"limit": KEY}).exists()
    one.start(held), one.complete(held)
    assert (waits(large), [attempt["job"]["execution"] for attempt in one.claim(limit=10)]) == (False, [str(large.id)])


@pytest.mark.parametrize("leaves", ["cancelled", "on hold"])
def test_jobs_may_start_when_the_execution_before_them_leaves(rule, limited, jobs_with_key, worker, api, leaves):
    rule(running=2)
    jobs_with_key(1)
    assert len(worker(max_concurrent=10).claim(limit=10)) == 1
    large = limited(limits={KEY: 2})
    jobs_with_key(2)
    assert claimable() == 0
    if leaves == "cancelled":
        large.cancel()
    else:
        body = {"of": {"execution": large.id}, "mode": "pause"}
        assert api("operator").post("/holds", body).status_code == 201
    assert claimable() == 1


def test_jobs_do_not_wait_for_an_execution_that_needs_more_slots_than_there_are(rule, limited, jobs_with_key):
    rule(running=2)
    limited(limits={KEY: 3})
    jobs_with_key(3)
    assert claimable() == 2


def test_an_execution_reserves_no_slot_while_it_waits_for_the_rule_of_its_namespace(rule, of, jobs_with_key):
    rule(running=18)
    assert of("red", "operator").call("put", f"/limits/{KEY}", {"running": 8}).status_code == 201
    red = of("red", "client")
    body = {"name": "e", "steps": [{"key": "a", "action": SCRIPT, "unmatched": "wait"}], "limits": {KEY: 8}}
    answers = [red.post("/executions", body) for _ in range(2)]
    assert [answer.json()["parked_by"] is None for answer in answers] == [True, False]
    jobs_with_key(3)
    assert claimable() == 3


def test_a_settlement_looks_only_at_executions_of_noted_keys(rule, limited):
    rule("customer:*", running=1)
    holders = [limited(limits=[key]) for key in (KEY, OTHER)]
    waiting = [limited(limits=[key]) for key in (KEY, OTHER)]
    assert [waits(run) for run in (*holders, *waiting)] == [False, False, True, True]
    LimitSlot.objects.all().delete()  # as if the notes were lost
    LimitRecheck.objects.create(key=OTHER)
    limits.settle_rechecks()
    assert [waits(run) for run in waiting] == [True, False]
    limits.settle_left()
    assert [waits(run) for run in waiting] == [False, False]


def test_an_execution_that_cannot_start_does_not_hold_up_the_others(rule, limited):
    rule(running=0)
    runs = [limited() for _ in range(4)]
    break_row("jobs_execution", runs[0].id)
    rule(running=3)
    assert [waits(run) for run in runs] == [True, False, False, False]
    assert list(LeftOut.objects.values_list("row", "step")) == [(runs[0].id, "executions started")]


def test_an_execution_that_cannot_start_reserves_no_slot_and_is_tried_each_minute(rule, limited, jobs_with_key):
    rule(running=0)
    run = limited()
    jobs_with_key(2)
    break_row("jobs_execution", run.id)
    rule(running=1)
    limits.settle_left(), limits.settle_left()
    assert (claimable(), waits(run), LeftOut.objects.get().times) == (1, True, 1)
    mend_rows()
    LeftOut.objects.update(at=timezone.now() - timedelta(minutes=2))
    limits.settle_left()
    assert not waits(run)


@pytest.mark.parametrize("fields", [None, {"fair": True}])
def test_a_noted_key_that_no_rule_limits_is_not_settled(rule, jobs_with_key, fields):
    if fields:
        rule(**fields)
    jobs_with_key(1)
    WorkerJob.objects.update(parked_by=None)
    LimitRecheck.objects.all().delete()
    LimitRecheck.objects.create(key=KEY)
    [noted] = sql.list_rechecks.fetch_rows(most=10, after=0)
    assert (noted.has_jobs, LimitRecheck.objects.exists()) == (False, False)


def test_an_execution_starts_as_soon_as_its_hold_ends(rule, limited, api):
    rule(running=1)
    operator = api("operator")
    hold = operator.post("/holds", {"of": {"limit": KEY}, "mode": "pause"}).json()
    run = limited()
    assert waits(run)
    assert operator.call("delete", f"/holds/{hold['id']}").status_code == 204
    assert not waits(run)


def test_executions_that_end_with_their_start_do_not_nest(rule, limited, monkeypatch):
    """The start of each one frees the slot of the next one, and settles. The open settlement must start that one."""
    depths, open_starts, start = [], [], execution_starts.start_in_namespace

    def start_and_count(*args):
        open_starts.append(args)
        depths.append(len(open_starts))
        try:
            return start(*args)
        finally:
            open_starts.pop()

    monkeypatch.setattr(execution_starts, "start_in_namespace", start_and_count)
    rule(running=0)
    runs = [limited(step("a", when="$.inputs.go == true"), inputs={"go": False}) for _ in range(3)]
    rule(running=1)
    assert [run.state for run in runs] == ["COMPLETED"] * 3
    assert (len(depths), max(depths)) == (3, 1)
