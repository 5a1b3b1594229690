"""Build the greeting: the description of a worker that its heart receives first."""

from __future__ import annotations

import os
import platform
import socket
from importlib.metadata import version
from typing import Any

from kombu.utils.url import maybe_sanitize_url

from controlplane.agent.celery.broker import keys, rabbitmq
from controlplane.agent.celery.messages import Greeting
from controlplane.agent.celery.worker.context import WorkerContext
from controlplane.agent.celery.worker.proof_of_end import ProofOfEnd
from controlplane.agent.version import VERSION


def exchanges_of(app: Any) -> dict[str, str]:
    """Return the types of the application's exchanges by name. kombu needs them to find the queue of a message."""
    return {
        queue.exchange.name: queue.exchange.type
        for queue in app.amqp.queues.values()
        if queue.exchange and queue.exchange.name
    }


def greeting_of(
    context: WorkerContext,
    visibility_timeout: float | None,
    folder: str | None,
    unprotected: list[str],
    proofs: ProofOfEnd,
) -> Greeting:
    """Return the greeting of a worker.

    `visibility_timeout` is the application's own setting in seconds. It applies to unprotected workers. `folder` is the
    folder for the results of jobs, or None without jobs. `unprotected` are the names of tasks that are acknowledged
    early.
    """
    app, options, worker = context.app, context.options, context.worker
    own = keys.own_queue(context.instance)
    queues = sorted(set(app.amqp.queues.consume_from) - {own})
    tags = {f"celery:{app.main or 'default'}"[:100], *(f"queue:{queue}"[:100] for queue in queues)}
    name = options.name or worker.hostname
    description = {
        "type": "WORKER",
        "name": name,
        "cluster": options.cluster,
        "hostname": socket.gethostname(),
        "pid": os.getpid(),
        "version": VERSION,
        "tags": sorted(tags | {"celery"} if folder else tags),
        "max_concurrent": worker.max_concurrency if getattr(worker, "max_concurrency", None) else worker.concurrency,
        "capabilities": {
            "celery": version("celery"),
            "kombu": version("kombu"),
            "python": platform.python_version(),
            "platform": platform.platform(),
            "pool": worker.pool_cls.__module__.rpartition(".")[2],
            "broker": maybe_sanitize_url(context.connection.as_uri()),
            "unprotected": unprotected,
        },
        "config": options.server_config(),
    }
    return Greeting(
        instance=context.instance,
        kind=context.kind,
        connection=context.connection,
        exchanges=exchanges_of(app),
        visibility_timeout=visibility_timeout,
        broker_heartbeat=rabbitmq.heartbeat_of(app.conf),
        url=options.url,
        token=options.token,
        name=name,
        own_queue=own if folder else None,
        folder=folder,
        every=min(3.0, options.heartbeat_interval or 3.0),
        record=options.record,
        max_resubmissions=options.max_resubmissions,
        condemned_for=options.condemned_for,
        stuck_after=options.stuck_after,
        when_stuck=options.when_stuck,
        description=description,
        state=proofs.state,
        lock=proofs.lock,
        began=proofs.began,
        ends_namespace=proofs.ends_namespace,
    )
