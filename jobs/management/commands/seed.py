import time
from typing import Any

from django.core.management.base import CommandError, CommandParser
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from controlplane.core.own_command import OwnCommand
from jobs.services import seeding


class Command(OwnCommand):
    help = (
        "Create fake servers and jobs with a history, for trials and measurements. Never use it beside real ones. The "
        "fake servers send no heartbeats and their jobs do not run. They are stale after 15 minutes, and a running "
        "liveness check or sweep treats them as lost."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--servers", type=int, default=100, help="number of servers (default: 100)")
        parser.add_argument("--jobs", type=int, default=10_000, help="number of jobs (default: 10000)")
        parser.add_argument("--force", action="store_true", help="run even if the database has servers or jobs")

    def handle(self, *, servers: int, jobs: int, force: bool, **options: Any) -> None:
        if servers < 1 or jobs < 0:
            raise CommandError("--servers must be at least 1, and --jobs must not be negative.")
        began = time.monotonic()
        columns = [TextColumn("{task.description:10}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()]
        with Progress(*columns, disable=not self.stdout.isatty()) as progress:
            totals = {"servers": servers, "jobs": jobs}
            bars = {what: progress.add_task(what, total=total) for what, total in totals.items()}

            def show_progress(what: str, done: int) -> None:
                progress.update(bars[what], completed=done)

            try:
                seeding.seed_database(servers, jobs, force=force, report_progress=show_progress)
            except seeding.NotEmpty:
                raise CommandError(
                    "This database already has servers or jobs. Use an empty one, or pass --force."
                ) from None
        seeding.vacuum_tables()
        took = time.monotonic() - began
        self.stdout.write(
            f"Created {servers:,} fake servers and {jobs:,} fake jobs in {took:.0f} s. No processes run behind them."
        )
