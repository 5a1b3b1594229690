from argparse import ArgumentTypeError
from typing import Any

from django.core.management.base import CommandError, CommandParser

from controlplane.core.durations import parse_duration
from liveness.management.operator_command import OperatorCommand, name_argument, one_line
from liveness.models import DEFAULT_NAMESPACE, Role
from liveness.services import tokens
from liveness.services.tokens import Bounds
from liveness.states import ServerType

NAMESPACE_LENGTH = 90


class Command(OperatorCommand):
    help = "Create an API token and print only the token. It is not stored and cannot be shown again."

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("--role", required=True, choices=Role.values)
        parser.add_argument(
            "--expires-in", metavar="30d", help="lifetime, like 45s, 5m, 24h or 30d (default: unlimited)"
        )
        parser.add_argument(
            "--namespace",
            type=namespace_argument,
            default=DEFAULT_NAMESPACE,
            metavar="NAME",
            help=f"only namespace that the token has access to (default: {DEFAULT_NAMESPACE})",
        )
        bound = parser.add_argument_group("limits of servers that a token of the role worker may register")
        bound.add_argument(
            "--types", type=types, metavar="A,B", help=f"only servers of these types: {', '.join(ServerType)}"
        )
        bound.add_argument(
            "--tags",
            type=words,
            metavar="A,B",
            help="only servers that have no tags except these; also list the tags that agents add, like script",
        )
        bound.add_argument("--cluster", type=name_argument, metavar="NAME", help="only servers of this cluster")
        bound.add_argument("--servers", type=number, metavar="N", help="largest number of servers at the same time")
        parser.add_argument("name", type=one_line, help="purpose of the token, shown beside its first characters")

    def handle(self, *, role: str, name: str, expires_in: str | None, note: str, **options: Any) -> None:
        bounds = Bounds(options["types"], options["tags"], options["cluster"], options["servers"])
        if role != Role.WORKER and bounds != Bounds():
            raise CommandError(
                f"--types, --tags, --cluster and --servers are only for the role worker. Remove them for role {role}."
            )
        try:
            lifetime = parse_duration(expires_in)
        except ValueError as error:
            raise CommandError(f"--expires-in: {error}") from None
        self.stdout.write(tokens.create_token(name, role, lifetime, bounds, self.actor, note, options["namespace"]))


def namespace_argument(given: str) -> str:
    """Check the name of a namespace for argparse. It must fit into the codename of a permission."""
    if len(given) > NAMESPACE_LENGTH:
        raise ArgumentTypeError(f"the name has {len(given)} characters, but may have at most {NAMESPACE_LENGTH}")
    return name_argument(given)


def words(given: str) -> list[str]:
    """Split a list at its commas for argparse. Return it sorted and without duplicates."""
    listed = sorted({word.strip() for word in one_line(given).split(",")} - {""})
    if not listed:
        raise ArgumentTypeError("at least one is needed, as in A,B")
    return listed


def types(given: str) -> list[str]:
    listed = words(given.upper())
    if unknown := sorted({*listed} - {*ServerType}):
        raise ArgumentTypeError(f"{', '.join(unknown)} is not a server type; use {', '.join(ServerType)}")
    return listed


def number(given: str) -> int:
    if not (given.isascii() and given.isdigit() and 0 < int(given) < 2**31):
        raise ArgumentTypeError(f"{given} is not a number of servers; use 1 or more")
    return int(given)
