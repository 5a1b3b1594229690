from typing import Any
from uuid import UUID

from django.core.management.base import CommandParser

from liveness.management.operator_command import ServerCommand, add_duration, duration_argument
from liveness.services import operations


class Command(ServerCommand):
    help = "Give a server no new work, and time until the deadline to finish its attempts. Then it gives the rest back."
    done = "is drained"

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument(
            "--deadline",
            type=duration_argument,
            metavar="5m",
            help="time to finish its attempts, like 45s, 5m or 24h (default: the grace period of the server)",
        )

        add_duration(parser)

    def apply_action(self, server: UUID, note: str, **options: Any) -> None:
        operations.drain_server(server, self.actor, note, options["deadline"], options["duration"])
