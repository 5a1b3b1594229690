from typing import Any

from django.core.management.base import CommandParser

from liveness.management.operator_command import OperatorCommand, one_line
from liveness.services import operations
from liveness.states import ServerType


class Command(OperatorCommand):
    help = "Let the silent servers that the brake holds be disconnected."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--type", choices=list(ServerType), type=str.upper, help="all unless given")
        parser.add_argument("--reason", "--note", type=one_line, default="", help="why; kept with who and when")

    def handle(self, *, type: str | None, reason: str, **options: Any) -> None:
        with self.refusals_as_errors():
            released = operations.release_brake(self.actor, reason, type)
        self.stdout.write(f"released: {', '.join(released)}")
