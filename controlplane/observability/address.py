"""Addresses at which a process can be reached."""

import ipaddress

import psutil
from django.conf import settings

from controlplane.agent.api.client import AgentClient, Unreachable


def reachable_host(host: str) -> str:
    """Return the name by which this machine reaches a server that listens on `host`."""
    local = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}.get(host, host)  # noqa: S104
    return f"[{local}]" if ":" in local else local


def is_loopback(host: str) -> bool:
    """Return True if only this machine reaches a server that listens on `host`."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def build_own_client() -> AgentClient:
    """Return a client that calls this process as workers do.

    Raise Unreachable while the process listens on no TCP port.
    """
    for connection in psutil.Process().net_connections("tcp"):
        if connection.status == psutil.CONN_LISTEN:
            host, port = connection.laddr
            return AgentClient(f"http://{reachable_host(host)}:{port}", host=first_allowed_host())
    raise Unreachable("it listens on no TCP port; set LIVENESS_WITNESS_URL to the address that workers use")


def first_allowed_host() -> str:
    """Return a host name that Django accepts, or an empty text if it accepts any."""
    return next((name.lstrip(".") for name in settings.ALLOWED_HOSTS if name != "*"), "")
