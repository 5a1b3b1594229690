from typing import Any

from django.core.management.base import CommandParser

from liveness.management.operator_command import OperatorCommand, duration_argument, name_argument
from liveness.services.maintenance import enter_maintenance, exit_maintenance


class Command(OperatorCommand):
    help = "Enter or exit maintenance. During it no server gets new work; running work finishes and submissions wait."

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("direction", choices=["enter", "exit"])
        parser.add_argument("--cluster", type=name_argument, help="only this cluster (default: all clusters)")
        parser.add_argument(
            "--for",
            dest="seconds",
            type=duration_argument,
            metavar="DURATION",
            help="time after which it ends by itself",
        )

    def handle(self, *, direction: str, note: str, cluster: str | None, seconds: float | None, **options: Any) -> None:
        with self.refusals_as_errors():
            if direction == "enter":
                enter_maintenance(self.actor, note, seconds, cluster or "")
            else:
                exit_maintenance(self.actor, note, cluster or "")
        self.stdout.write("in maintenance" if direction == "enter" else "no longer in maintenance")
