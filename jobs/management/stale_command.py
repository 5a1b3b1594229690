"""What the two commands that recover by hand have in common."""

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
    """Acts on every live attempt of one state without a sign of life for --older-than; with a bar on a terminal."""

    state: str
    recover: Callable[..., int]
    setting: str
    """The threshold of the sweep, which holds here too unless another is said."""

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("--older-than", metavar="5m", help=f'default: JOBS["{self.setting.upper()}"]')
        parser.add_argument("--dry-run", action="store_true", help="only count")

    def handle(self, *, older_than: str | None, dry_run: bool, note: str, **options: Any) -> None:
        try:
            threshold = getattr(conf(), self.setting) if older_than is None else parse_duration(older_than)
        except ValueError as error:
            raise CommandError(f"--older-than: {error}") from None
        if threshold is None:
            raise CommandError("--older-than: a duration is needed here, not none")
        total = sweep.count_stale_attempts(threshold).get(self.state, 0)
        if dry_run:
            self.stdout.write(f"stale: {total}")
            return
        with Progress(disable=not sys.stderr.isatty(), transient=True) as bar:
            task = bar.add_task(self.help, total=total)
            count = type(self).recover(threshold, self.actor, note, lambda done: bar.advance(task, done))
        self.stdout.write(f"done: {count}")
