from typing import Any

from jobs.services import restoration
from liveness.management.operator_command import OperatorCommand


class Command(OperatorCommand):
    help = (
        "After the database was restored from a backup, before anything else is started: every server is lost, every "
        "running attempt is RESUBMITTED, and the clock moves on."
    )

    def handle(self, *, note: str, **options: Any) -> None:
        for state, count in restoration.begin_after_restore(self.actor, note).items():
            self.stdout.write(f"{state}: {count}")
