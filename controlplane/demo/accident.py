"""A worker dies in the middle of a step of an execution, and the demo tells what becomes of both."""

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
"""Of the job: how far it comes before its worker dies."""
SERVER_STORY = {
    "DISCONNECTED": "is DISCONNECTED: nobody has heard it for too long, so it gets no more work",
    "NOT_RUNNING": "is NOT_RUNNING: its jobs were given away, and it can never come back",
    "INACTIVE": "is INACTIVE: only history",
}
JOB_STORY = {
    "RESUBMITTED": "Attempt {attempt} is RESUBMITTED: the job waits for another worker",
    "RUNNING": "Attempt {attempt} is RUNNING on {server}",
    "COMPLETED": "The job is COMPLETED, in attempt {attempt}: nothing was lost",
    "FAILED": "The job has FAILED",
}


class Accident:
    """Told with the rights of a client, who submits, and of an operator, who may look at servers."""

    def __init__(self, client: ApiClient, operator: ApiClient, say: Callable[[str], None]) -> None:
        self.client, self.operator, self.say = client, operator, say
        self.reported: set[tuple[str, ...]] = set()

    def tell_story(self, after: float) -> Iterator[None]:
        """The whole story from `after` seconds on, in steps; each `next()` looks once. Raises Failed."""
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
            self.say(f"{server['name']} does not run on this machine, so no accident is arranged")
            return
        self.say(f"ACCIDENT: kill -9 of {server['name']} (process {victim.pid}) in the middle of a yearly report")
        self.say(f"  see {self.client.url}/admin/instance/jobs/{job['id']}/")
        self.say(f"  and {self.client.url}/admin/instance/executions/{run['id']}/, of which it is a step")
        victim.send_signal(signal.SIGKILL)
        while not {("INACTIVE",), ("job",)} <= self.reported:
            yield
            with suppress(CallFailed):  # the next look will find it
                self.tell_about_server(server)
                self.tell_about_job(job["id"], attempt)

    def tell_about_server(self, server: dict[str, Any]) -> None:
        for event in sort_by_time(self.operator.get("servers", server["id"], "events")["items"]):
            if event["to"] in SERVER_STORY and self.is_first_mention(event["to"]):
                self.say(f"{server['name']} {SERVER_STORY[event['to']]}")

    def tell_about_job(self, job_id: str, fatal: dict[str, Any]) -> None:
        job = self.client.get("jobs", job_id)
        for entry in sort_by_time(job["timeline"]):
            state, attempt = entry["state"], entry["attempt"]
            known = attempt and state in JOB_STORY and (attempt > fatal["number"] or state == "RESUBMITTED")
            if known and self.is_first_mention(state, str(attempt)):
                name = entry["server"]["name"]
                where = f"the new {name}, started in place of the dead" if name == fatal["server"]["name"] else name
                self.say(JOB_STORY[state].format(attempt=attempt, server=where))
        if job["finished_at"]:
            self.reported.add(("job",))

    def is_first_mention(self, *what: str) -> bool:
        new = what not in self.reported
        self.reported.add(what)
        return new


def sort_by_time(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(entries, key=lambda entry: str(entry["at"]))


def find_running_attempt(job: dict[str, Any]) -> dict[str, Any] | None:
    """The attempt whose code runs now."""
    return next((attempt for attempt in job["attempts"] if attempt["state"] == "RUNNING"), None)


def find_agent_process(server: dict[str, Any]) -> psutil.Process | None:
    """The process of a worker, if it is here and certainly a worker."""
    if server["hostname"] != socket.gethostname() or server["pid"] == os.getpid():
        return None
    try:
        process = psutil.Process(server["pid"])
        return process if "controlplane.agent" in process.cmdline() else None
    except psutil.Error:
        return None
