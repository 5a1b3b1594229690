"""The command line, `controlplane` and `manage.py` alike. Without DATABASE_URL a command uses the embedded PostgreSQL
of the data directory."""

import os
import sys
from collections.abc import Sequence

NOT_INSTALLED = (
    "This is an agent's installation: it has no Django. Start an agent with `controlplane-agent`; "
    "for a control plane run `pip install 'controlplane[server]'`."
)


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings")
    try:
        from django.core.management import execute_from_command_line
    except ModuleNotFoundError:
        sys.exit(NOT_INSTALLED)

    from controlplane.embedded import data_dir, postgres

    argv = data_dir.take_option(sys.argv)
    with postgres.database_for_command(argv):
        if postgres.needs_database(argv):
            run_on_database(argv)
        else:
            execute_from_command_line(argv)


def run_on_database(argv: Sequence[str]) -> None:
    """Run a command; what is wrong with its database is one sentence, and not where in the code it was noticed.

    Raises SystemExit with what to do.
    """
    from django.core.management import execute_from_command_line
    from django.db import OperationalError, ProgrammingError

    if why := why_unreachable():
        sys.exit(f"The database cannot be reached: {why}. Is PostgreSQL running there, and DATABASE_URL right?")
    try:
        execute_from_command_line(list(argv))
    except OperationalError:
        if why := why_unreachable():
            sys.exit(f"The database was lost: {why}. What the command had begun may be done, or not.")
        raise
    except ProgrammingError:
        if missing := count_missing_migrations():
            sys.exit(f"The database lacks {missing} migrations: run `migrate` first.")
        raise


def why_unreachable() -> str | None:
    """What PostgreSQL, or the way to it, says to a connection of no pool; None: it is there."""
    from django.db import DEFAULT_DB_ALIAS, OperationalError, connections

    own = connections.create_connection(DEFAULT_DB_ALIAS)
    own.settings_dict = {**own.settings_dict, "OPTIONS": {**own.settings_dict["OPTIONS"], "pool": False}}
    try:
        own.ensure_connection()
    except OperationalError as error:
        return str(error).strip().split("\n")[0].rstrip(".")
    finally:
        own.close()
    return None


def count_missing_migrations() -> int:
    from django.db import connection
    from django.db.migrations.executor import MigrationExecutor

    executor = MigrationExecutor(connection)
    return len(executor.migration_plan(executor.loader.graph.leaf_nodes()))


if __name__ == "__main__":
    main()
