"""Backend for Django's tasks (`django.tasks`; before Django 6.0 `django-tasks`): each task is a job.

    TASKS = {"default": {"BACKEND": "jobs.django_tasks.WorkerJobBackend", "QUEUES": ["default", "mail"],
                         "OPTIONS": {"max_retries": 3, "timeout_seconds": 600}}}

A task is enqueued in the caller's transaction. Agents with the option `--django SETTINGS` run it. Models are imported
only in functions, because tasks are defined while Django still loads the apps.
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

from controlplane.agent.runners.policy import DJANGO_HANDLER, queue_tag
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
TEMPLATES_KEPT = 1000
"""Tasks whose validated options are kept. Each `using(…)` makes a new task."""
NAME_LENGTH = 200
"""Characters of a job's name. Only the end of a longer path is kept, because it identifies the task."""
OPTIONS = {
    *("max_retries", "retry_delay_seconds", "retry_backoff", "retry_on"),
    *("timeout_seconds", "on_worker_lost", "unmatched", "tags", "unique", "isolation", "limits", "worker_slots"),
}
"""Options of a backend and of a task. They are fields of a job."""
STATUS = {JobState.RUNNING: TaskResultStatus.RUNNING, JobState.COMPLETED: TaskResultStatus.SUCCESSFUL}


class WorkerLost(Exception):
    """The worker of an attempt was lost, or the attempt was taken from it. The task runs again up to its limit."""


class TaskFailed(Exception):
    """The task failed without an exception of its own. The traceback contains the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerJobTask(Task):
    """Task that may have its own options: `@task(options={"max_retries": 3})`. Django 6.0 does not support them."""

    options: Mapping[str, Any] = field(default_factory=dict, hash=False)


class WorkerJobBackend(BaseTaskBackend):
    task_class = WorkerJobTask
    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        super().__init__(alias, params)
        self._templates: dict[int, tuple[Any, Any]] = {}

    def validate_task(self, task: Any) -> None:
        super().validate_task(task)
        if unknown := sorted(set(task.options) - OPTIONS):
            raise InvalidTask(f"The task has unknown options {', '.join(unknown)}; use {', '.join(sorted(OPTIONS))}.")

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        """Submit the task as a job. Raise rest_framework's ValidationError if the job would be invalid."""
        [result] = self.enqueue_many([(task, args, kwargs)])
        return result

    def enqueue_many(self, calls: Iterable[tuple[Any, Iterable[Any], dict[str, Any]]]) -> list[Any]:
        """Submit all of these tasks or none, each with its args and kwargs, in one statement. Return their results."""
        from jobs.task_templates import enqueue_jobs

        now, jobs = timezone.now(), []
        given = [(task, list(args), kwargs) for task, args, kwargs in calls]
        for task, args, kwargs in given:
            template = self.find_template(task)
            payload = {
                "args": normalize_json(args),
                "kwargs": normalize_json(kwargs),
                "task": task.module_path,
                "backend": self.alias,
                "queue": task.queue_name,
                "run_after": task.run_after and task.run_after.isoformat(),
                "priority": task.priority,
                "enqueued_at": now.isoformat(),
            }
            jobs.append((template, payload))
        results = []
        for (task, args, kwargs), id in zip(given, enqueue_jobs(jobs), strict=True):
            result: TaskResult = TaskResult(
                task=task, id=str(id), status=TaskResultStatus.READY, enqueued_at=now, started_at=None,
                finished_at=None, last_attempted_at=None, backend=self.alias, errors=[], worker_ids=[],
                args=args, kwargs=kwargs,
            )  # fmt: skip
            task_enqueued.send(type(self), task_result=result)
            results.append(result)
        return results

    def find_template(self, task: Any) -> Any:
        """Return the job of a task without its payload. It is validated once for each task."""
        from jobs.task_templates import JobTemplate

        template = self._templates.get(id(task))
        if template is None or template[0] is not task:
            self.validate_task(task)
            fields = {"action": ACTION, "name": task.module_path[-NAME_LENGTH:], **self.job_fields(task)}
            if len(self._templates) >= TEMPLATES_KEPT:
                self._templates.clear()
            # The task is kept with its template, so that no other task gets its id.
            template = self._templates[id(task)] = task, JobTemplate.build(fields)
        return template[1]

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
            task=self.find_task(payload, job.priority),
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

    def build_running_result(self, payload: Mapping[str, Any], job: str, server: str) -> Any:
        """Return the result of a task in its first attempt, without a query."""
        now = timezone.now()
        result: TaskResult = TaskResult(
            task=self.find_task(payload, payload["priority"]), id=job, status=TaskResultStatus.RUNNING,
            enqueued_at=datetime.fromisoformat(payload["enqueued_at"]), started_at=now, last_attempted_at=now,
            finished_at=None, args=payload["args"], kwargs=payload["kwargs"], backend=self.alias, errors=[],
            worker_ids=[server],
        )  # fmt: skip
        return result

    def find_task(self, payload: Mapping[str, Any], priority: int) -> Any:
        task = import_string(payload["task"])
        if not isinstance(task, Task):
            raise SuspiciousOperation(f"{payload['task']} is not a task.")
        run_after = payload.get("run_after")
        wanted = {
            "priority": priority, "queue_name": payload["queue"], "backend": self.alias,
            "run_after": run_after and datetime.fromisoformat(run_after),
        }  # fmt: skip
        if all(getattr(task, name) == value for name, value in wanted.items()):
            return task
        return task.using(**wanted)

    def check(self, **kwargs: Any) -> list[CheckMessage]:
        return list(self.list_problems())

    def list_problems(self) -> Iterator[CheckMessage]:
        from jobs.api.serializers.jobs import JobRequest

        setting, unknown = f'TASKS["{self.alias}"]', sorted(set(self.options) - OPTIONS)
        if unknown:
            known_options = ", ".join(sorted(OPTIONS))
            yield Error(
                f'{setting}["OPTIONS"] has unknown keys {", ".join(unknown)}; use {known_options}.', id="jobs.E007"
            )
        known = {name: value for name, value in self.options.items() if name in OPTIONS}
        tags = [*map(queue_tag, sorted(self.queues)), *known.pop("tags", [])]
        request = JobRequest(data={"action": ACTION, "tags": tags, **known})
        if not request.is_valid():
            yield Error(f"{setting} has options that no job may have: {dict(request.errors)}.", id="jobs.E008")


def list_errors(job: Any, attempts: Iterable[Any]) -> Iterator[Any]:
    """Yield an error for each failed attempt, and one for the job if it failed for another reason."""
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
