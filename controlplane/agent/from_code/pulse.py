"""Signs of life of a job's code: a thread in its process writes a byte every second.

A callable writes to a pipe, a Celery task to a file. Code that holds the interpreter lock forever gives no sign, and
neither does a stopped process.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from os import pwrite, write
from time import sleep  # the real functions, even if the code replaces them later

PULSE_INTERVAL = 1.0  # seconds
SILENT_AFTER = (
    5 * PULSE_INTERVAL
)  # seconds without a sign of life, after which runner heartbeats do not list the attempt


def start_pulse(descriptor: int) -> None:
    """Give signs of life until this process ends. The first one is given before this returns."""
    os.set_inheritable(descriptor, False)  # processes that the code starts must not hold it open
    os.set_blocking(descriptor, False)  # a full pipe of a stopped agent must not block this process
    threading.Thread(target=_beat, args=[descriptor], name="pulse", daemon=True).start()
    with suppress(OSError):
        write(descriptor, b".")


@contextmanager
def pulse_into(path: str) -> Iterator[None]:
    """Change a file every second while the block runs. If the file cannot be created, give no signs of life."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    except OSError:
        yield
        return
    is_over = threading.Event()
    # Write the same byte each time, so that it works with a full disk.
    thread = threading.Thread(target=_change, args=[descriptor, is_over], name="pulse", daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        with suppress(OSError):
            os.unlink(path)


def _change(descriptor: int, is_over: threading.Event) -> None:
    while not is_over.is_set():
        with suppress(OSError):
            pwrite(descriptor, b".", 0)
        is_over.wait(PULSE_INTERVAL)
    os.close(descriptor)


def _beat(descriptor: int) -> None:
    while True:
        try:
            write(descriptor, b".")
        except BlockingIOError:
            pass
        except OSError:
            return  # the agent does not read any more, or the code has closed it
        sleep(PULSE_INTERVAL)
