"""Metrics for Prometheus."""

import re

import pytest
from django.db import connection
from django.test import Client
from prometheus_client.parser import text_string_to_metric_families

from jobs.models import LateReport, WorkerJob
from jobs.services.liveness_check import check_liveness
from liveness.models import Server, ServerEvent, Tally
from liveness.selectors import metrics as metrics_of_servers
from liveness.services import detection
from liveness.services import results as module
from liveness.sql import sql
from tests.support.queries import CapturedQueries

IMMEDIATELY = {"worker_task_restart_strategy": "IMMEDIATELY"}


@pytest.fixture
def read(api):
    """Read the samples: values by name and label values, in the order of the label names."""
    client = Client(headers={"Authorization": f"Bearer {api('viewer').token}"})

    def read():
        answer = client.get("/metrics")
        assert answer.status_code == 200
        families = text_string_to_metric_families(answer.content.decode())
        samples = [sample for family in families for sample in family.samples]
        return {
            (s.name.removeprefix("controlplane_"), *(s.labels[label] for label in sorted(s.labels))): s.value
            for s in samples
        }

    return read


@pytest.fixture
def story(worker, submit, clock):
    """Lose a worker, let another complete its job, and refuse the superseded report."""
    submit()
    lost, heir = worker(name="lost", config=IMMEDIATELY), worker(name="heir")
    attempt = lost.hold()
    clock.advance(47)
    heir.beat()
    check_liveness()
    heir.complete(heir.hold())
    lost.complete(attempt, "late")


def test_before_anything_is_there_it_answers(read):
    metrics = read()
    assert metrics["jobs", "PENDING"] == metrics["late_reports_total",] == metrics["brake_engaged", "WORKER"] == 0
    assert not [sample for sample in metrics if sample[0].startswith("check_")]


def test_current_numbers_are_exported(read, worker, submit, clock):
    submit()
    clock.advance(20)
    worker(cluster="north")
    clock.advance(4)
    check_liveness()
    metrics = read()
    assert metrics["servers", "north", "RUNNING", "WORKER"] == 1
    assert metrics["jobs", "PENDING"] == 1
    assert metrics["oldest_pending_seconds",] == 24
    assert (metrics["heartbeat_age_seconds_bucket", "2.0"], metrics["heartbeat_age_seconds_bucket", "5.0"]) == (0, 1)
    assert metrics["check_last_success_timestamp_seconds",] > 1e9
    assert 0 <= metrics["check_duration_seconds",] < 60
    assert metrics["observed_clock_lag_seconds",] >= 0


def test_what_happened_is_counted(read, story):
    metrics = read()
    assert metrics["transitions_total", "server", "CREATED", "RUNNING"] == 2
    assert metrics["transitions_total", "liveness", "RUNNING", "DISCONNECTED"] == 1
    assert metrics["attempts_total", "COMPLETED"] == metrics["attempts_total", "RESUBMITTED"] == 1
    assert metrics["resubmissions_total", "LOST"] == 1
    assert metrics["late_reports_total",] == LateReport.objects.count() == 1
    assert (metrics["detection_seconds_bucket", "45.0"], metrics["detection_seconds_bucket", "60.0"]) == (0, 1)
    assert metrics["detection_seconds_count",] == metrics["recovery_seconds_count", "silence"] == 1
    assert metrics["detection_seconds_sum",] == pytest.approx(47, abs=2)
    assert metrics["recovery_seconds_sum", "silence"] == pytest.approx(47, abs=2)


@pytest.fixture
def results(monkeypatch):
    """Return the counts of heartbeats, which are empty and stored with the next heartbeat."""
    monkeypatch.setattr(module, "PAUSE", 0)
    module.results.__init__()
    yield module.results
    module.results.__init__()


def test_heartbeats_are_counted_by_how_they_were_answered(read, worker, results):
    one, gone = worker(name="one"), worker(name="gone")
    Server.objects.filter(pk=gone.id).update(state="DISCONNECTED")
    for _ in range(3):
        one.beat()  # by the shortcut
        one.beat(running=[])  # by the normal path
        gone.beat()
    one.beat(state="CREATED")
    one.beat()
    metrics = read()
    assert metrics["heartbeats_total", "server_disconnected"] == 3
    assert metrics["heartbeats_total", "illegal_transition"] == 1
    assert metrics["heartbeats_total", "accepted"] == 2 + 6  # all heartbeats before the last


def test_beats_write_no_row_each_to_be_counted_and_none_is_counted_twice(worker, results, monkeypatch):
    one = worker()
    one.beat()
    Tally.objects.all().delete()
    monkeypatch.setattr(module, "PAUSE", 1000)
    for _ in range(20):
        one.beat()
    assert not Tally.objects.filter(name="heartbeats").exists()
    monkeypatch.setattr(module, "PAUSE", 0)
    one.beat()
    assert [tally.number for tally in Tally.objects.filter(name="heartbeats")] == [21]


def test_counts_that_could_not_be_taken_along_are_by_another_beat(results):
    results.count("accepted", 2)
    with pytest.raises(OSError, match="lost"), results.take_due_counts() as counts:
        assert counts == {"results": ["accepted"], "counts": [2]}
        results.count("accepted")
        raise OSError("lost")
    with results.take_due_counts() as counts:
        assert counts == {"results": ["accepted"], "counts": [3]}
    with results.take_due_counts() as counts:
        assert counts == {"results": [], "counts": []}


def test_a_job_that_ends_in_quarantine_is_counted(read, worker, submit):
    submit(on_worker_lost="FAIL")
    one = worker()
    error = {"code": "WORKER_CRASHED", "message": "killed"}
    assert one.report({"attempt": one.hold()["id"], "event": "FAILED", "error": error})[0]["accepted"]
    assert read()["quarantined_total",] == 1


def test_a_counter_stays_when_what_it_counted_is_deleted(read, story):
    def counters():
        return {name: value for name, value in read().items() if re.search("_(total|count|sum|bucket)$", name[0])}

    ages = {name: value for name, value in counters().items() if not name[0].startswith("heartbeat_age")}
    sql.allow_event_deletion.fetch_rows()
    ServerEvent.objects.all().delete()
    WorkerJob.objects.all().delete()
    detection.fold_tallies()
    assert {name: counters()[name] for name in ages} == ages
    assert not WorkerJob.objects.exists()


def test_a_check_folds_what_was_counted_into_one_row_for_each_counter(story, worker, submit, read):
    one = worker()
    for _ in range(2):
        submit()
        one.complete(one.hold())
    before, rows = read(), Tally.objects.count()
    detection.fold_tallies()
    names = list(Tally.objects.values_list("name", "labels"))
    assert len(names) == len({(name, *labels) for name, labels in names}) < rows
    after = read()
    assert {k: v for k, v in after.items() if "total" in k[0]} == {k: v for k, v in before.items() if "total" in k[0]}


def test_a_scrape_is_eight_queries_and_names_no_id(read, story, worker):
    with CapturedQueries(connection) as queries:
        metrics = read()
    assert len(queries) == 8
    assert not [label for sample in metrics for label in sample if re.search("[0-9a-f]{8}-", label)]


@pytest.mark.parametrize(("role", "status"), [("viewer", 200), ("operator", 200), ("client", 403), ("worker", 403)])
def test_a_token_of_a_viewer_or_operator_is_needed(api, role, status):
    headers = {"Authorization": f"Bearer {api(role).token}", "Accept": "text/plain"}
    assert Client(headers=headers).get("/metrics").status_code == status


def test_without_a_token_it_is_closed_unless_the_setting_opens_it(client, db, settings):
    assert client.get("/metrics").status_code == 401
    settings.LIVENESS = {"METRICS_PUBLIC": True}
    assert client.get("/metrics").status_code == 200
    assert client.post("/metrics").status_code == 405


def test_clusters_beyond_the_oldest_are_counted_together(read, worker, clock, monkeypatch):
    monkeypatch.setattr(metrics_of_servers, "CLUSTERS_NAMED", 2)
    for number, cluster in enumerate(("old", "older", "z", "a", "old")):
        clock.advance(1)
        worker(name=f"w{number}", cluster=cluster)
    clusters = {sample[1]: value for sample, value in read().items() if sample[0] == "servers"}
    assert clusters == {"old": 2, "older": 1, "other": 2}
