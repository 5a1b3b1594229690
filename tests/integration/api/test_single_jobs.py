"""The shortcut for single jobs gives the same responses as the normal path, and leaves other calls to it."""

import asyncio
import json
import threading
import time
from contextlib import contextmanager

import pytest
from django.db import connection, transaction

from controlplane.core.rest import validate_body
from controlplane.serving.front import Front
from controlplane.serving.grouped_calls import GroupedCalls, single_job_of
from controlplane.serving.seats import Call, CallKind
from controlplane.wsgi import application
from jobs.api import single_jobs
from jobs.api.serializers.executions import SubmissionRequest
from jobs.api.shortcut import SMALL_BODY_BYTES
from jobs.models import StoredBytes, WorkerJob
from jobs.services import submission
from jobs.services.submission import SingleJob
from liveness.models import ApiToken
from liveness.services import tokens
from tests.integration.jobs.test_submission import SCRIPT, job
from tests.support.http import Caller, http_scope, request_of, short_way
from tests.support.queries import CapturedQueries

NORMAL = {"Accept": "application/json, */*"}
"""Header with which a call takes the normal path."""
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
RICH = {
    "name": "höhe", "payload": {"n": 1.5, "long": 2**70}, "tags": ["b", "a"], "priority": 7, "timeout_seconds": 30,
    "available_at": "2100-01-01T00:00:00Z", "good_until": "2100-01-02T00:00:00Z", "on_worker_lost": "FAIL",
    "max_retries": 2, "retry_delay_seconds": 1, "retry_backoff": "exponential", "retry_on": ["E"], "traceparent": TRACE,
}  # fmt: skip
UNHELD = 9
"""Seconds. A call that another one held back would take until the lock timeout of 10 s."""
SECRET = {"type": "script", "command": "true", "env": {"PASSWORD": {"secret_value": "hidden"}}}


def known_token(role="client", **fields):
    """Return the text of a token that this process has used before."""
    text = tokens.create_token(f"a {role}", role, **fields)
    tokens.find_token(text)
    return text


@pytest.fixture
def client(db):
    return Caller(known_token())


def shortcut(caller, body, **environ):
    """Return the response of the shortcut, or None if the normal path must handle the call."""
    request = request_of(
        {
            "REQUEST_METHOD": "POST",
            "PATH_INFO": single_jobs.PATH,
            "CONTENT_TYPE": "application/json",
            "HTTP_HOST": "testserver",
            "HTTP_AUTHORIZATION": f"Bearer {caller.token}",
            **environ,
        }
    )
    return short_way(request, body if isinstance(body, bytes) else json.dumps(body).encode())


def single(caller, **fields):
    return SingleJob(tokens.recall_token(caller.token), validate_body(SubmissionRequest, job(**fields)))


@pytest.mark.parametrize(
    "fields", [{}, RICH, {"action": SECRET}, {"payload": None}], ids=lambda fields: str(fields)[:9]
)
def test_it_answers_what_the_normal_path_answers(client, fields):
    short = shortcut(client, job(**fields))
    normal = client.post("/jobs", job(**fields), **NORMAL)
    assert short.status_code == normal.status_code == 201
    assert short.headers["Content-Type"] == normal.headers["Content-Type"]
    for own in ("id", "created_at", *(() if "available_at" in fields else ("available_at",))):
        assert json.loads(short.content)[own] != normal.json()[own]
    differing = {"id", "created_at", "available_at", "timeline"}
    one, other = (
        {k: v for k, v in a.items() if k not in differing} for a in (json.loads(short.content), normal.json())
    )
    assert one == other
    stored = WorkerJob.objects.values("owner", "namespace", "kind", "fingerprint", "state", "pending_observed")
    assert len({tuple(map(str, row.values())) for row in stored}) == 1


def test_it_is_one_round_trip(client):
    shortcut(client, job())
    with CapturedQueries(connection) as queries:
        assert shortcut(client, job()).status_code == 201
    assert len(queries) == 1


def test_the_headers_for_key_and_trace_count(client):
    answer = json.loads(shortcut(client, job(), HTTP_IDEMPOTENCY_KEY="k", HTTP_TRACEPARENT=TRACE).content)
    assert answer["key"] == "k" and answer["traceparent"].split("-")[1] == TRACE.split("-")[1]
    assert shortcut(client, job(key="k"), HTTP_IDEMPOTENCY_KEY="k") is None, "it is known"
    assert client.post("/jobs", job(key="k")).json()["id"] == answer["id"]


def test_a_job_of_a_namespace_belongs_to_it(db):
    red = Caller(known_token(namespace="red"))
    assert json.loads(shortcut(red, job()).content)["namespace"] == "red"


@pytest.mark.parametrize(
    "body",
    [
        [job()],
        job(action={"type": "execution", "name": "e", "steps": [{"key": "a", "action": SCRIPT}]}),
        job(require_worker=True),
        job(unmatched="wait"),
        job(unknown=1),
        job(priority=1001),
        job(payload="\0"),
        {},
        "text",
        None,
        b"",
        b"{",
        b"\xff",
        b" " * SMALL_BODY_BYTES + b"{}",
    ],
    ids=lambda body: str(body)[:40],
)
def test_a_job_that_is_not_plainly_valid_takes_the_normal_path(client, body):
    assert shortcut(client, body) is None
    assert not WorkerJob.objects.exists()


@pytest.mark.parametrize(
    "environ",
    [
        {"REQUEST_METHOD": "PUT"},
        {"CONTENT_TYPE": "text/plain"},
        {"HTTP_HOST": "evil.example"},
        {"HTTP_AUTHORIZATION": ""},
        {"HTTP_AUTHORIZATION": "Bearer cp_unknown"},
        {"HTTP_ACCEPT": "text/html"},
        {"HTTP_IDEMPOTENCY_KEY": ""},
        {"HTTP_IDEMPOTENCY_KEY": "x" * 256},
        {"QUERY_STRING": "namespace=red"},
        {"PATH_INFO": "/api/v1/jobs/"},
        {"PATH_INFO": "/api/v1/executions"},
    ],
    ids=str,
)
def test_a_call_that_is_not_plain_takes_the_normal_path(client, environ):
    assert shortcut(client, job(), **environ) is None
    assert not WorkerJob.objects.exists()


def test_two_different_keys_take_the_normal_path_which_refuses_them(client):
    assert shortcut(client, job(key="a"), HTTP_IDEMPOTENCY_KEY="b") is None
    assert client.post("/jobs", job(key="a"), **{"Idempotency-Key": "b"}).status_code == 400


@pytest.mark.parametrize("role", ["viewer", "worker"])
def test_a_token_of_another_role_takes_the_normal_path(db, role):
    other = Caller(known_token(role))
    assert shortcut(other, job()) is None
    assert other.post("/jobs", job()).status_code == 403


def test_a_token_that_is_revoked_or_expired_stores_nothing_from_the_next_call_on(client):
    assert shortcut(client, job()).status_code == 201
    token = ApiToken.objects.filter(pk=tokens.find_token(client.token).pk)
    for column, code in (("revoked_at", "token_revoked"), ("expires_at", "token_expired")):
        token.update(**{"revoked_at": None, column: "2020-01-01T00:00:00Z"})
        assert shortcut(client, job()) is None
        assert client.post("/jobs", job()).json()["code"] == code
    assert WorkerJob.objects.count() == 1


def test_behind_tls_a_call_in_clear_takes_the_normal_path(client, settings):
    settings.SECURE_SSL_REDIRECT = True
    assert shortcut(client, job()) is None
    assert shortcut(client, job(), HTTP_X_FORWARDED_PROTO="https").status_code == 201


def test_jobs_of_many_clients_are_stored_in_one_transaction_each_for_its_owner(committed):
    callers = [Caller(known_token(namespace=name)) for name in ("default", "red", "default")]
    singles = [single(caller, payload=n) for n, caller in enumerate(callers * 3)]
    stored = submission.submit_single_jobs(singles)
    with connection.cursor() as cursor:
        cursor.execute("select count(distinct xmin::text), count(*) from jobs_workerjob")
        assert cursor.fetchone() == (1, 9)
    for one, answer in zip(singles, stored, strict=True):
        row = WorkerJob.objects.get(pk=answer.id)
        assert (row.owner_id, row.namespace, row.payload) == (one.owner.pk, one.owner.namespace, one.job["payload"])


def test_each_of_many_jobs_is_stored_or_left_to_the_normal_path_by_itself(committed, settings):
    committed(tags=["script"])
    settings.JOBS = {"WAITING_LIMIT": 3}
    one, full, gone = (Caller(known_token()) for _ in range(3))
    ApiToken.objects.filter(pk=tokens.find_token(gone.token).pk).update(revoked_at="2020-01-01T00:00:00Z")
    stored = submission.submit_single_jobs(
        [
            single(one, key="k"),
            single(full),
            single(one, key="k", payload="twice"),
            single(full),
            single(one, action={"type": "docker", "image": "busybox"}),
            single(gone),
            single(full),
            single(full),
        ]
    )
    assert [bool(answer) for answer in stored] == [True] + [False] * 7
    assert WorkerJob.objects.count() == 1
    answers = [full.post("/jobs", job()).status_code for _ in range(4)]
    assert answers == [201, 201, 201, 429]
    assert one.post("/jobs", job(key="k", payload="twice")).json()["code"] == "key_conflict"
    assert one.post("/jobs", job(action={"type": "docker", "image": "busybox"})).json()["code"] == "no_runner"


def test_a_limit_of_one_owner_holds_back_no_other(client, settings):
    settings.JOBS = {"WAITING_LIMIT": 2}
    other = Caller(known_token())
    stored = submission.submit_single_jobs([*[single(other)] * 3, *[single(client)] * 2])
    assert [bool(answer) for answer in stored] == [False] * 3 + [True] * 2
    assert submission.submit_single_jobs([single(client), single(other)])[0] is None
    assert WorkerJob.objects.count() == 3


def test_stored_bytes_are_counted_and_limited_for_each_owner(client, settings):
    settings.JOBS = {"STORED_BYTES_LIMIT": 2500}
    other = Caller(known_token())
    large = {"payload": "x" * 1000}
    stored = submission.submit_single_jobs([*[single(client, **large)] * 3, *[single(other, **large)] * 2])
    assert [bool(answer) for answer in stored] == [False] * 3 + [True] * 2
    (row,) = StoredBytes.objects.values("owner", "bytes")
    assert row["owner"] == tokens.find_token(other.token).pk and 2000 < row["bytes"] < 2500
    assert submission.submit_single_jobs([single(other, **large)]) == [None]
    assert client.post("/jobs", job(**large)).status_code == 201


def test_sets_of_tags_are_limited_for_each_owner(client, settings):
    settings.JOBS = {"WAITING_TAG_SETS_LIMIT": 2}
    other = Caller(known_token())
    mine = [single(client, tags=[name]) for name in "abc"]
    stored = submission.submit_single_jobs([*mine, *[single(other, tags=[name]) for name in "ab"]])
    assert [bool(answer) for answer in stored] == [False] * 3 + [True] * 2
    assert submission.submit_single_jobs([single(other, tags=["c"])]) == [None]


def test_a_row_that_the_database_refuses_leaves_the_others_to_the_normal_path(committed):
    one, other = Caller(known_token()), Caller(known_token())
    with connection.cursor() as cursor:
        cursor.execute(
            "create function broken() returns trigger language plpgsql as $$ begin raise 'a bad row'; end $$;"
            " create trigger broken before insert on jobs_workerjob for each row when (new.name = 'bad')"
            " execute function broken()"
        )
    try:
        assert single_jobs.answers([single(one, name="bad"), single(other)]) == [None, None]
        assert not WorkerJob.objects.exists()
        assert other.post("/jobs", job()).status_code == 201
        assert one.post("/jobs", job(name="bad")).status_code == 500
    finally:
        with connection.cursor() as cursor:
            cursor.execute("drop trigger broken on jobs_workerjob; drop function broken()")


@pytest.fixture
def uncommitted(committed, threads):
    """Return a context in which a list of jobs is stored, and its transaction has not ended."""

    @contextmanager
    def store(caller, *jobs):
        stored, released = threading.Event(), threading.Event()

        def hold():
            with transaction.atomic():
                submission.submit_jobs(tokens.recall_token(caller.token), list(jobs))
                stored.set()
                released.wait(60)

        holder = threads(hold)
        assert stored.wait(30)
        try:
            yield released
        finally:
            released.set()
            holder.result(30)

    return store


def test_a_key_that_another_call_has_not_committed_holds_back_no_other_client(uncommitted):
    one, other = Caller(known_token()), Caller(known_token())
    front = Front(application, 16)

    async def calls(released):
        blocked = asyncio.ensure_future(submit_over_front(front, one, job(key="k")))
        others = [(await asyncio.wait_for(submit_over_front(front, other, job()), UNHELD))[0] for _ in range(2)]
        was_done = blocked.done()
        released.set()
        return was_done, others, (await blocked)[0]

    with uncommitted(one, single(one, key="k").job, single(one).job) as released:
        started = time.monotonic()
        assert single_jobs.answers([single(one, key="k"), single(other)]) == [None, None]
        assert time.monotonic() - started < UNHELD
        assert asyncio.run(calls(released)) == (False, [201, 201], 200)


@pytest.mark.parametrize(("session", "group"), [("5s", "100ms"), ("0", "100ms"), ("2min", "100ms"), ("20ms", "20ms")])
def test_a_group_waits_no_longer_for_a_lock_than_its_session(db, session, group):
    with connection.cursor() as cursor:
        cursor.execute("select set_config('lock_timeout', %s, true)", [session])
    assert submission.sql.limit_lock_waits.fetch_only_row(lock_wait=100).lock_timeout == group


async def submit_over_front(front, caller, body):
    """Return the status and the body of the response of the whole front."""
    content = json.dumps(body).encode()
    headers = {
        "host": "testserver", "content-type": "application/json", "content-length": str(len(content)),
        "authorization": f"Bearer {caller.token}",
    }  # fmt: skip
    scope = http_scope("POST", single_jobs.PATH, headers=[(k.encode(), v.encode()) for k, v in headers.items()])
    messages, sent = [{"type": "http.request", "body": content, "more_body": False}], []

    async def receive():
        return messages.pop() if messages else await asyncio.get_running_loop().create_future()

    async def send(message):
        sent.append(message)

    await front(scope, receive, send)
    return sent[0]["status"], json.loads(b"".join(message.get("body", b"") for message in sent[1:]))


def test_concurrent_calls_share_transactions_and_the_same_key_makes_one_job(committed):
    callers = [Caller(known_token()) for _ in range(4)]
    front = Front(application, 4)

    async def calls():
        bodies = [(caller, job(key=f"k{n}")) for n in (*range(10), 0) for caller in callers]
        return await asyncio.gather(*(submit_over_front(front, caller, body) for caller, body in bodies))

    answers = asyncio.run(calls())
    accepted = [body["id"] for status, body in answers if status == 201]
    assert len(accepted) == 40, answers
    assert {status for status, _ in answers} <= {201, 200, 429, 503}, "a repeated key takes the normal path"
    assert set(accepted) == {str(id) for id in WorkerJob.objects.values_list("id", flat=True)}
    with connection.cursor() as cursor:
        cursor.execute("select count(distinct xmin::text) from jobs_workerjob")
        assert cursor.fetchone()[0] < 20


def test_one_caller_with_many_calls_leaves_room_for_others(client):
    calls, request = GroupedCalls(), request_of(
        {
            "REQUEST_METHOD": "POST", "PATH_INFO": single_jobs.PATH, "CONTENT_TYPE": "application/json",
            "HTTP_HOST": "testserver", "HTTP_AUTHORIZATION": f"Bearer {client.token}",
        }
    )  # fmt: skip
    assert single_job_of(request, json.dumps(job()).encode())
    calls._storing["busy"] = 32
    body = json.dumps(job()).encode()
    assert asyncio.run(calls.answer(request, Call(CallKind.GENERAL, "busy"), body)) is None
    calls._storing["others"] = 300
    assert asyncio.run(calls.answer(request, Call(CallKind.GENERAL, "another"), body)) is None
    assert not WorkerJob.objects.exists()
