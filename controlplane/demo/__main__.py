"""`python -m controlplane.demo`: keeps workers busy, and lets one of them die."""

import argparse
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from controlplane.demo.accident import Accident
from controlplane.demo.api import Api, Failed
from controlplane.demo.plan import ORDERS, executions
from controlplane.demo.shift import jobs
from controlplane.standalone.respawn import answers

BETWEEN_JOBS = 2.5  # seconds
BETWEEN_EXECUTIONS = 30.0
BEFORE_THE_ACCIDENT = 15.0
LOOK = 0.3


def say(text: str) -> None:
    print(text, flush=True)  # noqa: T201


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m controlplane.demo", description=__doc__)
    env = os.environ.get
    parser.add_argument("--url", required=True)
    parser.add_argument("--token", default=env("CONTROLPLANE_TOKEN"), help="of a client (or CONTROLPLANE_TOKEN)")
    parser.add_argument(
        "--operator-token",
        default=env("CONTROLPLANE_OPERATOR_TOKEN"),
        help="to look at servers (or CONTROLPLANE_OPERATOR_TOKEN)",
    )
    given = parser.parse_args()
    if not given.token or not given.operator_token:
        parser.error("a client's and an operator's token are needed")
    return given


@contextmanager
def schedule(operator: Api) -> Iterator[None]:
    """A trigger for as long as the demo runs: afterwards nobody asks for what it starts."""

    def enable(is_enabled: bool) -> None:
        try:
            for trigger in operator.get("triggers")["items"]:
                if trigger["name"] == ORDERS["name"]:
                    operator.patch("triggers", trigger["id"], body={"enabled": is_enabled})
                    return
            operator.post("triggers", body={**ORDERS, "enabled": is_enabled})
        except Failed as failed:
            say(str(failed))

    enable(True)
    try:
        yield
    finally:
        enable(False)


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    given = arguments()
    client, operator = Api(given.url, given.token), Api(given.url, given.operator_token)
    while not answers(f"{given.url}/livez"):
        time.sleep(LOOK)
    say("A few jobs every ten seconds, an execution every half minute, and soon an accident")
    with schedule(operator):
        work_on(client, operator)


def work_on(client: Api, operator: Api) -> None:
    work, runs = jobs(), executions()
    accident = Accident(client, operator, say).happen(after=BEFORE_THE_ACCIDENT)
    next_job = next_run = time.monotonic()
    while True:
        try:
            if time.monotonic() >= next_job:
                next_job = time.monotonic() + BETWEEN_JOBS
                client.post("jobs", body=next(work))
            if time.monotonic() >= next_run:
                next_run = time.monotonic() + BETWEEN_EXECUTIONS
                client.post("executions", body=next(runs))
            next(accident, None)
        except Failed as failed:
            # A generator that has raised is over: the accident is not tried again.
            say(str(failed))
        time.sleep(LOOK)


if __name__ == "__main__":
    main()
