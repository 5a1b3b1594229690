"""Recovery after a restore from a backup: servers are lost, running attempts RESUBMITTED, and the clock moves on."""

from datetime import timedelta
from io import StringIO

import pytest
from django.core.management import call_command
from django.db import DatabaseError, connection

from controlplane.core.model_fields import ClockTimestamp
from jobs.models import Attempt, TakenAttempt, WorkerJob
from jobs.services import liveness_check, restoration
from liveness.models import Clock, Server, ServerEvent
from liveness.services import tokens
from tests.support.executions import step
from tests.support.http import Caller


def restore(note="from last night"):
    out = StringIO()
    call_command("after_restore", "--note", note, stdout=out)
    return dict(line.split(": ") for line in out.getvalue().splitlines())


def states():
    return dict(Attempt.objects.values_list("job__payload", "state"))


def test_every_server_is_lost_and_every_live_attempt_taken_from_it(submit, worker):
    one, two = worker(name="one"), worker(name="two")
    for payload in ("runs", "claimed"):
        submit(payload=payload)
        one.hold(running=payload == "runs")
    submit(payload="other")
    two.hold()
    assert restore() == {"DISCONNECTED": "2", "RESUBMITTED": "2", "REQUEUED": "1"}
    assert set(Server.objects.values_list("state", flat=True)) == {"DISCONNECTED"}
    assert states() == {"runs": "RESUBMITTED", "claimed": "REQUEUED", "other": "RESUBMITTED"}
    assert set(WorkerJob.objects.values_list("state", "resubmissions", "attempt_id")) == {("PENDING", 0, None)}
    assert set(Attempt.objects.values_list("reason", flat=True)) == {"the database was restored"}


def test_who_did_it_when_and_why_is_an_event_of_each_server_and_one_of_the_whole(worker):
    one = worker()
    restore("from last night")
    events = list(ServerEvent.objects.order_by("-pk").values_list("subject_type", "action", "to_state", "reason")[:2])
    assert events == [
        ("instance", "after_restore", "", "from last night"),
        ("server", "", "DISCONNECTED", "from last night"),
    ]
    assert one.beat().status_code == 409


def test_a_job_whose_code_had_begun_waits_until_its_worker_must_have_stopped_it(submit, worker, clock):
    old = worker(name="old")
    submit(payload="runs")
    old.hold()
    submit(payload="claimed")
    old.hold(running=False)
    restore()
    new = worker(name="new")
    assert [attempt["job"]["payload"] for attempt in new.claim()] == ["claimed"]
    TakenAttempt.objects.all().delete()
    assert [(attempt["job"]["payload"], attempt["number"]) for attempt in new.claim()] == [("runs", 2)]


def test_a_report_of_its_old_worker_is_refused(submit, worker):
    old = worker()
    submit()
    attempt = old.hold()
    restore()
    assert old.complete(attempt, 42)["code"] == "attempt_superseded"


def test_a_job_that_may_run_only_once_has_failed(submit, worker):
    submit(on_worker_lost="FAIL")
    worker().hold()
    assert restore()["FAILED"] == "1"
    assert WorkerJob.objects.get().error["code"] == "WORKER_CRASHED"


def test_a_job_that_was_being_cancelled_is_cancelled(submit, worker):
    job = submit()
    worker().hold()
    submit.client.post(f"/jobs/{job['id']}/cancel", {})
    assert restore()["CANCELLED"] == "1"


def test_losses_of_before_do_not_count_against_it(submit, worker, settings):
    settings.JOBS = {"MAX_RESUBMISSIONS": 0}
    submit()
    worker().hold()
    restore()
    assert WorkerJob.objects.get().state == "PENDING"


def test_an_execution_moves_on_with_its_steps_once_their_code_has_stopped(begin, worker, clock):
    run = begin({**step("a"), "on_worker_lost": "FAIL"}, {**step("b"), "depends_on": ["a"]})
    worker(config={"termination_grace_period_seconds": 100}).hold()
    restore()
    assert run.states() == {"a": "FAILED", "b": "BLOCKED"}, "the code of the failed step may still run"
    clock.advance(45 + 100 + 1)
    liveness_check.check_liveness()
    assert run.states() == {"a": "FAILED", "b": "SKIPPED"}
    assert run.state == "FAILED"


def test_the_clock_moves_on_and_what_has_passed_since_is_held_against_nobody(submit, clock):
    Clock.objects.update(tick_at=ClockTimestamp() - timedelta(days=1), advanced_at=ClockTimestamp() - timedelta(days=1))
    before = Clock.objects.get()
    submit()
    restore()
    after = Clock.objects.get()
    assert (after.tick, after.reading, after.set_back_by) == (before.tick + 1, before.reading, 0)
    assert after.tick_at == after.advanced_at == after.moved_at > before.tick_at + timedelta(hours=23)
    assert WorkerJob.objects.get().state == "PENDING"


def test_what_waits_follows_when_the_clock_of_the_backup_was_ahead(submit, clock):
    Clock.objects.update(tick_at=ClockTimestamp() + timedelta(hours=1))
    job = submit()
    WorkerJob.objects.update(available_at=ClockTimestamp() + timedelta(hours=1), attempt_count=1)
    restore()
    clock.step(10)
    liveness_check.check_liveness()
    assert Clock.objects.get().set_back_by == 0
    assert WorkerJob.objects.filter(pk=job["id"], available_at__lte=ClockTimestamp()).exists()


def test_done_again_it_changes_nothing(submit, worker):
    submit()
    worker().hold()
    restore()
    assert restore() == {"DISCONNECTED": "0"}
    assert Attempt.objects.count() == 1


def test_all_of_it_is_one_transaction(committed):
    client = Caller(tokens.create_token("client", "client"))
    client.post("/jobs", {"action": {"type": "script", "command": "true"}})
    committed().hold()
    with connection.cursor() as cursor:
        cursor.execute(
            "create function broken() returns trigger language plpgsql as $$ begin raise 'no'; end $$;"
            "create trigger broken before update on jobs_workerjob for each row execute function broken()"
        )
    with pytest.raises(DatabaseError):
        restoration.begin_after_restore("operator:me", "")
    assert Server.objects.get().state == "RUNNING" and Attempt.objects.get().state == "RUNNING"
    assert not ServerEvent.objects.filter(action="after_restore").exists()
