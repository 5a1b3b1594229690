"""What Celery beat drives. Thin: the services do the work."""

from celery import shared_task

from jobs.services import check, retention, sweep


@shared_task(name="jobs.tasks.check_liveness")
def check_liveness() -> None:
    """Every LIVENESS["INTERVAL"]."""
    check.check()


@shared_task(name="jobs.tasks.sweep_jobs")
def sweep_jobs() -> None:
    """Every JOBS["SWEEP_INTERVAL"]."""
    sweep.sweep()


@shared_task(name="jobs.tasks.prune")
def prune() -> None:
    """Every day."""
    retention.prune()
