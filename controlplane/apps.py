"""The apps of the control plane, in a site of its own and in any Django project, which may have some already."""

import os
import socket
from typing import Any

import structlog
from django.apps import AppConfig

from controlplane.agent.secret_values import mask_event
from controlplane.core import packages

INSTALLED = ["controlplane", "controlplane.console", "jobs", "liveness", "django.contrib.postgres", "django_htmx"]


class ControlPlaneConfig(AppConfig):
    name = "controlplane"
    verbose_name = "Control plane"

    def __init__(self, *args: Any) -> None:
        # Before any model is read: it lets the models of a project that does not have it as an app declare triggers.
        import pgtrigger.apps  # noqa: F401

        packages.refuse_others()
        super().__init__(*args)

    def ready(self) -> None:
        # No Celery application: another's may be at home in this process.
        from controlplane import checks, openapi  # noqa: F401
        from jobs import tasks

        tasks.checking.connect(register_executor, dispatch_uid="controlplane.executor")
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


def register_executor(**_: Any) -> None:
    """A process that runs the liveness check is an executor, also where the Celery app is another's."""
    from controlplane.observability import presence
    from liveness.states import ServerType

    presence.register_process(ServerType.EXECUTOR, f"executor@{socket.gethostname()}-{os.getpid()}")
