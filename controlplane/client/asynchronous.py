"""Client, and a client for asyncio that makes its calls in a thread pool of its own."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from controlplane.client.backfills import BackfillCalls
from controlplane.client.limits import LimitCalls
from controlplane.client.notifications import NotificationCalls
from controlplane.client.session import STOP

P = ParamSpec("P")
T = TypeVar("T")
END: Any = object()


class Client(LimitCalls, NotificationCalls, BackfillCalls):
    """Client of one control plane. It may be shared between threads.

    `url` and the token come from the arguments, the file, or CONTROLPLANE_URL and CONTROLPLANE_TOKEN. `timeout` limits
    one request, in seconds. A call without a usable response is tried again for `retry_for` seconds. `long_poll` is the
    longest time in seconds that the control plane holds back the response to a waiting call. Invalid arguments raise
    ValueError. Calls raise Refused, Unreachable and StillRunning, which are subclasses of ControlPlaneError.
    """

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def in_thread(
    call: Callable[Concatenate[Any, P], T],
) -> Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, T]]:
    @wraps(call)
    async def run(self: AsyncClient, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self.run(lambda: call(self.client, *args, **kwargs))

    return run


def iterated(
    call: Callable[Concatenate[Any, P], Iterator[T]],
) -> Callable[Concatenate[AsyncClient, P], AsyncIterator[T]]:
    @wraps(call)
    async def iterate(self: AsyncClient, *args: P.args, **kwargs: P.kwargs) -> AsyncIterator[T]:
        items = call(self.client, *args, **kwargs)
        while (item := await self.run(lambda: next(items, END))) is not END:
            yield item

    return iterate


class AsyncClient:
    """Client for asyncio, with the same arguments.

    At most `threads` calls run at once, including calls that wait. So wait for many jobs with a single call of
    `as_ended`. The thread of a cancelled call ends within `long_poll` seconds.
    """

    def __init__(self, url: str | None = None, token: str | None = None, *, threads: int = 32, **options: Any) -> None:
        self.client = Client(url, token, **{"long_poll": 10.0, "connections": threads, **options})
        self._threads = ThreadPoolExecutor(threads, "controlplane-client")

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
        self.client.close()

    async def run(self, call: Callable[[], T]) -> T:
        """Run `call` in a thread and return its result.

        If this coroutine is cancelled, the call stops at its next request.
        """
        context, stop = contextvars.copy_context(), threading.Event()
        context.run(STOP.set, stop)
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, context.run, call)
        except asyncio.CancelledError:
            stop.set()
            raise

    call = in_thread(Client.call)
    submit = in_thread(Client.submit)
    submit_many = in_thread(Client.submit_many)
    job = in_thread(Client.job)
    jobs = iterated(Client.jobs)
    wait = in_thread(Client.wait)
    wait_any = in_thread(Client.wait_any)
    as_ended = iterated(Client.as_ended)
    cancel = in_thread(Client.cancel)
    change = in_thread(Client.change)
    resubmit = in_thread(Client.resubmit)
    fail = in_thread(Client.fail)
    placement = in_thread(Client.placement)
    logs = iterated(Client.logs)
    submit_execution = in_thread(Client.submit_execution)
    add_steps = in_thread(Client.add_steps)
    seal_execution = in_thread(Client.seal_execution)
    send_signal = in_thread(Client.send_signal)
    answer_step = in_thread(Client.answer_step)
    execution = in_thread(Client.execution)
    executions = iterated(Client.executions)
    wait_execution = in_thread(Client.wait_execution)
    cancel_execution = in_thread(Client.cancel_execution)
    rerun_execution = in_thread(Client.rerun_execution)
    restart_execution = in_thread(Client.restart_execution)
    execution_events = iterated(Client.execution_events)
    job_events = iterated(Client.job_events)
    step_logs = iterated(Client.step_logs)
    triggers = iterated(Client.triggers)
    trigger = in_thread(Client.trigger)
    evaluate = in_thread(Client.evaluate)
    backfill = in_thread(Client.backfill)
    read_backfill = in_thread(Client.read_backfill)
    stop_backfill = in_thread(Client.stop_backfill)
    set_limit = in_thread(Client.set_limit)
    limits = iterated(Client.limits)
    limit = in_thread(Client.limit)
    delete_limit = in_thread(Client.delete_limit)
    servers = iterated(Client.servers)
    server = in_thread(Client.server)
    server_events = iterated(Client.server_events)
    events = iterated(Client.events)
    queues = iterated(Client.queues)
    cordon = in_thread(Client.cordon)
    uncordon = in_thread(Client.uncordon)
    drain = in_thread(Client.drain)
    undrain = in_thread(Client.undrain)
    disconnect = in_thread(Client.disconnect)
    begin_batch = in_thread(Client.begin_batch)
    batches = iterated(Client.batches)
    batch = in_thread(Client.batch)
    batch_items = iterated(Client.batch_items)
    wait_batch = in_thread(Client.wait_batch)
    stop_batch = in_thread(Client.stop_batch)
    notification_secret = in_thread(Client.notification_secret)
    notifications = iterated(Client.notifications)
    send_again = in_thread(Client.send_again)
    hold = in_thread(Client.hold)
    holds = iterated(Client.holds)
    release_hold = in_thread(Client.release_hold)
    instance = in_thread(Client.instance)
    enter_maintenance = in_thread(Client.enter_maintenance)
    exit_maintenance = in_thread(Client.exit_maintenance)
    release_brake = in_thread(Client.release_brake)
