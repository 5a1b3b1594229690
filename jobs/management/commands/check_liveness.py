from typing import Any

from django.core.management.base import CommandError

from controlplane.core.own_command import OwnCommand
from jobs.services import liveness_check


class Command(OwnCommand):
    help = "Run one liveness check now: disconnect silent servers, recover the jobs of lost ones, retire ended ones."

    def handle(self, **options: Any) -> None:
        try:
            done = liveness_check.check_liveness()
        except liveness_check.CheckFailed as error:
            raise CommandError(str(error)) from None
        for what, count in done.items():
            self.stdout.write(f"{what}: {format_count(count)}")


def format_count(count: Any) -> str:
    if isinstance(count, dict):
        return ", ".join(f"{number} {state}" for state, number in sorted(count.items())) or "0"
    return str(count)
