from typing import Any

from django.core.management.base import CommandError

from controlplane.core.own_command import OwnCommand
from jobs.management.commands.check_liveness import format_count
from jobs.services import sweep


class Command(OwnCommand):
    help = "Run one recovery sweep now: attempts of lost servers, stale attempts, timeouts and unmatched jobs."

    def handle(self, **options: Any) -> None:
        try:
            done = sweep.run_sweep()
        except sweep.SweepFailed as error:
            raise CommandError(str(error)) from None
        for what, count in done.items():
            self.stdout.write(f"{what}: {format_count(count)}")
