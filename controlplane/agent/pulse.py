"""Signs of life that code gives by itself: a thread in its process writes a byte now and then, of a callable to a pipe,
of a Celery task to a file. Code that holds the interpreter's lock for ever gives none, nor does code that was
stopped."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from os import pwrite, write
from time import sleep  # the real ones, whatever the code puts in their place later

PULSE_INTERVAL = 1.0  # seconds
SILENT_AFTER = 5 * PULSE_INTERVAL  # without a sign of life: no runner heartbeat lists it until there is one again


def start_pulse(descriptor: int) -> None:
    """From now on, for as long as this process lives."""
    os.set_inheritable(descriptor, False)  # what the code starts must not hold the channel
    os.set_blocking(descriptor, False)  # an agent that was stopped must not fill it up
    threading.Thread(target=_beat, args=[descriptor], name="pulse", daemon=True).start()


@contextmanager
def pulse_into(path: str) -> Iterator[None]:
    """A file that is there, and changes, while the block runs; where it cannot be, there are no signs to wait for."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    except OSError:
        yield
        return
    is_over = threading.Event()
    # The same byte each time, so that a full disk silences nobody.
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
            return  # nobody listens, or the code has closed it
        sleep(PULSE_INTERVAL)
