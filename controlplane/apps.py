"""Apps of the control plane: in its own site, and in any Django project that includes it."""

import sys
from typing import Any

import structlog
from django.apps import AppConfig
from django.conf import settings

from controlplane.agent.api.backoff import heartbeat_answer_timeout
from controlplane.agent.secrets.values import mask_event
from controlplane.core import packages

INSTALLED = ["controlplane", "controlplane.console", "jobs", "liveness", "django.contrib.postgres", "django_htmx"]


class ControlPlaneConfig(AppConfig):
    name = "controlplane"
    default_auto_field = "django.db.models.BigAutoField"
    verbose_name = "Control plane"

    def __init__(self, *args: Any) -> None:
        # This comes before any model is imported. With it, models can declare triggers even if the project lacks the
        # app pgtrigger.
        import pgtrigger.apps  # noqa: F401

        packages.refuse_others()
        super().__init__(*args)

    def ready(self) -> None:
        from controlplane import checks  # noqa: F401
        from controlplane.observability.pool_executor import register_executor
        from jobs.hooks import checking

        bound_connecting()
        checking.connect(register_executor, dispatch_uid="controlplane.executor")
        if "celery" in sys.modules:
            # A worker needs the tasks. It imports them here, before its pool forks. This imports no Celery application,
            # because the process may have another one.
            from controlplane.observability import presence  # noqa: F401
            from jobs import tasks  # noqa: F401

        if not structlog.is_configured():
            structlog.configure(
                processors=[
                    structlog.contextvars.merge_contextvars,
                    structlog.processors.format_exc_info,
                    mask_event,
                    structlog.stdlib.render_to_log_kwargs,
                ],
                wrapper_class=structlog.stdlib.BoundLogger,
                logger_factory=structlog.stdlib.LoggerFactory(),
            )


def bound_connecting() -> None:
    """Limit an attempt to connect to the database, so that another one fits into the timeout of a server.

    If a packet is lost while connecting, this must not cost more than one try of a heartbeat.
    """
    from controlplane.core.database import ALIAS
    from liveness.conf import conf

    database = settings.DATABASES.get(ALIAS, {})
    if database.get("ENGINE") != "controlplane.core.database":
        return
    times = conf.read_settings()[0]
    options = database["OPTIONS"]
    # The driver waits at least 2 s.
    within = max(2, int(heartbeat_answer_timeout(times.timeout, times.heartbeat_interval)))
    options["connect_timeout"] = min(options["connect_timeout"], within)
    if options.get("pool"):
        options["pool"]["timeout"] = min(options["pool"]["timeout"], within)
