"""Run benchmarks: one line of JSON for each on stdout, a report and a progress bar on stderr."""

import argparse
import logging
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path

import django
import orjson
from django.core.management import call_command
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from controlplane.embedded import postgres, postgres_server
from tests.bench.report import build_report
from tests.bench.rows import Row

BENCHES = {
    "heartbeats": "over_http",
    "throughput": "over_http",
    "submission": "over_http",
    "single_submission": "over_http",
    "dead_server": "in_database",
    "claim": "in_database",
    "limits": "limits",
    "snapshot": "snapshot",
    "check_none_due": "in_database",
    "check_10000_due": "in_database",
    "idle": "idle",
    "follow": "follow",
    "pickup": "idle",
    "start": "start",
    "restart": "restart",
    "call": "calls",
    "celery": "celery",
    "django_tasks": "django_tasks",
    "peers": "peers",
    "growth": "growth",
    "executions": "executions",
    "retention": "retention",
    "pages": "pages",
    "pages_at_scale": "pages",
    "polls": "pages",
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("name", nargs="*", help=f"which; all of them by default: {', '.join(BENCHES)}")
    names = parser.parse_args().name or list(BENCHES)
    if unknown := set(names) - set(BENCHES):
        parser.error(f"no such benchmark: {', '.join(sorted(unknown))}; there are {', '.join(BENCHES)}")
    for signum in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(signum, postgres.exit_on_signal)
    screen = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with database() as data_dir, Progress(*columns, console=screen, transient=True) as bar:
        rows = []
        for name in names:
            task = bar.add_task(name, total=None)
            measure = getattr(import_module(f"tests.bench.{BENCHES[name]}"), name)
            measured = measure(data_dir, lambda task=task: bar.advance(task))
            for row in [measured] if isinstance(measured, Row) else measured:
                print(orjson.dumps(row.as_dict()).decode(), flush=True)  # noqa: T201
                rows.append(row)
            bar.remove_task(task)
    print(build_report(rows), file=sys.stderr)  # noqa: T201


@contextmanager
def database() -> Iterator[Path]:
    """Yield the data directory of a PostgreSQL with fsync and synchronous_commit on."""
    data_dir = Path(tempfile.mkdtemp(prefix="controlplane-bench-"))
    data_dir.chmod(0o755)  # PostgreSQL runs as another user than root
    try:
        with postgres.running_server(data_dir) as url:
            os.environ |= {"DATABASE_URL": url, "CONTROLPLANE_DATA_DIR": str(data_dir)}
            os.environ["DJANGO_SETTINGS_MODULE"] = "controlplane.settings"
            django.setup()
            with (data_dir / "log").open("w") as log:
                for handler in logging.getLogger().handlers:
                    if isinstance(handler, logging.StreamHandler):
                        handler.setStream(log)  # logging costs what it costs, but the screen is for the report
                call_command("migrate", verbosity=0)
                yield data_dir
    finally:
        home = postgres_server.database_home(data_dir)
        shutil.rmtree(home, ignore_errors=True)
        postgres_server.user_note(home).unlink(missing_ok=True)
        shutil.rmtree(data_dir, ignore_errors=True)


if __name__ == "__main__":
    main()
