"""What Celery beat drives. Thin: the services do the work. Tasks of our own application alone (controlplane/celery.py):
one of the host's finds none in here.

A tick counts when nobody has begun the task within half its interval: of those that waited in the broker for an
executor one does, and of those of two schedulers half do.
"""

from celery import shared_task
from django.dispatch import Signal

from jobs.conf import BATCHES_INTERVAL, HISTORY_INTERVAL, PRUNE_INTERVAL, TRIGGERS_INTERVAL, conf
from jobs.services import alerts, batches, evaluations, history, liveness_check, retention, sweep
from liveness.conf import conf as liveness
from liveness.services import sign_ins, timetable

DAY = 86400
checking = Signal()
"""Sent where the liveness check is about to run: that process is an executor."""


@shared_task(name="jobs.tasks.check_liveness", ignore_result=True)
def check_liveness() -> None:
    """Every LIVENESS["INTERVAL"]."""
    checking.send(None)
    if timetable.try_begin_task("check_liveness", liveness().interval / 2):
        liveness_check.check_liveness()


@shared_task(name="jobs.tasks.send_alerts", ignore_result=True)
def send_alerts() -> None:
    """Every LIVENESS["INTERVAL"]."""
    alerts.run_alerts()


@shared_task(name="jobs.tasks.sweep_jobs", ignore_result=True)
def sweep_jobs() -> None:
    """Every JOBS["SWEEP_INTERVAL"]."""
    if timetable.try_begin_task("sweep_jobs", conf().sweep_interval / 2):
        sweep.run_sweep()


@shared_task(name="jobs.tasks.evaluate_triggers", ignore_result=True)
def evaluate_triggers() -> None:
    """Every few seconds."""
    if timetable.try_begin_task("evaluate_triggers", TRIGGERS_INTERVAL / 2):
        evaluations.evaluate_due_triggers()


@shared_task(name="jobs.tasks.run_batches", ignore_result=True)
def run_batches() -> None:
    """Every few seconds."""
    if timetable.try_begin_task("run_batches", BATCHES_INTERVAL / 2):
        batches.run_batches()


@shared_task(name="jobs.tasks.count_history", ignore_result=True)
def count_history() -> None:
    """Every half minute."""
    if timetable.try_begin_task("count_history", HISTORY_INTERVAL / 2):
        history.count_history()


@shared_task(name="jobs.tasks.prune", ignore_result=True)
def prune() -> None:
    """Every day."""
    if timetable.try_begin_task("prune", DAY - PRUNE_INTERVAL / 2):
        try:
            retention.prune_old_rows()
        finally:
            sign_ins.delete_expired_sessions()
