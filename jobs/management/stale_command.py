"""Base class of the two commands that recover stale attempts by hand."""

import sys
from collections.abc import Callable
from typing import Any

from django.core.management.base import CommandError, CommandParser
from rich.progress import Progress

from controlplane.core.durations import parse_duration
from jobs.conf import conf
from jobs.services import sweep
from liveness.management.operator_command import OperatorCommand


class StaleCommand(OperatorCommand):
    """Command on all live attempts in one state without a heartbeat for --older-than. Show progress on a terminal."""

    state: str
    recover: Callable[..., int]
    setting: str
    """Name of the setting with the sweep's threshold, the default of --older-than."""

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument(
            "--older-than",
            metavar="5m",
            help=f'only attempts without a heartbeat for so long (default: JOBS["{self.setting.upper()}"])',
        )
        parser.add_argument("--dry-run", action="store_true", help="only print how many there are")

    def handle(self, *, older_than: str | None, dry_run: bool, note: str, **options: Any) -> None:
        try:
            threshold = getattr(conf(), self.setting) if older_than is None else parse_duration(older_than)
        except ValueError as error:
            raise CommandError(f"--older-than: {error}") from None
        if threshold is None:
            raise CommandError("--older-than: a duration is needed, like 5m; none is not allowed here")
        total = sweep.count_stale_attempts(threshold).get(self.state, 0)
        if dry_run:
            self.stdout.write(f"stale: {total}")
            return
        with Progress(disable=not sys.stderr.isatty(), transient=True) as bar:
            task = bar.add_task(self.help, total=total)
            count = type(self).recover(threshold, self.actor, note, lambda done: bar.advance(task, done))
        self.stdout.write(f"done: {count}")
