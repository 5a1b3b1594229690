from typing import Any
from uuid import UUID

from liveness.management.operator_command import ServerCommand
from liveness.services import operations


class Command(ServerCommand):
    help = "Give a server work again, even if it cordoned itself."
    done = "is no longer cordoned"

    def apply_action(self, server: UUID, note: str, **options: Any) -> None:
        operations.uncordon_server(server, self.actor, note)
