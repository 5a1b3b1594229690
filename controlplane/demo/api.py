"""Client of the demo: JSON over HTTP."""

import json
from typing import Any
from urllib.parse import quote

import urllib3

from controlplane.agent.api.client import LOCAL


class CallFailed(Exception):
    """The control plane could not be reached, or it refused the call."""


class ApiClient:
    def __init__(self, url: str, token: str) -> None:
        self.url = url.rstrip("/")
        self.token = token
        self.pool = urllib3.PoolManager(retries=False, timeout=5)

    def get(self, *path: str) -> dict[str, Any]:
        """Send a GET request and return the answer. Raise CallFailed."""
        return self.request("GET", path)

    def post(self, *path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Send a POST request and return the answer. Raise CallFailed."""
        return self.request("POST", path, json.dumps(body))

    def patch(self, *path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Send a PATCH request and return the answer. Raise CallFailed."""
        return self.request("PATCH", path, json.dumps(body))

    def request(self, method: str, path: tuple[str, ...], body: str | None = None) -> dict[str, Any]:
        address = "/".join([self.url, "api", "v1", *(quote(part, safe="") for part in path)])
        headers = {**LOCAL, "Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        try:
            response = self.pool.request(method, address, body=body, headers=headers)
        except urllib3.exceptions.HTTPError as error:
            raise CallFailed(str(error)) from error
        if not 200 <= response.status < 300:
            raise CallFailed(f"{method} {address}: {response.status} {response.data[:500].decode(errors='replace')}")
        answer: dict[str, Any] = json.loads(response.data)
        return answer
