"""How many calls a web process answers at once, and how many sockets it may hold."""

import os
import resource

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

FEWEST = 3
"""One for calls of the outside, one for probes and signing in, one for servers."""
SOCKETS = 65_536


def threads() -> int:
    """WEB_THREADS, or what suits the machine: not more than have a connection, with two left for heartbeats.

    Raises ImproperlyConfigured.
    """
    if not (text := os.environ.get("WEB_THREADS", "")):
        suitable = min(8, 2 * (os.cpu_count() or 1) + 1)
        pool = settings.DATABASES["default"].get("OPTIONS", {}).get("pool")
        return max(FEWEST, min(suitable, pool["max_size"] - 2) if pool else suitable)
    if not (text.isascii() and text.isdigit() and int(text) >= FEWEST):
        raise ImproperlyConfigured(f"WEB_THREADS: {text!r} is not a whole number of {FEWEST} or more.")
    return int(text)


def raise_limit_of_sockets() -> None:
    """As far as this process may: each caller who is connected holds one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = SOCKETS if hard == resource.RLIM_INFINITY else min(SOCKETS, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
