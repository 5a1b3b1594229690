"""Script whose processes escape with setsid, nohup and a double fork. They ignore all signals but SIGKILL."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.support.standin import alive, eventually

# Orphaned twice, in a new session.
DAEMON = """
import os, signal, time
for _ in range(2):
    if os.fork():
        os._exit(0)
    os.setsid()
signal.signal(signal.SIGTERM, signal.SIG_IGN)
open({0!r}, "a").write(f"{{os.getpid()}}\\n")
time.sleep(100)
"""


def escaping(file: Path) -> str:
    """Return the script. It writes their process ids and its own shell's into `file` before it continues."""
    stay = f"echo \\$\\$ >> {file}; trap '' TERM HUP; while true; do sleep 0.05; done"
    daemon = file.with_name(f"{file.name}.py")
    daemon.write_text(DAEMON.format(str(file)))
    return (
        f'setsid sh -c "{stay}" & nohup sh -c "{stay}" >/dev/null 2>&1 & {sys.executable} {daemon}; echo $$ >> {file};'
        f" while [ $(wc -l < {file}) -lt 4 ]; do sleep 0.01; done"
    )


def escaped(file: Path) -> list[int]:
    """Return their process ids when all have been written."""

    def read() -> list[int] | None:
        numbers = file.read_text().split() if file.exists() else []
        return [int(number) for number in numbers] if len(numbers) == 4 else None

    return list(eventually(read))


def gone(pids: list[int]) -> bool:
    return not any(alive(pid) for pid in pids)
