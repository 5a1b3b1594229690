from typing import Any
from uuid import UUID

from liveness.management.operator_command import ServerCommand
from liveness.services import operations


class Command(ServerCommand):
    help = "Give a server no new work; what it holds goes on."
    done = "is cordoned"

    def apply_action(self, server: UUID, note: str, **options: Any) -> None:
        operations.cordon_server(server, self.actor, note)
