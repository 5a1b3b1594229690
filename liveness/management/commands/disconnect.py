from typing import Any
from uuid import UUID

from liveness.management.operator_command import ServerCommand
from liveness.services import operations


class Command(ServerCommand):
    help = "Disconnect a server, as if it had been silent for its timeout."
    done = "counts as lost"

    def apply_action(self, server: UUID, note: str, **options: Any) -> None:
        operations.disconnect_server(server, self.actor, note)
