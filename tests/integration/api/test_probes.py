"""A web process is ready when it can work; whether the instance is well is another question."""

import pytest
from django.db import OperationalError, connection

from controlplane.observability import probes
from jobs.services.liveness_check import check_liveness
from liveness.models import Clock as ClockRow
from tests.support.clock import heartbeats_get_in

pytestmark = pytest.mark.django_db

INTERVAL = 10


@pytest.fixture
def ask(client):
    def ask(path):
        answer = client.get(path)
        assert (answer.status_code == 200) == (answer.json()["problems"] == [])
        return answer.json()["problems"]

    return ask


@pytest.fixture
def well(clock):
    """Let checks run and heartbeats arrive."""
    ClockRow.objects.update(witnessed=True)
    clock.step(INTERVAL)
    heartbeats_get_in()
    check_liveness()


def test_a_web_process_is_ready_though_no_check_ever_ran(ask):
    assert ask("/readyz") == []
    assert "No liveness check has run yet" in ask("/healthz")[0]


@pytest.mark.parametrize("step", [3.5 * INTERVAL, -3600])
def test_the_instance_is_well_while_checks_run(ask, well, clock, step):
    assert ask("/healthz") == []
    clock.step(2.5 * INTERVAL)
    assert ask("/healthz") == []
    clock.step(step)
    assert "The last liveness check was" in ask("/healthz")[0]
    assert ask("/readyz") == []


def test_the_instance_is_not_well_while_no_heartbeat_gets_in(ask, well, clock):
    for _ in range(5):
        clock.step(INTERVAL)
        check_liveness()
    [problem] = ask("/healthz")
    assert "Observed time has not moved" in problem
    assert ask("/readyz") == []


def test_a_process_is_not_ready_on_a_read_only_or_an_old_database(ask, well):
    with connection.cursor() as cursor:
        cursor.execute("savepoint before; set transaction read only")
        assert ask("/readyz") == ask("/healthz") == ["The database is read-only."]
        cursor.execute("rollback to before")
        cursor.execute(
            "delete from django_migrations where id = (select max(id) from django_migrations where app = 'jobs')"
        )
    assert "1 migrations are not applied" in ask("/readyz")[0]


def test_without_a_database_the_process_lives_and_is_not_ready(client, monkeypatch):
    def gone():
        raise OperationalError("connection refused")
        yield

    monkeypatch.setattr(probes, "process_problems", gone)
    assert client.get("/livez").status_code == 200
    assert client.get("/readyz").status_code == client.get("/healthz").status_code == 503
