"""Proxy between Django and PostgreSQL.

It cuts a connection at a chosen word, before or after PostgreSQL receives it.
"""

import socket
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Self
from urllib.parse import unquote, urlsplit


@dataclass
class Cut:
    """Place of the cut: the last of these words, once the other words have passed in this order over one connection."""

    words: tuple[bytes, ...]
    is_done: bool
    """True if PostgreSQL receives the last word and acts on it before the connection ends."""
    happened: threading.Event = field(default_factory=threading.Event)

    def comes(self, data: bytes) -> bool:
        place = 0
        for word in self.words:
            place = data.find(word, place) + len(word)
            if place < len(word):
                return False
        return True


class Proxy:
    """Proxy in front of a PostgreSQL server. Its own address is `url`."""

    def __init__(self, url: str) -> None:
        self.lead_to(url)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"postgresql://postgres@127.0.0.1:{self._listener.getsockname()[1]}{urlsplit(url).path}"
        self._cut: Cut | None = None
        self.is_open = True

    def lead_to(self, url: str) -> None:
        """Lead new connections to another PostgreSQL."""
        parts = urlsplit(url)
        self._target = unquote(parts.netloc.partition("@")[2].rpartition(":")[0]), parts.port

    def cut(self, *words: str, is_done: bool) -> Cut:
        self._cut = Cut(tuple(word.encode() for word in words), is_done)
        return self._cut

    def __enter__(self) -> Self:
        threading.Thread(target=self._serve, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                if not self.is_open:
                    client.close()
                    continue
                try:
                    server = self._connected()
                except OSError:  # PostgreSQL is stopped
                    client.close()
                    continue
                ends, answered = threading.Event(), threading.Event()
                for carry in (self._there, self._back):
                    threading.Thread(target=carry, args=(client, server, ends, answered), daemon=True).start()

    def _connected(self) -> socket.socket:
        host, port = self._target
        if not host.startswith("/"):
            return socket.create_connection((host, port))
        server = socket.socket(socket.AF_UNIX)
        server.connect(f"{host}/.s.PGSQL.{port}")
        return server

    def _there(
        self, client: socket.socket, server: socket.socket, ends: threading.Event, answered: threading.Event
    ) -> None:
        data, looked_for = b"", self._cut
        with suppress(OSError):
            while chunk := client.recv(1 << 20):
                if not self.is_open:
                    break
                if looked_for is not self._cut:
                    data, looked_for = b"", self._cut
                data += chunk
                if looked_for and not looked_for.happened.is_set() and looked_for.comes(data):
                    if looked_for.is_done:
                        ends.set()
                        server.sendall(chunk)
                        answered.wait(10)
                    looked_for.happened.set()
                    break
                server.sendall(chunk)
        for end in (client, server):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def _back(
        self, client: socket.socket, server: socket.socket, ends: threading.Event, answered: threading.Event
    ) -> None:
        with suppress(OSError):
            while chunk := server.recv(1 << 20):
                if ends.is_set():
                    answered.set()  # PostgreSQL has run the statement; its response is dropped
                    return
                client.sendall(chunk)
        with suppress(OSError):
            client.shutdown(socket.SHUT_RDWR)


class SilencingProxy(Proxy):
    """Proxy that goes silent on existing connections. New ones work."""

    generation = 0

    def silence(self) -> None:
        self.generation += 1

    def _there(
        self, client: socket.socket, server: socket.socket, ends: threading.Event, answered: threading.Event
    ) -> None:
        self._carry(client, server)

    def _back(
        self, client: socket.socket, server: socket.socket, ends: threading.Event, answered: threading.Event
    ) -> None:
        self._carry(server, client)

    def _carry(self, source: socket.socket, target: socket.socket) -> None:
        generation = self.generation
        with suppress(OSError), source:
            while chunk := source.recv(1 << 16):
                if generation == self.generation:  # a silent connection acknowledges the data and drops it
                    target.sendall(chunk)
            target.shutdown(2)
