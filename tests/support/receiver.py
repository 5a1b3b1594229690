"""Receiver of messages for tests."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import Any


@contextmanager
def listening() -> Iterator[Any]:
    """Run an HTTP server that records the requests (`got`) and responds with the given `statuses`, then with 204."""
    got: list[Any] = []
    statuses: list[int] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"] or 0))
            got.append(SimpleNamespace(path=self.path, headers=dict(self.headers), body=body))
            self.send_response(statuses.pop(0) if statuses else 204)
            self.end_headers()

        def do_GET(self) -> None:
            got.append(SimpleNamespace(path=self.path, headers=dict(self.headers), body=b""))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield SimpleNamespace(got=got, statuses=statuses, url=f"http://127.0.0.1:{server.server_port}/hook?a=b")
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
