"""Signs of life that the code of a callable gives by itself: a thread in its process writes a byte to a pipe now and
then. Code that holds the interpreter's lock for ever gives none, nor does code that was stopped."""

from __future__ import annotations

import os
import threading
from os import write
from time import sleep  # the real ones, whatever the code puts in their place later

PULSE_INTERVAL = 1.0  # seconds


def start_pulse(descriptor: int) -> None:
    """From now on, for as long as this process lives."""
    os.set_inheritable(descriptor, False)  # what the code starts must not hold the channel
    os.set_blocking(descriptor, False)  # an agent that was stopped must not fill it up
    threading.Thread(target=_beat, args=[descriptor], name="pulse", daemon=True).start()


def _beat(descriptor: int) -> None:
    while True:
        try:
            write(descriptor, b".")
        except BlockingIOError:
            pass
        except OSError:
            return  # nobody listens, or the code has closed it
        sleep(PULSE_INTERVAL)
