"""Base classes of operator commands: they find the operator's name and the server, and print errors."""

import getpass
import os
from argparse import ArgumentTypeError
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

from django.core.management.base import CommandError, CommandParser

from controlplane.agent.clean_text import NOT_CLEAN, is_clean
from controlplane.core.bounds import NOTE_LENGTH
from controlplane.core.durations import parse_duration
from controlplane.core.own_command import OwnCommand
from controlplane.core.problems import Problem
from liveness.models import Server
from liveness.services.action_events import format_actor


class OperatorCommand(OwnCommand):
    """Command with a note. It acts as `operator:NAME`, with the name of the user of the operating system."""

    note_options = ["--note"]

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            *self.note_options,
            dest="note",
            type=note_argument,
            default="",
            help="reason; it is recorded with your name and the time",
        )

    @property
    def actor(self) -> str:
        try:
            return format_actor(getpass.getuser())
        except (KeyError, OSError):  # a container's user without a name
            return format_actor(str(os.getuid()))

    @contextmanager
    def refusals_as_errors(self) -> Iterator[None]:
        """Turn a Problem into a CommandError with the same text as in the API."""
        try:
            yield
        except Problem as problem:
            raise CommandError(problem.detail) from None


class ServerCommand(OperatorCommand):
    """Command on one server, named by its id or by its name if no other alive server has this name."""

    done = ""

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("server", help="id of the server, or its name if no other alive server has this name")

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
            raise CommandError(f"No server has the id {id_or_name}, and no alive server has this name.")
        if len(servers) > 1:
            ids = ", ".join(str(one.pk) for one in servers)
            raise CommandError(
                f"{len(servers)} alive servers have the name {id_or_name}. Give the id of one of them: {ids}."
            )
        return servers[0]


def note_argument(text: str) -> str:
    """Check a note for argparse."""
    if len(text) > NOTE_LENGTH:
        raise ArgumentTypeError(f"the note has {len(text)} characters, but may have at most {NOTE_LENGTH}")
    return one_line(text)


def one_line(text: str) -> str:
    """Check for argparse that a text has no control characters."""
    if not is_clean(text):
        raise ArgumentTypeError(NOT_CLEAN)
    return text


def name_argument(text: str) -> str:
    """Check the name of a cluster or namespace for argparse, by the same rules as the API."""
    if not text.strip():
        raise ArgumentTypeError("the name must not be blank")
    return one_line(text).strip()


def add_duration(parser: CommandParser) -> None:
    """Add the option `--for`: the duration of a cordon or a drain."""
    parser.add_argument(
        "--for", dest="duration", type=duration_argument, metavar="2h", help="time after which it gets work again"
    )


def duration_argument(text: str) -> float:
    """Parse a duration like 45s, 5m or 24h for argparse."""
    try:
        value = parse_duration(text)
    except ValueError as error:
        raise ArgumentTypeError(str(error)) from None
    if value is None:
        raise ArgumentTypeError("a duration is needed, like 5m; none is not allowed here")
    return value
