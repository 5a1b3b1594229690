"""Real servers of other makers, for the shape of many machines. Skipped with the reason where they are missing."""

import os
import pwd
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.processes import eventually, free_port


def program(name: str, *places: Path) -> str:
    """Where a program is. Skips the test, or fails it where everything is required."""
    found = shutil.which(name, path=os.pathsep.join([os.environ["PATH"], *map(str, places)]))
    if found is None:
        missing = f"{name} is not installed"
        if os.environ.get("REQUIRE_ALL"):
            pytest.fail(missing)
        pytest.skip(missing)
    return found


@contextmanager
def redis(folder: Path) -> Iterator[str]:
    """A Redis of its own; its address."""
    port = free_port()
    command = [program("redis-server"), "--port", str(port), "--save", "", "--dir", str(folder)]
    with (folder / "redis.log").open("wb") as log:
        server = subprocess.Popen([*command, "--bind", "127.0.0.1"], stdout=log, stderr=log)
    try:
        eventually(lambda: "Ready to accept connections" in (folder / "redis.log").read_text(), why="Redis is ready")
        yield f"redis://127.0.0.1:{port}/0"
    finally:
        server.terminate()
        server.wait(10)


@contextmanager
def postgresql(folder: Path) -> Iterator[str]:
    """A PostgreSQL as an administrator would install it, reached over TCP; its address."""
    places = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    initdb = program("initdb", *places)
    control = str(Path(initdb).parent / "pg_ctl")
    port, data = free_port(), folder / "postgresql"
    data.mkdir()
    options: dict[str, str] = {}
    if os.geteuid() == 0:
        owner = next(name for name in ("postgres", "pgserver", "nobody") if name in {u.pw_name for u in pwd.getpwall()})
        shutil.chown(data, owner)
        options = {"user": owner}
    data.chmod(0o700)

    def run(*command: str) -> None:
        done = subprocess.run(command, cwd="/", text=True, capture_output=True, timeout=60, check=False, **options)
        assert done.returncode == 0, done.stdout + done.stderr

    run(initdb, "--auth=trust", "--encoding=utf8", "--username=postgres", "--no-sync", "-D", str(data))
    settings = f"-p {port} -h 127.0.0.1 -k {data}"
    run(control, "-w", "-D", str(data), "-l", str(data / "log"), "-o", settings, "start")
    try:
        yield f"postgresql://postgres@127.0.0.1:{port}/postgres"
    finally:
        run(control, "-w", "-m", "immediate", "-D", str(data), "stop")
