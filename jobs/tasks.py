"""What Celery beat drives. Thin: the services do the work."""

from celery import shared_task

from jobs.services import check, retention, sweep, triggers


@shared_task(name="jobs.tasks.check_liveness")
def check_liveness() -> None:
    """Every LIVENESS["INTERVAL"]."""
    check.check()


@shared_task(name="jobs.tasks.sweep_jobs")
def sweep_jobs() -> None:
    """Every JOBS["SWEEP_INTERVAL"]."""
    sweep.sweep()


@shared_task(name="jobs.tasks.evaluate_triggers")
def evaluate_triggers() -> None:
    """Every few seconds: so late a slot may be."""
    triggers.evaluate_due()


@shared_task(name="jobs.tasks.prune")
def prune() -> None:
    """Every day."""
    retention.prune()
