from typing import Any
from uuid import UUID

from django.core.management.base import CommandParser

from liveness.management.operator_command import ServerCommand, add_duration
from liveness.services import operations


class Command(ServerCommand):
    help = "Give a server no new work. Its present work continues."
    done = "is cordoned"

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        add_duration(parser)

    def apply_action(self, server: UUID, note: str, **options: Any) -> None:
        operations.cordon_server(server, self.actor, note, options["duration"])
