import time
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from jobs.services import seeding


class Command(BaseCommand):
    help = (
        "Make up servers and jobs, with a past, for trying out and for measuring. Never where there are real ones: "
        "nobody beats for these servers and nobody runs these jobs, so they go stale in a quarter of an hour, and the "
        "liveness check and the sweep, where they run, take them for lost."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--servers", type=int, default=100, help="How many (100).")
        parser.add_argument("--jobs", type=int, default=10_000, help="How many (10000).")
        parser.add_argument("--force", action="store_true", help="Even if there are servers or jobs already.")

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
                    "There are servers or jobs in this database already. Use an empty one, or pass --force."
                ) from None
        seeding.vacuum_tables()
        took = time.monotonic() - began
        self.stdout.write(
            f"{servers:,} servers and {jobs:,} jobs made up in {took:.0f} s. No processes run behind them."
        )
