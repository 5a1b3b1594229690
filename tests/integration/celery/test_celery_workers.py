"""Further calls of a Celery worker: its broker's quarantine, its sums, and which holders of messages are lost."""

import uuid

import pytest
from django.db import connection

from jobs.models import Attempt, Hold, LateReport, TaskTally, WorkerJob
from jobs.services import recovery
from jobs.services.celery_tasks import BATCH_LIMIT, NAMES_LIMIT
from liveness.models import ApiToken, Server
from liveness.services import tokens
from tests.support.celery_tasks import quarantined, task, then
from tests.support.http import Caller
from tests.support.queries import CapturedQueries

# Quarantine


def test_any_worker_can_report_a_task_in_quarantine_as_failed(one, two, read_job):
    one.say(task("of the lost"), task("recovered"))
    one.lose()
    two.say(quarantined("of the lost"))
    recovery.recover_attempts()
    two.say(quarantined("recovered"), quarantined("never heard of"))
    assert WorkerJob.objects.quarantined().count() == 3
    for id in "of the lost", "recovered", "never heard of":
        assert read_job(id)["error"] == {"code": "RESUBMISSIONS_EXHAUSTED", "message": "lost 4 times"}


def test_a_quarantined_task_is_reported_again_until_its_worker_counts_as_lost(one, two, read_job):
    one.say(task())
    early = quarantined(held_seconds=0.0)
    assert two.say(early) == {"cancel": [], "late": [], "again": [early["attempt"]]}
    assert read_job()["state"] == "RUNNING"
    two.say(task("sent again"))
    stale = quarantined("sent again", held_seconds=60.0)
    assert one.say(stale)["again"] == [], "it is about an earlier run"
    one.lose()
    assert two.say(early)["again"] == []
    assert (read_job()["state"], read_job()["error"]["code"]) == ("FAILED", "RESUBMISSIONS_EXHAUSTED")


def test_a_worker_quarantines_what_it_runs_itself(one, read_job):
    report = task()
    one.say(report)
    one.say(then(report, "QUARANTINED", reason="lost 4 times"))
    assert (read_job()["state"], read_job()["attempts"][0]["state"]) == ("FAILED", "FAILED")


def test_it_is_sent_again_by_any_of_its_workers_once_and_is_a_job_of_its_own_then(one, two, read_job, api):
    one.say(quarantined())
    first, operator = read_job()["id"], api("operator")
    assert one.asks()["send"] == []
    for _ in range(2):
        assert operator.post(f"/jobs/{first}/resubmit", {"note": "mended"}).json()["id"] == first
    assert one.asks()["send"] == ["t"] and two.asks()["send"] == ["t"]
    assert "send" not in one.beat().json()
    one.say(task(state="SENT"))
    assert one.asks()["send"] == [] and not WorkerJob.objects.quarantined().exists()
    two.say(task())
    assert WorkerJob.objects.get(key="t").resubmission_of_id == uuid.UUID(first)


@pytest.mark.parametrize("ran_here", [{"running_seconds": 0.5}, {}], ids=["by whom it ran", "by another"])
def test_a_task_that_is_lost_after_it_was_sent_again_is_quarantined_again(one, read_job, ran_here):
    one.say(quarantined())
    one.say(quarantined())
    one.say(task(state="SENT"))
    again = quarantined(**ran_here)
    one.say(again)
    one.say(again)
    assert WorkerJob.objects.count() == 2 and WorkerJob.objects.quarantined().get().key == "t"
    assert [attempt["state"] for attempt in read_job()["attempts"]] == (["FAILED"] if ran_here else [])


def test_workers_of_other_tokens_neither_see_nor_change_it(one, celery_worker, read_job, api):
    other = celery_worker("other", api("worker"))
    one.say(quarantined())
    api("operator").post(f"/jobs/{read_job()['id']}/resubmit", {"note": "x"})
    assert other.asks()["send"] == []
    other.say(task(state="SENT"))
    assert one.asks()["send"] == ["t"]


# Tokens


def test_a_worker_of_another_token_touches_no_task(one, celery_worker, api):
    other = celery_worker("other", api("worker"))
    report = task()
    one.say(report)
    before = WorkerJob.objects.values().get(), Attempt.objects.values().get()
    assert other.say(then(report, "COMPLETED"))["late"] == [report["attempt"]]
    other.say(quarantined("other's"))
    assert before == (WorkerJob.objects.values().get(key="t"), Attempt.objects.values().get())
    assert not LateReport.objects.exists()


def test_nor_does_another_of_the_same_token_speak_of_its_attempts(one, two, read_job):
    report = task()
    one.say(report)
    assert two.say(then(report, "COMPLETED"))["late"] == [report["attempt"]]
    assert read_job()["state"] == "RUNNING" and not LateReport.objects.exists()


@pytest.mark.parametrize(("state", "code"), [("NOT_RUNNING", "server_not_running"), ("INACTIVE", "server_not_running")])
def test_reports_of_a_retired_worker_are_refused(one, state, code):
    one.lose(state)
    answer = one.post(f"/servers/{one.id}/tasks", {"tasks": [task()]})
    assert (answer.status_code, answer.json()["code"]) == (409, code)
    assert not WorkerJob.objects.exists()


def test_reports_with_a_revoked_token_are_refused(one):
    Server.objects.update(token_version=2)
    answer = one.post(f"/servers/{one.id}/tasks", {"tasks": [task()]})
    assert (answer.status_code, WorkerJob.objects.exists()) == (401, False)


# Sums


def test_short_tasks_are_counted_by_name_and_the_same_again_counts_once(one):
    counter = str(uuid.uuid4())
    sums = {"name": "orders.send", "completed": 7, "failed": 1, "retried": 2, "lost": 3, "seconds": 1.5}
    for _ in range(2):
        one.say(counter=counter, tally=[sums])
    one.say(counter=counter, tally=[{**sums, "completed": 9}])
    one.say(counter=str(uuid.uuid4()), tally=[{"name": "orders.send", "completed": 1}])
    assert sorted(TaskTally.objects.values_list("completed", "retried", "seconds")) == [(1, 0, 0), (9, 2, 1.5)]


def test_of_one_worker_so_many_names_are_kept(one, two):
    counter = str(uuid.uuid4())
    for batch in range(2):
        names = [{"name": f"{batch} {nth:04}", "completed": 1} for nth in range(NAMES_LIMIT)]
        one.say(counter=counter, tally=names)
    two.say(counter=counter, tally=[{"name": "x"}])
    one.say(counter=counter, tally=[{"name": "0 0000", "completed": 5}])
    kept = TaskTally.objects.filter(server_id=one.id)
    assert (kept.count(), kept.filter(name__startswith="1").count()) == (NAMES_LIMIT, 0)
    assert (kept.get(name="0 0000").completed, TaskTally.objects.count()) == (5, NAMES_LIMIT + 1)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"tasks": [task()] * (BATCH_LIMIT + 1)}, "tasks"),
        ({"tally": [{"name": "x"}]}, "counter"),
        ({"counter": str(uuid.uuid4()), "tally": [{"name": "x"}] * 2}, "tally"),
        ({"tasks": [task(name="a\nb")]}, "tasks"),
        ({"tasks": [task(state="DONE")]}, "tasks"),
        ({"tasks": [task(held_seconds=-1)]}, "tasks"),
        ({"tasks": [task(result="x" * 2001)]}, "tasks"),
    ],
    ids=lambda word: word if isinstance(word, str) else "",
)
def test_what_makes_no_sense_is_a_400_that_names_it(one, body, field):
    answer = one.post(f"/servers/{one.id}/tasks", body)
    assert (answer.status_code, [*answer.json()["errors"]]) == (400, [field])
    assert not WorkerJob.objects.exists()


# Lost holders of messages


@pytest.mark.parametrize("state", ["RUNNING", "MAINTENANCE", "TERMINATING"])
def test_who_lives_is_neither_forsaken_nor_unknown(one, two, state):
    two.beat(state=state)
    answer = one.asks(two.instance, one.instance)
    assert (answer["forsaken"], answer["unknown"]) == ([], [])


@pytest.mark.parametrize("state", ["ERROR", "TERMINATED_GRACEFULLY", "TERMINATED_FORCED", "NOT_RUNNING", "INACTIVE"])
def test_who_has_ended_is_forsaken(one, two, state):
    two.lose(state)
    assert one.asks(two.instance)["forsaken"] == [two.instance]


@pytest.mark.parametrize(
    ("strategy", "after"),
    [("IMMEDIATELY", 45), ("AFTER_TERMINATION_GRACE_PERIOD", 45 + 60), ("NEVER", None)],
)
def test_a_silent_one_is_forsaken_when_its_own_strategy_gives_its_tasks_away(
    one, celery_worker, clock, strategy, after
):
    config = {"worker_task_restart_strategy": strategy, "termination_grace_period_seconds": 60}
    silent = celery_worker("silent", config=config)
    clock.advance(46)
    silent.lose("DISCONNECTED")
    Server.objects.filter(pk=silent.id).update(heard_observed=Server.objects.get(pk=one.id).heard_observed)
    clock.advance((after or 100_000) - 46 - 0.5)
    assert one.asks(silent.instance)["forsaken"] == ([] if strategy != "IMMEDIATELY" else [silent.instance])
    clock.advance(2)
    assert one.asks(silent.instance)["forsaken"] == ([] if after is None else [silent.instance])


def test_who_never_registered_is_unknown(one):
    stranger = str(uuid.uuid4())
    assert one.asks(stranger)["unknown"] == [stranger]


def test_holders_of_another_valid_token_are_not_reported_as_lost(one, celery_worker, clock):
    registrar = Caller(tokens.create_token("other", "worker"))
    other = celery_worker("other", registrar)
    for lose in lambda: None, other.lose:
        lose()
        answer = one.asks(other.instance)
        assert (answer["forsaken"], answer["unknown"]) == ([], [])
    ApiToken.objects.filter(name="other").update(revoked_at="2020-01-01T00:00:00Z")
    assert one.asks(other.instance)["forsaken"] == [other.instance]


def test_nobody_makes_a_living_one_forsaken_by_taking_its_instance_id(one, two, celery_worker, api):
    thief = celery_worker("thief", api("worker"), instance_id=two.instance)
    thief.lose()
    assert one.asks(two.instance)["forsaken"] == []


def test_a_heartbeat_that_asks_is_one_round_trip(one, two):
    body = {"state": "RUNNING", "holders": [two.instance, *(str(uuid.uuid4()) for _ in range(999))]}
    with CapturedQueries(connection) as queries:
        assert one.post(f"/servers/{one.id}/heartbeat", body).status_code == 200
    assert len(queries) == 1
    body["holders"].append(str(uuid.uuid4()))
    assert one.post(f"/servers/{one.id}/heartbeat", body).status_code == 400


def test_a_worker_without_holders_gets_no_answer_about_them(one):
    assert not {"forsaken", "unknown", "send", "held_queues"} & one.beat(claimed=[]).json().keys()


def test_a_worker_is_told_which_of_its_queues_are_on_hold(celery_worker, api, clock):
    one = celery_worker(tags=["celery", "queue:mail", "queue:orders"])
    operator = api("operator")
    assert one.asks()["held_queues"] == []
    holds = [
        operator.post("/holds", {"of": {"queue": name}, "duration_seconds": seconds}).json()["id"]
        for name, seconds in (("mail", 3600), ("orders", 60), ("letters", 3600))
    ]
    operator.post("/holds", {"of": {"tag": "queue:orders"}})
    assert one.asks()["held_queues"] == ["mail", "orders"]
    clock.advance(61)
    assert one.asks()["held_queues"] == ["mail"]
    operator.call("DELETE", f"/holds/{holds[0]}", b"")
    assert one.asks()["held_queues"] == []


def test_a_hold_of_another_namespace_holds_no_queue_of_a_worker(celery_worker, api):
    one = celery_worker(tags=["celery", "queue:mail"])
    Hold.objects.create(kind="queue", value="mail", namespace="red", by="ann")
    assert one.asks()["held_queues"] == []
    Hold.objects.create(kind="queue", value="mail", namespace="default", by="ann")
    assert one.asks()["held_queues"] == ["mail"]
