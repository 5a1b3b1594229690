from typing import Any

from django.core.management.base import CommandParser

from liveness.management.operator_command import OperatorCommand
from liveness.services import operations


class Command(OperatorCommand):
    help = "Enter maintenance: nobody gets new work, running work finishes, submissions queue. Or exit it."

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("direction", choices=["enter", "exit"])

    def handle(self, *, direction: str, note: str, **options: Any) -> None:
        with self.refusals_as_errors():
            if direction == "enter":
                operations.enter_maintenance(self.actor, note)
            else:
                operations.exit_maintenance(self.actor, note)
        self.stdout.write("in maintenance" if direction == "enter" else "not in maintenance any more")
