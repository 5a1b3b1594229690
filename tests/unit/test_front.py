"""The front before Django: requests, and the caller of each."""

import time

import pytest

from controlplane.serving import front, grouped_calls
from controlplane.serving.answers import answered
from controlplane.serving.bodies import BodyTooSlow
from controlplane.serving.callers import REMEMBERED, Callers
from controlplane.serving.front import seconds_asked
from controlplane.serving.request import HeadersTooLarge, HttpVersionRefused, Request
from controlplane.serving.seats import CallKind
from liveness.services import tokens
from tests.integration.api.test_bad_input import SOME
from tests.support.http import http_scope, no_body

OTHER = SOME.replace("0189", "0199")


def request(path="/api/v1/jobs", method="POST", client="10.0.0.1", more=(), scope=None, **headers):
    names = [(name.replace("_", "-").encode(), value.encode("latin-1")) for name, value in headers.items()]
    fields = {"client": (client, "5000"), "query_string": b"a=%20", "headers": [(b"host", b"localhost"), *names, *more]}
    return Request(http_scope(method, path, **{**fields, **(scope or {})}), no_body)


def test_django_sees_the_request_as_it_was_sent():
    more = [(b"cookie", b"b=\xe9"), (b"X-A", b"2"), (b"x_a", b"forged")]
    sent = request("/é/%2F", content_type="application/json", cookie="a=1", content_length="5", x_a="1", more=more)
    environ = sent.environ(b"{}")
    assert environ["PATH_INFO"].encode("latin-1").decode() == "/é/%2F"
    assert (environ["REQUEST_METHOD"], environ["QUERY_STRING"], environ["REMOTE_ADDR"]) == ("POST", "a=%20", "10.0.0.1")
    assert (environ["CONTENT_TYPE"], environ["CONTENT_LENGTH"], environ["HTTP_HOST"]) == (
        "application/json", "2", "localhost",
    )  # fmt: skip
    assert (environ["HTTP_COOKIE"], environ["HTTP_X_A"]) == ("a=1;b=\xe9", "1,2")
    assert "HTTP_CONTENT_LENGTH" not in environ and "HTTP_CONTENT_TYPE" not in environ
    assert environ["wsgi.input"].read() == b"{}"


def test_bytes_of_a_path_that_are_no_text_reach_django_as_they_are():
    environ = request(scope={"path": "/\ufffd", "raw_path": b"/%FF"}).environ(b"")
    assert environ["PATH_INFO"] == "/\xff"


@pytest.mark.parametrize(("number", "size"), [(99, 10), (1, 65_000)])
def test_a_head_at_the_limit_is_read(number, size):
    assert request(more=[(b"x-%d" % one, b"y" * size) for one in range(number)])


@pytest.mark.parametrize(("number", "size"), [(100, 10), (1, 66_000), (400_000, 1)])
def test_a_head_above_the_limit_is_refused_before_it_is_joined(number, size):
    with pytest.raises(HeadersTooLarge):
        request(more=[(b"x", b"y" * size)] * number)


@pytest.mark.parametrize("version", ["2", "3"])
def test_only_http_1_is_served(version):
    with pytest.raises(HttpVersionRefused):
        request(scope={"http_version": version})


@pytest.mark.parametrize(
    ("forwarded", "caller"),
    [
        ("203.0.113.9", "203.0.113.9"),
        ("203.0.113.9:50000", "203.0.113.9"),
        ("192.0.2.1, 203.0.113.9:50001", "203.0.113.9"),
        ("[2001:db8::7]:50000", "2001:db8::/64"),
        ("2001:db8::8", "2001:db8::/64"),
        ("::ffff:203.0.113.9", "203.0.113.9"),
        ("fe80::1%eth0", "fe80::/64"),
        ("unknown", "unknown"),
        ("", "10.0.0.1"),
    ],
)
def test_a_caller_behind_a_trusted_proxy_is_one_caller_however_it_is_written(forwarded, caller, settings):
    assert request(x_forwarded_for=forwarded).caller == "10.0.0.1", "nobody else is believed"
    settings.BEHIND_TLS = True
    assert request(x_forwarded_for=forwarded).caller == caller


def test_an_answer_is_whole_before_its_thread_is_free_and_what_it_holds_is_closed():
    class Content(list):
        closed = False

        def close(self):
            self.closed = True

    content = Content([b"a", b"b"])

    def django(environ, start_response):
        start_response("201 Created", [("X-A", "1")])
        return content

    assert answered(django, {}) == (201, [("X-A", "1")], b"ab", None)
    assert content.closed


def signed(server):
    return f"Bearer {tokens.sign_server_token(tokens.UUID(server), 1, tokens.UUID(OTHER))}"


@pytest.mark.parametrize(
    ("call", "kind"),
    [
        ("heartbeat", CallKind.HEARTBEAT_OR_REPORT),
        ("reports", CallKind.HEARTBEAT_OR_REPORT),
        ("claims", CallKind.CLAIM),
        ("events", CallKind.GENERAL),
    ],
)
def test_a_server_is_known_by_its_token(call, kind):
    caller = Callers().call(request(f"/api/v1/servers/{SOME}/{call}", authorization=signed(SOME)))
    assert caller.kind == kind
    assert (caller.key == SOME) == (kind != CallKind.GENERAL)


@pytest.mark.parametrize("authorization", [signed(OTHER), signed(SOME) + "x", "Bearer cps_x", "Bearer cp_x", "", "x"])
def test_who_is_not_that_server_is_a_stranger(authorization):
    caller = Callers().call(request(f"/api/v1/servers/{SOME}/heartbeat", authorization=authorization))
    assert (caller.kind, caller.key, caller.is_strange) == (CallKind.GENERAL, "address 10.0.0.1", True)


@pytest.mark.parametrize("hosts", [[], ["testserver", "testserver"]])
def test_a_plain_heartbeat_names_its_host_once(hosts):
    fields = {"authorization": signed(SOME), "content_type": "application/json"}
    path = f"/api/v1/servers/{SOME}/heartbeat"
    once = request(path, scope={"headers": []}, **fields)
    headers = [(name.replace("_", "-").encode(), value.encode()) for name, value in fields.items()]
    once = request(path, scope={"headers": [(b"host", b"testserver"), *headers]})
    other = request(path, scope={"headers": [*((b"host", host.encode()) for host in hosts), *headers]})
    assert grouped_calls.plain_heartbeat_of(once, Callers().call(once), b"{}") is not None
    assert grouped_calls.plain_heartbeat_of(other, Callers().call(other), b"{}") is None


def test_probes_and_sign_ins_are_counted_by_the_address_of_the_client():
    callers = Callers()
    probe = callers.call(request("/livez", "GET"))
    assert probe.kind == CallKind.PROBE
    assert probe == callers.call(request("/healthz", "GET"))
    assert probe.key != callers.call(request("/livez", "GET", client="10.0.0.2")).key
    sign_in = callers.call(request("/admin/login/"))
    assert sign_in.kind == CallKind.SIGN_IN and sign_in.key not in (probe.key, callers.call(request()).key)
    assert sign_in == callers.call(request("/admin/login/", "post")), "Django reads it as POST"
    assert callers.call(request("/admin/login/", "GET")).kind == CallKind.GENERAL


@pytest.mark.parametrize("spelling", ["bearer cp_good", "BEARER cp_good", "Bearer  cp_good", " Bearer cp_good "])
def test_a_token_is_one_caller_however_it_is_written(spelling):
    callers, plain = Callers(), request(authorization="Bearer cp_good")
    callers.learn(plain, 200, is_signed_in=False)
    assert callers.call(request(authorization=spelling)) == callers.call(plain)


def test_a_session_is_one_caller_whatever_other_cookies_there_are():
    callers, plain = Callers(), request(cookie="sessionid=good")
    callers.learn(request(cookie="sessionid=invented; sessionid=good"), 200, is_signed_in=True)
    for cookie in ("sessionid=good", 'sessionid="good"', "sessionid=other; sessionid=good", "a=é; sessionid=good"):
        assert callers.call(request(cookie=cookie)) == callers.call(plain)
    assert not callers.call(plain).is_strange
    assert callers.call(request(cookie="sessionid=invented")).is_strange


@pytest.mark.parametrize(
    ("path", "headers"),
    [
        ("/api/v1/jobs", {"authorization": "Bearer cp_good"}),
        ("/api/v1/jobs", {"cookie": "x=1; sessionid=good"}),
        ("/admin/instance/", {"cookie": "sessionid=good; csrftoken=1"}),
    ],
)
def test_a_token_or_session_has_a_share_of_its_own_once_it_was_good(path, headers):
    callers, sent = Callers(), request(path, **headers)
    assert callers.call(sent).is_strange
    callers.learn(sent, 200, is_signed_in="cookie" in headers)
    known = callers.call(request("/static/x.css", "GET", "10.0.0.2", **headers))
    assert not known.is_strange
    assert callers.call(request()).is_strange, "and nobody else"
    callers.learn(sent, 401, is_signed_in=False)
    assert callers.call(sent).is_strange


@pytest.mark.parametrize(
    ("path", "status"),
    [("/api/v1/jobs", 401), ("/api/v1/jobs", 404), ("/livez", 200), ("/static/x.css", 200), ("/api/docs", 200),
     ("/admin/login/", 200), ("/admin/", 302)],
)  # fmt: skip
def test_an_invented_token_gets_no_share_of_its_own(path, status):
    callers, sent = Callers(), request(path, authorization="Bearer cp_invented", cookie="sessionid=invented")
    callers.learn(sent, status, is_signed_in=False)
    assert callers.call(sent).is_strange


@pytest.mark.parametrize("path", ["/admin/jsi18n/", "/admin/instance/", "/api/v1/jobs"])
def test_a_page_that_is_open_to_everybody_makes_no_session_good(path):
    callers, invented = Callers(), request(path, cookie="sessionid=invented")
    callers.learn(invented, 200, is_signed_in=False)
    assert callers.call(invented).is_strange


def test_who_is_signed_in_makes_no_invented_token_good():
    callers, sent = Callers(), request("/admin/instance/", authorization="Bearer cp_invented", cookie="sessionid=good")
    callers.learn(sent, 200, is_signed_in=True)
    assert callers.call(sent).is_strange
    assert not callers.call(request("/admin/instance/", cookie="sessionid=good")).is_strange


def test_no_more_tokens_are_remembered_than_there_is_room_for():
    callers = Callers()
    for number in range(REMEMBERED + 1):
        callers.learn(request(authorization=f"Bearer {number}"), 200, is_signed_in=False)
    assert callers.call(request(authorization="Bearer 0")).is_strange
    assert not callers.call(request(authorization="Bearer 1")).is_strange


def test_refusals_are_logged_but_not_each_one(monkeypatch):
    lines, now = [], [100.0]
    monkeypatch.setattr(front.log, "warning", lambda *_, **fields: lines.append(fields["calls"]))
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    before_django = front.Front(lambda *_: [], 3)
    for seconds in (0, 1, 1, front.LOG_INTERVAL, 1):
        now[0] += seconds
        before_django._log_refused(BodyTooSlow())
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
def test_only_plain_seconds_of_a_wait_are_read_before_django(query, seconds):
    assert seconds_asked(query) == seconds
