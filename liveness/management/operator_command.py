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
from controlplane.core.durations import seconds
from controlplane.core.problems import Problem
from liveness.models import Server
from liveness.services import operations


class OperatorCommand(BaseCommand):
    """A command that acts as `operator:` and the user of the operating system."""

    @property
    def actor(self) -> str:
        try:
            return operations.actor(getpass.getuser())
        except (KeyError, OSError):  # a container's user without a name
            return operations.actor(str(os.getuid()))

    @contextmanager
    def refusals(self) -> Iterator[None]:
        """What is refused is said as the API says it."""
        try:
            yield
        except Problem as problem:
            raise CommandError(problem.detail) from None


class ServerCommand(OperatorCommand):
    """A command on one server, by its id or by the name that it alone has among those alive."""

    done = ""

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("server", help="its id, or its name if no other server alive has it")
        parser.add_argument("--note", type=one_line, default="", help="why; kept with who and when")

    def handle(self, *, server: str, note: str, **options: Any) -> None:
        found = self.find(server)
        with self.refusals():
            self.act(found.pk, note, **options)
        found.refresh_from_db()
        self.stdout.write(f"{found.name} ({found.pk}, {found.state}) {self.done}")

    def act(self, server: UUID, note: str, **options: Any) -> None:
        raise NotImplementedError

    def find(self, words: str) -> Server:
        try:
            found = list(Server.objects.filter(pk=UUID(words)))
        except ValueError:
            found = list(Server.objects.alive().filter(name=words).order_by("pk"))
        if not found:
            raise CommandError(f"No server has the id {words}, and none that is alive this name.")
        if len(found) > 1:
            ids = ", ".join(str(one.pk) for one in found)
            raise CommandError(
                f"{len(found)} servers that are alive have the name {words}; say which by its id: {ids}."
            )
        return found[0]


def one_line(text: str) -> str:
    """For argparse: a name or a note."""
    if not is_clean(text):
        raise ArgumentTypeError(NOT_CLEAN)
    return text


def duration(written: str) -> float:
    """For argparse: 45s, 5m, 24h."""
    try:
        value = seconds(written)
    except ValueError as error:
        raise ArgumentTypeError(str(error)) from None
    if value is None:
        raise ArgumentTypeError("a duration is needed here, not none")
    return value
