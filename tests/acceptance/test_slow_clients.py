"""Strangers and slow clients on real sockets. They stop no probe, no sign-in and no worker, and use up no memory."""

import json
import re
import socket
import struct
import time
import uuid
from contextlib import ExitStack, contextmanager, suppress
from http.client import HTTPConnection
from statistics import median
from urllib.parse import urlsplit

import psutil
import pytest

from controlplane.standalone.parts import SERVING
from tests.support.processes import eventually, fleet

pytestmark = pytest.mark.acceptance

FORM_TYPE = "application/x-www-form-urlencoded"
FORM = (f"Content-Type: {FORM_TYPE}",)
JSON = ("Content-Type: application/json",)
HEADER_TIMEOUT = int(SERVING[SERVING.index("--http1-header-read-timeout") + 1]) / 1000


class Web:
    """A web process, its port, and tokens of it."""

    def __init__(self, running):
        self.url = running.web()
        self.port = urlsplit(self.url).port
        self.tokens = {role: running.token(role) for role in ("worker", "client", "viewer")}
        self.process = psutil.Process(running.processes["web"].pid).children()[0]

    def call(self, method, path, token=None, body=None, source="127.0.0.1", **headers):
        """Return status, headers and body of a call that comes from the address `source`."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=20, source_address=(source, 0))
        headers |= {"Authorization": f"Bearer {token}"} if token else {}
        headers |= {"Content-Type": "application/json"} if body is not None else {}
        try:
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read()
        finally:
            connection.close()

    def register(self):
        body = {"type": "WORKER", "name": f"w-{uuid.uuid4().hex[:6]}", "instance_id": str(uuid.uuid4())}
        status, _, answer = self.call("POST", "/api/v1/servers", self.tokens["worker"], body, "127.0.0.7")
        assert status == 201, answer
        return json.loads(answer)

    def connect(self, receive_buffer=None):
        one = socket.socket()
        if receive_buffer:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        one.settimeout(60)
        one.connect(("127.0.0.1", self.port))
        return one

    @contextmanager
    def half_bodies(self, number, path, *headers):
        """Hold connections that each sent the head of a POST, and one byte of its body."""
        head = "\r\n".join([f"POST {path} HTTP/1.1", "Host: localhost", "Content-Length: 500", *headers])
        with ExitStack() as held:
            for _ in range(number):
                held.enter_context(one := self.connect())
                one.sendall(head.encode() + b"\r\n\r\nx")
            yield


@pytest.fixture(scope="module")
def web(tmp_path_factory):
    with fleet(tmp_path_factory.mktemp("slow"), LIVENESS_TIMEOUT="600", LIVENESS_HEARTBEAT_INTERVAL="60") as running:
        yield Web(running)


def until_closed(one):
    """Read until the other side closes. Return the bytes."""
    received = b""
    while chunk := one.recv(65536):
        received += chunk
    return received


@pytest.mark.parametrize(("path", "headers"), [("/livez", ()), ("/admin/login/", FORM), ("/api/v1/servers", JSON)])
def test_half_bodies_of_one_stranger_stop_nobody_else(web, path, headers):
    with web.half_bodies(100, path, *headers):
        assert web.call("GET", "/livez")[0] == 200
        assert [web.call("GET", probe, source="127.0.0.9")[0] for probe in ("/livez", "/readyz")] == [200, 200]
        web.register()
        assert web.call("GET", "/api/v1/jobs", web.tokens["viewer"])[0] == 200
        _, page_headers, page = web.call("GET", "/admin/login/", source="127.0.0.9")
        cookie = page_headers["Set-Cookie"].partition(";")[0]
        token = re.search(rb'csrfmiddlewaretoken" value="([^"]+)', page)[1].decode()
        connection = HTTPConnection("127.0.0.1", web.port, timeout=20, source_address=("127.0.0.9", 0))
        form = f"username=nobody&password=wrong&csrfmiddlewaretoken={token}"
        connection.request("POST", "/admin/login/", form, {"Cookie": cookie, "Content-Type": FORM_TYPE})
        assert connection.getresponse().status == 200, "the page says that the password is wrong"
        connection.close()


def test_half_heartbeats_of_one_worker_token_stop_no_other_worker(web):
    evil, good = web.register(), web.register()
    own = f"/api/v1/servers/{evil['id']}/heartbeat"
    with web.half_bodies(400, own, f"Authorization: Bearer {evil['token']}", *JSON):
        for call, body in (("heartbeat", {"state": "RUNNING"}), ("claims", {"limit": 1}), ("reports", {"reports": []})):
            answer = web.call("POST", f"/api/v1/servers/{good['id']}/{call}", good["token"], body)
            assert answer[0] == 200, answer


@pytest.mark.parametrize("spelling", ["Bearer ", "bearer ", "BEARER  "])
def test_a_token_has_one_share_however_it_is_written(web, spelling):
    with web.half_bodies(130, "/api/v1/jobs", f"Authorization: {spelling}{web.tokens['client']}", *JSON):
        assert web.call("GET", "/api/v1/jobs", web.tokens["viewer"])[0] == 200


def test_http_2_is_refused(web):
    with web.connect() as one:
        one.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + struct.pack("!I", 0)[1:] + bytes([4, 0, 0, 0, 0, 0]))
        assert until_closed(one) in (b"", b"HTTP/1.1 400 Bad Request\r\n\r\n")


@pytest.mark.parametrize(
    "wire",
    [
        b"GET /livez HTTP/1.1\r\nHost: localhost\r\n" + b"X: y\r\n" * 50_000 + b"\r\n",
        b"GET /livez HTTP/1.1\r\nHost: localhost\r\nX: " + b"y" * 300_000 + b"\r\n\r\n",
        b"GET /" + b"y" * 300_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n" * 2_000,
        b"POST /api/v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 900000\r\n\r\n" + b"[" * 900_000,
        b"POST /livez HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * 50_000,
    ],
    ids=["many headers", "a long header", "a long path", "many requests at once", "deep JSON", "many chunks"],
)
def test_livez_answers_beside_every_request_of_a_stranger(web, wire):
    with ExitStack() as held:
        for _ in range(4):
            held.enter_context(one := web.connect())
            one.settimeout(5)
            with suppress(OSError):  # it may be refused before it is whole
                one.sendall(wire)
        took = []
        for _ in range(5):
            began = time.monotonic()
            assert web.call("GET", "/livez")[0] == 200
            took.append(time.monotonic() - began)
        assert median(took) < 5, "the event loop was free"


def test_heads_above_the_limits_are_refused_with_431(web):
    for lines in (b"X: y\r\n" * 150, b"X: " + b"y" * 70_000 + b"\r\n"):
        with web.connect() as one:
            one.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n" + lines + b"\r\n")
            assert until_closed(one).startswith(b"HTTP/1.1 431 ")


def test_a_chunked_body_that_was_cut_changes_nothing(web):
    name = f"cut-{uuid.uuid4().hex[:6]}"
    body = json.dumps({"type": "WORKER", "name": name, "instance_id": str(uuid.uuid4())}).encode()
    head = (
        f"POST /api/v1/servers HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {web.tokens['worker']}\r\n"
        "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    ).encode()
    chunk = b"%x\r\n%s\r\n" % (len(body), body)

    def servers():
        return json.loads(web.call("GET", f"/api/v1/servers?search={name}", web.tokens["viewer"])[2])["items"]

    with web.connect() as one:
        one.sendall(head + chunk)
        one.shutdown(socket.SHUT_WR)
        one.settimeout(20)
        assert b" 201 " not in until_closed(one)
    assert not servers()
    with web.connect() as one:
        one.sendall(head + chunk + b"0\r\n\r\n")
        assert b" 201 " in one.recv(65536)
    assert len(servers()) == 1


@pytest.mark.timeout(120)
def test_connections_that_send_no_request_are_closed(web):
    with ExitStack() as held:
        silent, begun, idle = (held.enter_context(web.connect()) for _ in range(3))
        begun.sendall(b"GET /livez HTTP/1.1\r\nHost: loc")
        idle.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
        for one in (silent, begun, idle):
            one.settimeout(2 * HEADER_TIMEOUT + 20)
            until_closed(one)


def read_memory(web):
    return web.process.memory_info().rss / 1_000_000


@pytest.mark.timeout(240)
def test_answers_that_nobody_reads_take_no_memory_for_long(web):
    job = {"action": {"type": "script", "command": "true"}, "unmatched": "wait", "tags": ["nobody"]}
    for _ in range(8):
        jobs = [{**job, "payload": "x" * 16_000} for _ in range(60)]
        assert web.call("POST", "/api/v1/jobs", web.tokens["client"], jobs)[0] == 201
    status, _, answer = web.call("GET", "/api/v1/jobs?limit=500", web.tokens["client"])
    assert status == 200 and len(answer) > 7_000_000
    before = read_memory(web)
    request = f"GET /api/v1/jobs?limit=500 HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {web.tokens['client']}"
    with ExitStack() as held:
        for _ in range(30):
            held.enter_context(one := web.connect(receive_buffer=4096))
            one.sendall(request.encode() + b"\r\n\r\n")
        # On a busy machine, others may get a 503 while the responses are made.
        eventually(lambda: web.call("GET", "/api/v1/jobs", web.tokens["viewer"])[0] == 200, why="others are answered")
        eventually(lambda: read_memory(web) - before < 60, within=90, why="slow readers are cut off")
    eventually(lambda: web.call("GET", "/api/v1/jobs?limit=1", web.tokens["client"])[0] == 200)


def test_static_files_that_nobody_reads_are_not_in_memory(web):
    path = "/static/drf_spectacular_sidecar/swagger-ui-dist/swagger-ui-bundle.js"
    status, headers, body = web.call("GET", path)
    assert status == 200 and len(body) == int(headers["Content-Length"]) > 1_000_000
    assert web.call("GET", path, **{"If-Modified-Since": headers["Last-Modified"]})[0] == 304
    part = web.call("GET", path, Range="bytes=10-19")
    assert (part[0], part[2]) == (206, body[10:20])
    assert web.call("HEAD", path)[2] == b""
    assert web.call("GET", f"{path}.map")[0] == 404, "no page needs source maps"
    before = read_memory(web)
    with ExitStack() as held:
        for _ in range(60):
            held.enter_context(one := web.connect(receive_buffer=4096))
            one.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            assert one.recv(12).endswith(b"200")
        time.sleep(2)  # what would be read into memory has been read
        assert read_memory(web) - before < 60 * 0.5
