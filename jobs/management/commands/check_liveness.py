from typing import Any

from django.core.management.base import BaseCommand, CommandError

from jobs.services import check


class Command(BaseCommand):
    help = "One liveness check now: disconnect the silent, recover the jobs of the lost, retire servers."

    def handle(self, **options: Any) -> None:
        try:
            done = check.check()
        except check.CheckFailed as error:
            raise CommandError(str(error)) from None
        for what, count in done.items():
            self.stdout.write(f"{what}: {written(count)}")


def written(count: Any) -> str:
    if isinstance(count, dict):
        return ", ".join(f"{number} {state}" for state, number in sorted(count.items())) or "0"
    return str(count)
