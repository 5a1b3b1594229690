"""The Celery app and its timetable. The broker only carries ticks; losing it loses nothing."""

import os
import socket
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from celery import Celery
from celery.schedules import schedule
from celery.signals import (
    beat_init,
    setup_logging,
    worker_init,
    worker_ready,
    worker_shutdown,
    worker_shutting_down,
)
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from controlplane import beat
from controlplane.core import database_limits
from controlplane.embedded import folder_broker, private_files
from controlplane.startup import refuse_wrong_settings
from liveness.states import ServerType

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings")
database_limits.role = database_limits.EXECUTOR

app = Celery("controlplane")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks(["jobs"])
app.conf.update(
    task_ignore_result=True,
    task_default_queue="controlplane",
    worker_prefetch_multiplier=1,
    broker_connection_retry_on_startup=True,
    timezone="UTC",
    beat_scheduler="celery.beat:Scheduler",  # not the one that keeps moments of some clock in a file
)


def use_folder_broker(broker: Path) -> None:
    """Carry messages through a folder: the embedded shape, with nothing to install."""
    private_files.prepare(broker.parent)
    for folder in (broker, broker / "messages", broker / "control"):
        folder.mkdir(mode=0o700, exist_ok=True)
    app.conf.broker_transport_options = {
        "data_folder_in": str(broker / "messages"),
        "data_folder_out": str(broker / "messages"),
        "control_folder": str(broker / "control"),
        "polling_interval": 0.2,  # seconds: how late a tick may be
    }


if has_folder_broker := settings.CELERY_BROKER_URL.startswith("filesystem:"):
    folder_broker.install_transport()
    if settings.DATA_DIR.exists():
        use_folder_broker(settings.DATA_DIR / "broker")


@setup_logging.connect
def keep_own_logging(**_: object) -> None:
    """Executors and schedulers log like everything else, as LOG_LEVEL says: who answers here keeps Celery from giving
    the root logger a level of its own."""


BEGAN = datetime.now(UTC)
BEGAN_AT = time.monotonic()


def read_steady_clock() -> datetime:
    """A clock that nobody sets: a scheduler whose machine's clock goes back goes on all the same."""
    return BEGAN + timedelta(seconds=time.monotonic() - BEGAN_AT)


@app.on_after_finalize.connect
def fill_timetable(sender: Celery, **_: object) -> None:
    for task, interval in beat.intervals().items():
        # How long a tick is kept is for the broker to count, if it can (RabbitMQ): `expires` would be a moment of the
        # sender's clock, judged by the executor's. What is stale all the same, the task passes over.
        sender.add_periodic_task(
            schedule(interval, nowfun=read_steady_clock, app=sender),
            sender.signature(task),
            name=task,
            expiration=interval,
        )


@worker_init.connect
@beat_init.connect
def check_settings(**_: object) -> None:
    try:
        refuse_wrong_settings()
    except ImproperlyConfigured as error:
        raise SystemExit(str(error)) from None  # Celery logs any other exception, and goes on
    if has_folder_broker and not settings.DATA_DIR.exists():
        raise SystemExit(f"Set CELERY_BROKER_URL: there is no data directory at {settings.DATA_DIR} for messages.")


@worker_ready.connect
def register_executor(sender: Any, **_: object) -> None:
    # Comes again whenever the broker was lost. Not worker_init: an embedded beat is forked after that.
    from controlplane.observability import presence

    presence.register_process(ServerType.EXECUTOR, sender.hostname)


@worker_shutting_down.connect
def announce_executor_end(**_: object) -> None:
    from controlplane.observability import presence

    presence.announce_termination()


@worker_shutdown.connect
def deregister_executor(**_: object) -> None:
    # Not only when the process ends: at SIGHUP it becomes another program before that.
    from controlplane.observability import presence

    presence.deregister_process()


@beat_init.connect
def register_scheduler(**_: object) -> None:
    # An embedded beat is a process of its own, and says so as well.
    from controlplane.observability import presence

    presence.register_process(ServerType.SCHEDULER, f"scheduler@{socket.gethostname()}")
