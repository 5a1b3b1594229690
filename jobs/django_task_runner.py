"""Run Django's tasks in an agent.

The import sets Django up, once for each pool process. Without a pool the agent forks each task from a process that has
already imported this module.
"""

from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import django
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
    """Run the task of this process's attempt and return its result."""
    backend: Any = task_backends[payload["backend"]]
    # The claim has all the data for the first attempt. Later attempts need the errors of earlier attempts.
    if context.attempt == 1 and context.server and "enqueued_at" in payload:
        result = backend.build_running_result(payload, str(context.job), context.server)
    else:
        result = backend.get_result(str(context.job))
    task_started.send(type(backend), task_result=result)
    first: list[Any] = [TaskContext(task_result=result)] if result.task.takes_context else []
    try:
        value = normalize_json(result.task.call(*first, *result.args, **result.kwargs))
    except BaseException as error:
        result.errors.append(build_error({"exception": exception_path(error)}, TaskFailed, repr(error)))
        send_finished(backend, result, TaskResultStatus.FAILED, None)
        raise
    send_finished(backend, result, TaskResultStatus.SUCCESSFUL, value)
    return value


def send_finished(backend: Any, result: Any, status: Any, value: Any) -> None:
    for name, content in (("status", status), ("finished_at", timezone.now()), ("_return_value", value)):
        object.__setattr__(result, name, content)
    task_finished.send(type(backend), task_result=result)
