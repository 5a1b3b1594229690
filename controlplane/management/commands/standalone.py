"""`controlplane standalone`: a whole control plane in one terminal, first run included."""

import os
import sys
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Callable
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand
from rich.console import Console

from controlplane.agent.secret_sources import PREFIX
from controlplane.embedded.data_dir import OPTION, find_data_dir
from controlplane.observability.address import is_loopback
from controlplane.standalone import parts, preparation, worker_home
from controlplane.standalone.supervisor import Part, Supervisor
from controlplane.standalone.worker_home import Home


def whole_number(least: int, most: int) -> Callable[[str], int]:
    """A type of an option that says in one sentence what it takes."""

    def parse_number(text: str) -> int:
        if not (text.isascii() and text.isdigit() and least <= int(text) <= most):
            raise ArgumentTypeError(f"{text!r} is not a whole number from {least} to {most}")
        return int(text)

    return parse_number


def existing_folder(text: str) -> str:
    if not os.path.isdir(text):
        raise ArgumentTypeError(f"{text}: there is no such folder")
    return os.path.abspath(text)


class Command(BaseCommand):
    help = "Runs everything in this terminal: database, web, executor and workers. Ctrl-C stops it all."
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--host", default="127.0.0.1", help="address to listen on (default: 127.0.0.1, this machine only)"
        )
        parser.add_argument("--port", type=whole_number(1, 65535), default=8000, metavar="1-65535")
        parser.add_argument(
            "--workers",
            type=whole_number(0, 99),
            default=2,
            metavar="N",
            help="number of workers (default: 2; 0: none)",
        )
        parser.add_argument(
            "--secrets-dir",
            type=existing_folder,
            metavar="FOLDER",
            help=f"for the workers: files that hold the secrets which jobs name (or variables: {PREFIX}NAME)",
        )
        parser.add_argument(
            "--secret-command",
            metavar="COMMAND",
            help="for the workers: shell command that prints the secret whose name is its $1",
        )
        # Taken from the command line before there are settings, by controlplane.embedded.data_dir.
        parser.add_argument(OPTION, metavar="DIR", help=f"database, key, tokens (default: {find_data_dir()})")
        parser.add_argument("--demo", action="store_true", help="short timings, jobs to watch, and a worker that dies")

    def handle(
        self, *, host: str, port: int, workers: int, demo: bool, secrets_dir: str | None, secret_command: str | None,
        **_: Any,
    ) -> None:  # fmt: skip
        preparation.check_address(host, port)
        if not settings.BEHIND_TLS and not is_loopback(host):
            self.stderr.write(
                f"What comes to {host} from other machines travels in clear, tokens and passwords too: put a proxy "
                "that speaks TLS in front, and set BEHIND_TLS=1."
            )
        preparation.check_settings()
        data_dir = settings.DATA_DIR
        umask = os.umask(0o077)
        os.environ.update(parts.shared_environment(data_dir, host))
        if demo:
            os.environ.update({**parts.DEMO_TIMINGS, **os.environ})
        with preparation.hold_data_dir(data_dir):
            self.prepare_installation()
            url = f"http://{parts.reachable_host(host)}:{port}"
            page = f"{url}/admin/instance/"
            secrets = {"--secrets-dir": secrets_dir, "--secret-command": secret_command}
            options = [f"{option}={value}" for option, value in secrets.items() if value]
            home = worker_home.make(data_dir, os.environ, umask, options)
            if home.warning and workers:
                self.stderr.write(home.warning)
            started = self.build_parts(url, host, port, workers, demo, home)
            preparation.close_connections()
            status = Supervisor(started, ready=f"{url}/livez", greeting=f"Open {page} (Ctrl-C stops everything)").run()
        sys.exit(status)

    def prepare_installation(self) -> None:
        with Console(stderr=True).status("Migrating the database …"):
            preparation.migrate_database()
        if password := preparation.create_administrator():
            if self.stdout.isatty():
                self.stdout.write(
                    f"An administrator was made, shown this once: user {preparation.ADMIN}, password {password}"
                )
            else:  # a journal, or a file, keeps what it is given, and others read it
                kept = preparation.kept_password(settings.DATA_DIR, password)
                self.stdout.write(
                    f"An administrator was made: user {preparation.ADMIN}, the password is in {kept} "
                    "(delete it when you have read it)"
                )
        else:
            self.stdout.write(
                f"An administrator exists; `{Path(sys.argv[0]).name} changepassword {preparation.ADMIN}` "
                "sets a new password."
            )

    def build_parts(self, url: str, host: str, port: int, workers: int, demo: bool, home: Home) -> list[Part]:
        def token_of_role(role: str) -> str:
            return preparation.load_or_create_token(settings.DATA_DIR, role)

        made = [parts.web_part(host, port, settings.DATA_DIR), parts.executor_part(settings.DATA_DIR)]
        made += [parts.worker_part(number, url, token_of_role("worker"), home) for number in range(1, workers + 1)]
        return [*made, parts.demo_part(url, token_of_role("client"), token_of_role("operator"))] if demo else made
