"""What the two commands that recover by hand have in common."""

import getpass
import sys
from collections.abc import Callable
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from rich.progress import Progress

from controlplane.durations import seconds
from jobs.services import sweep
from liveness.services.operations import actor


class StaleCommand(BaseCommand):
    """Acts on every live attempt of one state without a sign of life for --older-than; with a bar on a terminal."""

    state: str
    act: Callable[..., int]
    default: float

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--older-than", metavar="5m", default=self.default, help="default: %(default)s s")
        parser.add_argument("--dry-run", action="store_true", help="only count")

    def handle(self, *, older_than: Any, dry_run: bool, **options: Any) -> None:
        try:
            threshold = seconds(older_than)
        except ValueError as error:
            raise CommandError(f"--older-than: {error}") from None
        if threshold is None:
            raise CommandError("--older-than: a duration is needed here, not none")
        found = sweep.count_stale(threshold).get(self.state, 0)
        if dry_run:
            self.stdout.write(f"stale: {found}")
            return
        with Progress(disable=not sys.stderr.isatty(), transient=True) as bar:
            task = bar.add_task(self.help, total=found)
            count = type(self).act(threshold, actor(getpass.getuser()), lambda done: bar.advance(task, done))
        self.stdout.write(f"done: {count}")
