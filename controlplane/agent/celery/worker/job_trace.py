"""Run a task that is a job. Its result goes to a file, because Celery returns only the repr of a result."""

from __future__ import annotations

import json
import os
from types import SimpleNamespace
from typing import Any

from billiard.einfo import ExceptionWithTraceback  # type: ignore[attr-defined]
from celery import states
from celery.app import trace

from controlplane.agent.celery.job_files import pulse_file
from controlplane.agent.from_code.outcomes import TRACEBACK_LIMIT
from controlplane.agent.from_code.pulse import pulse_into
from controlplane.agent.processes.callable_child import describe_error, encode_result


def trace_job_with_pulse(path: str, name: str, *message: Any, **options: Any) -> Any:
    """Run a job in a process that runs nothing else, and write signs of life to a file beside its result."""
    with pulse_into(pulse_file(path)):
        return trace_job(path, name, *message, **options)


def trace_job(path: str, name: str, *message: Any, **options: Any) -> Any:
    """Run a job as Celery runs a task. Write its result to the file `path` before its message is acknowledged.

    The file has `{"output": …}` or `{"error": …}`.
    """
    tasks, accept, hostname = trace._localized  # type: ignore[attr-defined]
    kept: list[Any] = []

    def trace_task(*arguments: Any) -> Any:
        kept.extend(answer := tasks[name].__trace__(*arguments))
        return answer

    registry = {name: SimpleNamespace(__trace__=trace_task)}
    answer = trace.fast_trace_task(name, *message, **{**options, "_loc": (registry, accept, hostname)})
    if kept and (text := _report(name, *kept[:2])):
        with open(f"{path}.new", "w", encoding="utf-8", errors="surrogatepass") as file:
            file.write(text)
        os.replace(f"{path}.new", path)
    return answer


def _report(name: str, result: Any, problem: Any) -> str | None:
    """Return the content of the result file. Return None if the task is retried."""
    if problem is None:
        return encode_result(result, name)
    if problem.state == states.RETRY:
        return None
    error = getattr(result, "exception", result)
    error = error.exc if isinstance(error, ExceptionWithTraceback) else error
    described = describe_error(error)
    if lines := str(getattr(result, "traceback", None) or ""):
        described["traceback"] = lines[-TRACEBACK_LIMIT:]
    return json.dumps({"error": described})
