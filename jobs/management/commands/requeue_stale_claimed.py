from jobs.management.stale_command import StaleCommand
from jobs.services import sweep
from jobs.states import AttemptState


class Command(StaleCommand):
    help = "Requeue the jobs of claimed attempts without heartbeats. Their code never started."
    state = AttemptState.CLAIMED
    recover = sweep.requeue_stale_claimed
    setting = "claimed_stale_after"
