"""The program `controlplane`: what asks a control plane over its API anywhere, and, where `[server]` is installed, the
commands of the control plane itself. `manage.py` has the latter alone. Without DATABASE_URL these use the embedded
PostgreSQL of the data directory."""

import os
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any

from controlplane.client.__main__ import main as run_client
from controlplane.client.parser import client_commands, is_client_command
from controlplane.core.garbage_collection import collect_seldom

NOT_INSTALLED = (
    "`{word}` is no command of the client, and for those of a control plane Django is missing: "
    "run `pip install 'controlplane[server]'`."
)


def main() -> None:
    """`controlplane COMMAND`; `controlplane manage COMMAND` is the one of the same name of the control plane itself."""
    words = sys.argv[1:]
    if not words or is_client_command(words[0]):
        sys.exit(run_client(words or ["--help"], prog="controlplane"))
    manage([sys.argv[0], *words[words[0] == "manage" :]])


def manage(argv: Sequence[str] | None = None) -> None:
    """A command of Django's management."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings")
    collect_seldom()
    argv = sys.argv if argv is None else argv
    try:
        from django.core.management import execute_from_command_line
    except ModuleNotFoundError:
        sys.exit(NOT_INSTALLED.format(word="".join(argv[1:2]) or "manage"))

    from controlplane.embedded import data_dir, postgres

    argv = data_dir.take_option(argv)
    refuse_unknown(argv)
    with postgres.database_for_command(argv):
        if postgres.needs_database(argv):
            run_on_database(argv)
        else:
            execute_from_command_line(argv)


def refuse_unknown(argv: Sequence[str]) -> None:
    """Before anything is begun for it. Raises SystemExit with what there is of a similar name, or which options."""
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
        similar = get_close_matches(word, {*known, *client_commands()}, n=1)
        perhaps = f" Did you mean `{similar[0]}`?" if similar else ""
        sys.exit(f"There is no command `{word}`.{perhaps} `controlplane --help` and `controlplane help` list all.")
    if word == "collectstatic" and not settings.STATIC_ROOT:
        sys.exit("Set CONTROLPLANE_STATIC_ROOT to the folder from which a web server is to serve static files.")


def refuse_options(program: str, word: str, options: Sequence[str]) -> None:
    """Of a command that makes the data directory, which the settings need: before either. Raises SystemExit."""
    from django.core.management.commands.migrate import Command as Migrate
    from django.db import DEFAULT_DB_ALIAS, connections

    from controlplane.standalone.options import StandaloneOptions

    if any(option.startswith("--database") for option in options):
        return  # the settings name the others
    command: Any = {"standalone": StandaloneOptions, "migrate": Migrate}[word]()
    command._called_from_command_line = True  # so that it exits
    known: Any = connections  # `migrate` asks it for the names of the databases, and it the settings
    known.settings = {DEFAULT_DB_ALIAS: {}}
    try:
        command.create_parser(program, word).parse_args(options)
    finally:
        del known.settings


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
        from controlplane.core.database import MIGRATE, count_missing_migrations

        if missing := count_missing_migrations():
            sys.exit(f"The database lacks {missing} migrations: run `{MIGRATE}` first.")
        raise


def why_unreachable() -> str | None:
    """What PostgreSQL, or the way to it, says to a connection of no pool; None: it is there."""
    from django.db import OperationalError, connections

    from controlplane.core.database import ALIAS

    own = connections.create_connection(ALIAS)
    own.settings_dict = {**own.settings_dict, "OPTIONS": {**own.settings_dict["OPTIONS"], "pool": False}}
    try:
        own.ensure_connection()
    except OperationalError as error:
        return str(error).strip().split("\n")[0].rstrip(".")
    finally:
        own.close()
    return None


if __name__ == "__main__":
    main()
