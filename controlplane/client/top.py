"""Command `top`: show the state of the control plane repeatedly."""

from __future__ import annotations

import sys
import time
from argparse import Namespace
from itertools import count, islice

from controlplane.client import views
from controlplane.client.asynchronous import Client
from controlplane.client.output import Output
from controlplane.client.session import Unreachable

CLEAR = "\x1b[H\x1b[2J"


def run(client: Client, given: Namespace, out: Output) -> int:
    """Refresh until interrupted, or `times` times. Report an outage and continue, unless the first call fails."""
    client.retry_for = 0
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
            time.sleep(max(0.1, given.every))
    return 0
