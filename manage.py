#!/usr/bin/env python
"""The command line. Without DATABASE_URL a command uses the embedded PostgreSQL of its data directory."""

import os
import sys


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings")
    from django.core.management import execute_from_command_line

    from controlplane.embedded import postgres

    with postgres.database_for_command(sys.argv):
        execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()
