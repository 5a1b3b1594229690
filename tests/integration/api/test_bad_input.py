"""Bad input of every kind gets a problem document, never a 500, and changes nothing."""

import json
import uuid
from itertools import product
from unittest.mock import Mock

import pytest
from django.db import OperationalError, connection, transaction
from django.test import Client

from controlplane.core.model_fields import ClockTimestamp
from liveness.models import ApiToken
from liveness.services import tokens

SOME = "01890000-0000-7000-8000-000000000000"
SCRIPT = {"type": "script", "command": "true"}
TABLES = ("liveness_server", "liveness_serverevent", "liveness_heartbeat", "liveness_attemptheartbeat",
          "liveness_apitoken", "jobs_workerjob", "jobs_attempt", "jobs_latereport", "jobs_logline")  # fmt: skip


def stored():
    """Return a digest of all rows."""
    tables = " union all ".join(f"select t::text from {table} t" for table in TABLES)  # noqa: S608
    with connection.cursor() as cursor:
        cursor.execute(f"select md5(string_agg(t, '' order by t)) from ({tables}) rows(t)")  # noqa: S608
        return cursor.fetchone()


def assert_problem(answer, status=None, code=None):
    shown = f"{answer.status_code} {answer.content[:200]!r}"
    assert 400 <= answer.status_code < 500 or answer.status_code == status, shown
    assert answer.headers["Content-Type"] == "application/problem+json", shown
    body = json.loads(answer.content)
    assert {"type", "title", "status", "detail", "code"} <= set(body), body
    assert body["status"] == answer.status_code
    assert status is None or answer.status_code == status, body
    assert code is None or body["code"] == code, body
    return body


@pytest.fixture
def calls(api, worker, submit):
    """Return all calls, each with a caller that has the permission and a valid body. One attempt runs."""
    job = f"/jobs/{submit()['id']}"
    one, operator = worker(name="one"), api("operator")
    attempt = one.hold()["id"]
    registration = {"type": "WORKER", "name": "two", "instance_id": str(uuid.uuid4())}
    reports = {"reports": [{"attempt": attempt, "event": "PROGRESS", "progress": 0.5}]}
    return {
        "registration": (api("worker"), "/servers", registration),
        "heartbeat": (one, f"/servers/{one.id}/heartbeat", {"metrics": {"load": 1}}),
        "claims": (one, f"/servers/{one.id}/claims", {"limit": 1}),
        "reports": (one, f"/servers/{one.id}/reports", reports),
        "tasks": (one, f"/servers/{one.id}/tasks", {"tasks": [TASK]}),
        "job": (submit.client, "/jobs", {"action": SCRIPT}),
        "cancel": (submit.client, f"{job}/cancel", {}),
        "resubmit": (submit.client, f"{job}/resubmit", {}),
        "fail": (submit.client, f"{job}/fail", {"reason": "x"}),
        "requeue": (operator, "/recovery/requeue-stale-claimed", {"older_than_seconds": 60}),
        "fail_stale": (operator, "/recovery/fail-stale-running", {"older_than_seconds": 60}),
        "get": (submit.client, job, None),
        "list": (submit.client, "/jobs", None),
        "logs": (submit.client, f"{job}/logs", None),
        "placement": (submit.client, f"{job}/placement", None),
        "stale": (operator, "/recovery/stale", None),
        "servers": (operator, "/servers", None),
    }


OF_SERVERS = ("heartbeat", "claims", "reports", "tasks")
POSTS = ("registration", *OF_SERVERS, "job", "cancel", "resubmit", "fail", "requeue", "fail_stale")
GETS = ("get", "list", "logs", "placement", "stale", "servers")
TEXT = [1, 1.5, True, None, [], {}, "x" * 100_001]
WHOLE = ["1", "", 1.5, True, [], {}, 2**31, 2**63, 10**30, -(2**31) - 1]
UUID = [1, 1.5, True, None, "", "x", SOME[:-1], [], {}]
WORD = [1, True, None, "", "x", [], {}]
TAGS = [1, True, None, "script", {}, [1], [None], [[]], [{}], [""], ["x" * 101], [str(n) for n in range(201)]]
SECONDS = ["1", "5m", "nan", True, [], {}, -1, 1e300, 10**30]
OBJECT = [1, True, None, "x", []]
LOG = {"attempt": SOME, "event": "LOG", "stream": "STDOUT", "lines": ["x"]}
CALL = {"type": "celery", "task": "orders.send"}
TASK = {"attempt": SOME, "id": "t", "name": "orders.send", "state": "HELD"}
COMMAND = [1, True, None, "", [], {}, [1], [None], [[]]]

FIELDS = {
    "registration": {
        "type": [*WORD, "worker"], "name": [*TEXT, ""], "instance_id": UUID, "cluster": [*TEXT, ""], "hostname": TEXT,
        "pid": [*WHOLE, -1], "version": TEXT, "tags": TAGS, "max_concurrent": [*WHOLE, None, -1],
        "capabilities": OBJECT,
        "config": [*OBJECT, {"x": 1}, *[{f"{key}_seconds": value} for value in SECONDS for key in
                   ("heartbeat_interval", "timeout", "termination_grace_period")], {"heartbeat_interval_seconds": 0},
                   {"timeout_seconds": 5}, *[{"worker_task_restart_strategy": value} for value in WORD]],
    },
    "heartbeat": {
        "state": [*WORD, "running", "SLEEPING"], "metrics": [*OBJECT, {str(n): 1 for n in range(101)}],
        "claimed": [1, True, None, "x", {}, *([value] for value in UUID)],
        "running": [1, True, None, "x", {}, [1], [None], [[]], [{}], [{"attempt": SOME, "x": 1}],
                    *([{"attempt": value}] for value in UUID),
                    *([{"attempt": SOME, "pid": value}] for value in [*WHOLE, -1])],
        "holders": [1, True, None, "x", {}, *([value] for value in UUID), [SOME] * 1001],
        "schedulable": [0, 1, "yes", "false", "", None, [], {}], "reason": TEXT,
    },
    "tasks": {
        "tasks": [1, True, None, "x", {}, [1], [None], [[]], [{}], [{**TASK, "x": 1}], [TASK] * 501,
                  *([{**TASK, "attempt": value}] for value in UUID),
                  *([{**TASK, name: value}] for name in ("id", "name") for value in [*TEXT, "", "a\nb"]),
                  *([{**TASK, "state": value}] for value in [*WORD, "held"]),
                  *([{**TASK, name: value}] for name in ("queue", "reason") for value in [1, [], {}, "x" * 1001]),
                  *([{**TASK, name: value}] for name in ("eta", "root", "parent", "args", "result")
                    for value in [1, [], {}, "x" * 2001, "a\nb"]),
                  *([{**TASK, "retries": value}] for value in [*WHOLE, -1]),
                  *([{**TASK, name: value}] for name in ("held_seconds", "running_seconds") for value in SECONDS),
                  *([{**TASK, "error": value}] for value in
                    [1, True, "x", [], {}, {"code": 1}, {"code": "X", "message": "x" * 2001}, {"code": "X", "y": 1}])],
        "counter": UUID,
        "tally": [1, True, None, "x", {}, [1], [{}], [{"name": "x"}] * 2, [{"name": str(n)} for n in range(501)],
                  *([{"name": "x", "completed": value}] for value in ["1", 1.5, True, -1, 2**53 + 1])],
    },
    "claims": {"limit": [*WHOLE, None, -1], "ahead": [*WHOLE, None, -1, 101], "request_id": UUID},
    "reports": {
        "reports": [1, True, None, "x", {}, [1], [None], [[]], [{}], [{"attempt": SOME}], [{"event": "STARTED"}],
                    *([{"attempt": value, "event": "STARTED"}] for value in UUID),
                    *([{"attempt": SOME, "event": value}] for value in [*WORD, "started"]),
                    [{"attempt": SOME, "event": "STARTED", "x": 1}],
                    [{"attempt": SOME, "event": "STARTED", "output": 1}],
                    [{"attempt": SOME, "event": "FAILED"}], [{"attempt": SOME, "event": "RELEASED"}],
                    *([{"attempt": SOME, "event": "FAILED", "error": value}] for value in
                      [*OBJECT, {}, {"code": 1}, {"code": ""}, {"code": "X", "message": 1},
                       {"code": "X", "traceback": []}, {"code": "X", "nonsense": 1}]),
                    *([{"attempt": SOME, "event": "RELEASED", "reason": value}] for value in TEXT),
                    *([{"attempt": SOME, "event": "RELEASED", "reason": "x", "begun": value}]
                      for value in [None, 0, "false", [], {}]),
                    [{"attempt": SOME, "event": "COMPLETED", "begun": True}],
                    *([{"attempt": SOME, "event": "PROGRESS", "progress": value}] for value in [*SECONDS, 1.01, None]),
                    *([{"attempt": SOME, "event": "PROGRESS", "message": value}] for value in TEXT),
                    *([{"attempt": SOME, "event": event, "sequence": 1}] for event in ("PROGRESS", "COMPLETED")),
                    *([{"attempt": SOME, "event": "PROGRESS", field: "x"}] for field in ("lines", "stream", "reason")),
                    [{"attempt": SOME, "event": "LOG"}], [{**LOG, "message": "x"}], [{**LOG, "progress": 1}],
                    *([{**LOG, "stream": value}] for value in [*WORD, "stdout"]),
                    *([{**LOG, "lines": value}] for value in
                      [*OBJECT, {}, [1], [None], [[]], ["x" * 8193], ["x"] * 1001]),
                    *([{**LOG, "sequence": value}] for value in [*WHOLE, None, -1]),
                    [{"attempt": SOME, "event": "STARTED"}] * 1001],
    },
    "job": {
        "action": [*OBJECT, {}, {"type": "script"}, {**SCRIPT, "x": 1}, *({"type": value} for value in WORD),
                   *({"type": "script", "command": value} for value in COMMAND),
                   *({**SCRIPT, "env": value} for value in [*OBJECT, {"A": 1}, {"A": None}]),
                   *({**SCRIPT, "runner": value} for value in WORD), *({**SCRIPT, "cwd": value} for value in TEXT),
                   *({**SCRIPT, "image": value} for value in TEXT), {"type": "callable"}, {"type": "handler"},
                   *({"type": "callable", "path": value} for value in [*TEXT, "", "x", "a:b:c", "a.:b", ":", "a:1"]),
                   *({"type": "handler", "name": value} for value in [*TEXT, "", "x" * 93]),
                   *({"type": "celery", "task": value} for value in [*TEXT, ""]), {"type": "celery"},
                   *({**CALL, "args": value} for value in [1, True, "x", {}]),
                   *({**CALL, "kwargs": value} for value in [1, True, "x", [], [1]]),
                   *({**CALL, "queue": value} for value in [*TEXT, "", "x" * 95]), {**CALL, "countdown": 1},
                   {"type": "docker"}, {"type": "pod"},
                   *({"type": "docker", "image": value} for value in [*TEXT, ""]),
                   *({"type": "docker", "image": "x", "command": value} for value in COMMAND)],
        "tags": TAGS, "priority": [*WHOLE, None], "timeout_seconds": [*SECONDS, 0],
        "available_at": [1, True, None, "", "x", "2020-13-01T00:00:00Z", "now", "infinity", [], {}],
        "on_worker_lost": WORD, "key": [*TEXT, ""], "unmatched": [*WORD, "fail "], "retry_backoff": [*WORD, "Fixed"],
        "good_until": [1, True, "", "x", "now", "infinity", "2020-13-01T00:00:00Z", [], {}],
        "max_retries": [*WHOLE, None, -1, 1001], "retry_delay_seconds": [*SECONDS, None],
        "retry_on": [1, True, "ValueError", {}, [1], [None], [[]], [""], ["x" * 256], ["x"] * 101],
        "isolation": ["", "pool", "Process", 1, True, [], {}],
        "limits": ["a", 1, True, [1], [""], ["a", "a"], ["tag:a"], ["a:*"], {"a": 0}, {"a": "1"}, list("abcde")],
        "worker_slots": [*WHOLE, None, 0, -1, 1001],
        "require_worker": [0, 1, "yes", "true", "", None, [], {}],
    },
    "cancel": {}, "resubmit": {},
    "fail": {"reason": [*TEXT, "x" * 1001]},
    "requeue": {"older_than_seconds": [*SECONDS, None]}, "fail_stale": {"older_than_seconds": [*SECONDS, None]},
}  # fmt: skip


def each(fields):
    """Return every wrong value of each field, and an unknown field."""
    return [(field, value) for field, values in {**fields, "unknown": [1]}.items() for value in values]


@pytest.mark.parametrize("call", POSTS)
def test_a_wrong_value_or_unknown_field_is_a_400_that_names_the_field(calls, call):
    caller, path, body = calls[call]
    wrong = []
    before = stored()
    for field, value in each(FIELDS[call]):
        answer = caller.post(path, {**body, field: value})
        try:
            assert field in assert_problem(answer, 400, "invalid")["errors"]
            assert stored() == before
        except AssertionError as error:
            wrong.append((field, str(value)[-80:], str(error)[:80]))
    assert not wrong


LIMIT = ["", "x", "0", "-1", "1.5", "1001", "10000000000000000000000", "true"]
LONG = "x" * 256
QUERIES = {
    "list": {
        "state": ["", "running", "SLEEPING"], "kind": ["", "task"], "cursor": ["", "x", SOME[:-1]], "limit": LIMIT,
        "key": ["", LONG, "%00"], "tag": ["", LONG, "%00"],
    },
    "logs": {"attempt": [*LIMIT[:-3], 2**31], "cursor": ["", "x", "-1", "1.5", 2**63], "limit": LIMIT},
    "stale": {f"{kind}_older_than_seconds": ["", "x", "-1", "nan", "inf", "1e300"] for kind in ("claimed", "running")},
    "servers": {
        "state": ["", "running"], "type": ["", "worker"], "cluster": ["", LONG, "%00"], "tag": ["", LONG, "%00"],
        "search": ["", LONG, "%00"], "cursor": ["", "x"], "limit": LIMIT,
    },
}  # fmt: skip


@pytest.mark.parametrize("call", QUERIES)
def test_a_wrong_or_unknown_word_in_the_query_is_a_400_that_names_it(calls, call):
    caller, path, _ = calls[call]
    wrong = []
    for field, value in each(QUERIES[call]):
        try:
            assert field in assert_problem(caller.get(f"{path}?{field}={value}"), 400, "invalid")["errors"]
        except AssertionError as error:
            wrong.append((field, str(value)[-80:], str(error)[:80]))
    assert not wrong


def test_a_job_that_there_is_not_is_a_404(calls, subtests):
    for call in ("get", "logs", "placement", "cancel", "resubmit", "fail"):
        with subtests.test(call):
            caller, path, body = calls[call]
            path = path.replace(path.split("/")[2], SOME)
            assert_problem(caller.call("GET" if call in GETS else "POST", path, body), 404, "not_found")


def test_a_missing_field_is_named(calls, subtests):
    for call in ("registration", "reports", "job", "requeue", "fail_stale"):
        with subtests.test(call):
            caller, path, body = calls[call]
            assert set(body) == set(assert_problem(caller.post(path, {}), 400)["errors"])


BODIES = [
    b"{", b"'x'", b'"x"', b"1", b"null", b"true", b"NaN", b'{"limit": NaN}', b'{"a": Infinity}', b'{"a": 1e999}',
    b"\xff\xfe", b'{"a": "\xff"}', b"\xef\xbb\xbf{}", b'{"a\\u0000": 1}', b'{"name": "\\u0000"}', b'{"a": "\\ud800"}',
    b'{"a": "\\udc00\\ud800"}', b"[1]", b"[[]]", b"[null]", b"[" * 100_000, b'{"a":' * 100_000,
    b"[" * 1000 + b"]" * 1000, b"1" * 100_000, b"\0", b"{}{}", b"{'limit': 1}", b"limit=1",
]  # fmt: skip


@pytest.mark.parametrize("call", POSTS)
def test_a_body_that_is_no_object_of_clean_json_is_a_400_and_changes_nothing(calls, call):
    caller, path, _ = calls[call]
    before, wrong = stored(), []
    for body in BODIES:
        try:
            assert_problem(caller.post(path, body), 400)
        except AssertionError as error:
            wrong.append((body[:20], str(error)[:80]))
    assert not wrong
    assert stored() == before


@pytest.mark.parametrize("call", POSTS)
def test_a_body_of_one_mebibyte_is_read_and_one_byte_more_is_a_413(calls, call):
    caller, path, body = calls[call]
    padded = json.dumps(body).encode().ljust(2**20)
    before = stored()
    assert_problem(caller.post(path, padded + b" "), 413, "too_large")
    assert stored() == before
    assert caller.post(path, padded).status_code in (200, 201)


DEEP = [("registration", "capabilities"), ("heartbeat", "metrics"), ("reports", "reports"), ("job", "payload")]


@pytest.mark.parametrize(("call", "field"), DEEP)
def test_deep_nesting_is_stored_or_refused_but_is_no_fault(calls, subtests, call, field):
    caller, path, body = calls[call]
    for depth, leaf in product((100, 250, 300, 600, 1000), ("1", '"\\u0000"')):
        deep = f'{{"a": {"[" * depth}{leaf}{"]" * depth}}}'
        if call == "reports":
            deep = f'[{{"attempt": "{body["reports"][0]["attempt"]}", "event": "COMPLETED", "output": {deep}}}]'
        text = json.dumps({**body, field: "HERE"}).replace('"HERE"', deep)
        with subtests.test(depth=depth, leaf=leaf), transaction.atomic():
            answer = caller.post(path, text.encode())
            transaction.set_rollback(True)
            if answer.status_code not in (200, 201) or "0" in leaf:
                assert_problem(answer, 400)


@pytest.mark.parametrize("media_type", ["text/plain", "multipart/form-data; boundary=x", "application/xml", ""])
def test_a_body_without_the_json_content_type_is_a_415(calls, media_type):
    caller, path, _ = calls["job"]
    headers = {"Authorization": f"Bearer {caller.token}"}
    answer = caller.client.generic("POST", f"/api/v1{path}", b"x", media_type, headers=headers)
    assert assert_problem(answer, 415)["detail"].endswith(" Send the header `Content-Type: application/json`.")


ANY = [None, "", "Bearer", "Bearer ", "Basic eDp5", "cp_x"]
API = [*ANY, "Bearer cp_x", "Bearer x", "Bearer \xff", "Bearer a b"]
SERVER = [*ANY, "Bearer cps_", "Bearer cps_x", "Bearer cps_a.1.b:c", "Bearer cps_\xe9"]


def test_without_a_known_token_every_call_is_a_401_with_the_scheme(calls, subtests):
    before = stored()
    for call, (caller, path, body) in calls.items():
        method, content = "GET" if call in GETS else "POST", json.dumps(body).encode()
        for header in SERVER if call in OF_SERVERS else API:
            headers = {} if header is None else {"Authorization": header}
            answer = caller.client.generic(method, f"/api/v1{path}", content, "application/json", headers=headers)
            with subtests.test(call, header=header):
                assert_problem(answer, 401)
                assert answer.headers["WWW-Authenticate"].startswith("Bearer")
    assert calls.keys() == {*POSTS, *GETS}
    assert stored() == before


@pytest.mark.parametrize(("ended", "code"), [("revoked_at", "token_revoked"), ("expires_at", "token_expired")])
def test_an_ended_token_is_a_401_with_the_reason(calls, subtests, ended, code):
    of_tokens = {call: calls[call] for call in (*POSTS, *GETS) if call not in OF_SERVERS}
    digests = {tokens.digest_token(caller.token) for caller, _, _ in of_tokens.values()}
    assert ApiToken.objects.filter(digest__in=digests).update(**{ended: ClockTimestamp()}) == len(digests)
    for call, (caller, path, body) in of_tokens.items():
        with subtests.test(call):
            assert_problem(caller.call("GET" if call in GETS else "POST", path, body), 401, code)


OTHER_METHODS = [
    ("GET", "/servers/{0}/heartbeat"), ("PUT", "/servers/{0}/claims"), ("DELETE", "/servers/{0}/reports"),
    ("PATCH", "/servers/{0}/heartbeat"), ("DELETE", "/servers"), ("PUT", "/jobs"), ("DELETE", "/jobs/{0}"),
]  # fmt: skip


def test_a_method_that_a_call_does_not_have_is_a_405_that_names_those_it_has(calls, subtests):
    one, client = calls["heartbeat"][0], calls["job"][0]
    for method, path in OTHER_METHODS:
        with subtests.test(path, method=method):
            answer = (one if "{0}/" in path else client).call(method, path.format(one.id), b"")
            detail = assert_problem(answer, 405, "method_not_allowed")["detail"]
            assert detail.endswith(f" Allowed here: {answer.headers['Allow']}.")
            assert method not in answer.headers["Allow"]


@pytest.mark.parametrize("path", ["/nonsense", "/jobs/", "/jobs/x", "/servers/1/heartbeat", f"/servers/{SOME}/x", "/"])
def test_an_address_that_there_is_not_is_a_404_for_everyone(api, subtests, path):
    client = Client(enforce_csrf_checks=True)  # with the checks of a real server
    headers = {"Authorization": f"Bearer {api('client').token}"}
    for method in ("GET", "POST", "PUT", "DELETE"):
        with subtests.test(method):
            assert_problem(client.generic(method, f"/api/v1{path}", b"{}", "application/json", headers=headers), 404)
            assert_problem(client.generic(method, f"/api{path}", b"{}", "application/json"), 404)


def test_without_a_database_every_call_is_a_503_with_retry_after(calls, subtests, monkeypatch):
    monkeypatch.setattr(connection, "ensure_connection", Mock(side_effect=OperationalError("connection refused")))
    answers = {
        call: caller.call("GET" if call in GETS else "POST", path, body) for call, (caller, path, body) in calls.items()
    }
    monkeypatch.undo()
    for call, answer in answers.items():
        with subtests.test(call):
            assert_problem(answer, 503, "database_unavailable")
            assert int(answer.headers["Retry-After"]) > 0
