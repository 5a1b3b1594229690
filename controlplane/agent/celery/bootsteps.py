"""What `protect` adds to the workers of an application. No signals: those of Celery are every application's."""

from __future__ import annotations

import atexit
import os
import uuid
from collections import deque
from collections.abc import Iterable
from typing import Any, cast

from celery import bootsteps
from celery.exceptions import ImproperlyConfigured
from celery.utils.log import get_logger
from celery.worker import state
from kombu.transport.virtual import QoS

from controlplane.agent.celery import deadline, keys, rabbitmq
from controlplane.agent.celery.description import exchanges_of, greeting
from controlplane.agent.celery.failures import context_of, store_failure
from controlplane.agent.celery.holdings import Holdings
from controlplane.agent.celery.link import Link
from controlplane.agent.celery.options import Options, Unset, options_of
from controlplane.agent.celery.own_queue import OwnQueue, is_prefork
from controlplane.agent.celery.remains import MARK
from controlplane.agent.celery.requests import (
    Protected,
    request_class,
)
from controlplane.agent.celery.restoring import Loss, Returned
from controlplane.agent.fence import read_uptime

log = get_logger(__name__)
PARTING = 10.0  # seconds that a worker waits at its end for the heart to say it
AUDIT = 10.0  # seconds
DONE = 10_000  # tags of finished tasks that are remembered, for an acknowledgement may be lost with a connection


class Protection(bootsteps.StartStopStep):
    """Of the worker: keys of its own, the heart, the fence in the children, the protected tasks."""

    label = "Protection"

    def __init__(self, worker: Any, **kwargs: Any) -> None:
        super().__init__(worker, **kwargs)
        self.worker, self.app = worker, worker.app
        try:
            self.options: Options = options_of(self.app)
        except ValueError as error:
            raise ImproperlyConfigured(str(error)) from None
        self.enabled = not self.options.is_off
        worker.protection = self if self.enabled else None
        self.instance = str(uuid.uuid4())
        self.done: deque[str] = deque(maxlen=DONE)
        self.open: set[str] = set()  # tags of the requests that are not settled
        self.errors: tuple[type[Exception], ...] = ()
        self._unsettled: list[str] = []
        self._orphans: set[str] = set()
        self._audit_at = read_uptime() + AUDIT
        self.received = 0
        self.consumes = True
        self._ending = "TERMINATED_FORCED"
        self._link: Link = None  # type: ignore[assignment]  # made once the application is known to be protected
        if not self.enabled:
            log.warning("Unprotected: CONTROLPLANE_URL is off")

    def create(self, worker: Any) -> None:
        self.kind: str = worker._conninfo.transport.driver_type
        conf = self.app.conf
        given = conf.broker_transport_options or {}
        self.connection = self.app.connection_for_read().clone()
        if self.kind == "redis":
            conf.broker_transport_options = {**given, **keys.transport_options(self.instance)}
        else:
            rabbitmq.configure(conf)
        self.jobs = OwnQueue(self) if self.options.jobs else None
        self.holdings = Holdings(self.connection, exchanges_of(self.app)) if self.kind == "redis" else None
        if self.holdings:
            self.errors = (*self.holdings.errors, *worker._conninfo.connection_errors)
        self.unprotected = self.protect_tasks()
        if self.unprotected:
            log.warning("Not protected, for they are acknowledged early (acks_late=False): %s", self.unprotected)
        os.environ[MARK] = self.instance
        self._fence_children(worker)
        self._link = Link(greeting(self, given.get("visibility_timeout")), self._held)
        self._note_what_is_given(worker)

    def start(self, worker: Any) -> None:
        self._link.keep()
        if worker.pool_cls.__module__ != "celery.concurrency.prefork":
            deadline.watch(self._link.deadline)  # our own process runs the code
        atexit.register(self._part)

    def close(self, worker: Any) -> None:
        self.consumes = False
        self.tell("stopping")

    def stop(self, worker: Any) -> None:
        self._end("TERMINATED_GRACEFULLY")

    def terminate(self, worker: Any) -> None:
        self._end("TERMINATED_FORCED")

    def info(self, worker: Any) -> Any:
        """For `celery inspect stats`."""
        return {"controlplane": {"instance": self.instance, "unprotected": self.unprotected}}

    # For the requests and the consumer's steps

    def tell(self, *line: Any) -> None:
        if line[0] == "+":
            self.received += 1
        self._link.tell(*line)

    def protect_tasks(self) -> list[str]:
        """Every task that did not say otherwise is acknowledged late; the names of those that did."""
        unprotected = []
        for name, task in sorted(self.app.tasks.items()):
            if isinstance(task.acks_late, Unset):
                task.acks_late = True
            task.Request = request_class(task.Request, self)
            if not task.acks_late:
                unprotected.append(name)
        return [name for name in unprotected if not name.startswith("celery.")]

    def give_back(self, message: Any, tag: str, reason: str, *, suspect: bool) -> Returned:
        """To its queue, or to the quarantine. The channel it came by counts it as settled."""
        loss = Loss(self.instance, reason, self.options.max_resubmissions)
        if self.holdings is None:
            return rabbitmq.give_back(self.app, message, loss)
        returned = self.holdings.give_back_one(self.instance, tag, loss, suspect=suspect)
        QoS.ack(message.channel.qos, tag)
        return returned

    def settled(self, tag: str) -> None:
        self.done.append(tag)
        self.open.discard(tag)

    def acknowledge_later(self, tag: str) -> None:
        """Acknowledge, soon, what could not be by the connection that it came by."""
        self._unsettled.append(tag)

    def audit(self, holdings: Holdings) -> None:
        """What we hold in the broker is what we have here; else it goes back. Twice seen, for the loop may be ahead."""
        while self._unsettled:
            holdings.acknowledge(self.instance, self._unsettled[-1])
            self._unsettled.pop()
        if read_uptime() < self._audit_at:
            return
        self._audit_at = read_uptime() + AUDIT
        held = set(holdings.tags(self.instance))
        orphans = held - self.open
        if confirmed := orphans & self._orphans:
            loss = Loss(self.instance, "nobody here knew of it", self.options.max_resubmissions)
            done = confirmed & set(self.done)
            outcomes = holdings.give_back_all(self.instance, loss, (), keep=held - confirmed, settled=done)
            log.warning("Given back, for nobody here knew of them: %s", {key.name: n for key, n in outcomes.items()})
        self._orphans = orphans - confirmed

    def fail(self, task: Any, id: str, context: Any, text: str, stores: bool = True) -> None:
        store_failure(task, id, context, text, stores)

    def tick(self, consumer: Any) -> None:
        """Twice a second, in the main loop."""
        self._link.keep()
        queues = [queue.name for queue in consumer.task_consumer.queues] if consumer.task_consumer else []
        # Who has nothing, or has room, is to receive something: a rate limit or a slow task is nobody's fault.
        room = bool(queues) and getattr(consumer.task_consumer.channel, "qos", None)
        takes = self.consumes and bool(queues) and (not state.requests or not room or room.can_consume())
        if self.jobs:
            self.jobs.ask_again()
        self.tell(".", {"received": self.received, "takes": bool(takes), "queues": queues})
        if self.holdings:
            try:
                self.audit(self.holdings)
            except self.errors as error:
                self.holdings.close()
                log.warning("Redis was not asked what is ours: %r", error)
        for order in self._link.orders():
            try:
                self._obey(order, consumer)
            except Exception:
                log.exception("Order of the heart not carried out: %r", order)

    # Inside

    def _obey(self, order: dict[str, Any], consumer: Any) -> None:
        match order["order"]:
            case "consume":
                self.consume(consumer, order["on"])
            case "shutdown":
                log.warning("Disconnected by the control plane: warm shutdown")
                cast(Any, state).should_stop = 0
            case "revoke":
                self.revoke(order["task"], consumer, order.get("signal", "TERM"))
            case "send" if self.jobs:
                self.jobs.send(order["job"])
            case "begin" if self.jobs:
                self.jobs.begin(order["task"])
            case "forget" if self.jobs:
                self.jobs.forget(order["task"])
            case "fail":
                headers, id = order["message"]["headers"], order["task"]
                task = self.app.tasks.get(headers.get("task")) or self.app.tasks["celery.backend_cleanup"]
                self.fail(task, id, context_of(order["message"]), order["text"])
                self.tell("reported", id)

    def revoke(self, task: str, consumer: Any, signal: str) -> None:
        """It does not begin; what runs is ended where the pool can do that (prefork)."""
        state.revoked.add(task)
        if self.jobs:
            self.jobs.begin(task)  # one that waits for its turn is dropped
        if request := state.requests.get(task):
            log.warning("Task %s was cancelled", task)
            try:
                request.terminate(consumer.pool, signal=signal)
            except NotImplementedError:
                log.warning("This pool cannot end what runs: %s goes on", task)

    def consume(self, consumer: Any, on: bool) -> None:
        """Stop taking messages, or go on; what is here already is done."""
        self.consumes = on
        cset = consumer.task_consumer
        log.warning("Cordoned: this worker takes nothing new" if not on else "Uncordoned")
        if on:
            cset.consume()
        else:
            cset.cancel()

    def _end(self, ending: str) -> None:
        """Said now, for a worker that restarts itself has no exit; meant once the process has gone."""
        self._ending = ending
        self.tell("bye", ending)

    def _held(self) -> Iterable[list[Any]]:
        if self.jobs:
            yield from self.jobs.lines()
        for request in list(state.requests.values()):
            if isinstance(request, Protected) and not request.acknowledged:
                yield request.line()
                if request.time_start:
                    yield [">", request.tag, request.worker_pid]

    def _note_what_is_given(self, worker: Any) -> None:
        """A child may die of a task before it could say that it accepted it: what it was given counts."""
        process, has_processes = worker._process_task, is_prefork(worker)

        def given(request: Any) -> None:
            if self.jobs and self.jobs.hold(request):
                return
            if has_processes and isinstance(request, Protected):
                request.is_given()
            process(request)

        if has_processes or self.jobs:
            worker._process_task = given  # looked up at each task: the pool's step wraps it in the semaphore
            if getattr(worker, "process_task", None) == process:
                worker.process_task = given

    def _fence_children(self, worker: Any) -> None:
        """The loader is this application's own: its hook runs first in each child of the pool."""
        loader = self.app.loader
        hook = loader.on_worker_process_init

        def begin() -> None:
            deadline.watch(self._link.deadline)
            hook()

        loader.on_worker_process_init = begin

    def _part(self) -> None:
        self._link.part(self._ending, PARTING)
