"""The command line, `controlplane` and `manage.py` alike. Without DATABASE_URL a command uses the embedded PostgreSQL
of the data directory."""

import os
import sys

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
        execute_from_command_line(argv)


if __name__ == "__main__":
    main()
