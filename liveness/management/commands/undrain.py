from typing import Any
from uuid import UUID

from liveness.management.operator_command import ServerCommand
from liveness.services import operations


class Command(ServerCommand):
    help = "Give a server work again: its drain and its cordon are lifted."
    done = "is not drained any more"

    def apply_action(self, server: UUID, note: str, **options: Any) -> None:
        operations.undrain_server(server, self.actor, note)
