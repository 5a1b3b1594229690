"""Periodic tasks that Celery beat starts; services do the work.

They belong to our own Celery application (controlplane/celery.py), so that an application of the host does not find
them. A tick runs only if the task was not started within half its interval. Therefore only one of many waiting ticks
runs, and only half of the ticks of two schedulers.
"""

from contextlib import ExitStack

from celery import shared_task

from jobs.conf import BATCHES_INTERVAL, HISTORY_INTERVAL, PRUNE_INTERVAL, STORED_BYTES_INTERVAL, TRIGGERS_INTERVAL, conf
from jobs.hooks import checking
from jobs.services import (
    alerts,
    batches,
    history,
    holds,
    liveness_check,
    notifications,
    retention,
    stored_bytes,
    sweep,
    trigger_tick,
    waits,
)
from liveness.conf import conf as liveness
from liveness.services import sign_ins, timetable

DAY = 86400


@shared_task(name="jobs.tasks.check_liveness", ignore_result=True)
def check_liveness() -> None:
    """Run the liveness check, every LIVENESS["INTERVAL"]."""
    checking.send(None)
    if timetable.try_begin_task("check_liveness", liveness().interval / 2):
        liveness_check.check_liveness()


@shared_task(name="jobs.tasks.send_alerts", ignore_result=True)
def send_alerts() -> None:
    """Send alerts, then notifications of ends, every LIVENESS["INTERVAL"]."""
    alerts.run_alerts()
    notifications.send_notifications()


@shared_task(name="jobs.tasks.sweep_jobs", ignore_result=True)
def sweep_jobs() -> None:
    """Run the recovery sweep, every JOBS["SWEEP_INTERVAL"]."""
    if timetable.try_begin_task("sweep_jobs", conf().sweep_interval / 2):
        if not stored_bytes.counts_bytes():
            stored_bytes.forget()
        sweep.run_sweep()


@shared_task(name="jobs.tasks.evaluate_triggers", ignore_result=True)
def evaluate_triggers() -> None:
    """Evaluate due triggers, and end due waits of steps and due holds, every TRIGGERS_INTERVAL."""
    if timetable.try_begin_task("evaluate_triggers", TRIGGERS_INTERVAL / 2):
        with ExitStack() as steps:  # each step runs, even if an earlier one fails
            steps.callback(holds.end_due_holds)
            steps.callback(waits.end_waits)
            trigger_tick.run_tick()


@shared_task(name="jobs.tasks.run_batches", ignore_result=True)
def run_batches() -> None:
    """Continue bulk actions, every BATCHES_INTERVAL."""
    if timetable.try_begin_task("run_batches", BATCHES_INTERVAL / 2):
        batches.run_batches()


@shared_task(name="jobs.tasks.count_history", ignore_result=True)
def count_history() -> None:
    """Count ended jobs for the charts, every HISTORY_INTERVAL."""
    if timetable.try_begin_task("count_history", HISTORY_INTERVAL / 2):
        history.count_history()


@shared_task(name="jobs.tasks.count_stored_bytes", ignore_result=True)
def count_stored_bytes() -> None:
    """Count stored bytes, every STORED_BYTES_INTERVAL, if there is a STORED_BYTES_LIMIT."""
    if timetable.try_begin_task("count_stored_bytes", STORED_BYTES_INTERVAL / 2):
        stored_bytes.run_count()


@shared_task(name="jobs.tasks.prune", ignore_result=True)
def prune() -> None:
    """Delete rows that are past their retention, every day. Drop and make partitions at each tick.

    A dump may hold the partitions for hours, and perhaps at the same hour of each day.
    """
    retention.prune_partitions()
    if timetable.try_begin_task("prune", DAY - PRUNE_INTERVAL / 2):
        try:
            retention.prune_old_rows()
        finally:
            sign_ins.delete_expired_sessions()
