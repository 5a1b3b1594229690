"""Command `top`: show the state of the control plane repeatedly, on the whole screen if Textual is installed."""

from __future__ import annotations

import sys
import time
from argparse import Namespace
from importlib.util import find_spec
from itertools import count, islice

from controlplane.client import views
from controlplane.client.asynchronous import Client
from controlplane.client.output import Output
from controlplane.client.session import Unreachable
from controlplane.client.watching import CLEAR, SHORTEST


def run(client: Client, given: Namespace, out: Output) -> int:
    """Refresh until `q`, an interrupt, or `times` refreshes. Continue after an outage, unless the first call fails.

    The whole screen is used on a terminal, unless `times` is given.
    """
    client.retry_for = 0
    every = max(SHORTEST, given.every)
    if out.is_terminal and not out.is_json and not given.times and find_spec("textual"):
        from controlplane.client import screen

        client.instance()  # an error at the start ends the command
        return screen.run(client, every)
    for number in islice(count(1), given.times or None):
        try:
            now = client.instance()
        except Unreachable as error:
            if number == 1:
                raise
            out.line(str(error))
        else:
            if out.is_json:
                out.document(now)
            else:
                sys.stdout.write(CLEAR if out.is_terminal else "\n" if number > 1 else "")
                views.instance(now, out)
                sys.stdout.flush()
        if number != given.times:
            time.sleep(every)
    return 0
