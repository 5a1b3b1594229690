"""Options of `standalone`. This module imports no settings.

The command checks its options before Django reads the settings. The settings need the data directory that the command
creates.
"""

import os
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Callable

from django.core.management.base import BaseCommand

from controlplane.agent.secrets.sources import PREFIX
from controlplane.embedded.data_dir import OPTION, find_data_dir


def whole_number(least: int, most: int) -> Callable[[str], int]:
    """Return an argparse type for whole numbers. Its error is one sentence with the allowed range."""

    def parse_number(text: str) -> int:
        if not (text.isascii() and text.isdigit() and least <= int(text) <= most):
            raise ArgumentTypeError(f"{text!r} is not a whole number from {least} to {most}")
        return int(text)

    return parse_number


def existing_folder(text: str) -> str:
    if not os.path.isdir(text):
        raise ArgumentTypeError(f"{text!r} is not a folder")
    return os.path.abspath(text)


class StandaloneOptions(BaseCommand):
    help = "Run a whole control plane in this terminal: database, web, executor and workers. Ctrl-C stops all of it."
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
            help=f"for the workers: folder with a file for each secret that jobs use (or variables {PREFIX}NAME)",
        )
        parser.add_argument(
            "--secret-command",
            metavar="COMMAND",
            help="for the workers: shell command that prints a secret; $1 is the secret's name",
        )
        # controlplane.embedded.data_dir reads this option before the settings.
        parser.add_argument(OPTION, metavar="DIR", help=f"database, key and tokens (default: {find_data_dir()})")
        parser.add_argument("--demo", action="store_true", help="short timings, jobs to watch, and a killed worker")
