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
    help = "Make an API token and print it, this once, and nothing else."

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
            help=f"namespace that it belongs to, and reaches alone (default: {DEFAULT_NAMESPACE})",
        )
        bound = parser.add_argument_group("what alone may register with a token of role worker (default: anything)")
        bound.add_argument(
            "--types", type=types, metavar="A,B", help=f"types of server that it may register: {', '.join(ServerType)}"
        )
        bound.add_argument(
            "--tags",
            type=words,
            metavar="A,B",
            help="tags that they may have, including those that agents add, like script",
        )
        bound.add_argument("--cluster", type=name_argument, metavar="NAME", help="cluster that they belong to")
        bound.add_argument("--servers", type=number, metavar="N", help="how many of them there may be at once")
        parser.add_argument("name", type=one_line, help="what the token is for; shown beside its first characters")

    def handle(self, *, role: str, name: str, expires_in: str | None, note: str, **options: Any) -> None:
        bounds = Bounds(options["types"], options["tags"], options["cluster"], options["servers"])
        if role != Role.WORKER and bounds != Bounds():
            raise CommandError(f"--types, --tags, --cluster and --servers are for the role worker, not for {role}.")
        try:
            lifetime = parse_duration(expires_in)
        except ValueError as error:
            raise CommandError(f"--expires-in: {error}") from None
        self.stdout.write(tokens.create_token(name, role, lifetime, bounds, self.actor, note, options["namespace"]))


def namespace_argument(given: str) -> str:
    """For argparse: a name that fits into that of a permission."""
    if len(given) > NAMESPACE_LENGTH:
        raise ArgumentTypeError(f"the name of a namespace has {NAMESPACE_LENGTH} characters at most")
    return name_argument(given)


def words(given: str) -> list[str]:
    """For argparse: what stands between commas, sorted, each once."""
    listed = sorted({word.strip() for word in one_line(given).split(",")} - {""})
    if not listed:
        raise ArgumentTypeError("at least one is needed, as in A,B")
    return listed


def types(given: str) -> list[str]:
    listed = words(given.upper())
    if unknown := sorted({*listed} - {*ServerType}):
        raise ArgumentTypeError(f"{', '.join(unknown)}: there are {', '.join(ServerType)}")
    return listed


def number(given: str) -> int:
    if not (given.isascii() and given.isdigit() and 0 < int(given) < 2**31):
        raise ArgumentTypeError(f"{given} is no number of servers: 1 or more")
    return int(given)
