from typing import Any

from django.core.management.base import CommandParser

from liveness.management.operator_command import OperatorCommand, name_argument
from liveness.services import maintenance
from liveness.states import ServerType


class Command(OperatorCommand):
    help = "Let the silent servers that the brake holds be disconnected."
    note_options = ["--note", "--reason"]

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument(
            "--type",
            choices=list(ServerType),
            type=str.upper,
            help="release the brake of this type only (default: of all)",
        )

        parser.add_argument("--cluster", type=name_argument, help="of this cluster only (default: whatever it holds)")

    def handle(self, *, type: str | None, cluster: str | None, note: str, **options: Any) -> None:
        with self.refusals_as_errors():
            released = maintenance.release_brake(self.actor, note, type, cluster)
        self.stdout.write(f"released: {', '.join(released)}")
