"""Adapter of the front to granian's own protocol RSGI, for command lines that still use it."""

from typing import Any, Protocol
from urllib.parse import quote

from controlplane.core.addresses import without_port
from controlplane.serving.request import Message, Receive, Send


class Asgi(Protocol):
    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None: ...


async def serve_by_rsgi(application: Asgi, scope: Any, protocol: Any) -> None:
    """Answer an RSGI request with an ASGI application.

    RSGI hides header values that are not ASCII, and does not wait for a client that reads slowly.
    """
    if scope.proto != "http":
        protocol.close(404)
        return
    start: Message = {}
    content: list[bytes] = []
    chunks = aiter(protocol)
    left, is_read = int(scope.headers.get("content-length", "0")), False

    async def receive() -> Message:
        nonlocal left, is_read
        if is_read:
            await protocol.client_disconnect()
            return {"type": "http.disconnect"}
        try:
            chunk = await anext(chunks)
        except StopAsyncIteration:
            is_read = True
            return {"type": "http.disconnect"} if left > 0 else {"type": "http.request", "body": b""}
        left -= len(chunk)
        return {"type": "http.request", "body": chunk, "more_body": True}

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            start.update(message)
            start["headers"] = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in message["headers"]]
        elif message["type"] == "http.response.pathsend":
            protocol.response_file(start["status"], start["headers"], message["path"])
        else:
            content.append(message["body"])
            if not message.get("more_body", False):
                protocol.response_bytes(start["status"], start["headers"], b"".join(content))

    headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in scope.headers.items()]
    if scope.authority:
        headers.insert(0, (b"host", scope.authority.encode()))
    await application(
        {
            "type": "http",
            "http_version": scope.http_version,
            "server": address_of(scope.server),
            "client": address_of(scope.client),
            "scheme": scope.scheme,
            "method": scope.method,
            "path": scope.path,
            "raw_path": quote(scope.path).encode(),
            "query_string": scope.query_string.encode("latin-1", "replace"),
            "headers": headers,
        },
        receive,
        send,
    )
    if not start:  # the client has disconnected
        protocol.response_empty(400, [])


def address_of(text: str) -> tuple[str, int]:
    """Return host and port of `192.0.2.1:80` or `[2001:db8::1]:80`."""
    port = text.rpartition(":")[2]
    return without_port(text), int(port) if port.isdecimal() else 0
