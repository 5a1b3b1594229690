"""What the commands of an operator share: who he is, which server he means, and how a refusal is said."""

import getpass
import os
from argparse import ArgumentTypeError
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

from django.core.management.base import BaseCommand, CommandError, CommandParser

from controlplane.agent.clean_text import NOT_CLEAN, is_clean
from controlplane.core.durations import parse_duration
from controlplane.core.problems import Problem
from controlplane.core.rest import NOTE_LENGTH
from liveness.models import Server
from liveness.services.action_events import format_actor


class OperatorCommand(BaseCommand):
    """A command that acts as `operator:` and the user of the operating system, with a note."""

    note_options = ["--note"]

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            *self.note_options,
            dest="note",
            type=note_argument,
            default="",
            help="reason, recorded with your name and the time",
        )

    @property
    def actor(self) -> str:
        try:
            return format_actor(getpass.getuser())
        except (KeyError, OSError):  # a container's user without a name
            return format_actor(str(os.getuid()))

    @contextmanager
    def refusals_as_errors(self) -> Iterator[None]:
        """What is refused is said as the API says it."""
        try:
            yield
        except Problem as problem:
            raise CommandError(problem.detail) from None


class ServerCommand(OperatorCommand):
    """A command on one server, by its id or by the name that it alone has among those alive."""

    done = ""

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("server", help="its id, or its name if no other server alive has it")

    def handle(self, *, server: str, note: str, **options: Any) -> None:
        target = self.find_server(server)
        with self.refusals_as_errors():
            self.apply_action(target.pk, note, **options)
        target.refresh_from_db()
        self.stdout.write(f"{target.name} ({target.pk}, {target.state}) {self.done}")

    def apply_action(self, server: UUID, note: str, **options: Any) -> None:
        raise NotImplementedError

    def find_server(self, id_or_name: str) -> Server:
        try:
            servers = list(Server.objects.filter(pk=UUID(id_or_name)))
        except ValueError:
            servers = list(Server.objects.alive().filter(name=id_or_name).order_by("pk"))
        if not servers:
            raise CommandError(f"No server has the id {id_or_name}, and no server alive has that name.")
        if len(servers) > 1:
            ids = ", ".join(str(one.pk) for one in servers)
            raise CommandError(
                f"{len(servers)} servers that are alive have the name {id_or_name}; say which by its id: {ids}."
            )
        return servers[0]


def note_argument(text: str) -> str:
    """For argparse: why somebody does it."""
    if len(text) > NOTE_LENGTH:
        raise ArgumentTypeError(f"a note has {NOTE_LENGTH} characters at most")
    return one_line(text)


def one_line(text: str) -> str:
    """For argparse: a name."""
    if not is_clean(text):
        raise ArgumentTypeError(NOT_CLEAN)
    return text


def name_argument(text: str) -> str:
    """For argparse: the name of a cluster or of a namespace, as a field of the API takes it."""
    if not text.strip():
        raise ArgumentTypeError("it may not be blank")
    return one_line(text).strip()


def add_duration(parser: CommandParser) -> None:
    """`--for`: how long a cordon or a drain lasts."""
    parser.add_argument(
        "--for", dest="duration", type=duration_argument, metavar="2h", help="then it gets work again by itself"
    )


def duration_argument(text: str) -> float:
    """For argparse: 45s, 5m, 24h."""
    try:
        value = parse_duration(text)
    except ValueError as error:
        raise ArgumentTypeError(str(error)) from None
    if value is None:
        raise ArgumentTypeError("a duration is needed here, not none")
    return value
