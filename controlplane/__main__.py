"""Program `controlplane`. It has the commands of the client and, with the extra `[server]`, those of the control plane.

`manage.py` has only the commands of the control plane. Without DATABASE_URL they use the embedded PostgreSQL of the
data directory.
"""

import os
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any, NoReturn

from controlplane.core.garbage_collection import collect_seldom

NOT_INSTALLED = (
    "`{word}` is not a command of the client, and the commands of a control plane need Django: "
    "run `pip install 'controlplane[{extra}]'`."
)


def main() -> None:
    """Run `controlplane COMMAND`. `controlplane manage COMMAND` always runs the control plane's own command."""
    # Imported here, because manage.py does not need the client.
    from controlplane.client.__main__ import main as run_client
    from controlplane.client.parser import is_client_command

    words = sys.argv[1:]
    if not words or is_client_command(words[0]):
        sys.exit(run_client(words or ["--help"], prog="controlplane"))
    manage([sys.argv[0], *words[words[0] == "manage" :]])


def manage(argv: Sequence[str] | None = None) -> None:
    """Run one of Django's management commands."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings")
    collect_seldom()
    argv = sys.argv if argv is None else argv
    try:
        from django.core.management import execute_from_command_line
    except ModuleNotFoundError:
        word = "".join(argv[1:2]) or "manage"
        extra = "standalone" if word == "standalone" else "server"
        sys.exit(NOT_INSTALLED.format(word=word, extra=extra))

    from controlplane.embedded import data_dir, postgres

    argv = data_dir.take_option(argv)
    refuse_unknown(argv)
    with postgres.database_for_command(argv):
        if postgres.needs_database(argv):
            run_on_database(argv)
        else:
            execute_from_command_line(argv)


def refuse(text: str) -> NoReturn:
    """Print the text and exit with status 2: the command line is wrong."""
    print(text, file=sys.stderr)  # noqa: T201
    sys.exit(2)


def refuse_unknown(argv: Sequence[str]) -> None:
    """Refuse an unknown command or option before anything starts. Raise SystemExit with a suggestion."""
    from controlplane.embedded.data_dir import MAKERS

    word = "".join(argv[1:2])
    if word in MAKERS:
        return refuse_options(argv[0], word, argv[2:])
    if not word or word == "help" or word.startswith("-"):
        return
    import django
    from django.conf import settings
    from django.core.management import get_commands

    django.setup()
    if word not in (known := get_commands()):
        from controlplane.client.parser import client_commands

        similar = get_close_matches(word, {*known, *client_commands()}, n=1)
        perhaps = f" Did you mean `{similar[0]}`?" if similar else ""
        refuse(f"There is no command `{word}`.{perhaps} `controlplane --help` and `controlplane help` list all.")
    if word == "collectstatic" and not settings.STATIC_ROOT:
        sys.exit("Set CONTROLPLANE_STATIC_ROOT to the folder from which a web server serves static files.")


def refuse_options(program: str, word: str, options: Sequence[str]) -> None:
    """Check the options of a command that creates the data directory. Raise SystemExit.

    This happens before the settings are read, because the settings need the data directory.
    """
    from django.core.management.commands.migrate import Command as Migrate
    from django.db import DEFAULT_DB_ALIAS, connections

    from controlplane.standalone.options import StandaloneOptions

    if any(option.startswith("--database") for option in options):
        return  # only the settings define other databases
    command: Any = {"standalone": StandaloneOptions, "migrate": Migrate}[word]()
    command._called_from_command_line = True  # it then exits on errors
    known: Any = connections  # `migrate` reads the database names from it, and it reads them from the settings
    known.settings = {DEFAULT_DB_ALIAS: {}}
    try:
        command.create_parser(program, word).parse_args(options)
    finally:
        del known.settings


def run_on_database(argv: Sequence[str]) -> None:
    """Run a command. If the database is the problem, raise SystemExit with one sentence that says what to do."""
    from django.core.management import execute_from_command_line
    from django.db import OperationalError, ProgrammingError

    if why := why_unreachable():
        sys.exit(
            f"The database cannot be reached: {why}. Check that PostgreSQL runs there and that DATABASE_URL is right."
        )
    try:
        execute_from_command_line(list(argv))
    except OperationalError:
        if why := why_unreachable():
            sys.exit(f"The database connection was lost: {why}. The command may be complete, partly done, or not done.")
        raise
    except ProgrammingError:
        from controlplane.core.database import MIGRATE, count_missing_migrations

        if missing := count_missing_migrations():
            sys.exit(f"The database lacks {missing} migrations: run `{MIGRATE}` first.")
        raise


def why_unreachable() -> str | None:
    """Return why a new connection to PostgreSQL fails. None means that it works."""
    from django.db import OperationalError

    from controlplane.core.database import outside_pool

    with outside_pool() as own:
        try:
            own.ensure_connection()
        except OperationalError as error:
            return str(error).strip().split("\n")[0].rstrip(".")
    return None


if __name__ == "__main__":
    main()
