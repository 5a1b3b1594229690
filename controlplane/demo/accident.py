"""Accident of the demo: a worker is killed in the middle of a step, and each consequence is printed."""

import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import psutil

from controlplane.demo.api import ApiClient, CallFailed
from controlplane.demo.plan import yearly_closing_execution

IN_THE_MIDDLE = 0.25
"""Progress of the job at which its worker is killed."""
SERVER_STORY = {
    "ERROR": "is ERROR: its machine reported at once that its process has ended, so it gets no more work",
    "DISCONNECTED": "is DISCONNECTED: its heartbeats have stopped, so it gets no more work",
    "NOT_RUNNING": "is NOT_RUNNING: its jobs go to other workers, and it can never come back",
    "INACTIVE": "is INACTIVE: it is only history now",
}
JOB_STORY = {
    "RESUBMITTED": "Attempt {attempt} is RESUBMITTED: the job waits for another worker",
    "RUNNING": "Attempt {attempt} is RUNNING on {server}",
    "COMPLETED": "The job is COMPLETED, in attempt {attempt}: nothing was lost",
    "FAILED": "The job has FAILED",
}


class Accident:
    """Kill a worker with SIGKILL and print what happens next.

    The client submits the work. The operator may look at servers.
    """

    def __init__(self, client: ApiClient, operator: ApiClient, show: Callable[[str], None]) -> None:
        self.client, self.operator, self.show = client, operator, show
        self.reported: set[tuple[str, ...]] = set()

    def follow(self, after: float) -> Iterator[None]:
        """Start the accident `after` seconds from now, and print its consequences. Each `next()` looks once.

        Raise CallFailed.
        """
        begun = time.monotonic()
        while time.monotonic() - begun < after:
            yield
        run = self.client.post("executions", body=yearly_closing_execution(1999))
        job = self.client.get("jobs", run["steps"][0]["job"])
        while (attempt := find_running_attempt(job)) is None or (attempt["progress"] or 0) < IN_THE_MIDDLE:
            yield
            job = self.client.get("jobs", job["id"])
        server = self.operator.get("servers", attempt["server"]["id"])
        victim = find_agent_process(server)
        if victim is None:
            self.show(f"{server['name']} runs on another machine, so there is no accident")
            return
        self.show(f"ACCIDENT: kill -9 of {server['name']} (process {victim.pid}) in the middle of a yearly report")
        self.show(f"  see the job: {self.client.url}/admin/instance/jobs/{job['id']}/")
        self.show(f"  and its execution: {self.client.url}/admin/instance/executions/{run['id']}/")
        victim.send_signal(signal.SIGKILL)
        while not {("INACTIVE",), ("job",)} <= self.reported:
            yield
            with suppress(CallFailed):  # the next look will find it
                self.show_server_events(server)
                self.show_job_events(job["id"], attempt)

    def show_server_events(self, server: dict[str, Any]) -> None:
        for event in sort_by_time(self.operator.get("servers", server["id"], "events")["items"]):
            if event["to"] in SERVER_STORY and self.is_new(event["to"]):
                self.show(f"{server['name']} {SERVER_STORY[event['to']]}")

    def show_job_events(self, job_id: str, killed: dict[str, Any]) -> None:
        job = self.client.get("jobs", job_id)
        for entry in sort_by_time(job["timeline"]):
            state, attempt = entry["state"], entry["attempt"]
            known = attempt and state in JOB_STORY and (attempt > killed["number"] or state == "RESUBMITTED")
            if known and self.is_new(state, str(attempt)):
                name = entry["server"]["name"]
                is_restarted = name == killed["server"]["name"]
                where = f"the new {name}, started in place of the dead one" if is_restarted else name
                self.show(JOB_STORY[state].format(attempt=attempt, server=where))
        if job["finished_at"]:
            self.reported.add(("job",))

    def is_new(self, *event: str) -> bool:
        """Return True the first time that an event is seen."""
        new = event not in self.reported
        self.reported.add(event)
        return new


def sort_by_time(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(entries, key=lambda entry: str(entry["at"]))


def find_running_attempt(job: dict[str, Any]) -> dict[str, Any] | None:
    """Return the attempt whose code runs now."""
    return next((attempt for attempt in job["attempts"] if attempt["state"] == "RUNNING"), None)


def find_agent_process(server: dict[str, Any]) -> psutil.Process | None:
    """Return the process of a worker, if it runs on this machine and is certainly a worker."""
    if server["hostname"] != socket.gethostname() or server["pid"] == os.getpid():
        return None
    try:
        process = psutil.Process(server["pid"])
        return process if "controlplane.agent" in process.cmdline() else None
    except psutil.Error:
        return None
