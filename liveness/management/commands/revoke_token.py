from typing import Any

from django.core.management.base import CommandError, CommandParser

from liveness.management.operator_command import OperatorCommand
from liveness.services import revocation


class Command(OperatorCommand):
    help = "Revoke the API token that begins with PREFIX, from the next request on."

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("prefix", help="first characters of the token, as shown beside its name")
        parser.add_argument(
            "--with-servers",
            action="store_true",
            help="also disconnect the servers that registered with it; works for tokens that are already revoked too",
        )

    def handle(self, *, prefix: str, with_servers: bool, note: str, **options: Any) -> None:
        if len(prefix) < 8:
            raise CommandError("Give at least 8 characters, so that no other token is revoked by mistake.")
        revoked, ended = revocation.revoke_tokens(prefix, self.actor, note, with_servers=with_servers)
        if not revoked and not ended:
            raise CommandError(f"No valid token begins with {prefix}. Check the first characters.")
        self.stdout.write(f"revoked: {revoked}" + (f", servers: {ended}" if with_servers else ""))
