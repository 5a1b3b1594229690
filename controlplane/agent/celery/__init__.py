"""Protects the workers of a Celery application: a dead worker's tasks run again within seconds, tasks unchanged.

    from controlplane.agent.celery import protect
    protect(app)

Nothing happens in processes that only publish, and nothing to other applications of the same process: there are no
global signals, only bootsteps of this application's workers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from controlplane.agent.celery.options import UNSET, Options, remember

if TYPE_CHECKING:
    from celery import Celery


def protect(app: Celery, url: str | None = None, token: str | None = None, **options: Any) -> None:
    """Have each worker of `app` register, beat, and give back what a dead one held.

    Call it right after the application is made. `url` and `token` (role worker) default to CONTROLPLANE_URL and
    CONTROLPLANE_TOKEN, read when a worker starts; the other options are those of `Options`, by name, and default to
    CONTROLPLANE_CELERY_… in the environment. Raises TypeError for an option that there is not.
    """
    remember(app, Options.given(url=url, token=token, **options))
    # The lowest of all defaults: a setting of the application's own stands above it. See `Unset`.
    app.add_defaults(lambda: {"task_acks_late": UNSET})
    from controlplane.agent.celery import bootsteps, consumer_steps

    app.steps["worker"].add(bootsteps.Protection)
    app.steps["consumer"].update({consumer_steps.OwnLeftovers, consumer_steps.Watched})
