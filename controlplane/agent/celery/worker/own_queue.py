"""Queue that only this worker consumes. Its messages are claimed jobs that run as Celery tasks.

The worker sends a job to this queue, receives it, and holds it until the control plane has accepted STARTED.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from celery.exceptions import TaskRevokedError
from celery.utils.log import get_logger
from celery.worker import request as worker_request
from celery.worker import state
from kombu import Exchange, Queue

from controlplane.agent.celery.broker import keys
from controlplane.agent.celery.messages import FromWorker, JobKnown, JobNotSent, JobWaiting, SendJob, TaskEnded
from controlplane.agent.celery.worker.context import WorkerContext, is_prefork
from controlplane.agent.celery.worker.early_acknowledgement import EarlyAcknowledgement
from controlplane.agent.celery.worker.job_trace import trace_job, trace_job_with_pulse
from controlplane.agent.processes.folder import Folder

log = get_logger(__name__)
UNUSED_FOR = 86400.0  # seconds after which RabbitMQ deletes the queue of a worker that has ended


class OwnQueue:
    """The jobs of one worker. The id of a job's task is the id of the attempt.

    Messages for the heart are kept until the end of the job is reported, because a heart may end and start again.
    """

    def __init__(self, context: WorkerContext, early: EarlyAcknowledgement | None) -> None:
        self._context, self._early = context, early
        self.name = keys.own_queue(context.instance)
        # The default exchange needs no binding, so none is left when the worker has ended.
        self.queue = Queue(self.name, Exchange(""), routing_key=self.name, durable=True, expires=UNUSED_FOR)
        self.folder = Folder()
        self._timeouts: dict[str, float | None] = {}  # messages about jobs whose end is not reported yet
        self._waiting: dict[str, Any] = {}  # requests that wait for the control plane to accept STARTED
        self._ends: dict[str, list[FromWorker]] = {}
        context.app.amqp.queues[self.name] = self.queue  # a task that is retried finds this queue by its name

    def consume(self, consumer: Any) -> None:
        """Consume the queue on a new connection. The broker delivers the waiting jobs again.

        Celery's loop begins to consume all queues at once, so no message arrives before the consumer is ready.
        """
        self._waiting.clear()
        if not consumer.task_consumer.consuming_from(self.name):
            consumer.task_consumer.add_queue(self.queue)

    def has(self, request: Any) -> bool:
        return bool(request.delivery_info.get("routing_key") == self.name)

    def list_messages(self) -> Iterator[FromWorker]:
        """Yield the messages for a new heart: all jobs, and the ends that are not reported yet."""
        for attempt, timeout in list(self._timeouts.items()):
            yield JobKnown(attempt, timeout)
        for ends in list(self._ends.values()):
            yield from ends

    def send(self, job: SendJob) -> None:
        """Send a job to the queue. If that fails, send the reason to the heart."""
        task = self._context.app.tasks.get(job.task)
        if task is None:
            log.warning("Job %s is not sent, because this application has no task %s", job.attempt, job.task)
            return self._context.send(JobNotSent(job.attempt, "", "not_allowed"))
        self._timeouts[job.attempt] = job.timeout
        try:
            task.apply_async(
                job.args, job.kwargs, task_id=job.attempt, queue=self.queue, routing_key=self.name, retry=False,
                headers=job.headers,
            )  # fmt: skip
        except (TypeError, ValueError) as error:  # the task does not accept the arguments
            self._context.send(JobNotSent(job.attempt, type(error).__name__, str(error)[:500]))
        except Exception as error:
            log.warning("Job %s was not sent to its queue: %r", job.attempt, error)
            self._context.send(JobNotSent(job.attempt, "", "not_sent"))
        return None

    def hold(self, request: Any) -> bool:
        """Hold a job until it may begin; it keeps its place in the pool. Return False if the request is not a job."""
        if not self.has(request):
            return False
        self._waiting[request.id] = request
        self._ask(request.id)
        return True

    def ask_again(self) -> None:
        """Ask for all waiting jobs again, because a message may have been dropped, and a new heart knows nothing."""
        for attempt in self._waiting:
            self._ask(attempt)

    def begin(self, attempt: str) -> None:
        """Run a waiting job. Celery drops it if it is revoked."""
        if request := self._waiting.pop(attempt, None):
            self._run(request)

    def record_end(self, request: Any, end: TaskEnded) -> None:
        self._ends[request.id] = [request.held, end]

    def forget(self, attempt: str) -> None:
        """Forget a job, because the control plane knows its end."""
        self._timeouts.pop(attempt, None)
        self._ends.pop(attempt, None)
        state.revoked.add(attempt)  # so that Celery drops a message that is still in the queue

    def _ask(self, attempt: str) -> None:
        self._context.send(JobWaiting(attempt, self._timeouts.get(attempt)))

    def _run(self, request: Any) -> None:
        worker = self._context.worker
        if self._early:
            self._early.before_begin(request)
        request.record_given()
        if not is_prefork(worker):
            self._context.in_pool.add(request)
        try:
            self.folder.keep()  # a cleaner of the temporary directory may have removed the folder
        except OSError as error:
            log.warning("The result of job %s cannot be kept: %r", request.id, error)
        try:
            # The request's own method is not used, because Celery makes it for each task with its pool.
            pool: Any = ResultKeepingPool(worker.pool, self.folder.path / request.id, has_processes=is_prefork(worker))
            worker_request.Request.execute_using_pool(request, pool)
        except TaskRevokedError:
            if release := getattr(worker, "_quick_release", None):
                release()


class ResultKeepingPool:
    """Pool whose processes write the result of a job to a file."""

    def __init__(self, pool: Any, path: Path, *, has_processes: bool) -> None:
        self._pool, self._path = pool, str(path)
        self._trace = trace_job_with_pulse if has_processes else trace_job

    def apply_async(self, trace: Any, args: tuple[Any, ...], **options: Any) -> Any:
        return self._pool.apply_async(self._trace, args=(self._path, *args), **options)
