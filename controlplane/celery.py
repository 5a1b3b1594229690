"""The Celery app and its timetable. The broker only carries ticks; losing it loses nothing.

Its own processes alone import this: it is never the current application, and what it does, its own classes do, not
receivers of Celery's signals, which are those of every application.
"""

import os
import socket
import time
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Any

from celery import Celery
from celery.app.log import Logging
from celery.apps.worker import Worker
from celery.beat import Scheduler
from celery.schedules import schedule
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from controlplane import beat
from controlplane.core import database_limits
from controlplane.core.garbage_collection import collect_seldom
from controlplane.embedded import folder_broker, private_files
from controlplane.startup import refuse_wrong_settings
from liveness.states import ServerType

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings")
database_limits.role = database_limits.EXECUTOR
collect_seldom()


class OwnLogging(Logging):
    """Executors and schedulers log like everything else, as LOG_LEVEL says."""

    def setup_logging_subsystem(self, *_: Any, **__: Any) -> bool:
        return True


class Executor(Worker):
    """A server of the control plane, from when it gets messages until it has stopped."""

    def on_before_init(self, quiet: bool = False, **options: Any) -> None:
        check_settings()
        super().on_before_init(quiet=quiet, **options)

    def on_consumer_ready(self, consumer: Any) -> None:
        # Comes again whenever the broker was lost. Not sooner: an embedded beat is forked before that.
        from controlplane.observability import presence
        from jobs.services import hints

        super().on_consumer_ready(consumer)
        hints.announcer.enabled = True
        presence.register_process(ServerType.EXECUTOR, consumer.hostname)

    def on_close(self) -> None:
        from controlplane.observability import presence

        presence.announce_termination()
        super().on_close()

    def stop(self, *arguments: Any, **options: Any) -> None:
        # Not only when the process ends: at SIGHUP it becomes another program before that.
        from controlplane.observability import presence

        super().stop(*arguments, **options)
        presence.deregister_process()


class OwnScheduler(Scheduler):
    """A server of the control plane, an embedded one too: that is a process of its own. It has no file that keeps
    moments of some clock."""

    def setup_schedule(self) -> None:
        from controlplane.observability import presence

        check_settings()
        super().setup_schedule()
        presence.register_process(ServerType.SCHEDULER, f"scheduler@{socket.gethostname()}")


class ControlPlaneCelery(Celery):
    log_cls = "controlplane.celery:OwnLogging"

    @cached_property
    def Worker(self) -> Any:
        return self.subclass_with_self(Executor)


def check_settings() -> None:
    try:
        refuse_wrong_settings()
    except ImproperlyConfigured as error:
        raise SystemExit(str(error)) from None  # Celery logs any other exception, and goes on
    if has_folder_broker and not settings.DATA_DIR.exists():
        raise SystemExit(f"Set CELERY_BROKER_URL: there is no data directory at {settings.DATA_DIR} for messages.")


app = ControlPlaneCelery("controlplane", set_as_current=False)
app.config_from_object("django.conf:settings", namespace="CELERY")
app.conf.update(
    task_ignore_result=True,
    task_default_queue="controlplane",
    worker_prefetch_multiplier=1,
    broker_connection_retry_on_startup=True,
    timezone="UTC",
    beat_scheduler=OwnScheduler,
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


BEGAN = datetime.now(UTC)
BEGAN_AT = time.monotonic()


def read_steady_clock() -> datetime:
    """A clock that nobody sets: a scheduler whose machine's clock goes back goes on all the same."""
    return BEGAN + timedelta(seconds=time.monotonic() - BEGAN_AT)


@app.on_after_finalize.connect
def fill_timetable(sender: Celery, **_: object) -> None:
    from jobs import tasks  # noqa: F401 - shared tasks: they are this application's too

    for task, interval in beat.intervals().items():
        # How long a tick is kept is for the broker to count, if it can (RabbitMQ): `expires` would be a moment of the
        # sender's clock, judged by the executor's. What is stale all the same, the task passes over.
        sender.add_periodic_task(
            schedule(interval, nowfun=read_steady_clock, app=sender),
            sender.signature(task),
            name=task,
            expiration=interval,
        )
