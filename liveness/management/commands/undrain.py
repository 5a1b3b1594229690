from typing import Any
from uuid import UUID

from liveness.management.operator_command import ServerCommand
from liveness.services import operations


class Command(ServerCommand):
    help = "Lift the drain and the cordon of a server, so that it gets work again."
    done = "is no longer drained"

    def apply_action(self, server: UUID, note: str, **options: Any) -> None:
        operations.undrain_server(server, self.actor, note)
