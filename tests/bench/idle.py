"""Cost of idle workers, and the time until one of them gets a job, over HTTP with a thousand waiting calls."""

import selectors
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import UUID, uuid4

import orjson

from jobs.models import WorkerJob
from liveness.services import tokens
from tests.bench import web
from tests.bench.cost import quantile, read_spent
from tests.bench.database import begin, settle_down
from tests.bench.load import Connection, Talk, request
from tests.bench.over_http import API, JOB
from tests.bench.rows import Row, Step, alternate

WORKERS, POLLERS = 1000, 50
WAIT = 50
"""Seconds that a call waits, as an agent's does."""
WATCHED = 15
"""Seconds for which idle workers are measured."""
PICKED_UP = 100
"""Number of jobs, submitted one by one."""

Server = tuple[UUID, str]


def idle(data_dir: Path, step: Step) -> Row:
    """Compare the CPU of a thousand idle workers without heartbeats with that of workers that claim each second."""
    servers = workers(WORKERS)
    settle_down()

    def waiting() -> float:
        return 100 * watch(port, [waits(server, 1 + number % WAIT) for number, server in enumerate(servers)])

    def polling() -> float:
        return 100 * watch(port, [polls(server) for server in servers[:POLLERS]]) * WORKERS / POLLERS

    with plane(data_dir) as port:
        value, reference = alternate(step, waiting, polling, rounds=1)
    against = f"{WORKERS} that claim each second (measured: {POLLERS})"
    return Row("idle", value, "% of a core", reference, against, "≤ 5 % of a core")


def pickup(data_dir: Path, step: Step) -> list[Row]:
    """Compare the time from a submission to the response of an idle worker's claim, among a thousand workers."""
    servers = workers(WORKERS + 1)
    client = tokens.create_token("one who submits", "client")
    settle_down()
    with plane(data_dir) as port:
        bare = claimed_by_hand(port, servers.pop(), client)
        step()
        hinted, cpu = delays(port, servers, client)
        step()
    assert not WorkerJob.objects.filter(state="PENDING").exists()
    against = "a claim as soon as the submission is answered"
    return [
        Row(
            f"pickup_{name}",
            1000 * quantile(hinted, at),
            "ms",
            1000 * quantile(bare, at),
            against,
            goal,
            {"cpu_ms": cpu},
        )
        for name, at, goal in (("p50", 0.5, "≤ 50 ms"), ("p99", 0.99, "≤ 250 ms"))
    ]


def workers(number: int) -> list[Server]:
    return [(server.pk, token) for server, token in begin(number)]


@contextmanager
def plane(data_dir: Path) -> Iterator[int]:
    with web.processes(data_dir) as processes:
        yield web.serve(processes, "controlplane.web:application", "/livez", *web.OURS, "--backpressure", "8192")


def hint(server: Server, seconds: float) -> bytes:
    lines = [
        f"GET {API}/servers/{server[0]}/hints?wait={seconds:g} HTTP/1.1", "Host: localhost",
        f"Authorization: Bearer {server[1]}", "", "",
    ]  # fmt: skip
    return "\r\n".join(lines).encode()


def claim(server: Server) -> bytes:
    return request(f"{API}/servers/{server[0]}/claims", server[1], {"limit": 1, "request_id": str(uuid4())})


def waits(server: Server, first: int, claimed: Callable[[UUID], None] = lambda job: None) -> Talk:
    """Wait for hints, and claim when one arrives. The first waits differ, so that they do not all end at once."""
    yield hint(server, 0.05)
    answer = yield hint(server, first)
    while True:
        if orjson.loads(answer)["work"]:
            answer = yield claim(server)
            for attempt in orjson.loads(answer)["attempts"]:
                claimed(UUID(attempt["job"]["id"]))
        answer = yield hint(server, WAIT)


def polls(server: Server) -> Talk:
    while True:
        yield claim(server)
        yield b""  # a second later


class Crowd:
    """Workers with one connection each, which arrive one after the other."""

    def __init__(self, port: int, talks: list[Talk]) -> None:
        self._selector = selectors.DefaultSelector()
        self._met: set[int] = set()  # connections that got a response
        self._later: list[tuple[float, Connection]] = []
        for talk in talks:
            connection = Connection(socket.create_connection(("127.0.0.1", port)), talk)
            connection.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._selector.register(connection.socket, selectors.EVENT_READ, connection)
            self._say(connection, None)
            self.run(lambda connection=connection: id(connection) in self._met)

    def run(self, is_over: Callable[[], bool]) -> None:
        while not is_over():
            for key, _ in self._selector.select(0.02):
                connection = key.data
                data = connection.socket.recv(1 << 20)
                assert data, "the server hung up"
                connection.received += data
                if (answer := connection.answer()) is not None:
                    self._met.add(id(connection))
                    self._say(connection, answer)
            while self._later and self._later[0][0] <= time.monotonic():
                self._say(self._later.pop(0)[1], None)

    def close(self) -> None:
        for key in list(self._selector.get_map().values()):
            key.data.socket.close()
        self._selector.close()

    def _say(self, connection: Connection, answer: bytes | None) -> None:
        said = connection.talk.send(answer)
        if said:
            connection.socket.sendall(said)
        else:
            self._later.append((time.monotonic() + 1, connection))


def watch(port: int, talks: list[Talk]) -> float:
    """Return the cores that web servers and PostgreSQL use during the talks."""
    crowd = Crowd(port, talks)
    until = time.monotonic() + 2
    crowd.run(lambda: time.monotonic() >= until)
    began, before = time.monotonic(), spent(port)
    crowd.run(lambda: time.monotonic() >= began + WATCHED)
    took = spent(port) - before
    crowd.close()
    return took / (time.monotonic() - began)


def spent(port: int) -> float:
    """Return the CPU seconds of the web server on that port and of PostgreSQL."""
    read = read_spent(port)
    return read["web"] + read["postgresql"]


class Caller:
    """Caller that makes one call after the other over one connection."""

    def __init__(self, port: int) -> None:
        self._connection = Connection(socket.create_connection(("127.0.0.1", port)), (_ for _ in ()))
        self._connection.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def call(self, said: bytes) -> bytes:
        self._connection.socket.sendall(said)
        while (answer := self._connection.answer()) is None:
            data = self._connection.socket.recv(1 << 20)
            assert data, "the server hung up"
            self._connection.received += data
        return bytes(answer)

    def close(self) -> None:
        self._connection.socket.close()


def claimed_by_hand(port: int, server: Server, client: str) -> list[float]:
    """Return the seconds from each submission to its claim, by a caller that knows when to claim."""
    caller, took = Caller(port), []
    for _ in range(PICKED_UP):
        began = time.perf_counter()
        caller.call(request(f"{API}/jobs", client, JOB))
        answer = caller.call(claim(server))
        took.append(time.perf_counter() - began)
        assert len(orjson.loads(answer)["attempts"]) == 1
    caller.close()
    return took


def delays(port: int, servers: list[Server], client: str) -> tuple[list[float], float]:
    """Return the seconds from each submission to its claim by a waiting worker, and CPU milliseconds per job."""
    began_at: list[float] = []
    took: list[float] = []
    has_claim = threading.Event()

    def claimed(job: UUID) -> None:
        took.append(time.perf_counter() - began_at[-1])
        has_claim.set()

    def submit() -> None:
        caller = Caller(port)
        for _ in range(PICKED_UP):
            has_claim.clear()
            began_at.append(time.perf_counter())
            caller.call(request(f"{API}/jobs", client, JOB))
            if not has_claim.wait(60):
                return
        caller.close()

    crowd = Crowd(port, [waits(server, WAIT, claimed) for server in servers])
    submitting = threading.Thread(target=submit)
    before = spent(port)
    submitting.start()
    crowd.run(lambda: not submitting.is_alive())
    cpu = spent(port) - before
    crowd.close()
    assert len(took) == PICKED_UP, "a job was not claimed"
    return took, 1000 * cpu / PICKED_UP
