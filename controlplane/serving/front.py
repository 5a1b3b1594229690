"""ASGI application in front of Django: reads bodies, limits calls, and sends answers.

The front decides on the event loop, without the database. Once its whole body has arrived, a call takes a seat (a
thread), and Django answers it there by WSGI. The event loop sends the response, so a slow client holds no thread.
"""

import asyncio
import re
import signal
import time
from collections import Counter
from contextlib import suppress
from functools import partial
from hashlib import sha256
from typing import Any

import structlog

from controlplane.console.sign_in import IS_SIGNED_IN
from controlplane.core.json_bodies import read_json
from controlplane.core.long_polls import ASKED_AGAIN, LONGEST_WAIT
from controlplane.core.problems import Problem
from controlplane.core.threads import Threads
from controlplane.serving.answers import JSON, Answer, Application, FileContent, answered, refusal, refuse_browser
from controlplane.serving.bodies import Bodies
from controlplane.serving.callers import Callers
from controlplane.serving.grouped_calls import GroupedCalls
from controlplane.serving.hints import WorkHints, hint_answer
from controlplane.serving.process_limits import close_idle_connections, limit_connections
from controlplane.serving.request import Message, Receive, Request, Send
from controlplane.serving.rsgi import serve_by_rsgi
from controlplane.serving.seats import Call, CallKind, Seats
from controlplane.serving.sending import Sender
from controlplane.serving.waits import Waits, seconds_kept_back
from jobs.api.hints import NAMESPACE, TAGS

log = structlog.get_logger()

LOG_INTERVAL = 10.0
"""Seconds between two log lines about refused calls."""
DECISIVE_HEADERS = ("authorization", "host", "x-forwarded-proto")
"""Headers that decide whether Django accepts a call at all."""
LOOK_INTERVAL, LOOKS_FOR_SOCKETS = 0.1, 100
"""Seconds between two looks for granian's listening TCP sockets, and largest number of looks. There may be no such
socket."""
IDLE_CLOSED_AFTER = 0.25
"""Seconds from a signal to end until connections without a request are closed, and seconds until this is repeated."""
WHOLE_SECONDS = re.compile("wait=([0-9]{1,9})")
LIVE = Answer(200, JSON, b'{"status": "ok"}')


class Front:
    """Application for `granian --interface asgi`."""

    def __init__(self, django: Application, seats: int) -> None:
        self._django = django
        self._callers, self._bodies, self._sender = Callers(), Bodies(), Sender()
        self._seats, self._threads = Seats(seats), Threads(seats, "call")
        self._waits, self._hints = Waits(), WorkHints()
        self._grouped_calls = GroupedCalls()
        self._refused, self._refused_at = 0, -LOG_INTERVAL
        self._listening_ports: set[int] = set()
        self._busy_ports: Counter[int] = Counter()

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        match scope["type"]:
            case "lifespan":
                await self._live(receive, send)
            case "websocket":
                await send({"type": "websocket.close"})
            case "http":
                port = (scope.get("client") or ("", 0))[1]
                self._busy_ports[port] += 1
                try:
                    await self._serve(scope, receive, send)
                finally:
                    self._busy_ports[port] -= 1
                    if not self._busy_ports[port]:
                        del self._busy_ports[port]

    async def __rsgi__(self, scope: Any, protocol: Any) -> None:
        await serve_by_rsgi(self, scope, protocol)

    def __rsgi_init__(self, loop: asyncio.AbstractEventLoop) -> None:
        log.warning("RSGI does not detect incomplete bodies and slow readers: use granian --interface asgi")
        self._begin(loop)

    async def _live(self, receive: Receive, send: Send) -> None:
        """Answer the start and stop events of ASGI's lifespan protocol."""
        await receive()
        self._begin(asyncio.get_running_loop())
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await send({"type": "lifespan.shutdown.complete"})

    def _begin(self, loop: asyncio.AbstractEventLoop) -> None:
        """Let signals that end the process also answer all waiting calls, because granian waits for them."""
        self._limit_connections(loop, LOOKS_FOR_SOCKETS)
        for number in (signal.SIGTERM, signal.SIGINT):
            before = signal.getsignal(number)

            def end(number: int, frame: Any, before: Any = before) -> None:
                loop.call_soon_threadsafe(self.close)
                loop.call_soon_threadsafe(self._close_idle_connections, loop)
                if callable(before):
                    before(number, frame)

            with suppress(ValueError):  # not in the main thread: calls wait to their end
                signal.signal(number, end)

    def _limit_connections(self, loop: asyncio.AbstractEventLoop, looks: int) -> None:
        """Limit connections once granian listens. It begins to listen after ASGI's start event."""
        self._listening_ports = limit_connections()
        if not self._listening_ports and looks:
            loop.call_later(LOOK_INTERVAL, self._limit_connections, loop, looks - 1)

    def close(self) -> None:
        """Answer all waiting calls, because this process ends."""
        self._hints.close()
        self._waits.close()

    def _close_idle_connections(self, loop: asyncio.AbstractEventLoop) -> None:
        """Close idle connections after a pause, in which late requests may arrive. Repeat this until the loop ends."""

        def close() -> None:
            close_idle_connections(self._listening_ports, self._busy_ports)
            self._close_idle_connections(loop)

        loop.call_later(IDLE_CLOSED_AFTER, close)

    async def _serve(self, scope: Message, receive: Receive, send: Send) -> None:
        try:
            request = Request(scope, receive)
        except Problem as problem:
            self._log_refused(problem)
            await self._sender.send("", refusal(problem), send)
            return
        if request.path == "/livez" and request.method in ("GET", "HEAD"):
            await self._sender.send("", LIVE, send)
            return
        call = self._callers.call(request)
        try:
            answer = await self.answer(request, call)
        finally:
            request.close()
        if answer is not None:
            await self._sender.send(call.key, answer, send)

    async def answer(self, request: Request, call: Call) -> Answer | None:
        """Return the response, or None if the client has closed its connection."""
        if call.kind == CallKind.CLAIM and request.method == "GET" and request.path.endswith("/hints"):
            return await self._answer_hint(request, call)
        if request.method not in ("GET", "HEAD"):
            return await self._answer_now(request, call, False)
        answer_now = partial(self._answer_now, request, call)
        return await self._waits.answer(call.key, answer_now, request.disconnected, digest_of_wait(request))

    async def _answer_hint(self, request: Request, call: Call) -> Answer | None:
        """Let the call wait for work.

        Return None if Django must answer: the first call of a server, or a call like one it refused.
        """
        decisive = (request.by_name.get(name, "").encode() for name in DECISIVE_HEADERS)
        credential = sha256(b"\n".join(decisive)).digest()
        offer, seconds = self._hints.offer_of(call.key, credential), seconds_asked(request.query)
        if offer is None or not seconds:
            answer = await self._answer_now(request, call, False)
            seconds = seconds_kept_back(answer)
            if answer is None or not seconds:
                return answer
            headers = dict(answer.headers)
            namespace, tags = read_json(headers[NAMESPACE]), read_json(headers[TAGS])
            offer = self._hints.learn_offer(call.key, credential, namespace, tags)
        jobs = await self._hints.wait(call.key, offer, seconds, request.disconnected)
        return None if jobs is None else hint_answer(jobs)

    async def _answer_now(self, request: Request, call: Call, is_asked_again: bool) -> Answer | None:
        try:
            await self._sender.wait_for_reader(call.key)
            body = await self._bodies.read(request)
            if body is None:
                return None
            if (grouped := await self._grouped_calls.answer(request, call, body)) is not None:
                return grouped
            environ = request.environ(body)
            environ["wsgi.file_wrapper"] = FileContent
            if is_asked_again:
                environ[ASKED_AGAIN] = True
            if not await self._seats.take(call, request.disconnected):
                return None
            try:
                answer = await self._threads.run(partial(answered, self._django, environ))
            finally:
                self._seats.leave(call)
        except Problem as problem:
            self._log_refused(problem)
            return refuse_browser(problem, request.path, request.method, request.by_name.get("accept", ""))
        self._callers.learn(request, answer.status, is_signed_in=environ.get(IS_SIGNED_IN, False))
        return answer

    def _log_refused(self, problem: Problem) -> None:
        self._refused += 1
        if time.monotonic() - self._refused_at >= LOG_INTERVAL:
            log.warning("Calls were refused before they got a thread", calls=self._refused, reason=problem.code)
            self._refused, self._refused_at = 0, time.monotonic()


def digest_of_wait(request: Request) -> bytes:
    """Return a hash that two calls share only if all of their heads are equal. Empty for calls that do not wait."""
    if request.method != "GET" or "wait=" not in request.query:
        return b""
    head = [request.path, request.query, *(f"{name}: {value}" for name, value in sorted(request.by_name.items()))]
    return sha256("\n".join(head).encode(errors="surrogatepass")).digest()


def seconds_asked(query: str) -> float:
    """Return the seconds of `wait=SECONDS`. Return 0 for any other text; Django must check it."""
    seconds = WHOLE_SECONDS.fullmatch(query)
    return float(seconds[1]) if seconds and int(seconds[1]) <= LONGEST_WAIT else 0.0
