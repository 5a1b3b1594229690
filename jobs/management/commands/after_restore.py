from typing import Any

from jobs.services import restoration
from liveness.management.operator_command import OperatorCommand


class Command(OperatorCommand):
    help = (
        "Correct the database after it was restored from a backup. Run it before any other process starts. Every alive "
        "server is DISCONNECTED, every running attempt is RESUBMITTED, and the clock is advanced."
    )

    def handle(self, *, note: str, **options: Any) -> None:
        for state, count in restoration.begin_after_restore(self.actor, note).items():
            self.stdout.write(f"{state}: {count}")
