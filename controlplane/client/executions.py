"""Calls about executions and triggers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Unpack, cast
from urllib.parse import quote

from controlplane.client.answers import Execution, ExecutionEvent, ExecutionSummary, Job, LogLine, SentSignal, Trigger
from controlplane.client.jobs import JobCalls, in_batches, new_key
from controlplane.client.loop_answers import Progress
from controlplane.client.progress_bar import show_progress
from controlplane.client.requests import ExecutionOptions, Reference, id_of
from controlplane.client.session import Polls, StillRunning


class ExecutionCalls(JobCalls):
    def submit_execution(
        self, name: str, steps: Iterable[Mapping[str, Any]], *, namespace: str | None = None,
        **options: Unpack[ExecutionOptions],
    ) -> Execution:  # fmt: skip
        """Start an execution with all of its steps. If it is refused, no step starts.

        It starts only once, however often the call is tried.
        """
        body = {"key": new_key(), **options, "name": name, "steps": list(steps)}
        return cast(Execution, self.call("POST", "/executions", body, query={"namespace": namespace}))

    def execution(self, execution: Reference) -> Execution:
        """Return the execution as it is now, with its steps."""
        return cast(Execution, self.call("GET", f"/executions/{id_of(execution)}"))

    def executions(
        self, *, state: str | None = None, name: str | None = None, key: str | None = None,
        trigger: Reference | None = None, namespace: str | None = None, page: int | None = None,
    ) -> Iterator[ExecutionSummary]:  # fmt: skip
        """Yield executions, latest first, fetched in pages of `page`."""
        by = None if trigger is None else id_of(trigger)
        filters = {"state": state, "name": name, "key": key, "trigger": by, "namespace": namespace}
        return self.items("/executions", {**filters, "limit": page})

    def add_steps(self, execution: Reference, steps: Iterable[Mapping[str, Any]]) -> ExecutionSummary:
        """Add steps to an open execution, in as many calls as needed. Return the execution after the last one.

        Steps that it has already with the same content are left out, so the same call may be made again. If a call is
        refused, the steps of earlier calls stay.
        """
        path = f"/executions/{id_of(execution)}/steps"
        answers = [self.call("POST", path, {"steps": some}) for some in in_batches(steps, len('{"steps": []}'))]
        if not answers:
            raise ValueError("No steps to add")
        return cast(ExecutionSummary, answers[-1])

    def seal_execution(self, execution: Reference, note: str = "") -> ExecutionSummary:
        """Seal an open execution: it ends when all of its steps have ended."""
        return cast(ExecutionSummary, self.call("POST", f"/executions/{id_of(execution)}/seal", {"note": note}))

    def wait_execution(
        self, execution: Reference, timeout: float | None = None, *, progress: bool | Callable[[Progress], None] = False
    ) -> Execution:
        """Wait until the execution has ended in any state, and return it. Raise StillRunning after `timeout` seconds.

        With `progress=True` a terminal shows a progress bar. A function is called with each progress instead.
        """
        report = show_progress if progress is True else progress or None
        for _ in Polls(self.long_poll, timeout):
            current = self.execution(execution)
            if report:
                report(current["progress"])
            if current["finished_at"] is not None:
                return current
        raise StillRunning(f"Execution {current['id']} is {current['state']} after {timeout:g} s", [current["id"]])

    def cancel_execution(self, execution: Reference, note: str = "") -> Execution:
        """Cancel the waiting jobs of an execution now, and ask the workers of its running jobs to stop."""
        path = f"/executions/{id_of(execution)}"
        return cast(Execution, self._end(path, "cancel", {"note": note}, "execution_ended", "CANCELLED"))

    def rerun_execution(self, execution: Reference, note: str = "") -> Execution:
        """Run all steps again, in a new execution."""
        answer = self.call("POST", f"/executions/{id_of(execution)}/rerun", {"note": note}, key=new_key())
        return cast(Execution, answer)

    def restart_execution(
        self, execution: Reference, note: str = "", *, from_step: str | None = None,
        inputs: Mapping[str, Any] | None = None,
    ) -> Execution:  # fmt: skip
        """Run the failed steps again, in a new execution that keeps the completed steps.

        `from_step` is the key of a step that runs again with its dependents, even if it completed. `inputs` replace the
        inputs of the execution.
        """
        body: dict[str, Any] = {"note": note}
        body |= {} if from_step is None else {"from_step": from_step}
        body |= {} if inputs is None else {"inputs": dict(inputs)}
        return cast(Execution, self.call("POST", f"/executions/{id_of(execution)}/restart", body, key=new_key()))

    def send_signal(
        self, name: str, body: Any = None, *, key: str | None = None, namespace: str | None = None
    ) -> SentSignal:
        """Send a signal with a JSON body to the steps that wait for it. The same `key` again sends it only once."""
        path, query = f"/signals/{quote(name, safe='')}", {"namespace": namespace}
        return cast(SentSignal, self.call("POST", path, body, key=key or new_key(), query=query))

    def answer_step(
        self, execution: Reference, step: str, choice: str, values: Mapping[str, Any] | None = None, note: str = ""
    ) -> Job:
        """Answer a step that asks people. Raise Refused with `already_answered` if another answer was first."""
        path = f"/executions/{id_of(execution)}/steps/{quote(step, safe='')}/answer"
        return cast(Job, self.call("POST", path, {"choice": choice, "values": dict(values or {}), "note": note}))

    def execution_events(self, execution: Reference) -> Iterator[ExecutionEvent]:
        """Yield the control plane's own actions in an execution, oldest first."""
        return self.items(f"/executions/{id_of(execution)}/steps/_server/logs")

    def job_events(self, job: Reference) -> Iterator[ExecutionEvent]:
        """Yield the control plane's own actions on a job, oldest first."""
        return self.items(f"/jobs/{id_of(job)}/steps/_server/logs")

    def step_logs(self, execution: Reference, step: str) -> Iterator[LogLine]:
        """Yield the log lines of a step's code, oldest first."""
        return self.items(f"/executions/{id_of(execution)}/steps/{quote(step, safe='')}/logs")

    def triggers(self, *, namespace: str | None = None, page: int | None = None) -> Iterator[Trigger]:
        """Yield triggers with their last slots, latest first."""
        return self.items("/triggers", {"namespace": namespace, "limit": page})

    def trigger(self, trigger: Reference) -> Trigger:
        return cast(Trigger, self.call("GET", f"/triggers/{id_of(trigger)}"))

    def evaluate(self, trigger: Reference, note: str = "") -> dict[str, Any]:
        """Evaluate a trigger now, regardless of its schedule, and return its slot."""
        return self.call("POST", f"/triggers/{id_of(trigger)}/evaluate", {"note": note}, key=new_key())
