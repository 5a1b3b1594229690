"""Celery application of the control plane and its timetable. The broker only carries ticks, so losing it loses no work.

Only the control plane's own processes import this module. The application is never the current one. It uses its own
classes instead of Celery's signals, because signal receivers apply to every application.
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
from controlplane.startup import make_room_for_heartbeats, refuse_another_key, refuse_wrong_settings
from liveness.states import ServerType

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings")
database_limits.role = database_limits.EXECUTOR
collect_seldom()


class OwnLogging(Logging):
    """Logging of executors and schedulers. It follows LOG_LEVEL, as in all other processes."""

    def setup_logging_subsystem(self, *_: Any, **__: Any) -> bool:
        return True


class Executor(Worker):
    """Executor that is registered as a server, from its first message until it has stopped."""

    def on_before_init(self, quiet: bool = False, **options: Any) -> None:
        check_settings()
        mark_ready(False)
        super().on_before_init(quiet=quiet, **options)

    def on_consumer_ready(self, consumer: Any) -> None:
        # This also runs after each lost connection to the broker. It does not run earlier, because an embedded beat is
        # forked first.
        from controlplane.observability import presence
        from jobs.services import hints

        super().on_consumer_ready(consumer)
        hints.announcer.enabled = True
        presence.register_process(ServerType.EXECUTOR, consumer.hostname)
        mark_ready(True)

    def on_close(self) -> None:
        from controlplane.observability import presence

        presence.announce_termination()
        super().on_close()

    def stop(self, *arguments: Any, **options: Any) -> None:
        # This does not wait for the end of the process, because another program replaces it at SIGHUP.
        from controlplane.observability import presence

        super().stop(*arguments, **options)
        presence.deregister_process()


class OwnScheduler(Scheduler):
    """Scheduler that is registered as a server. An embedded scheduler is a separate process, so it is registered too.

    It stores no times in a file, because a clock may be set back.
    """

    def setup_schedule(self) -> None:
        from controlplane.observability import presence

        check_settings()
        if is_rabbitmq:
            # Only the scheduler uses confirmations: a tick without one is sent again. Executors do not, because they
            # send events without a timeout.
            self.app.conf.broker_transport_options = {"confirm_publish": True}
        super().setup_schedule()
        # The first check is due at once, so that /healthz answers 200 as soon as an executor is there.
        check = "jobs.tasks.check_liveness"
        self.schedule[check].last_run_at = read_steady_clock() - timedelta(seconds=beat.intervals()[check])
        presence.register_process(ServerType.SCHEDULER, f"scheduler@{socket.gethostname()}")


class ControlPlaneCelery(Celery):
    log_cls = "controlplane.celery:OwnLogging"

    @cached_property
    def Worker(self) -> Any:
        return self.subclass_with_self(Executor)


def check_settings() -> None:
    try:
        refuse_wrong_settings()
        refuse_another_key()
        make_room_for_heartbeats()
    except ImproperlyConfigured as error:
        raise SystemExit(str(error)) from None  # Celery logs any other exception, and continues
    if has_folder_broker and not settings.DATA_DIR.exists():
        raise SystemExit(
            f"Set CELERY_BROKER_URL. Otherwise messages need a data directory, but {settings.DATA_DIR} is missing."
        )


def mark_ready(is_ready: bool) -> None:
    """Create or remove the file that shows a startup probe that an executor receives messages."""
    if path := settings.EXECUTOR_READY_FILE:
        Path(path).touch() if is_ready else Path(path).unlink(missing_ok=True)


app = ControlPlaneCelery("controlplane", set_as_current=False)
app.config_from_object("django.conf:settings", namespace="CELERY")
app.conf.update(
    # Anyone who reaches the broker can send messages. With remote control they could stop executors, and with content
    # other than JSON they could run code.
    worker_enable_remote_control=False,
    accept_content=["json"],
    task_serializer="json",
    task_ignore_result=True,
    task_default_queue="controlplane",
    worker_prefetch_multiplier=1,
    broker_connection_retry_on_startup=True,
    timezone="UTC",
    beat_scheduler=OwnScheduler,
)


SHORTEST_HEARTBEAT = 5
"""Shortest heartbeat of RabbitMQ in seconds."""


def bound_silence(url: str, seconds: float) -> dict[str, Any]:
    """Return settings that replace a connection to the broker after `seconds` without a sign of life.

    A consumer of Redis takes up to twice as long. A consumer of RabbitMQ waits for two heartbeats.
    """
    if url.startswith(("redis", "sentinel")):
        # The server answers each wait of a consumer within a second.
        return {
            "broker_transport_options": {
                "socket_timeout": seconds, "socket_connect_timeout": seconds / 2, "socket_keepalive": True,
                "health_check_interval": max(1, round(seconds / 2)),
            }
        }  # fmt: skip
    if url.startswith(("amqp", "pyamqp")):
        # RabbitMQ closes a connection after two silent heartbeats, so a busy process needs some room.
        return {"broker_heartbeat": max(SHORTEST_HEARTBEAT, round(seconds))}
    return {}


app.conf.update(bound_silence(settings.CELERY_BROKER_URL, settings.BROKER_TIMEOUT))


def use_folder_broker(broker: Path) -> None:
    """Use a folder as the broker, so that no broker must be installed.

    The folder is read so often that each tick of the liveness check is found before the next tick.
    """
    private_files.prepare(broker.parent)
    for folder in (broker, broker / "messages", broker / "control"):
        folder.mkdir(mode=0o700, exist_ok=True)
    app.conf.broker_transport_options = {
        "data_folder_in": str(broker / "messages"),
        "data_folder_out": str(broker / "messages"),
        "control_folder": str(broker / "control"),
        "polling_interval": min(0.2, beat.intervals()["jobs.tasks.check_liveness"] / 2),  # seconds
    }


if has_folder_broker := settings.CELERY_BROKER_URL.startswith("filesystem:"):
    folder_broker.install_transport()
    if settings.DATA_DIR.exists():
        use_folder_broker(settings.DATA_DIR / "broker")


is_rabbitmq = settings.CELERY_BROKER_URL.startswith(("amqp", "pyamqp"))

BEGAN = datetime.now(UTC)
BEGAN_AT = time.monotonic()


def read_steady_clock() -> datetime:
    """Return the time of a clock that is never set. The scheduler continues when the machine's clock goes back."""
    return BEGAN + timedelta(seconds=time.monotonic() - BEGAN_AT)


@app.on_after_finalize.connect
def fill_timetable(sender: Celery, **_: object) -> None:
    confirming: dict[str, Any] = {"confirm_timeout": settings.BROKER_TIMEOUT} if is_rabbitmq else {}
    from jobs import tasks  # noqa: F401 - shared tasks, which belong to this application too

    for task, interval in beat.intervals().items():
        # The broker counts how long a tick is kept, if it can (RabbitMQ). `expires` would be a time of the sender's
        # clock, compared with the executor's clock. The task itself skips a stale tick.
        sender.add_periodic_task(
            schedule(interval, nowfun=read_steady_clock, app=sender),
            sender.signature(task),
            name=task,
            expiration=interval,
            **confirming,
        )
