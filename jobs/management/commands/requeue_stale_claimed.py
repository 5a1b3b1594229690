from jobs.management.stale_command import StaleCommand
from jobs.services import sweep
from jobs.states import AttemptState


class Command(StaleCommand):
    help = "Give claims without a sign of life back to the queue: their code never began."
    state = AttemptState.CLAIMED
    recover = sweep.requeue_stale_claimed
    setting = "claimed_stale_after"
