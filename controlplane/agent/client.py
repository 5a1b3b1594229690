"""The HTTP side of an agent: JSON over a keep-alive pool, two kinds of failure."""

from __future__ import annotations

import contextlib
import email.utils
import json
import re
import socket
import time
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

import structlog
import urllib3

log = structlog.get_logger()
API = "/api/v1"
WHICH_POOL = re.compile(r"^HTTPS?Connection(Pool)?\([^)]*\): ")
"""What urllib3 begins its messages with, and whoever reads them knows."""


class ControlPlaneError(Exception):
    """A call that came to nothing."""


class Refused(ControlPlaneError):
    """The control plane understood and said no (4xx); the same again is refused again."""

    def __init__(self, status: int, code: str, detail: str, errors: Any = None) -> None:
        super().__init__(f"{status} {code}: {detail}" if code else f"{status}: {detail}")
        self.status = status
        self.code = code
        self.detail = detail
        self.errors = errors
        self.retried = False  # an earlier try of the call had no answer: perhaps it has done what is refused now


class Unreachable(ControlPlaneError):
    """No usable answer (transport, 5xx, 429); worth another try, after `retry_after` seconds if given.

    `status` and `code` are of an answer that says to come again; None and empty where there was none.
    """

    def __init__(
        self, why: str, retry_after: float | None = None, *, status: int | None = None, code: str = "", detail: str = ""
    ) -> None:
        super().__init__(why)
        self.retry_after = retry_after
        self.status = status
        self.code = code
        self.detail = detail or why


class Client:
    """Exchanges JSON with one control plane; safe to share between threads.

    `timeout` (seconds) holds for each call that says no other: for connecting and the answer's first byte together.
    `host` is the name to ask for, where the address has another. `connections` are kept open between calls. What would
    travel in clear is said in the log, or to `warn`.
    """

    def __init__(
        self,
        url: str,
        timeout: float = 10.0,
        host: str = "",
        *,
        connections: int = 4,
        warn: Callable[[str], object] | None = None,
    ) -> None:
        base = url.rstrip("/")
        self.base = base if base.endswith(API) else base + API
        self.timeout = timeout
        self._headers = {"Host": host} if host else {}
        if is_here(self.base):
            self._headers |= LOCAL
        elif not self.base.startswith("https:"):
            (warn or log.warning)(f"Tokens and jobs travel in clear to {self.base}: give it an address with https://")
        self.clock_offset = 0.0  # their wall clock minus ours, in seconds, from the last answer
        self._pool = urllib3.PoolManager(num_pools=2, maxsize=connections, retries=False)

    def post(self, path: str, body: dict[str, Any], token: str, within: float | None = None) -> dict[str, Any]:
        """The answer to `body`; raises Refused or Unreachable."""
        return self.request("POST", path, token, json.dumps(body).encode(), within=within)

    def request(
        self,
        method: str,
        path: str,
        token: str,
        body: bytes | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        within: float | None = None,
    ) -> dict[str, Any]:
        """The answer to one call; raises Refused or Unreachable."""
        try:
            response = self._pool.request(
                method,
                self.base + path,
                body=body,
                headers={
                    **self._headers,
                    "Authorization": f"Bearer {token}",
                    "Content-Type": "application/json",
                    "Accept": "application/json, application/problem+json",
                    **(headers or {}),
                },
                timeout=urllib3.Timeout(total=self.timeout if within is None else within),
                redirect=False,
            )
        except urllib3.exceptions.HTTPError as error:
            raise Unreachable(WHICH_POOL.sub("", str(error))) from error
        self._update_clock_offset(response.headers.get("Date"))
        return _parse_response(response)

    def close(self) -> None:
        self._pool.clear()

    def _update_clock_offset(self, date: str | None) -> None:
        if date:
            with contextlib.suppress(TypeError, ValueError):
                self.clock_offset = email.utils.parsedate_to_datetime(date).timestamp() - time.time()


# A control plane behind a proxy that speaks TLS (BEHIND_TLS) sends all others there.
LOCAL = {"X-Forwarded-Proto": "https"}
"""Said with what does not leave this machine: it needs no TLS."""


def is_here(url: str) -> bool:
    """Whether an address is one of this machine's own."""
    try:
        addresses = socket.getaddrinfo(urlsplit(url).hostname, 0, type=socket.SOCK_DGRAM)
    except (OSError, ValueError):
        return False
    return bool(addresses) and all(_is_own(family, address) for family, _, _, _, address in addresses)


def _is_own(family: socket.AddressFamily, address: Any) -> bool:
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as own:
            own.bind(address)  # to any port: only what is ours can be bound to
    except OSError:
        return False
    return True


def check_address(url: str) -> str:
    """The address of a control plane as it was given. Raises ValueError where it can be none."""
    try:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https"):
            raise ValueError("it begins with http:// or https://")
        if not parts.hostname:
            raise ValueError("it names no host")
        parts.port  # noqa: B018 - what is no port is refused
    except ValueError as error:
        raise ValueError(f"{url!r} is no address of a control plane: {error}") from None
    return url


def _parse_response(response: urllib3.BaseHTTPResponse) -> dict[str, Any]:
    status = response.status
    try:
        body = json.loads(response.data)
    except (ValueError, RecursionError):
        body = None
    foreign = f"{status} {response.reason or ''}".rstrip() + ", which is no answer of a control plane"
    problem = body if isinstance(body, dict) else {"detail": foreign}
    if 200 <= status < 300:
        # A captive portal or a proxy's page answers 200 too: that is not the control plane.
        if not isinstance(body, dict):
            raise Unreachable(f"{status} without a JSON object")
        return body
    if 300 <= status < 400:
        where = response.headers.get("Location", "another address")
        raise Refused(status, "", f"the control plane sends its callers to {where}: use that address")
    detail = str(problem.get("detail") or problem.get("title") or response.reason or "no detail")
    code = str(problem.get("code") or "")
    if status >= 500 or status in (408, 425, 429):
        again_after = _parse_retry_after(response.headers.get("Retry-After"))
        raise Unreachable(f"{status}: {detail}", again_after, status=status, code=code, detail=detail)
    raise Refused(status, code, detail, problem.get("errors"))


def _parse_retry_after(retry_after: str | None) -> float | None:
    try:
        return max(0.0, float(retry_after)) if retry_after else None
    except ValueError:
        return None  # the date form: full jitter is good enough
