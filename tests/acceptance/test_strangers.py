"""Strangers and too many calls, on real processes: heartbeats go first, and no call waits long."""

import socket
import threading
from contextlib import contextmanager
from urllib.parse import urlsplit

import psycopg
import pytest
import urllib3

from tests.support.processes import SHORT, eventually, fleet

pytestmark = [pytest.mark.acceptance, pytest.mark.exhaustive]

HALVES = [
    b"POST /admin/login/ HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-www-form-urlencoded\r\n"
    b"Content-Length: 100\r\n\r\nusername=",
    b"POST /api/v1/servers HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer cp_invented\r\n"
    b"Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{",
    b"POST /api/v1/jobs HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n[1, 2\r\n",
    b"GET /admin/ HTTP/1.1\r\nHost: loc",
]
TIMEOUT = float(SHORT["LIVENESS_TIMEOUT"])
SCRIPT = {"action": {"type": "script", "command": "true"}}


@pytest.fixture(scope="module")
def everything(tmp_path_factory):
    with fleet(tmp_path_factory.mktemp("strangers"), CELERY_BROKER_URL="filesystem://") as running:
        running.url = running.web()
        running.executor("executor", "--beat")
        running.agent("worker-0", running.url)
        running.client = running.token("client")
        running.work = lambda: running.call("POST", f"{running.url}/api/v1/jobs", running.client, SCRIPT)["id"]
        running.work()
        eventually(lambda: query(running, "select bool_and(state = 'COMPLETED') from jobs_workerjob"))
        yield running


def query(running, statement):
    with psycopg.connect(running.env["DATABASE_URL"]) as connection:
        return connection.execute(statement).fetchone()[0]


@contextmanager
def halves(running, number):
    """Open sockets that each send half a request and then nothing."""
    address = (urlsplit(running.url).hostname, urlsplit(running.url).port)
    sockets = [socket.create_connection(address) for _ in range(number)]
    try:
        for place, one in enumerate(sockets):
            one.sendall(HALVES[place % len(HALVES)])
        yield
    finally:
        for one in sockets:
            one.close()


@pytest.mark.parametrize("number", [5, 50])
def test_idle_sockets_with_half_a_form_stop_nothing(everything, number):
    reading = query(everything, "select reading from liveness_clock")
    with halves(everything, number):
        everything.work()
        eventually(lambda: query(everything, "select bool_and(state = 'COMPLETED') from jobs_workerjob"))
        assert everything.answers(f"{everything.url}/livez")
        # Wait longer than the timeout. Heartbeats arrive, and the liveness check continues.
        eventually(lambda: query(everything, "select reading from liveness_clock") > reading + 1.5 * TIMEOUT)
        alive = "select bool_and(state = 'RUNNING') from liveness_server where name like 'worker%' or name like 'web@%'"
        assert query(everything, alive), "nobody is disconnected"


def test_while_calls_hang_others_are_refused_soon_and_heartbeats_arrive(everything):
    """Lock a table that every call of a client reads. Calls that have a thread keep it until the lock timeout."""
    registration = {"type": "WORKER", "name": "by-hand", "instance_id": "0190a0a0-0000-7000-8000-000000000000"}
    worker = everything.call("POST", f"{everything.url}/api/v1/servers", everything.token("worker"), registration)
    server = f"{everything.url}/api/v1/servers/{worker['id']}"
    http = urllib3.PoolManager(retries=False, timeout=30, maxsize=40)
    answers = []

    def submit():
        headers = {"Authorization": f"Bearer {everything.client}"}
        answers.append(http.request("POST", f"{everything.url}/api/v1/jobs", json=SCRIPT, headers=headers))

    def ask(path, body):
        everything.call("POST", f"{server}/{path}", worker["token"], body, is_patient=False)

    with psycopg.connect(everything.env["DATABASE_URL"]) as connection:
        connection.execute("lock table liveness_apitoken in access exclusive mode")
        callers = [threading.Thread(target=submit) for _ in range(40)]
        for caller in callers:
            caller.start()
        eventually(lambda: answers, why="somebody is turned away")
        for _ in range(5):
            ask("heartbeat", {"state": "RUNNING"})
            ask("heartbeat", {"claimed": [], "running": []})
            ask("reports", {"reports": []})
            ask("claims", {"limit": 0})
        assert everything.answers(f"{everything.url}/livez")
        assert http.request("POST", f"{everything.url}/admin/login/", fields={}).status == 403, "without a CSRF token"
        for caller in callers:
            caller.join(30)
    assert {answer.json()["code"] for answer in answers} <= {"too_many_calls", "overloaded", "database_unavailable"}
    assert {answer.json()["code"] for answer in answers} >= {"too_many_calls"}
    assert {answer.status for answer in answers} <= {429, 503}
    assert all(int(answer.headers["Retry-After"]) > 0 for answer in answers)
    assert all(answer.headers["Content-Type"] == "application/problem+json" for answer in answers)
    assert everything.work()
