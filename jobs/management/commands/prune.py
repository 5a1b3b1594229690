from typing import Any

from django.core.management.base import CommandError, CommandParser
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from controlplane.core.own_command import OwnCommand
from jobs.services import retention


class Command(OwnCommand):
    help = (
        "Delete rows that are past their retention: ended executions and jobs, INACTIVE servers, events, heartbeats. "
    )
    help += "Make the partitions of the next days."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--dry-run", action="store_true", help="Only print what would be deleted.")

    def handle(self, *, dry_run: bool, **options: Any) -> None:
        verb = "would delete" if dry_run else "deleted"
        on_terminal = self.stdout.isatty()
        columns = [TextColumn("{task.description:10}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()]
        with Progress(*columns, disable=not on_terminal) as progress:
            bars: dict[str, Any] = {}

            def show_progress(kind: str, deleted: int, total: int) -> None:
                if kind not in bars:
                    bars[kind] = progress.add_task(kind, total=total)
                    if not on_terminal:
                        self.stdout.write(f"{kind}: {total:,} past their retention")
                progress.update(bars[kind], completed=total if dry_run else deleted)

            try:
                done = retention.prune_old_rows(dry_run=dry_run, report_progress=show_progress)
            except retention.PruneFailed as error:
                self.stdout.write(f"{verb}: {format_counts(error.done)}")
                raise CommandError(str(error)) from None
        for name in retention.list_old_partitions() if dry_run else ():
            self.stdout.write(f"would drop: {name}")
        self.stdout.write(f"{verb}: {format_counts(done)}")


def format_counts(done: dict[str, int]) -> str:
    return ", ".join(f"{number:,} {kind if number != 1 else kind.removesuffix('s')}" for kind, number in done.items())
