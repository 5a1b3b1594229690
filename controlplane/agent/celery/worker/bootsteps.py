"""Boot step that protects a worker. It uses none of Celery's signals, because these apply to every application."""

from __future__ import annotations

import atexit
import os
import uuid
from collections.abc import Iterable
from itertools import chain
from typing import Any

from celery import bootsteps
from celery.exceptions import ImproperlyConfigured
from celery.utils.log import get_logger
from celery.worker import state

from controlplane.agent.celery import deadline
from controlplane.agent.celery.broker import keys, rabbitmq
from controlplane.agent.celery.broker.access import explain
from controlplane.agent.celery.broker.unacked import UnackedMessages
from controlplane.agent.celery.messages import (
    FromWorker,
    LoopProgress,
    TaskHeld,
    WorkerEnding,
    WorkerStopping,
)
from controlplane.agent.celery.options import INSTANCE_VARIABLE, Unset, options_of
from controlplane.agent.celery.worker.containment import contain
from controlplane.agent.celery.worker.context import WorkerContext, is_prefork
from controlplane.agent.celery.worker.dead_requests import count_dead
from controlplane.agent.celery.worker.description import exchanges_of, greeting_of
from controlplane.agent.celery.worker.early_acknowledgement import EarlyAcknowledgement
from controlplane.agent.celery.worker.heart_pipe import HeartPipe
from controlplane.agent.celery.worker.moving import MessageMover
from controlplane.agent.celery.worker.orders import Orders
from controlplane.agent.celery.worker.own_broker import check_broker
from controlplane.agent.celery.worker.own_queue import OwnQueue
from controlplane.agent.celery.worker.proof_of_end import ProofOfEnd
from controlplane.agent.celery.worker.requests import Protected, request_class
from controlplane.agent.celery.worker.settlement import Settlement
from controlplane.agent.celery.worker.task_list import list_tasks

log = get_logger(__name__)
END_WITHIN = 10.0  # seconds that an ending worker waits for its heart


class Protection(bootsteps.StartStopStep):
    """Boot step that gives a worker its own keys, its heart, the fence in its child processes, and protected tasks."""

    label = "Protection"

    def __init__(self, worker: Any, **kwargs: Any) -> None:
        super().__init__(worker, **kwargs)
        try:
            self.options = options_of(worker.app)
        except ValueError as error:
            raise ImproperlyConfigured(str(error)) from None
        self.enabled = not self.options.is_off
        worker.protection = self if self.enabled else None
        self.context: WorkerContext = None  # type: ignore[assignment]  # set by `create`, before any use
        self._pipe: HeartPipe = None  # type: ignore[assignment]  # set by `create`, before any use
        self.mover: MessageMover | None = None  # belongs to the latest connection
        self._received = 0
        self._logged_error = ""  # the last logged reason why Redis could not be asked
        self._ending = "TERMINATED_FORCED"
        self._has_crashed = False  # the main process failed, perhaps because of a running task
        if not self.enabled:
            log.warning("This worker is not protected, because CONTROLPLANE_URL is off")

    def create(self, worker: Any) -> None:
        conf, app = worker.app.conf, worker.app
        kind: str = worker._conninfo.transport.driver_type
        try:
            check_broker(app, kind)
        except ValueError as error:
            raise ImproperlyConfigured(str(error)) from None
        given = conf.broker_transport_options or {}
        connection = app.connection_for_read().clone()
        self.context = context = WorkerContext(worker, self.options, str(uuid.uuid4()), kind, connection, self.send)
        if kind == "redis":
            conf.broker_transport_options = {**given, **keys.transport_options(context.instance)}
            context.unacked = UnackedMessages(connection, exchanges_of(app))
            context.errors = (*context.unacked.errors, *worker._conninfo.connection_errors)
            self._check_access(context.unacked)
        else:
            rabbitmq.configure(conf)
        self.early = EarlyAcknowledgement(context) if kind == "amqp" else None
        self.settlement = Settlement(context, self.early)
        self.jobs = OwnQueue(context, self.early) if self.options.jobs else None
        self.orders = Orders(context, self.early, self.jobs)
        self.unprotected = self.protect_tasks()
        if self.unprotected:
            log.warning("Tasks without protection, because they set acks_late=False: %s", self.unprotected)
        os.environ[INSTANCE_VARIABLE] = context.instance
        self._fence_children(worker)
        folder = str(self.jobs.folder.path) if self.jobs else None
        proofs = ProofOfEnd.begin(self.options, context.instance)
        greeting = greeting_of(context, given.get("visibility_timeout"), folder, self.unprotected, proofs)
        self._pipe = HeartPipe(greeting, self._list_held)
        self._wrap_process_task(worker)

    def start(self, worker: Any) -> None:
        self._pipe.keep_running()
        if not is_prefork(worker):
            deadline.watch(self._pipe.deadline)  # this process runs the code
            contain(worker.pool)
        atexit.register(self._end_pipe)

    def close(self, worker: Any) -> None:
        self.context.consumes = False
        is_asked = state.should_stop is not None or state.should_terminate is not None
        self._has_crashed = not is_asked and worker.exitcode not in (None, 0)
        if not self._has_crashed:
            self._pipe.report_end(WorkerStopping())
        self._pipe.keep_running_until_end()

    def stop(self, worker: Any) -> None:
        self._end("TERMINATED_GRACEFULLY")

    def terminate(self, worker: Any) -> None:
        self._end("TERMINATED_FORCED")

    def info(self, worker: Any) -> Any:
        """Return the entries for `celery inspect stats`."""
        return {"controlplane": {"instance": self.context.instance, "unprotected": self.unprotected}}

    # Used by the steps of the consumer

    def send(self, message: FromWorker) -> None:
        """Send a message to the heart, without waiting."""
        if isinstance(message, TaskHeld):
            self._received += 1
        self._pipe.send(message)

    def protect_tasks(self) -> list[str]:
        """Acknowledge tasks late, except those that set acks_late=False. Return their names."""
        unprotected = []
        for name, task in sorted(self.context.app.tasks.items()):
            if isinstance(task.acks_late, Unset):
                task.acks_late = True
            task.Request = request_class(task.Request, self.context, self.settlement, self.jobs)
            if not task.acks_late:
                unprotected.append(name)
        return [name for name in unprotected if not name.startswith("celery.")]

    def tick(self, consumer: Any) -> None:
        """Do the periodic work of the main loop, twice a second."""
        context = self.context
        self._pipe.keep_running()
        queues = [queue.name for queue in consumer.task_consumer.queues] if consumer.task_consumer else []
        dead = count_dead(consumer) if self._is_full(consumer) else None
        takes = context.consumes and bool(queues) and dead != 0
        if self.early:
            self.early.tick(consumer)
        if self.jobs:
            self.jobs.ask_again()
        self.send(LoopProgress(self._received, takes, queues, dead))
        if context.unacked:
            self._look_at_redis(context.unacked)
        for order in self._pipe.read_orders():
            try:
                self.orders.obey(order, consumer)
            except Exception:
                log.exception("An order of the heart failed: %r", order)

    # Inside

    def _look_at_redis(self, unacked: UnackedMessages) -> None:
        try:
            if self.mover:
                self.mover.tick()
            self.settlement.audit(unacked, is_moving=self.mover is not None and self.mover.expects())
        except self.context.errors as error:
            unacked.close()
            if self._logged_error != (reason := explain(error)):
                log.warning("Redis cannot be asked for the messages of this worker: %s", reason)
            self._logged_error = reason
        else:
            self._logged_error = ""

    def _is_full(self, consumer: Any) -> bool:
        """Return True if the worker receives no more messages until one of its requests is settled."""
        if not state.requests or not consumer.task_consumer:
            return False
        if qos := getattr(consumer.task_consumer.channel, "qos", None):
            return not qos.can_consume()
        limit = consumer.qos.value if consumer.qos else 0
        if not self.early or not limit:
            return False
        return self.early.prefetch.is_paused or self.early.count_unacknowledged() >= limit

    def _check_access(self, unacked: UnackedMessages) -> None:
        try:
            unacked.check_access(self.context.instance)
        except PermissionError as error:
            raise ImproperlyConfigured(str(error)) from None
        except self.context.errors as error:
            log.warning("The access rules of Redis were not checked: %r", error)  # a worker may start without Redis
        finally:
            unacked.close()

    def _end(self, ending: str) -> None:
        """Send the final state to the heart now, because a worker that restarts itself never exits.

        The heart reports it later.
        """
        self._ending = "ERROR" if self._has_crashed else ending
        self._pipe.report_end(WorkerEnding(self._ending))

    def _list_held(self) -> Iterable[FromWorker]:
        return chain(self.jobs.list_messages() if self.jobs else (), list_tasks(self.context.ends))

    def _wrap_process_task(self, worker: Any) -> None:
        """Record each request that is passed to the pool.

        A child may die before it reports that it accepted a request, and a pool without processes has a queue.
        """
        process, has_processes = worker._process_task, is_prefork(worker)

        def process_task(request: Any) -> None:
            if self.jobs and self.jobs.hold(request):
                return
            if self.early and isinstance(request, Protected):
                self.early.before_begin(request)
            if has_processes and isinstance(request, Protected):
                request.record_given()
            elif isinstance(request, Protected):
                self.context.in_pool.add(request)
            process(request)

        # Looked up for each task, because the pool's step wraps it in the semaphore.
        worker._process_task = process_task
        if getattr(worker, "process_task", None) == process:
            worker.process_task = process_task

    def _fence_children(self, worker: Any) -> None:
        """Make each child of the pool watch the deadline. The hook of the application's own loader runs first."""
        loader = worker.app.loader
        hook = loader.on_worker_process_init

        def begin() -> None:
            deadline.watch(self._pipe.deadline)
            hook()

        loader.on_worker_process_init = begin

    def _end_pipe(self) -> None:
        self._pipe.end(self._ending, END_WITHIN)
