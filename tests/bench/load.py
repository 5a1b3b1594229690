"""Load generator that uses little CPU: each connection is a generator that yields requests and gets the responses."""

import heapq
import selectors
import socket
import time
from collections.abc import Generator, Iterable
from dataclasses import dataclass, field
from typing import Any

import orjson

Talk = Generator[bytes | float, Any, None]
"""Generator of requests. Yielding a number pauses it until that time of `time.perf_counter()`."""


def request(path: str, token: str, body: Any) -> bytes:
    content = orjson.dumps(body)
    lines = [
        f"POST {path} HTTP/1.1", "Host: localhost", f"Authorization: Bearer {token}", "Content-Type: application/json",
        f"Content-Length: {len(content)}", "", "",
    ]  # fmt: skip
    return "\r\n".join(lines).encode() + content


@dataclass
class Connection:
    socket: socket.socket
    talk: Talk
    received: bytearray = field(default_factory=bytearray)
    asked_at: float = 0.0

    def answer(self) -> Any | None:
        """Return the response as bytes if it is complete. Raise AssertionError for an error status."""
        head = self.received.find(b"\r\n\r\n")
        if head < 0:
            return None
        headers = bytes(self.received[:head]).lower()
        length = int(headers.split(b"content-length:", 1)[1].split(b"\r\n", 1)[0])
        if len(self.received) < head + 4 + length:
            return None
        body = bytes(self.received[head + 4 : head + 4 + length])
        assert headers[9:11] == b"20", headers + body
        self.received.clear()
        return body


def drive(port: int, talks: Iterable[Talk], delays: list[float] | None = None) -> float:
    """Run all talks at once until each has ended. Return the seconds, and add response times to `delays`."""
    with selectors.DefaultSelector() as selector:
        for talk in talks:
            connection = Connection(socket.create_connection(("127.0.0.1", port)), talk)
            connection.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            selector.register(connection.socket, selectors.EVENT_READ, connection)
        began = time.perf_counter()
        later: list[tuple[float, int, Connection]] = [(began, key.fd, key.data) for key in selector.get_map().values()]
        while selector.get_map():
            while later and later[0][0] <= time.perf_counter():
                _, _, connection = heapq.heappop(later)
                say(selector, connection, None, later)
            for key, _ in selector.select(max(0.0, later[0][0] - time.perf_counter()) if later else None):
                data = key.data.socket.recv(1 << 20)
                assert data, "the server hung up"
                key.data.received += data
                if (answer := key.data.answer()) is not None:
                    if delays is not None:
                        delays.append(time.perf_counter() - key.data.asked_at)
                    say(selector, key.data, answer, later)
        return time.perf_counter() - began


def say(
    selector: selectors.BaseSelector, connection: Connection, answer: bytes | None, later: list[tuple[float, int, Any]]
) -> None:
    try:
        message = connection.talk.send(answer)
    except StopIteration:
        selector.unregister(connection.socket)
        connection.socket.close()
        return
    if isinstance(message, float):
        heapq.heappush(later, (message, connection.socket.fileno(), connection))
        return
    connection.asked_at = time.perf_counter()
    connection.socket.sendall(message)
