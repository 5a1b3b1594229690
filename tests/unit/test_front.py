"""What stands before Django: bodies, and whose a call is."""

import asyncio
import time
from types import SimpleNamespace

import pytest

from controlplane.agent.limits import BODY_LIMIT
from controlplane.serving import front
from controlplane.serving.callers import REMEMBERED, Callers
from controlplane.serving.front import BodyTooSlow, answered, body_of, environ_of, seconds_asked
from controlplane.serving.seats import Lane
from liveness.services import tokens
from tests.integration.test_bad_input import SOME

OTHER = SOME.replace("0189", "0199")


class Headers(list):
    """As granian has them."""

    def get(self, wanted, default=None):
        return next((value for name, value in self if name == wanted), default)

    def items(self):
        return list(self)

    def __contains__(self, wanted):
        return self.get(wanted) is not None


def scope(path="/api/v1/jobs", method="POST", client="10.0.0.1:5000", **headers):
    names = [(name.replace("_", "-"), value) for name, value in headers.items()]
    return SimpleNamespace(
        proto="http", http_version="1.1", server="127.0.0.1:8000", client=client, scheme="http", method=method,
        path=path, query_string="a=%20", authority=None, headers=Headers([("host", "localhost"), *names]),
    )  # fmt: skip


async def send_body(*chunks, hangs=False):
    for chunk in chunks:
        yield chunk
    if hangs:
        await asyncio.Event().wait()


def read(request, *chunks, **how):
    return asyncio.run(body_of(request, send_body(*chunks, **how)))


def test_a_body_is_read_as_a_whole():
    assert read(scope(content_length="4"), b"ab", b"cd") == b"abcd"
    assert read(scope(transfer_encoding="chunked"), b"ab", b"", b"cd") == b"abcd"
    assert read(scope(), hangs=True) == b"", "there is none"


def test_a_body_that_does_not_come_is_given_up(monkeypatch):
    monkeypatch.setattr(front, "BODY_WITHIN", 0.01)
    with pytest.raises(BodyTooSlow) as refused:
        read(scope(content_length="4"), b"ab", hangs=True)
    answer = front.refusal(refused.value)
    assert (answer.status, dict(answer.headers)["Content-Type"]) == (408, "application/problem+json")


def test_who_goes_in_the_middle_of_a_body_is_not_answered():
    assert read(scope(content_length="4"), b"ab") is None


def test_of_what_is_too_large_no_more_is_kept_than_django_needs_to_refuse_it():
    chunk = b"x" * 65536
    count = [0]

    async def much():
        while True:
            count[0] += 1
            yield chunk

    assert len(asyncio.run(body_of(scope(transfer_encoding="chunked"), much()))) == BODY_LIMIT + 1
    assert count[0] <= 8 * BODY_LIMIT // len(chunk) + 1, "nor is it read for ever"
    assert read(scope(content_length=str(BODY_LIMIT)), b"x" * BODY_LIMIT) == b"x" * BODY_LIMIT


def test_django_sees_the_request_as_it_was_sent():
    request = scope("/é/%2F", content_type="application/json", cookie="a=1", content_length="5", x_a="1")
    request.headers += [("cookie", "b=2"), ("x-a", "2"), ("x_a", "forged")]
    environ = environ_of(request, b"{}")
    assert environ["PATH_INFO"].encode("latin-1").decode() == "/é/%2F"
    assert (environ["REQUEST_METHOD"], environ["QUERY_STRING"], environ["REMOTE_ADDR"]) == ("POST", "a=%20", "10.0.0.1")
    assert (environ["CONTENT_TYPE"], environ["CONTENT_LENGTH"], environ["HTTP_HOST"]) == (
        "application/json", "2", "localhost",
    )  # fmt: skip
    assert (environ["HTTP_COOKIE"], environ["HTTP_X_A"]) == ("a=1;b=2", "1,2")
    assert "HTTP_CONTENT_LENGTH" not in environ and "HTTP_CONTENT_TYPE" not in environ
    assert environ["wsgi.input"].read() == b"{}"


def test_an_answer_is_whole_before_its_thread_is_free_and_what_it_holds_is_closed():
    class Content(list):
        closed = False

        def close(self):
            self.closed = True

    content = Content([b"a", b"b"])

    def django(environ, start_response):
        start_response("201 Created", [("X-A", "1")])
        return content

    assert answered(django, {}) == (201, [("X-A", "1")], b"ab")
    assert content.closed


def signed(server):
    return f"Bearer {tokens.sign_server_token(tokens.UUID(server), 1, tokens.UUID(OTHER))}"


@pytest.mark.parametrize(
    ("call", "lane"),
    [
        ("heartbeat", Lane.HEARTBEAT_OR_REPORT),
        ("reports", Lane.HEARTBEAT_OR_REPORT),
        ("claims", Lane.CLAIM),
        ("events", Lane.GENERAL),
    ],
)
def test_a_server_is_known_by_its_token(call, lane):
    request = scope(f"/api/v1/servers/{SOME}/{call}", authorization=signed(SOME))
    caller = Callers().call(request)
    assert caller.lane == lane
    assert (caller.key == SOME) == (lane != Lane.GENERAL)


@pytest.mark.parametrize("authorization", [signed(OTHER), signed(SOME) + "x", "Bearer cps_x", "Bearer cp_x", "", "x"])
def test_who_is_not_that_server_is_a_stranger(authorization):
    caller = Callers().call(scope(f"/api/v1/servers/{SOME}/heartbeat", authorization=authorization))
    assert (caller.lane, caller.key, caller.is_strange) == (Lane.GENERAL, "address 10.0.0.1", True)


@pytest.mark.parametrize(("authority", "host", "is_plain"), [
    (None, "testserver", True), ("testserver", None, True), ("testserver", "testserver", False), (None, None, False),
])  # fmt: skip
def test_a_plain_heartbeat_names_its_host_once_as_http_2_or_as_http_1_does(authority, host, is_plain):
    request = scope(f"/api/v1/servers/{SOME}/heartbeat", authorization=signed(SOME), content_type="application/json")
    request.authority = authority
    request.headers[0:1] = [("host", host)] if host else []
    assert (front.plain_heartbeat_of(request, Callers().call(request), b"{}") is not None) == is_plain


def test_probes_and_signing_in_have_their_places():
    callers = Callers()
    assert callers.call(scope("/livez", "GET")) == callers.call(scope("/healthz", "GET"))
    assert callers.call(scope("/livez", "GET")).lane == Lane.PROBE_OR_SIGN_IN
    assert callers.call(scope("/admin/login/")).key == "sign-in"
    assert callers.call(scope("/admin/login/", "GET")).lane == Lane.GENERAL


@pytest.mark.parametrize(
    ("path", "headers"),
    [
        ("/api/v1/jobs", {"authorization": "Bearer cp_good"}),
        ("/api/v1/jobs", {"cookie": "x=1; sessionid=good"}),
        ("/admin/instance/", {"cookie": "sessionid=good; csrftoken=1"}),
    ],
)
def test_a_token_or_session_has_a_share_of_its_own_once_it_was_good(path, headers):
    callers, request = Callers(), scope(path, **headers)
    assert callers.call(request).is_strange
    callers.learn(request, 200, is_signed_in="cookie" in headers)
    known = callers.call(scope("/static/x.css", "GET", "10.0.0.2:1", **headers))
    assert not known.is_strange
    assert callers.call(scope()).is_strange, "and nobody else"
    callers.learn(request, 401, is_signed_in=False)
    assert callers.call(request).is_strange


@pytest.mark.parametrize(
    ("path", "status"),
    [("/api/v1/jobs", 401), ("/api/v1/jobs", 404), ("/livez", 200), ("/static/x.css", 200), ("/api/docs", 200),
     ("/admin/login/", 200), ("/admin/", 302)],
)  # fmt: skip
def test_an_invented_token_gets_no_share_of_its_own(path, status):
    callers, request = Callers(), scope(path, authorization="Bearer cp_invented", cookie="sessionid=invented")
    callers.learn(request, status, is_signed_in=False)
    assert callers.call(request).is_strange


@pytest.mark.parametrize("path", ["/admin/jsi18n/", "/admin/instance/", "/api/v1/jobs"])
def test_a_page_that_is_open_to_everybody_makes_no_session_good(path):
    callers, invented = Callers(), scope(path, cookie="sessionid=invented")
    callers.learn(invented, 200, is_signed_in=False)
    assert callers.call(invented).is_strange


def test_who_is_signed_in_makes_no_invented_token_good():
    callers, request = Callers(), scope("/admin/instance/", authorization="Bearer cp_invented", cookie="sessionid=good")
    callers.learn(request, 200, is_signed_in=True)
    assert callers.call(request).is_strange
    assert not callers.call(scope("/admin/instance/", cookie="sessionid=good")).is_strange


def test_no_more_tokens_are_remembered_than_there_is_room_for():
    callers = Callers()
    for number in range(REMEMBERED + 1):
        callers.learn(scope(authorization=f"Bearer {number}"), 200, is_signed_in=False)
    assert callers.call(scope(authorization="Bearer 0")).is_strange
    assert not callers.call(scope(authorization="Bearer 1")).is_strange


def test_refusals_are_said_in_the_log_but_not_each(monkeypatch):
    lines, now = [], [100.0]
    monkeypatch.setattr(front.log, "warning", lambda *_, **fields: lines.append(fields["calls"]))
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    before_django = front.Front(lambda *_: [], 3)
    for seconds in (0, 1, 1, front.SAY_AGAIN, 1):
        now[0] += seconds
        before_django._say_refused(BodyTooSlow())
    assert lines == [1, 3]


@pytest.mark.parametrize(
    ("query", "seconds"),
    [
        ("wait=50", 50),
        ("wait=61", 0),
        ("wait=1.5", 0),
        ("wait=-1", 0),
        ("wait=NaN", 0),
        ("wait=٣", 0),
        ("wait=1&wait=2", 0),
        ("await=1", 0),
        ("wait=" + "9" * 5000, 0),
        ("wait=" + "0" * 5000, 0),
        ("", 0),
    ],
)
def test_how_long_a_worker_waits_is_known_only_of_plain_seconds_whatever_else_it_asks(query, seconds):
    assert seconds_asked(query) == seconds
