"""Protection of the workers of a Celery application: the tasks of a dead worker run again within seconds.

    from controlplane.agent.celery import protect
    protect(app)

Tasks stay unchanged. Processes that only publish stay unchanged, too. So do other applications in the same process,
because the protection uses no global signals, only boot steps of this application's workers.

Rooms: `worker` runs inside the Celery worker, `heart` is the process beside it, `broker` is Redis or RabbitMQ. The
modules here belong to both processes: `messages` is their protocol.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from controlplane.agent.celery.options import UNSET, CeleryOptions, remember

if TYPE_CHECKING:
    from celery import Celery


def protect(app: Celery, url: str | None = None, token: str | None = None, **options: Any) -> None:
    """Make each worker of `app` register, send heartbeats, and return the messages of lost workers.

    Call it right after the application is made. `url` and `token` (role worker) default to CONTROLPLANE_URL and
    CONTROLPLANE_TOKEN, which are read when a worker starts. `options` are the fields of `CeleryOptions` by name. They
    default to CONTROLPLANE_CELERY_… in the environment. Raise TypeError for an unknown option.
    """
    remember(app, CeleryOptions.chosen(url=url, token=token, **options))
    # The lowest of all defaults, so a setting of the application overrides it. See `Unset`.
    app.add_defaults(lambda: {"task_acks_late": UNSET})
    from controlplane.agent.celery.worker import bootsteps, consumer_steps

    app.steps["worker"].add(bootsteps.Protection)
    app.steps["consumer"].update({consumer_steps.OwnLeftovers, consumer_steps.ConsumerTicks})
