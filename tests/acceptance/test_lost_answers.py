"""Connections to PostgreSQL that are cut during a call: the response states what is known, and a retry is safe."""

from uuid import uuid4

import psycopg
import pytest

from tests.support.processes import database, drop, eventually, fleet
from tests.support.proxy import Proxy

pytestmark = pytest.mark.acceptance

SCRIPT = {"type": "script", "command": "true"}
CERTAIN, UNKNOWN = "database_unavailable", "outcome_unknown"


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    address = database()
    with (
        Proxy(address) as proxy,
        fleet(tmp_path_factory.mktemp("answers"), DATABASE_URL=proxy.url, LIVENESS_TIMEOUT="600") as running,
    ):
        running.proxy, running.address, running.url = proxy, address, running.web() + "/api/v1"
        yield running
        running.stop()
    drop(address)


@pytest.fixture
def call(running):
    """Call as a role, or as a server with its token. Return the status and the body."""

    def call(who, path, body=None, **headers):
        token = who if who.startswith("cp") else running.token(who)
        headers = {"Authorization": f"Bearer {token}", **headers}
        answer = running.http.request("GET" if body is None else "POST", running.url + path, json=body, headers=headers)
        return answer.status, answer.json()

    return call


@pytest.fixture
def cut(running, call):
    """Call, and cut the connection at the last of these words. Return the code of the response."""

    def cut(asked, *words, is_done):
        happens = running.proxy.cut(*words, is_done=is_done)
        status, body = asked()
        assert happens.happened.is_set(), (status, body)
        assert (status, body["status"]) == (503, 503)
        eventually(lambda: call("operator", "/instance")[0] == 200, why="the next connection is good")
        return body["code"]

    return cut


def count(running, statement):
    with psycopg.connect(running.address) as connection:
        return connection.execute(statement).fetchone()[0]


# Bytes on the wire of a prepared statement, at its first use and later, and of one that is not prepared.
STORED = {"/jobs": "execute controlplane_submit_jobs", "/executions": "insert into jobs_workerjob"}


CUTS = [
    (("COMMIT",), True, UNKNOWN, 200),
    (("COMMIT",), False, UNKNOWN, 201),
]
EXECUTION = {"name": "x", "steps": [{"key": "a", "action": SCRIPT}]}


@pytest.mark.parametrize(
    ("path", "body", "words", "is_done", "code", "again"),
    [
        # One job is one statement, which is its own transaction.
        ("/jobs", {"action": SCRIPT}, (), True, UNKNOWN, 200),
        ("/jobs", {"action": SCRIPT}, (), False, UNKNOWN, 201),
        *(("/executions", EXECUTION, *cut) for cut in CUTS),
        ("/executions", EXECUTION, ("COMMIT", "SELECT"), False, UNKNOWN, 200),  # the response is lost
    ],
)
def test_an_interrupted_submission_states_what_is_known_and_can_be_sent_again(
    running, call, cut, path, body, words, is_done, code, again
):
    key = str(uuid4())

    def submit():
        return call("client", path, body, **{"Idempotency-Key": key})

    stored = "jobs_workerjob" if path == "/jobs" else "jobs_execution"
    assert cut(submit, STORED[path], *words, is_done=is_done) == code
    assert count(running, f"select count(*) from {stored} where key = '{key}'") == (again == 200)  # noqa: S608
    status, _ = submit()
    assert status == again
    assert count(running, f"select count(*) from {stored} where key = '{key}'") == 1  # noqa: S608


def test_a_submission_interrupted_before_its_commit_is_retried_at_once(running, call):
    key = str(uuid4())
    happens = running.proxy.cut(STORED["/executions"], is_done=True)
    answers = [call("client", "/executions", EXECUTION, **{"Idempotency-Key": key})[0] for _ in range(2)]
    assert happens.happened.is_set()
    assert answers == [201, 200]
    assert count(running, f"select count(*) from jobs_execution where key = '{key}'") == 1  # noqa: S608


def test_an_interrupted_claim_is_unknown_and_its_repetition_returns_the_attempts(running, call, cut):
    registration = {"type": "WORKER", "name": "one", "tags": ["own", "script"], "instance_id": str(uuid4())}
    server = call("worker", "/servers", registration)[1]
    at, token = f"/servers/{server['id']}", server["token"]
    assert call(token, f"{at}/heartbeat", {"state": "RUNNING"})[0] == 200
    assert call("client", "/jobs", {"action": SCRIPT, "tags": ["own"]})[0] == 201
    request = {"limit": 1, "request_id": str(uuid4())}
    assert cut(lambda: call(token, f"{at}/claims", request), "execute controlplane_claim_jobs", is_done=True) == UNKNOWN
    assert call(token, f"{at}/heartbeat", {"state": "RUNNING"})[0] == 200
    [attempt] = call(token, f"{at}/claims", request)[1]["attempts"]
    started = {"reports": [{"attempt": attempt["id"], "event": "STARTED"}]}
    assert (
        cut(lambda: call(token, f"{at}/reports", started), "execute controlplane_start_attempts", is_done=True)
        == UNKNOWN
    )
    [result] = call(token, f"{at}/reports", started)[1]["results"]
    assert (result["accepted"], result["replayed"]) == (True, True)


def test_an_interrupted_read_has_changed_nothing(call, cut):
    assert cut(lambda: call("operator", "/jobs"), 'FROM "jobs_workerjob"', is_done=True) == CERTAIN
    assert cut(lambda: call("operator", "/instance"), "execute controlplane_read_figures", is_done=True) == CERTAIN


def test_without_a_connection_nothing_is_changed(running, call):
    running.token("client")  # made while the database can be reached
    running.proxy.is_open = False
    try:
        # The pool has some connections that break in a call. Later calls find none.
        eventually(lambda: call("client", "/jobs", {"action": SCRIPT})[1]["code"] == CERTAIN)
    finally:
        running.proxy.is_open = True
    eventually(lambda: call("operator", "/instance")[0] == 200)
