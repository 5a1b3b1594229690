"""Run Django's tasks in an agent.

The import sets Django up, once for each pool process. Without a pool the agent forks each task from a process that has
already imported this module.
"""

from collections.abc import Mapping
from contextlib import suppress
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any

import django
from asgiref.sync import sync_to_async
from django.apps import apps
from django.utils import timezone

from controlplane.agent.from_code.job_context import context
from controlplane.agent.from_code.outcomes import exception_path
from jobs.django_tasks import TaskFailed, build_error

if TYPE_CHECKING or django.VERSION >= (6, 0):
    from django.tasks import TaskContext, TaskResultStatus, task_backends
    from django.tasks.signals import task_finished, task_started
    from django.utils.json import normalize_json
else:
    from django_tasks import TaskContext, TaskResultStatus, task_backends
    from django_tasks.signals import task_finished, task_started
    from django_tasks.utils import normalize_json

if not apps.ready:
    django.setup()
with suppress(ImportError):
    import psycopg_pool  # noqa: F401  # imported here, because otherwise each task imports it with its first query


def run(payload: Mapping[str, Any]) -> Any:
    """Run the task of the current attempt and return its result."""
    backend, result = find_result(payload)
    task_started.send(type(backend), task_result=result)
    try:
        value = normalize_json(result.task.call(*arguments_of(result), **result.kwargs))
    except BaseException as error:
        send_failed(backend, result, error)
        raise
    send_finished(backend, result, TaskResultStatus.SUCCESSFUL, value)
    return value


async def run_in_event_loop(payload: Mapping[str, Any]) -> Any:
    """Run the task as `run` does. A coroutine runs in the current event loop, all other code in a thread."""
    backend, result = await sync_to_async(find_result)(payload)
    await sync_to_async(task_started.send)(type(backend), task_result=result)
    call = result.task.func if iscoroutinefunction(result.task.func) else sync_to_async(result.task.func)
    try:
        value = normalize_json(await call(*arguments_of(result), **result.kwargs))
    except BaseException as error:
        await sync_to_async(send_failed)(backend, result, error)
        raise
    await sync_to_async(send_finished)(backend, result, TaskResultStatus.SUCCESSFUL, value)
    return value


run.in_event_loop = run_in_event_loop  # type: ignore[attr-defined]  # for agents with `--async`


def find_result(payload: Mapping[str, Any]) -> tuple[Any, Any]:
    """Return the backend, and the running result of the current attempt."""
    backend: Any = task_backends[payload["backend"]]
    # The claim has all the data for the first attempt. Later attempts need the errors of earlier attempts.
    if context.attempt == 1 and context.server and "enqueued_at" in payload:
        return backend, backend.build_running_result(payload, str(context.job), context.server)
    return backend, backend.get_result(str(context.job))


def arguments_of(result: Any) -> list[Any]:
    return [*([TaskContext(task_result=result)] if result.task.takes_context else []), *result.args]


def send_failed(backend: Any, result: Any, error: BaseException) -> None:
    result.errors.append(build_error({"exception": exception_path(error)}, TaskFailed, repr(error)))
    send_finished(backend, result, TaskResultStatus.FAILED, None)


def send_finished(backend: Any, result: Any, status: Any, value: Any) -> None:
    for name, content in (("status", status), ("finished_at", timezone.now()), ("_return_value", value)):
        object.__setattr__(result, name, content)
    task_finished.send(type(backend), task_result=result)
