from typing import Any

from django.core.management.base import CommandParser

from liveness.management.operator_command import OperatorCommand, name_argument
from liveness.services import maintenance
from liveness.states import ServerType


class Command(OperatorCommand):
    help = "Release the brake, so that the silent servers it holds are disconnected."
    note_options = ["--note", "--reason"]

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument(
            "--type",
            choices=list(ServerType),
            type=str.upper,
            help="only brakes of this type (default: all types)",
        )

        parser.add_argument("--cluster", type=name_argument, help="only brakes of this cluster (default: all brakes)")
        parser.add_argument(
            "--namespace", type=name_argument, help="only brakes of this namespace (default: all namespaces)"
        )

    def handle(
        self, *, type: str | None, cluster: str | None, namespace: str | None, note: str, **options: Any
    ) -> None:
        with self.refusals_as_errors():
            released = maintenance.release_brake(self.actor, note, type, cluster, namespace)
        self.stdout.write(f"released: {', '.join(released)}")
