from typing import Any
from uuid import UUID

from liveness.management.operator_command import ServerCommand
from liveness.services import operations


class Command(ServerCommand):
    help = "Give a server work again, whoever cordoned it."
    done = "is not cordoned any more"

    def act(self, server: UUID, note: str, **options: Any) -> None:
        operations.uncordon(server, self.actor, note)
