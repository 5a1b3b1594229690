"""Calls of the API. They have a token and are retried. An idempotency key makes repeated calls count only once."""

from __future__ import annotations

import logging
import os
import random
import threading
import time
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from controlplane.agent.api import client as http
from controlplane.agent.api.backoff import full_jitter
from controlplane.agent.api.client import ControlPlaneError, Refused, Unreachable
from controlplane.agent.clean_text import reason
from controlplane.agent.tracing import current_traceparent
from controlplane.client.requests import dump_json

log = logging.getLogger("controlplane.client")
LONGEST_BACKOFF = 10.0
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 2.0
"""Seconds between two polls, if the control plane does not hold back its response."""
NO_WORKER = {"no_fresh_workers", "workers_in_maintenance", "workers_cordoned"}
"""Error codes of a submission with `require_worker`. Its caller needs a worker now, so the call is not tried again."""
STOP: ContextVar[threading.Event | None] = ContextVar("STOP", default=None)
"""Event that stops the calls of this context. It is set when nobody waits for them any more."""


class StillRunning(ControlPlaneError, TimeoutError):
    """The job, execution or batch has not ended in time. `ids` are the ids of those that still run."""

    def __init__(self, detail: str, ids: list[str]) -> None:
        super().__init__(detail)
        self.ids = ids


class Stopped(ControlPlaneError):
    """Nobody waits for this call any more."""


class Session:
    """Address, token and limits of calls; see Client."""

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        token_file: str | os.PathLike[str] | None = None,
        timeout: float = 10.0,
        retry_for: float = 60.0,
        long_poll: float = 30.0,
        connections: int = 10,
    ) -> None:
        address = url or os.environ.get("CONTROLPLANE_URL") or ""
        if not address:
            raise ValueError(
                'No control plane is given: pass its url, like "https://control.example", or set CONTROLPLANE_URL'
            )
        http.check_address(address)
        self._token = read_token(token, token_file)
        self._http = http.AgentClient(address, timeout, connections=connections, warn=log.warning)
        self.timeout, self.retry_for, self.long_poll = timeout, retry_for, long_poll

    def close(self) -> None:
        self._http.close()

    def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        query: Mapping[str, Any] | None = None,
        key: str | None = None,
        wait: float = 0.0,
    ) -> dict[str, Any]:
        """Make any call of the API and return its response. `path` is the path in `/api/docs` after `/api/v1`.

        Without a usable response the call is tried again for `retry_for` seconds. So give an idempotency `key` to a
        call that must not happen twice. `wait` is the longest time in seconds that the control plane may hold back the
        response. Raise Refused or Unreachable.
        """
        sent = {name: value for name, value in (query or {}).items() if value is not None}
        address = f"{path}?{urlencode(sent, doseq=True)}" if sent else path
        headers = {"Idempotency-Key": key} if key else {}
        if method == "POST" and (trace := current_traceparent()):
            headers["traceparent"] = trace
        data = None if body is None else dump_json(body)
        until, failures = time.monotonic() + self.retry_for, 0
        while True:
            pause_for(0)
            try:
                return self._http.request(
                    method, address, self._token, data, headers=headers, within=self.timeout + wait
                )
            except Refused as refused:
                refused.retried = failures > 0
                raise
            except Unreachable as error:
                if error.code in NO_WORKER:
                    raise Refused(error.status or 503, error.code, error.detail) from None
                failures += 1
                pause = (error.retry_after or 0.0) + full_jitter(failures, LONGEST_BACKOFF)
                if time.monotonic() + pause > until:
                    if error.status is None:
                        error.args = (f"No control plane answers at {self._http.base}: {error}",)
                    raise
                log.warning(f"No answer from {self._http.base} ({error}): trying again in {pause:.1f} s")
            pause_for(pause)

    def _end(self, path: str, action: str, body: Any, code: str, state: str) -> dict[str, Any]:
        """End the object at `path`, and return it.

        If the action is refused with `code`, an earlier try without a response may have done it. Then return the
        current object if it is in that `state`.
        """
        try:
            return self.call("POST", f"{path}/{action}", body)
        except Refused as refused:
            if refused.retried and refused.code == code and (current := self.call("GET", path))["state"] == state:
                return current
            raise

    def items(self, path: str, query: Mapping[str, Any] | None = None) -> Iterator[Any]:
        """Yield the items of a list, fetched page by page on demand."""
        cursor: str | None = None
        while True:
            page = self.call("GET", path, query={**(query or {}), "cursor": cursor})
            yield from page["items"]
            if (cursor := page["next"]) is None:
                return


class Polls:
    """Rounds of polling for a result. Each round yields the seconds that the response may be held back.

    If the response was not held back, the next round begins after a pause. The pause grows until there is `progress`.
    The last round is after `timeout` seconds. With None the rounds do not end.
    """

    def __init__(self, longest: float, timeout: float | None = None) -> None:
        self.longest, self.until = longest, None if timeout is None else time.monotonic() + timeout
        self.progress = False

    def __iter__(self) -> Iterator[float]:
        pause = FIRST_PAUSE
        while True:
            began = time.monotonic()
            left = self.longest if self.until is None else self.until - began
            asked = max(0.0, min(self.longest, left))
            self.progress = False
            yield asked
            if self.until is not None and left <= 0:
                return
            if self.progress:
                pause = FIRST_PAUSE
            elif time.monotonic() - began < asked / 2:
                pause_for(min(random.uniform(pause / 2, pause), left))  # noqa: S311
                pause = min(2 * pause, LONGEST_PAUSE)


def pause_for(seconds: float) -> None:
    """Sleep for `seconds`. Raise Stopped as soon as nobody waits any more."""
    stop = STOP.get()
    if stop is None:
        time.sleep(seconds)
    elif stop.wait(seconds):
        raise Stopped


def read_token(token: str | None, file: str | os.PathLike[str] | None) -> str:
    """Return the token from the argument, from the file or from CONTROLPLANE_TOKEN. Raise ValueError."""
    if token and file:
        raise ValueError("Give either a token or a file with a token, not both")
    if file:
        try:
            text = Path(file).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ValueError(f"The token file {file} cannot be read: {reason(error)}") from None
    else:
        text = token or os.environ.get("CONTROLPLANE_TOKEN") or ""
    if not text or not text.isprintable():
        where = f"The file {file} is empty" if file else "Give it or a file with it, or set CONTROLPLANE_TOKEN"
        raise ValueError(f"A token is required; `controlplane create_token` makes one. {where}.")
    return text
