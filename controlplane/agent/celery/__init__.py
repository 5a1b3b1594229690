"""Protection of the workers of a Celery application: if a worker dies, its tasks run again within seconds.

    from controlplane.agent.celery import protect
    protect(app)

Tasks, and processes that only publish, stay unchanged. Other applications in the same process stay unchanged too,
because the protection uses only boot steps of this application's workers and no global signals.

Packages: `worker` runs inside the Celery worker, `heart` is the process beside it, `broker` accesses Redis or RabbitMQ.
Both processes use the modules here; `messages` is their protocol.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from controlplane.agent.celery.options import UNSET, CeleryOptions, remember

if TYPE_CHECKING:
    from celery import Celery


def protect(app: Celery, url: str | None = None, token: str | None = None, **options: Any) -> None:
    """Make each worker of `app` register, send heartbeats, and return messages of lost workers to their queues.

    Call it right after the application is created. `url` and `token` (of the role worker) default to CONTROLPLANE_URL
    and CONTROLPLANE_TOKEN, which are read when a worker starts. `options` are fields of `CeleryOptions`. They default
    to the environment variables CONTROLPLANE_CELERY_…. Raise TypeError for an unknown option.
    """
    remember(app, CeleryOptions.chosen(url=url, token=token, **options))
    # This default has the lowest priority, so a setting of the application overrides it. See `Unset`.
    app.add_defaults(lambda: {"task_acks_late": UNSET})
    from controlplane.agent.celery.worker import bootsteps, consumer_steps

    app.steps["worker"].add(bootsteps.Protection)
    app.steps["consumer"].update({consumer_steps.OwnLeftovers, consumer_steps.ConsumerTicks})
