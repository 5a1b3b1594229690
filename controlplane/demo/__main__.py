"""Load of the demo: submits work for the workers, and kills one of them."""

import argparse
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from controlplane.demo.accident import Accident
from controlplane.demo.api import ApiClient, CallFailed
from controlplane.demo.plan import ORDERS, demo_executions
from controlplane.demo.shift import demo_jobs
from controlplane.standalone.processes import is_answering

BETWEEN_JOBS = 2.5  # seconds
BETWEEN_EXECUTIONS = 30.0
BEFORE_THE_ACCIDENT = 15.0
LOOK_INTERVAL = 0.3


def print_line(text: str) -> None:
    print(text, flush=True)  # noqa: T201


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(allow_abbrev=False, prog="python -m controlplane.demo", description=f"{__doc__}")
    env = os.environ.get
    parser.add_argument("--url", required=True)
    parser.add_argument("--token", default=env("CONTROLPLANE_TOKEN"), help="token of a client (or CONTROLPLANE_TOKEN)")
    parser.add_argument(
        "--operator-token",
        default=env("CONTROLPLANE_OPERATOR_TOKEN"),
        help="token of an operator, to look at servers (or CONTROLPLANE_OPERATOR_TOKEN)",
    )
    given = parser.parse_args()
    if not given.token or not given.operator_token:
        parser.error("give both tokens: --token of a client and --operator-token of an operator")
    return given


@contextmanager
def enable_schedule(operator: ApiClient) -> Iterator[None]:
    """Enable the demo's trigger while the block runs. Otherwise it would start work without end."""

    def set_enabled(is_enabled: bool) -> None:
        try:
            for trigger in operator.get("triggers")["items"]:
                if trigger["name"] == ORDERS["name"]:
                    operator.patch("triggers", trigger["id"], body={"enabled": is_enabled})
                    return
            operator.post("triggers", body={**ORDERS, "enabled": is_enabled})
        except CallFailed as failed:
            print_line(str(failed))

    set_enabled(True)
    try:
        yield
    finally:
        set_enabled(False)


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    given = parse_arguments()
    client, operator = ApiClient(given.url, given.token), ApiClient(given.url, given.operator_token)
    while not is_answering(f"{given.url}/livez"):
        time.sleep(LOOK_INTERVAL)
    print_line("Submitting a few jobs every ten seconds and an execution every half minute; an accident follows soon")
    with enable_schedule(operator):
        submit_work(client, operator)


def submit_work(client: ApiClient, operator: ApiClient) -> None:
    work, runs = demo_jobs(), demo_executions()
    accident = Accident(client, operator, print_line).follow(after=BEFORE_THE_ACCIDENT)
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
        except CallFailed as failed:
            # A generator that has raised is finished, so the accident is not tried again.
            print_line(str(failed))
        time.sleep(LOOK_INTERVAL)


if __name__ == "__main__":
    main()
