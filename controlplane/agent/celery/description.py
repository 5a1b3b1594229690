"""What a worker tells its heart when that begins: who it is, how it is to be judged, where its broker is."""

from __future__ import annotations

import os
import platform
import socket
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from kombu.utils.url import maybe_sanitize_url

from controlplane.agent.celery import keys, rabbitmq
from controlplane.agent.options import VERSION

if TYPE_CHECKING:
    from controlplane.agent.celery.bootsteps import Protection


def exchanges_of(app: Any) -> dict[str, str]:
    """Their types by name: with them a message finds its queue again."""
    return {
        queue.exchange.name: queue.exchange.type
        for queue in app.amqp.queues.values()
        if queue.exchange and queue.exchange.name
    }


def greeting(protection: Protection, visibility_timeout: float | None) -> dict[str, Any]:
    """The first line on the pipe. `visibility_timeout`: of the application's own, for what unprotected workers left."""
    app, options, worker = protection.app, protection.options, protection.worker
    own = keys.own_queue(protection.instance)
    queues = sorted(set(app.amqp.queues.consume_from) - {own})
    tags = {f"celery:{app.main or 'default'}"[:100], *(f"queue:{q}"[:100] for q in queues)}
    name = options.name or worker.hostname
    return {
        "instance": protection.instance,
        "kind": protection.kind,
        "connection": protection.connection,
        "exchanges": exchanges_of(app),
        "visibility_timeout": visibility_timeout,
        "broker_heartbeat": rabbitmq.heartbeat_of(app.conf),
        "url": options.url,
        "token": options.token,
        "name": name,
        "own_queue": own if protection.jobs else None,
        "folder": str(protection.jobs.folder.path) if protection.jobs else None,
        "every": min(3.0, options.heartbeat_interval or 3.0),
        "options": {
            key: getattr(options, key)
            for key in ("record", "max_resubmissions", "condemned_for", "stuck_after", "when_stuck")
        },
        "description": {
            "type": "WORKER",
            "name": name,
            "cluster": options.cluster,
            "hostname": socket.gethostname(),
            "pid": os.getpid(),
            "version": VERSION,
            "tags": sorted(tags | {"celery"} if protection.jobs else tags),
            "max_concurrent": worker.max_concurrency
            if getattr(worker, "max_concurrency", None)
            else worker.concurrency,
            "capabilities": {
                "celery": version("celery"),
                "kombu": version("kombu"),
                "python": platform.python_version(),
                "platform": platform.platform(),
                "pool": worker.pool_cls.__module__.rpartition(".")[2],
                "broker": maybe_sanitize_url(protection.connection.as_uri()),
                "unprotected": protection.unprotected,
            },
            "config": options.config(),
        },
    }
