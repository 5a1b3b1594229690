"""Command `controlplane standalone`: a whole control plane in one terminal, including the first setup."""

import os
import sys
from pathlib import Path
from typing import Any

from django.conf import settings
from rich.console import Console

from controlplane.observability.address import is_loopback
from controlplane.standalone import parts, preparation, worker_home
from controlplane.standalone.options import StandaloneOptions
from controlplane.standalone.supervisor import Part, StandaloneSupervisor
from controlplane.standalone.worker_home import Home


class Command(StandaloneOptions):
    def handle(
        self, *, host: str, port: int, workers: int, demo: bool, secrets_dir: str | None, secret_command: str | None,
        **_: Any,
    ) -> None:  # fmt: skip
        preparation.check_address(host, port)
        if not settings.BEHIND_TLS and not is_loopback(host):
            self.stderr.write(
                f"Traffic from other machines to {host} is not encrypted, including tokens and passwords: put a "
                "TLS proxy in front, and set BEHIND_TLS=1."
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
            status = StandaloneSupervisor(
                started, ready=f"{url}/livez", greeting=f"Open {page} (Ctrl-C stops everything)"
            ).run()
        sys.exit(status)

    def prepare_installation(self) -> None:
        with Console(stderr=True).status("Migrating the database …"):
            preparation.migrate_database()
        preparation.check_key()
        if password := preparation.create_administrator():
            if self.stdout.isatty():
                self.stdout.write(
                    f"An administrator was created: user {preparation.ADMIN}, password {password} (not shown again)"
                )
            else:  # a journal or a file keeps the output, and others can read it
                kept = preparation.kept_password(settings.DATA_DIR, password)
                self.stdout.write(
                    f"An administrator was created: user {preparation.ADMIN}, the password is in {kept} "
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
