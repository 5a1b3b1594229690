"""Runs a task that is a job, in a process of the pool: what it returns is kept, where Celery hands on its repr."""

from __future__ import annotations

import json
import os
from types import SimpleNamespace
from typing import Any

from billiard.einfo import ExceptionWithTraceback  # type: ignore[attr-defined]
from celery import states
from celery.app import trace

from controlplane.agent.callable_child import describe_error, encode_result
from controlplane.agent.celery.claim import pulse_of
from controlplane.agent.outcomes import TRACEBACK_LIMIT
from controlplane.agent.pulse import pulse_into


def trace_job_with_pulse(path: str, name: str, *message: Any, **options: Any) -> Any:
    """The same in a process that runs nothing else, which gives signs of life in a file beside it."""
    with pulse_into(pulse_of(path)):
        return trace_job(path, name, *message, **options)


def trace_job(path: str, name: str, *message: Any, **options: Any) -> Any:
    """As Celery's own, and the result in the file `path`: `{"output": …}` or `{"error": …}`, before it is answered."""
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
    """None: its next try is on its way."""
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
