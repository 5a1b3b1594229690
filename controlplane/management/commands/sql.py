from typing import IO, Any, cast

from django.core.management.base import CommandError, CommandParser
from rich.console import Console
from rich.table import Table

from controlplane.core import sql_book
from controlplane.core.database import connection
from controlplane.core.own_command import OwnCommand

APPS = ("liveness", "jobs")


class Command(OwnCommand):
    help = "List the SQL statements of the control plane, or print one in full."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name", nargs="?", help="statement, step or rule to print, such as recover_attempts")
        parser.add_argument("--explain", action="store_true", help="show the plan for the current data")

    def handle(self, *args: Any, name: str | None, explain: bool, **options: Any) -> None:
        if name is None:
            self.list_statements()
            return
        app = next((app for app in APPS if name.removesuffix("_due") in sql_book.load_blocks(app)), None)
        if app is None:
            raise CommandError(f"There is no statement, step or rule {name!r}. `manage.py sql` lists all.")
        self.stdout.write(self.explain_statement(app, name) if explain else sql_book.compose_statement(app, name))

    def list_statements(self) -> None:
        table = Table("Book", "Statement", "What it does", box=None)
        for app in APPS:
            for block in sql_book.load_blocks(app).values():
                if block.kind == "statement":
                    table.add_row(str(block.book.relative_to(sql_book.ROOT)), block.name, block.text)
        Console(file=cast(IO[str], self.stdout)).print(table)

    def explain_statement(self, app: str, name: str) -> str:
        """Return PostgreSQL's plan for any parameters. The statement does not run."""
        if sql_book.load_blocks(app)[name].kind != "statement":
            raise CommandError(f"{name} is only part of a statement. --explain needs a whole statement.")
        with connection.cursor() as cursor:
            cursor.execute(f"explain (generic_plan) {sql_book.number_parameters(app, name).replace('%', '%%')}", ())
            return "\n".join(row[0] for row in cursor.fetchall())
