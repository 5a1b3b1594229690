from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from liveness.services import tokens


class Command(BaseCommand):
    help = "Revoke the API token that begins with PREFIX, from the next request on."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("prefix", help="the first letters of the token, as shown beside its name")
        parser.add_argument("--with-servers", action="store_true", help="end the servers' tokens made with it as well")

    def handle(self, *, prefix: str, with_servers: bool, **options: Any) -> None:
        if len(prefix) < 8:
            raise CommandError("Give at least 8 letters, so that no other token is revoked by mistake.")
        revoked = tokens.revoke(prefix, with_servers=with_servers)
        if not revoked:
            raise CommandError(f"No valid token begins with {prefix}.")
        self.stdout.write(f"revoked: {revoked}")
