"""HTTP client of the agent: JSON over a keep-alive pool, with two kinds of errors (Refused and Unreachable)."""

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

from controlplane.agent.api.field_errors import flatten_errors

log = structlog.get_logger()
API = "/api/v1"
PROBLEM = "application/problem+json"
WHICH_POOL = re.compile(r"^HTTPS?Connection(Pool)?\([^)]*\): ")
"""The start of urllib3's messages. It repeats the address, which the reader knows already."""


class ControlPlaneError(Exception):
    """A call that failed."""


class Refused(ControlPlaneError):
    """A call that the control plane refused (4xx).

    `code` is the code of the control plane's problem document. It is empty if something else answered, for example a
    proxy. `errors` are the problems by field.
    """

    def __init__(self, status: int, code: str, detail: str, errors: Any = None) -> None:
        causes = "; ".join(f"{field}: {cause}" for field, cause in flatten_errors(errors))
        text = f"{status} {code}: {detail}" if code else f"{status}: {detail}"
        super().__init__(f"{text} ({causes})" if causes else text)
        self.status = status
        self.code = code
        self.detail = detail
        self.errors = errors
        self.retried = False  # an earlier try got no response: it may have done what is refused now


ENDS_WORK = frozenset({"token_revoked", "server_not_running", "server_unknown"})
"""Codes that end the work of a server. A proxy may have sent other refusals, so those calls are made again."""
BUSY = frozenset({"overloaded", "too_many_calls", "too_many_servers", "too_many_tag_sets", "too_many_waiting"})
"""Codes of a healthy control plane that limits its callers. A new connection would only add to its load."""


class Unreachable(ControlPlaneError):
    """A call without a usable response (transport error, 5xx, 429). The caller may try again.

    `retry_after` (seconds) is set if the response had it. `status` and `code` are those of the response. Without a
    response they are None and empty.
    """

    def __init__(
        self, why: str, retry_after: float | None = None, *, status: int | None = None, code: str = "", detail: str = ""
    ) -> None:
        super().__init__(why)
        self.retry_after = retry_after
        self.status = status
        self.code = code
        self.detail = detail or why


class AgentClient:
    """Exchange JSON with one control plane. Threads may share it.

    `timeout` (seconds) is the default for a call: for the connection and the first byte of the response together.
    `host` is the Host header, if it differs from the address. `connections` are kept open between calls. `warn` gets a
    warning if the connection is not encrypted; the default is the log.
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
            (warn or log.warning)(f"Tokens and jobs are sent unencrypted to {self.base}: use an address with https://")
        self.clock_offset = 0.0  # seconds: the control plane's wall clock minus ours, from the last response
        self._pool = urllib3.PoolManager(num_pools=2, maxsize=connections, retries=False)

    def post(self, path: str, body: dict[str, Any], token: str, within: float | None = None) -> dict[str, Any]:
        """Send `body` and return the response. `within` is the timeout in seconds. Raise Refused or Unreachable."""
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
        """Make one call and return the response. Raise Refused or Unreachable."""
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
            self.reconnect()
            raise Unreachable(WHICH_POOL.sub("", str(error))) from error
        self._update_clock_offset(response.headers.get("Date"))
        try:
            return _parse_response(response)
        except Unreachable as error:
            if error.code not in BUSY:
                self.reconnect()
            raise

    def reconnect(self) -> None:
        """Use new connections for the next calls.

        The open ones may lead to a process or network that does not answer, or to a web process without a database. A
        load balancer sends new connections elsewhere.
        """
        self._pool.clear()

    def close(self) -> None:
        self._pool.clear()

    def _update_clock_offset(self, date: str | None) -> None:
        if date:
            with contextlib.suppress(TypeError, ValueError):
                self.clock_offset = email.utils.parsedate_to_datetime(date).timestamp() - time.time()


# A control plane behind a TLS proxy (BEHIND_TLS) redirects every call without this header to https.
LOCAL = {"X-Forwarded-Proto": "https"}
"""Headers of calls that stay on this machine, because they need no TLS."""


def is_here(url: str) -> bool:
    """Return True if all addresses of this URL's host belong to this machine."""
    try:
        addresses = socket.getaddrinfo(urlsplit(url).hostname, 0, type=socket.SOCK_DGRAM)
    except (OSError, ValueError):
        return False
    return bool(addresses) and all(_is_own(family, address) for family, _, _, _, address in addresses)


def _is_own(family: socket.AddressFamily, address: Any) -> bool:
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as own:
            own.bind(address)  # any port: bind() accepts only addresses of this machine
    except OSError:
        return False
    return True


def check_address(url: str) -> str:
    """Return `url` if it can be the address of a control plane. Raise ValueError otherwise."""
    try:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https"):
            raise ValueError("it must start with http:// or https://")
        if not parts.hostname:
            raise ValueError("it has no host name")
        _ = parts.port  # a wrong port raises ValueError
    except ValueError as error:
        raise ValueError(f"{url!r} is not the address of a control plane: {error}") from None
    return url


def _parse_response(response: urllib3.BaseHTTPResponse) -> dict[str, Any]:
    status = response.status
    if status == 204:
        return {}
    try:
        body = json.loads(response.data)
    except (ValueError, RecursionError):
        body = None
    is_ours = response.headers.get("Content-Type", "").startswith(PROBLEM) and isinstance(body, dict)
    foreign = f"{status} {response.reason or ''}".rstrip() + ", which is not a response of a control plane"
    problem: dict[str, Any] = body if is_ours else {"detail": foreign}
    if 200 <= status < 300:
        # A captive portal or a proxy's page is a 200 too, but not from the control plane.
        if not isinstance(body, dict):
            raise Unreachable(f"{status} without a JSON object")
        return body
    if 300 <= status < 400:
        where = response.headers.get("Location", "another address")
        raise Refused(status, "", f"the control plane redirects to {where}: use that address")
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
        return None  # a date instead of seconds: the jitter is enough
