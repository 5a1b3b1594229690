"""Limits of a web process: its number of threads, and the resources of each connection."""

import os
import resource
import socket
from collections.abc import Container, Iterator
from contextlib import closing, suppress

import structlog
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

FEWEST = 3
"""Minimum number of threads: one for outside calls, one for probes and sign-ins, one for servers."""
SOCKETS = 65_536
SILENT_AFTER = 5
"""Seconds that the kernel holds back a new connection until its first byte arrives."""
UNREAD_AFTER = 30
"""Seconds after which the kernel ends a connection if its client acknowledges nothing or accepts no more data."""
SEND_BUFFER = 128 * 1024
"""Bytes of an answer that the kernel buffers (Linux doubles this). By default it buffers megabytes."""

log = structlog.get_logger()


def threads() -> int:
    """Return WEB_THREADS.

    Without it, return a number for this machine that leaves two database connections to grouped calls. Raise
    ImproperlyConfigured.
    """
    if not (text := os.environ.get("WEB_THREADS", "")):
        suitable = min(8, 2 * (os.cpu_count() or 1) + 1)
        pool = settings.DATABASES["default"].get("OPTIONS", {}).get("pool")
        return max(FEWEST, min(suitable, pool["max_size"] - 2) if pool else suitable)
    if not (text.isascii() and text.isdigit() and int(text) >= FEWEST):
        raise ImproperlyConfigured(f"WEB_THREADS: {text!r} is not a whole number of {FEWEST} or more.")
    return int(text)


def raise_limit_of_sockets() -> None:
    """Raise the limit of open files as far as this process may, because each connection is an open file."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = SOCKETS if hard == resource.RLIM_INFINITY else min(SOCKETS, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def limit_connections() -> set[int]:
    """Set options that all connections inherit from granian's listening sockets (Linux). Return the ports.

    granian has no settings for them and does not show its connections to the application. It does end connections that
    send no complete head in time (`--http1-header-read-timeout`).
    """
    ports = set()
    for listening in listening_sockets():
        ports.add(listening.getsockname()[1])
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
            listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, SILENT_AFTER)
            listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNREAD_AFTER * 1000)
        except (OSError, AttributeError) as error:
            log.debug("The listening socket keeps its own limits", why=str(error))
    return ports


def close_idle_connections(listening_ports: Container[int], busy_ports: Container[int]) -> None:
    """Close connections to these ports that have no request yet, so that the process can end (Linux).

    Browsers open such connections in advance, and granian would wait for them until `--http1-header-read-timeout`.
    `busy_ports` are the ports of clients whose request is in progress.
    """
    for one in tcp_sockets():
        with suppress(OSError):  # not connected
            if one.getsockname()[1] in listening_ports and one.getpeername()[1] not in busy_ports:
                one.shutdown(socket.SHUT_RDWR)


def listening_sockets() -> Iterator[socket.socket]:
    """Yield the TCP sockets on which this process listens."""
    return (one for one in tcp_sockets() if one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))


def tcp_sockets() -> Iterator[socket.socket]:
    """Yield the TCP sockets of this process."""
    with suppress(FileNotFoundError):  # not on Linux
        for number in map(int, os.listdir("/proc/self/fd")):
            with suppress(OSError), closing(socket.socket(fileno=os.dup(number))) as one:
                if one.type == socket.SOCK_STREAM and one.family in (socket.AF_INET, socket.AF_INET6):
                    yield one
