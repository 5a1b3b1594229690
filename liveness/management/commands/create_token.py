from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from controlplane.durations import seconds
from liveness.management.operator_command import one_line
from liveness.models import Role
from liveness.services import tokens


class Command(BaseCommand):
    help = "Make an API token and print it, this once, and nothing else."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--role", required=True, choices=Role.values)
        parser.add_argument("--expires-in", metavar="30d", help="45s, 5m, 24h, 30d; never unless given")
        parser.add_argument("name", type=one_line, help="what the token is for; shown beside its first letters")

    def handle(self, *, role: str, name: str, expires_in: str | None, **options: Any) -> None:
        try:
            lifetime = seconds(expires_in)
        except ValueError as error:
            raise CommandError(f"--expires-in: {error}") from None
        self.stdout.write(tokens.create(name, role, lifetime))
