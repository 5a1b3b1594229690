"""Jobs that are tasks, in the worker's main process: sent to a queue that only this worker has, and held there until
the control plane has heard that their code begins."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from celery.exceptions import TaskRevokedError
from celery.utils.log import get_logger
from celery.worker import request as worker_request
from celery.worker import state
from kombu import Exchange, Queue

from controlplane.agent.celery import keys
from controlplane.agent.celery.job_trace import trace_job, trace_job_with_pulse
from controlplane.agent.folder import Folder

if TYPE_CHECKING:
    from controlplane.agent.celery.bootsteps import Protection

log = get_logger(__name__)
UNUSED_FOR = 86400.0  # seconds after which RabbitMQ deletes the queue of a worker that is gone


def is_prefork(worker: Any) -> bool:
    """Whether each task runs in a process that runs nothing else meanwhile."""
    return bool(worker.pool_cls.__module__ == "celery.concurrency.prefork")


class OwnQueue:
    """Of one worker. A job's message is a task's like any other; its id is that of the attempt.

    What the heart is to hear of a job is kept until it has been reported, for a heart may die.
    """

    def __init__(self, protection: Protection) -> None:
        self._protection = protection
        self.name = keys.own_queue(protection.instance)
        # By the default exchange, so that nothing is bound, and no binding stays behind.
        self.queue = Queue(self.name, Exchange(""), routing_key=self.name, durable=True, expires=UNUSED_FOR)
        self.folder = Folder()
        self._timeouts: dict[str, float | None] = {}  # of the jobs whose end was not reported yet
        self._waiting: dict[str, Any] = {}  # requests whose turn has come
        self._ends: dict[str, list[list[Any]]] = {}
        protection.app.amqp.queues[self.name] = self.queue  # a task that is retried finds it by its name

    def consume(self, consumer: Any) -> None:
        """At each connection. What waited for its turn comes again, if it is still ours.

        Celery's loop begins to consume all queues at once: a message that came sooner would meet nobody to take it.
        """
        self._waiting.clear()
        if not consumer.task_consumer.consuming_from(self.name):
            consumer.task_consumer.add_queue(self.queue)

    def has(self, request: Any) -> bool:
        return bool(request.delivery_info.get("routing_key") == self.name)

    def lines(self) -> Iterator[list[Any]]:
        """For a heart that begins: all jobs, and how those ended that nobody has reported."""
        for attempt, timeout in self._timeouts.items():
            yield ["job", attempt, timeout]
        for lines in self._ends.values():
            yield from lines

    def send(self, job: dict[str, Any]) -> None:
        """Into the queue; the heart hears why not."""
        attempt = job["attempt"]
        task = self._protection.app.tasks.get(job["task"])
        if task is None:
            log.warning("Job %s is of a task that is not here: %s", attempt, job["task"])
            return self._protection.tell("unsent", attempt, "", "not_allowed")
        self._timeouts[attempt] = job["timeout"]
        try:
            task.apply_async(
                job["args"], job["kwargs"], task_id=attempt, queue=self.queue, routing_key=self.name, retry=False,
                headers=job["headers"],
            )  # fmt: skip
        except (TypeError, ValueError) as error:  # of its arguments
            self._protection.tell("unsent", attempt, type(error).__name__, str(error)[:500])
        except Exception as error:
            log.warning("Job %s was not sent to its queue: %r", attempt, error)
            self._protection.tell("unsent", attempt, "", "not_sent")
        return None

    def hold(self, request: Any) -> bool:
        """Whether it waits for its turn to be heard; the place in the pool is its own meanwhile."""
        if not self.has(request):
            return False
        self._waiting[request.id] = request
        self._ask(request.id)
        return True

    def ask_again(self) -> None:
        """A line may have been dropped, or a heart may have begun."""
        for attempt in self._waiting:
            self._ask(attempt)

    def begin(self, attempt: str) -> None:
        """It is its turn; one that was revoked meanwhile is dropped."""
        if request := self._waiting.pop(attempt, None):
            self._run(request)

    def ended(self, request: Any, line: list[Any]) -> None:
        self._ends[request.id] = [request.line(), line]

    def forget(self, attempt: str) -> None:
        """The control plane knows how it ended."""
        self._timeouts.pop(attempt, None)
        self._ends.pop(attempt, None)
        state.revoked.add(attempt)  # a message that is still there is nobody's

    def _ask(self, attempt: str) -> None:
        self._protection.tell("?", attempt, self._timeouts.get(attempt))

    def _run(self, request: Any) -> None:
        worker = self._protection.worker
        request.is_given()
        try:
            self.folder.keep()  # who clears the temporary directory may have removed it
        except OSError as error:
            log.warning("What job %s returns cannot be kept: %r", request.id, error)
        try:
            # Not the one that Celery makes for each task, which knows its pool.
            pool: Any = _Keeping(worker.pool, self.folder.path / request.id, has_processes=is_prefork(worker))
            worker_request.Request.execute_using_pool(request, pool)
        except TaskRevokedError:
            if release := getattr(worker, "_quick_release", None):
                release()


class _Keeping:
    """A pool whose processes keep what a job returns."""

    def __init__(self, pool: Any, path: Path, *, has_processes: bool) -> None:
        self._pool, self._path = pool, str(path)
        self._trace = trace_job_with_pulse if has_processes else trace_job

    def apply_async(self, trace: Any, args: tuple[Any, ...], **options: Any) -> Any:
        return self._pool.apply_async(self._trace, args=(self._path, *args), **options)
