from typing import Any

from django.core.management.base import BaseCommand

from jobs.management.commands.check_liveness import written
from jobs.services import recovery


class Command(BaseCommand):
    help = "One recovery sweep now: the attempts of every lost server, whatever found it lost."

    def handle(self, **options: Any) -> None:
        self.stdout.write(f"recovered: {written(recovery.recover())}")
