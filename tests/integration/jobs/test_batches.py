"""Batches continue on the server, item by item, although processes end and pages are closed."""

import re

import pytest
from django.contrib.admin.models import LogEntry
from django.db import DatabaseError, OperationalError, connection

from jobs import tasks
from jobs.models import Batch, BatchItem, WorkerJob
from jobs.services import batches
from jobs.services.retention import prune_old_rows
from liveness.models import Server, ServerEvent
from liveness.services import tokens
from tests.support.executions import step
from tests.support.http import Caller
from tests.support.people import employ

PAGES = "/admin/instance/"
ANN = "operator:ann"


@pytest.fixture
def begin_on(db):
    """Begin a batch on these ids: `begin_on("cancel_job", ids)`."""

    def make(operation, ids, *, by=ANN, note="too many", label="Cancel", left_out=(), user_key=None, **parameters):
        items = [id if isinstance(id, tuple) else (id, "") for id in ids]
        return batches.begin_batch(
            operation, by, note, parameters, items, label=label, chosen="tag gpu", query="tag=gpu",
            left_out=[*left_out], user_key=user_key,
        )  # fmt: skip

    return make


@pytest.fixture
def jobs(submit):
    return lambda number: [submit(tags=["gpu"], unmatched="wait")["id"] for _ in range(number)]


def outcomes(batch):
    return list(BatchItem.objects.filter(batch=batch).order_by("id").values_list("outcome", flat=True))


def read(batch):
    row = Batch.objects.get(pk=batch)
    return row.state, row.done, row.refused


def words(answer):
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", "", answer.content.decode()))


def test_each_item_is_acted_on_by_itself_and_a_refusal_has_its_reason(begin_on, jobs, worker, submit):
    waiting, ended = jobs(2), submit()["id"]
    one = worker()
    one.complete(one.hold())
    batch = begin_on("fail_job", [waiting[0], ended, waiting[1]])
    assert batches.run_batches() == 3
    assert outcomes(batch) == ["DONE", "REFUSED", "DONE"]
    assert read(batch) == ("COMPLETED", 2, 1)
    assert BatchItem.objects.get(outcome="REFUSED").reason == "This job is COMPLETED and cannot be changed any more."
    assert WorkerJob.objects.filter(state="FAILED", pk__in=waiting).count() == 2
    events = ServerEvent.objects.filter(action="fail_job").values_list("actor", "reason", "subject_id")
    assert sorted(events) == sorted((ANN, "too many", id) for id in waiting)


def test_items_are_logged_for_the_user_who_began_the_batch_and_for_no_other(begin_on, jobs):
    user = employ()
    begin_on("cancel_job", jobs(2), by=f"operator:{user.username}", user_key=str(user.pk))
    begin_on("cancel_job", jobs(1), by="operator:who has left", user_key="0")
    begin_on("cancel_job", jobs(1), by=f"operator:{user.username}")
    batches.run_batches()
    assert {(entry.user_id, entry.change_message) for entry in LogEntry.objects.all()} == {
        (user.pk, "Cancel: too many")
    }
    assert LogEntry.objects.count() == 2


def test_items_of_a_process_that_died_are_taken_again_after_the_lease(begin_on, jobs, clock):
    batch = begin_on("cancel_job", jobs(3))
    assert len(batches.sql.lease_items.fetch_rows(batch=batch, number=2, seconds=60.0)) == 2
    assert batches.run_batches() == 1
    assert outcomes(batch) == ["PENDING", "PENDING", "DONE"]
    clock.advance(59)
    assert batches.run_batches() == 0
    clock.advance(1)
    assert batches.run_batches() == 2
    assert read(batch) == ("COMPLETED", 3, 0)
    assert ServerEvent.objects.filter(action="cancel_job").count() == 3


class Killed(BaseException):
    pass


@pytest.mark.parametrize("is_step", [False, True])
def test_a_crash_between_action_and_record_repeats_and_refuses_no_item(
    begin_on, submit, begin, clock, monkeypatch, is_step
):
    job = WorkerJob.objects.get(execution=begin(step("a")).id).pk if is_step else submit()["id"]
    batch = begin_on("fail_job", [job])

    def die(*_, **__):
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(batches, "record_done", die)
        with pytest.raises(Killed):
            batches.run_batches()
    assert WorkerJob.objects.get(pk=job).state == ("FAILED" if is_step else "PENDING")
    clock.advance(batches.LEASE)
    batches.run_batches()
    assert read(batch) == ("COMPLETED", 1, 0)
    assert WorkerJob.objects.get(pk=job).state == "FAILED"
    assert ServerEvent.objects.filter(action="fail_job").count() == 1


def test_resubmitting_twice_what_was_leased_twice_makes_one_copy_of_each(begin_on, jobs, clock):
    ids = jobs(2)
    begin_on("cancel_job", ids)
    batches.run_batches()
    batch = begin_on("resubmit_job", ids, key="", drop_checkpoint=False)
    items = batches.sql.lease_items.fetch_rows(batch=batch, number=2, seconds=60.0)
    for item in [*items, *items]:
        batches.run_item(item)
    copies = dict(WorkerJob.objects.exclude(resubmission_of=None).values_list("resubmission_of", "pk"))
    assert sorted(map(str, copies)) == sorted(ids)
    assert dict(BatchItem.objects.filter(batch=batch).values_list("subject_id", "result_id")) == copies
    assert read(batch) == ("COMPLETED", 2, 0)


def test_two_at_once_share_the_items(committed, threads):
    client = Caller(tokens.create_token("a client", "client"))
    body = {"action": {"type": "script", "command": "true"}, "tags": ["gpu"], "unmatched": "wait"}
    ids = [client.post("/jobs", body).json()["id"] for _ in range(50)]
    batch = batches.begin_batch(
        "cancel_job", ANN, "n", {}, [(id, "") for id in ids], label="Cancel", chosen="", left_out=[]
    )
    runs = [threads(batches.run_batch, batch, 50) for _ in range(4)]
    assert sum(run.result(60) for run in runs) == 50
    assert read(batch) == ("COMPLETED", 50, 0)
    assert ServerEvent.objects.filter(action="cancel_job").count() == 50


def test_a_large_batch_keeps_no_other_waiting(begin_on, jobs, clock, monkeypatch):
    monkeypatch.setattr(batches, "ITEMS_AT_ONCE", 2)
    large, small = begin_on("cancel_job", jobs(5)), begin_on("cancel_job", jobs(1))
    for _ in range(2):
        clock.advance(1)
        batches.run_items(None, 2)
    assert (read(large)[1], read(small)[0]) == (2, "COMPLETED")


def test_a_batch_that_is_stopped_leaves_the_rest_alone(begin_on, jobs):
    batch = begin_on("cancel_job", ids := jobs(4))
    batches.run_batch(batch, 1)
    leased = batches.sql.lease_items.fetch_rows(batch=batch, number=3, seconds=60.0)
    batches.stop_batch(batch, ANN, "not those")
    assert batches.run_batches() == 0
    assert batches.run_item(leased[0]) == "STOPPED"  # the item was taken before the stop
    assert read(batch) == ("STOPPED", 2, 0)
    assert WorkerJob.objects.filter(pk__in=ids, state="PENDING").count() == 2
    event = ServerEvent.objects.get(action="stop_batch")
    assert (event.actor, event.reason, event.subject_name) == (ANN, "not those", f"batch {batch}")
    with pytest.raises(batches.BatchEnded):
        batches.stop_batch(batch, ANN, "again")


def test_a_process_stops_after_the_item_it_is_working_on(begin_on, jobs, monkeypatch):
    batch = begin_on("cancel_job", jobs(4))

    def stop(sender, item, **_):
        if item.tries == 1 and read(batch)[0] == "RUNNING" and BatchItem.objects.filter(outcome="DONE").count() == 2:
            batches.stop_batch(batch, ANN, "enough")

    batches.item_done.connect(stop)
    try:
        batches.run_batches()
    finally:
        batches.item_done.disconnect(stop)
    assert outcomes(batch).count("DONE") in (2, 3)
    assert read(batch)[0] == "STOPPED"


def test_what_the_database_refuses_delays_no_other_item(begin_on, jobs):
    ids = jobs(3)
    with connection.cursor() as cursor:
        cursor.execute(
            "create function broken() returns trigger language plpgsql as $$ begin raise exception 'no'; end $$; "
            "create trigger broken before update on jobs_workerjob for each row "
            f"when (new.id = '{ids[1]}') execute function broken()"
        )
    batch = begin_on("cancel_job", ids)
    batches.run_batches()
    assert outcomes(batch) == ["DONE", "REFUSED", "DONE"]
    assert "database refused the change" in BatchItem.objects.get(outcome="REFUSED").reason


def test_a_database_that_is_away_ends_no_item(begin_on, jobs, monkeypatch, clock):
    batch = begin_on("cancel_job", jobs(1))

    def away(*_, **__):
        raise OperationalError("away")

    with monkeypatch.context() as patched:
        patched.setattr(batches, "perform_operation", away)
        with pytest.raises(DatabaseError):
            batches.run_batches()
    assert outcomes(batch) == ["PENDING"]
    clock.advance(batches.LEASE)
    batches.run_batches()
    assert outcomes(batch) == ["DONE"]


def test_the_timetable_runs_batches(begin_on, jobs):
    batch = begin_on("cancel_job", jobs(2))
    tasks.run_batches()
    assert read(batch) == ("COMPLETED", 2, 0)


def test_a_form_that_is_sent_twice_begins_one_batch(begin_on, jobs):
    ids = jobs(1)
    assert begin_on("resubmit_job", ids, key="a") == begin_on("resubmit_job", ids, key="a")
    assert begin_on("cancel_job", ids) != begin_on("cancel_job", ids)


def test_a_batch_is_kept_for_its_retention_and_goes_with_its_items(begin_on, jobs, clock):
    batch, other = begin_on("cancel_job", jobs(2)), begin_on("cancel_job", jobs(1))
    batches.run_batch(batch, 2)
    clock.advance(30 * 86400)
    assert prune_old_rows()["batches"] == 0
    clock.advance(1)
    assert prune_old_rows()["batches"] == 1
    assert [*Batch.objects.values_list("pk", flat=True)] == [other]  # the other batch has not ended
    assert {*BatchItem.objects.values_list("batch", flat=True)} == {other}


def test_a_batch_of_chosen_rows_skips_rows_that_have_changed_since(staff, submit, worker):
    one, first, second = worker(), submit()["id"], submit()["id"]
    client = staff("cancel_workerjob", checks_csrf=False)
    address = f"{PAGES}jobs/cancel/?pick={first}&pick={second}"
    one.hold()
    form = {"seen": [f"{first} PENDING", f"{second} PENDING"], "note": "n"}
    answer = client.post(address, form, follow=True)
    assert answer.redirect_chain[-1][0] == f"{PAGES}jobs/"
    assert "Cancelled: 1 job." in words(answer)
    assert "It was PENDING when you looked and is RUNNING now" in words(answer)
    assert read(Batch.objects.get().pk) == ("COMPLETED", 1, 1)
    assert client.post(address, form).status_code == 409  # nothing was changed


def test_all_servers_that_match_are_a_batch_too(staff, worker):
    worker(name="a"), worker(name="b")
    client = staff("drain_server", checks_csrf=False)
    form = {"until": str(Server.objects.order_by("-pk").first().pk), "seen": "2", "note": "n", "deadline": "5m"}
    page = client.get(client.post(f"{PAGES}servers/drain/?all=1", form).url)
    assert "2 of 2 done" in words(page)
    assert Server.objects.exclude(drain_deadline=None).count() == 2


def test_executions_are_cancelled_as_a_batch_with_steps_that_wait(staff, begin):
    for _ in range(2):
        begin(step("a"), step("b", depends_on=["a"]))
    client = staff("cancel_execution", checks_csrf=False)
    form = {"until": "ffffffff-ffff-ffff-ffff-ffffffffffff", "seen": "2", "note": "n"}
    page = client.get(client.post(f"{PAGES}executions/cancel/?all=1", form).url)
    assert "2 of 2 done" in words(page)
    assert [*WorkerJob.objects.values_list("state", flat=True)] == ["CANCELLED"] * 4


def test_the_page_shows_the_items_by_outcome_and_refreshes_itself(staff, begin_on, jobs, submit, worker, monkeypatch):
    monkeypatch.setattr("controlplane.console.views.batches.ITEMS_A_PAGE", 2)
    ended = submit()["id"]
    one = worker()
    one.complete(one.hold())
    batch = begin_on("cancel_job", [ended, *jobs(3)], left_out=[("It is CANCELLED.", 7)])
    batches.run_batch(batch, 3)
    client = staff("cancel_workerjob")
    page = client.get(f"{PAGES}batches/{batch}/")
    said = words(page)
    assert "Cancel: 4 jobs" in said and "2 of 4 done, 1 refused, 1 remaining" in said
    assert "1 refused: This job is COMPLETED" in said and "7 left out at the start: It is CANCELLED." in said
    assert "you may close this page" in said and "Started" in said and "by operator:ann" in said

    def rows(query):
        return len(re.findall(r'id="item-\d+"', client.get(f"{PAGES}batches/{batch}/{query}").content.decode()))

    more = re.search(r'href="(\?outcome=&amp;after=\d+)">More', page.content.decode())[1].replace("&amp;", "&")
    assert (rows(""), rows(more), rows("?outcome=REFUSED"), rows("?outcome=PENDING")) == (2, 2, 1, 1)
    assert rows("?outcome=nonsense&after=x") == 2


def test_the_page_shows_that_no_process_works_on_it_and_deleted_subjects(staff, begin_on, jobs, clock):
    batch = begin_on("cancel_job", ["01a1fe1d-b4bb-7a60-b0a7-7ec59c176bca", *jobs(1)])
    batches.run_batch(batch, 1)
    client = staff()
    assert "as soon as an executor runs" not in words(client.get(f"{PAGES}batches/{batch}/"))
    clock.advance(31)
    said = words(client.get(f"{PAGES}batches/{batch}/"))
    assert "No progress for 31 s" in said and "deleted since then" in said
    assert "The job does not exist or is not yours" in said


def test_only_users_with_the_permission_for_the_action_stop_a_batch(staff, client, begin_on, jobs):
    batch = begin_on("cancel_job", jobs(2))
    may = staff("cancel_workerjob", checks_csrf=False)
    at = f"{PAGES}batches/{batch}/"
    assert f'href="{at}stop/"' in may.get(at).content.decode()
    assert "Stop: Cancel, 2 of 2 jobs remaining" in words(may.get(at + "stop/"))
    assert "errorlist" in may.post(at + "stop/", {"note": ""}).content.decode()
    assert may.post(at + "stop/", {"note": "wrong ones"}).url == at
    assert "0 of 2 done, 2 not processed" in words(may.get(at))
    assert f'href="{at}stop/"' not in may.get(at).content.decode()
    assert may.post(at + "stop/", {"note": "again"}).status_code == 409
    client.force_login(employ("jobs.view_workerjob"))
    assert client.get(at).status_code == 200
    assert f'href="{at}stop/"' not in client.get(at).content.decode()
    assert client.get(at + "stop/").status_code == client.post(at + "stop/", {"note": "n"}).status_code == 403


def test_batches_are_listed_for_users_with_permission_for_their_subjects(client, begin_on, jobs, worker, monkeypatch):
    monkeypatch.setattr("controlplane.console.views.batches.BATCHES_A_PAGE", 1)
    of_jobs = [begin_on("cancel_job", jobs(1)) for _ in range(2)]
    of_servers = begin_on("cordon_server", [worker().id], label="Cordon")
    client.force_login(employ("jobs.view_workerjob"))
    first = client.get(f"{PAGES}batches/").content.decode()
    older = re.search(r'href="(\?before=[^"]+)">Older', first)[1]
    second = client.get(f"{PAGES}batches/{older}").content.decode()
    listed = [re.findall(r'id="batch-([^"]+)"', page) for page in (first, second)]
    assert listed == [[str(of_jobs[1])], [str(of_jobs[0])]]
    assert "Older" not in second and "Cordon" not in first + second
    assert client.get(f"{PAGES}batches/{of_servers}/").status_code == 403
    assert client.get(f"{PAGES}batches/{of_servers}/stop/").status_code == 403
    assert client.get(f"{PAGES}batches/01a1fe1d-b4bb-7a60-b0a7-7ec59c176bca/").status_code == 404


def test_no_page_of_a_batch_costs_more_than_eight_queries(staff, begin_on, jobs, django_assert_max_num_queries):
    batch = begin_on("cancel_job", jobs(3), left_out=[("x", 1)])
    batches.run_batch(batch, 2)
    client = staff("cancel_workerjob")
    for path in (f"batches/{batch}/", "batches/", f"batches/{batch}/stop/"):
        with django_assert_max_num_queries(8):
            assert client.get(PAGES + path).status_code == 200
