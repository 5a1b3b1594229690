from jobs.management.stale_command import StaleCommand
from jobs.services import sweep
from jobs.states import AttemptState


class Command(StaleCommand):
    help = "Fail running attempts without heartbeats, and their jobs, with WORKER_CRASHED."
    state = AttemptState.RUNNING
    recover = sweep.fail_stale_running
    setting = "running_stale_after"
