"""What stands between granian and Django: bodies arrive here, and calls get their seats.

granian speaks RSGI with it, so that a body that does not come holds a socket and nothing else. Only a call whose body
is there takes a thread, if there is a seat for it, and Django answers it there by WSGI.
"""

import asyncio
import re
import signal
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from io import BytesIO
from typing import Any

import orjson
import structlog

from controlplane.agent.limits import BODY_LIMIT
from controlplane.console.sign_in import IS_SIGNED_IN
from controlplane.core.batching import GroupCommit
from controlplane.core.problems import Problem
from controlplane.core.threads import Threads
from controlplane.serving.answers import JSON, Answer, Application, Environ, answered, refusal
from controlplane.serving.callers import Callers, Scope
from controlplane.serving.hints import WorkHints, hint_answer
from controlplane.serving.seats import Call, Lane, Seats
from controlplane.serving.waits import Waits, seconds_kept_back
from jobs.api import shortcut
from jobs.api.hints import NAMESPACE, TAGS
from jobs.api.waiting import ASKED_AGAIN, LONGEST_WAIT
from jobs.services.heartbeats import PlainHeartbeat

log = structlog.get_logger()

BODY_WITHIN = 15.0
"""Seconds in which a body must have arrived."""
SAY_AGAIN = 10.0
"""Seconds between two lines of the log that say that calls are refused."""
DECISIVE_HEADERS = ("authorization", "host", "x-forwarded-proto")
"""By which Django says whether it answers a call at all: who came with the same is answered again."""
BEAT_THREADS = 4
"""For those that hang there is another."""
WHOLE_SECONDS = re.compile("wait=([0-9]{1,9})")


class BodyTooSlow(Problem):
    """The body did not arrive in time; nothing was changed. Try again."""

    status = 408
    code = "body_too_slow"


class Front:
    """An application for granian. Plain heartbeats share a statement and take no seat; see jobs.api.shortcut."""

    def __init__(self, django: Application, seats: int) -> None:
        self._django = django
        self._callers, self._seats, self._threads = Callers(), Seats(seats), Threads(seats, "call")
        self._waits, self._hints = Waits(), WorkHints()
        self._hear = GroupCommit(shortcut.answers, shortcut.patience(), Threads(BEAT_THREADS, "heartbeats"))
        self._refused, self._refused_at, self._has_warned = 0, -SAY_AGAIN, False

    async def __rsgi__(self, scope: Scope, proto: Any) -> None:
        if scope.proto != "http":
            proto.close(404)
            return
        answer = await self.answer(scope, proto)
        if answer is None:  # its caller has gone
            proto.response_empty(400, [])
        else:
            proto.response_bytes(*answer)

    def __rsgi_init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """granian is about to serve. Told to end, it waits for all calls that are under way, so those that wait are
        answered then; nobody else says that it was told."""
        for number in (signal.SIGTERM, signal.SIGINT):
            before = signal.getsignal(number)

            def end(number: int, frame: Any, before: Any = before) -> None:
                loop.call_soon_threadsafe(self.close)
                if callable(before):
                    before(number, frame)

            with suppress(ValueError):  # not the main thread: whoever waits is waited for
                signal.signal(number, end)

    def close(self) -> None:
        """Answer whoever waits."""
        self._hints.close()
        self._waits.close()

    def __call__(self, environ: Environ, start_response: Callable[..., Any]) -> Iterable[bytes]:
        """By WSGI, which has neither seats nor a time limit for bodies: who says half of one holds a thread."""
        if not self._has_warned:
            self._has_warned = True
            log.warning("Served by WSGI, half a body holds a thread: use granian --interface rsgi")
        return self._django(environ, start_response)

    async def answer(self, scope: Scope, proto: Any) -> Answer | None:
        """None: its caller has gone meanwhile."""
        call = self._callers.call(scope)
        if call.lane == Lane.CLAIM and scope.method == "GET" and scope.path.endswith("/hints"):
            return await self._answer_hint(scope, proto, call)
        answer_now = partial(self._answer_now, scope, proto, call)
        return await self._waits.answer(call.key, answer_now, proto.client_disconnect)

    async def _answer_hint(self, scope: Scope, proto: Any, call: Call) -> Answer | None:
        """Django is asked of a server whose offer is not known yet; and what it refuses, it refuses at once."""
        caller = tuple(map(scope.headers.get, DECISIVE_HEADERS))
        offer, seconds = self._hints.offer_of(caller), seconds_asked(scope.query_string)
        if offer is None or not seconds:
            answer = await self._answer_now(scope, proto, call, False)
            seconds = seconds_kept_back(answer)
            if answer is None or not seconds:
                return answer
            headers = dict(answer.headers)
            offer = self._hints.learn_offer(caller, orjson.loads(headers[NAMESPACE]), orjson.loads(headers[TAGS]))
        jobs = await self._hints.wait(call.key, offer, seconds, proto.client_disconnect)
        return None if jobs is None else hint_answer(jobs)

    async def _answer_now(self, scope: Scope, proto: Any, call: Call, is_asked_again: bool) -> Answer | None:
        try:
            with self._seats.room(call):
                body = await body_of(scope, proto)
                if body is None:
                    return None
                beat = plain_heartbeat_of(scope, call, body)
                if beat is not None and (heard := await self._record_beat(beat)) is not None:
                    return heard
                environ = environ_of(scope, body)
                if is_asked_again:
                    environ[ASKED_AGAIN] = True
                if not await self._seats.take(call, proto.client_disconnect):
                    return None
                try:
                    answer = await self._threads.run(partial(answered, self._django, environ))
                finally:
                    self._seats.leave(call)
        except Problem as problem:
            self._say_refused(problem)
            return refusal(problem)
        self._callers.learn(scope, answer.status, is_signed_in=environ.get(IS_SIGNED_IN, False))
        return answer

    async def _record_beat(self, beat: PlainHeartbeat) -> Answer | None:
        """None: it is to go the long way."""
        try:
            content = await self._hear(beat)
        except shortcut.UNHEARD as error:
            response = shortcut.unheard(error)
            return Answer(response.status_code, list(response.items()), response.content)
        return None if content is None else Answer(200, JSON, content)

    def _say_refused(self, problem: Problem) -> None:
        self._refused += 1
        if time.monotonic() - self._refused_at >= SAY_AGAIN:
            log.warning("Calls are refused before they have a thread", calls=self._refused, reason=problem.code)
            self._refused, self._refused_at = 0, time.monotonic()


def seconds_asked(query: str) -> float:
    """The seconds of `wait=SECONDS`; 0 for whatever else, which Django is to judge."""
    seconds = WHOLE_SECONDS.fullmatch(query)
    return float(seconds[1]) if seconds and int(seconds[1]) <= LONGEST_WAIT else 0.0


async def body_of(scope: Scope, proto: Any) -> bytes | None:
    """The body; of one that is too large so much that Django sees it. None: its caller went in the middle of it.

    What is too large is read on for a while, to nowhere: who is still sending would not read the answer.
    Raises BodyTooSlow.
    """
    length = scope.headers.get("content-length")
    if length is None and "transfer-encoding" not in scope.headers and scope.http_version.startswith("1"):
        return b""
    chunks: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(BODY_WITHIN):
            async for chunk in proto:
                if size <= BODY_LIMIT:
                    chunks.append(chunk)
                size += len(chunk)
                if size > 8 * BODY_LIMIT:
                    break
    except TimeoutError:
        raise BodyTooSlow from None
    if length is not None and size < min(int(length), 8 * BODY_LIMIT):
        return None
    return b"".join(chunks)[: BODY_LIMIT + 1]


def plain_heartbeat_of(scope: Scope, call: Call, body: bytes) -> PlainHeartbeat | None:
    """The heartbeat that a call is, when it is a plain one."""
    if call.token is None or scope.method != "POST" or not scope.path.endswith("/heartbeat"):
        return None
    return shortcut.parse_plain_heartbeat(call.token, headers_of(scope), body)


def headers_of(scope: Scope) -> list[tuple[str, str]]:
    """All of them, as they were sent; of HTTP/2 with its host."""
    headers: list[tuple[str, str]] = scope.headers.items()
    return [("host", scope.authority), *headers] if scope.authority else headers


def environ_of(scope: Scope, body: bytes) -> Environ:
    """The request as WSGI has it."""
    name, _, port = scope.server.rpartition(":")
    environ: Environ = {
        "REQUEST_METHOD": scope.method,
        "SCRIPT_NAME": "",
        "PATH_INFO": scope.path.encode().decode("latin-1"),
        "QUERY_STRING": scope.query_string,
        "SERVER_NAME": name,
        "SERVER_PORT": port,
        "SERVER_PROTOCOL": f"HTTP/{scope.http_version}",
        "REMOTE_ADDR": scope.client.rpartition(":")[0],
        "wsgi.version": (1, 0),
        "wsgi.errors": sys.stderr,
        "wsgi.url_scheme": scope.scheme,
        "wsgi.multithread": True,
        "wsgi.multiprocess": False,
        "wsgi.run_once": False,
    }
    for name, value in headers_of(scope):
        if "_" in name:
            continue  # it would pass for the one with a hyphen
        key = "HTTP_" + name.upper().replace("-", "_")
        environ[key] = f"{environ[key]}{';' if key == 'HTTP_COOKIE' else ','}{value}" if key in environ else value
    if (kind := environ.pop("HTTP_CONTENT_TYPE", None)) is not None:
        environ["CONTENT_TYPE"] = kind
    environ.pop("HTTP_CONTENT_LENGTH", None)
    if body:
        environ["CONTENT_LENGTH"] = str(len(body))
    environ["wsgi.input"] = BytesIO(body)
    return environ
