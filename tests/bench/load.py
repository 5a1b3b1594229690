"""A load generator that costs the machine little: each connection is a generator of requests, sent their answers."""

import selectors
import socket
import time
from collections.abc import Generator, Iterable
from dataclasses import dataclass, field
from typing import Any

import orjson

Talk = Generator[bytes, Any, None]


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
        """The answer once it is whole, as bytes. Raises AssertionError for anything but a success."""
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
    """Let all talk at once until each has ended; the seconds it took. To `delays` those until each answer are added."""
    with selectors.DefaultSelector() as selector:
        for talk in talks:
            connection = Connection(socket.create_connection(("127.0.0.1", port)), talk)
            connection.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            selector.register(connection.socket, selectors.EVENT_READ, connection)
        began = time.perf_counter()
        for key in list(selector.get_map().values()):
            say(selector, key.data, None)
        while selector.get_map():
            for key, _ in selector.select():
                data = key.data.socket.recv(1 << 20)
                assert data, "the server hung up"
                key.data.received += data
                if (answer := key.data.answer()) is not None:
                    if delays is not None:
                        delays.append(time.perf_counter() - key.data.asked_at)
                    say(selector, key.data, answer)
        return time.perf_counter() - began


def say(selector: selectors.BaseSelector, connection: Connection, answer: bytes | None) -> None:
    try:
        message = connection.talk.send(answer)
        connection.asked_at = time.perf_counter()
        connection.socket.sendall(message)
    except StopIteration:
        selector.unregister(connection.socket)
        connection.socket.close()
