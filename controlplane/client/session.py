"""How calls are made: with a token, tried again while that may help, and each counted once by its key."""

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

from controlplane.agent import client as http
from controlplane.agent.backoff import full_jitter
from controlplane.agent.clean_text import reason
from controlplane.agent.client import ControlPlaneError, Refused, Unreachable
from controlplane.agent.tracing import current_traceparent
from controlplane.client.requests import dump_json

log = logging.getLogger("controlplane.client")
LONGEST_BACKOFF = 10.0
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 2.0
"""Seconds between two looks where the control plane keeps no answer back."""
NO_WORKER = {"no_fresh_workers", "workers_in_maintenance", "workers_cordoned"}
"""Codes that say no to `require_worker`: who asks for a worker now does not want to wait for one."""
STOP: ContextVar[threading.Event | None] = ContextVar("STOP", default=None)
"""Set when nobody waits for the calls of this context any more: they go no further."""


class StillRunning(ControlPlaneError, TimeoutError):
    """What was waited for has not ended in time; `ids` are of what has not."""

    def __init__(self, detail: str, ids: list[str]) -> None:
        super().__init__(detail)
        self.ids = ids


class Stopped(ControlPlaneError):
    """Nobody waits for this call any more."""


class Session:
    """The address, the token, and how long a call is tried: see Client."""

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
                'Which control plane? Give its url, like "https://control.example", or set CONTROLPLANE_URL'
            )
        http.check_address(address)
        self._token = read_token(token, token_file)
        self._http = http.Client(address, timeout, connections=connections, warn=log.warning)
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
        """The answer of any call of the API, `path` as in `/api/docs` from behind `/api/v1`.

        Without a usable answer it is tried again for `retry_for` seconds, so give a call that must not be done twice a
        `key`. `wait`: seconds for which its answer may be kept back. Raises Refused, Unreachable.
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
        """The answer to an action that ends what is at `path`; where that is refused with `code`, for a try that had no
        answer has done it: what is there now, in that `state`."""
        try:
            return self.call("POST", f"{path}/{action}", body)
        except Refused as refused:
            if refused.retried and refused.code == code and (current := self.call("GET", path))["state"] == state:
                return current
            raise

    def items(self, path: str, query: Mapping[str, Any] | None = None) -> Iterator[Any]:
        """The items of a list, page after page as they are asked for."""
        cursor: str | None = None
        while True:
            page = self.call("GET", path, query={**(query or {}), "cursor": cursor})
            yield from page["items"]
            if (cursor := page["next"]) is None:
                return


class Polls:
    """How often to ask for something that is to happen: each round is so many seconds to have the answer kept back.

    Where it is not kept back, the next round begins after a pause, which grows until there is `progress`. The last
    round is after `timeout` seconds; with None there is always another.
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
    """Raises Stopped as soon as nobody waits any more."""
    stop = STOP.get()
    if stop is None:
        time.sleep(seconds)
    elif stop.wait(seconds):
        raise Stopped


def read_token(token: str | None, file: str | os.PathLike[str] | None) -> str:
    """The token of the argument, of the file, or of CONTROLPLANE_TOKEN. Raises ValueError with a sentence."""
    if token and file:
        raise ValueError("A token and a file with a token: one of them")
    if file:
        try:
            text = Path(file).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ValueError(f"The token's file {file} cannot be read: {reason(error)}") from None
    else:
        text = token or os.environ.get("CONTROLPLANE_TOKEN") or ""
    if not text or not text.isprintable():
        where = f"The file {file} holds none" if file else "Give it, a file that holds it, or set CONTROLPLANE_TOKEN"
        raise ValueError(f"A token is needed, which `controlplane create_token` makes. {where}.")
    return text
