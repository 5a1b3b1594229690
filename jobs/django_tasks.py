"""A backend for Django's tasks (`django.tasks`; before Django 6.0 `django-tasks`): each task is a job.

    TASKS = {"default": {"BACKEND": "jobs.django_tasks.WorkerJobBackend", "QUEUES": ["default", "mail"],
                         "OPTIONS": {"max_retries": 3, "timeout_seconds": 600}}}

It is enqueued in the transaction of its caller, and run by agents that were started with `--django SETTINGS`.
Models are imported in functions only: tasks are defined while apps are still being loaded.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

import django
from django.core.checks import CheckMessage, Error
from django.core.exceptions import SuspiciousOperation
from django.utils import timezone
from django.utils.module_loading import import_string

from controlplane.agent.policy import DJANGO_HANDLER, queue_tag
from jobs.states import AttemptState, JobState

if TYPE_CHECKING or django.VERSION >= (6, 0):
    from django.tasks import TaskResult, TaskResultStatus
    from django.tasks.backends.base import BaseTaskBackend
    from django.tasks.base import Task, TaskError
    from django.tasks.exceptions import InvalidTask, TaskResultDoesNotExist
    from django.tasks.signals import task_enqueued
    from django.utils.json import normalize_json
else:
    from django_tasks import TaskResult, TaskResultStatus
    from django_tasks.backends.base import BaseTaskBackend
    from django_tasks.base import Task, TaskError
    from django_tasks.exceptions import InvalidTaskError as InvalidTask
    from django_tasks.exceptions import TaskResultDoesNotExist
    from django_tasks.signals import task_enqueued
    from django_tasks.utils import normalize_json

ACTION = {"type": "handler", "name": DJANGO_HANDLER}
OPTIONS = {
    *("max_retries", "retry_delay_seconds", "retry_backoff", "retry_on"),
    *("timeout_seconds", "on_worker_lost", "unmatched", "tags"),
}
"""Of a backend, and of one task: fields of a job."""
STATUS = {JobState.RUNNING: TaskResultStatus.RUNNING, JobState.COMPLETED: TaskResultStatus.SUCCESSFUL}


class WorkerLost(Exception):
    """Its worker was lost, or the attempt was taken from it: the task was run again, unless it had been enough."""


class TaskFailed(Exception):
    """It ended for another reason than an exception of its own, which the traceback says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerJobTask(Task):
    """A task that may have options of its own: `@task(options={"max_retries": 3})`, but for Django 6.0."""

    options: Mapping[str, Any] = field(default_factory=dict, hash=False)


class WorkerJobBackend(BaseTaskBackend):
    task_class = WorkerJobTask
    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def validate_task(self, task: Any) -> None:
        super().validate_task(task)
        if unknown := sorted(set(task.options) - OPTIONS):
            raise InvalidTask(f"Backend has no options {', '.join(unknown)}; those of a task: {sorted(OPTIONS)}.")

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        """Raises rest_framework's ValidationError for what no job may be."""
        from jobs.in_process import submit

        self.validate_task(task)
        payload = {
            "args": normalize_json(list(args)),
            "kwargs": normalize_json(kwargs),
            "task": task.module_path,
            "backend": self.alias,
            "queue": task.queue_name,
            "run_after": task.run_after and task.run_after.isoformat(),
        }
        id = submit(ACTION, payload, **self.job_fields(task))
        result: TaskResult = TaskResult(
            task=task, id=str(id), status=TaskResultStatus.READY, enqueued_at=timezone.now(), started_at=None,
            finished_at=None, last_attempted_at=None, backend=self.alias, errors=[], worker_ids=[],
            args=list(args), kwargs=kwargs,
        )  # fmt: skip
        task_enqueued.send(type(self), task_result=result)
        return result

    def job_fields(self, task: Any) -> dict[str, Any]:
        options = {"unmatched": "wait", **self.options, **task.options}
        fields = {**options, "tags": [queue_tag(task.queue_name), *options.get("tags", [])], "priority": task.priority}
        return fields if task.run_after is None else {**fields, "available_at": task.run_after}

    def get_result(self, result_id: str) -> Any:
        from jobs.models import WorkerJob

        try:
            job = WorkerJob.objects.get(pk=UUID(str(result_id)), action=ACTION, payload__backend=self.alias)
        except (ValueError, WorkerJob.DoesNotExist):
            raise TaskResultDoesNotExist(result_id) from None
        payload: dict[str, Any] = job.payload or {}
        run = list(job.attempts.filter(started_at__isnull=False).order_by("number"))
        result: TaskResult = TaskResult(
            task=self.find_task(job),
            id=str(job.pk),
            status=STATUS.get(
                JobState(job.state), TaskResultStatus.FAILED if job.finished_at else TaskResultStatus.READY
            ),
            enqueued_at=job.created_at,
            started_at=run[0].started_at if run else None,
            last_attempted_at=run[-1].started_at if run else None,
            finished_at=job.finished_at,
            args=payload["args"],
            kwargs=payload["kwargs"],
            backend=self.alias,
            errors=list(list_errors(job, run)),
            worker_ids=[str(attempt.server_id) for attempt in run],
        )
        object.__setattr__(result, "_return_value", job.output)
        return result

    def find_task(self, job: Any) -> Any:
        task = import_string(job.payload["task"])
        if not isinstance(task, Task):
            raise SuspiciousOperation(f"{job.payload['task']} is no task.")
        run_after = job.payload.get("run_after")
        return task.using(
            priority=job.priority,
            queue_name=job.payload["queue"],
            run_after=run_after and datetime.fromisoformat(run_after),
            backend=self.alias,
        )

    def check(self, **kwargs: Any) -> list[CheckMessage]:
        return list(self.list_problems())

    def list_problems(self) -> Iterator[CheckMessage]:
        from jobs.api.serializers.jobs import JobRequest

        setting, unknown = f'TASKS["{self.alias}"]', sorted(set(self.options) - OPTIONS)
        if unknown:
            yield Error(f'{setting}["OPTIONS"] has unknown {", ".join(unknown)}.', id="jobs.E007")
        known = {name: value for name, value in self.options.items() if name in OPTIONS}
        tags = [*map(queue_tag, sorted(self.queues)), *known.pop("tags", [])]
        request = JobRequest(data={"action": ACTION, "tags": tags, **known})
        if not request.is_valid():
            yield Error(f"{setting} asks for what no job may be: {dict(request.errors)}.", id="jobs.E008")


def list_errors(job: Any, attempts: Iterable[Any]) -> Iterator[Any]:
    """One for each attempt that ended without success, and one for what ended the task besides."""
    listed_errors = []
    for attempt in attempts:
        if attempt.finished_at is not None and attempt.state != AttemptState.COMPLETED:
            listed_errors.append(attempt.error)
            is_lost = attempt.state == AttemptState.RESUBMITTED
            yield build_error(
                attempt.error, WorkerLost if is_lost else TaskFailed, f"{attempt.state}: {attempt.reason}"
            )
    is_over = job.finished_at is not None and job.state != JobState.COMPLETED
    if is_over and (job.error not in listed_errors if job.error else not listed_errors):
        yield build_error(job.error, TaskFailed, f"The job is {job.state}.")


def build_error(error: Mapping[str, Any] | None, otherwise: type[Exception], why: str) -> Any:
    error = error or {}
    known = error.get("exception") or f"{otherwise.__module__}.{otherwise.__qualname__}"
    text = f"{error['code']}: {error.get('message', '')}" if "code" in error else why
    return TaskError(exception_class_path=known, traceback=error.get("traceback") or text)
