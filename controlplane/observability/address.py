"""Where a process can be reached."""

import ipaddress

import psutil
from django.conf import settings

from controlplane.agent.client import Client, Unreachable


def reachable_host(host: str) -> str:
    """The name under which this machine reaches a server that listens on `host`."""
    local = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}.get(host, host)  # noqa: S104
    return f"[{local}]" if ":" in local else local


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches a server that listens on `host`."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def build_own_client() -> Client:
    """Calls this process as workers do, where it listens. Raises Unreachable while it listens on no TCP port."""
    for connection in psutil.Process().net_connections("tcp"):
        if connection.status == psutil.CONN_LISTEN:
            host, port = connection.laddr
            return Client(f"http://{reachable_host(host)}:{port}", host=first_allowed_host())
    raise Unreachable("it listens on no TCP port; LIVENESS_WITNESS_URL may say where workers reach it")


def first_allowed_host() -> str:
    """A name under which Django answers; empty: under any."""
    return next((name.lstrip(".") for name in settings.ALLOWED_HOSTS if name != "*"), "")
