"""`python -m controlplane.standalone.respawn [--after URL] [--user NAME] -- COMMAND…`: run it, and again after its end.

`--after` waits until the URL answers; `--user` is who the command runs as, for root to say. SIGTERM and SIGINT are
passed on and end it, with the command's status; so does status 2, wrong usage: trying again would not help.
"""

import argparse
import ctypes
import http.client
import os
import pwd
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from types import FrameType
from typing import Any

PAUSE = 1.0  # seconds between an end and the next start
WRONG_USAGE = 2
PR_SET_PDEATHSIG, PR_SET_DUMPABLE = 1, 4
LIBC = ctypes.CDLL(None)
DIRECTLY = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def die_with_parent(parent: int, signum: int) -> None:
    """Get `signum` when the thread that started this process ends, even by SIGKILL (Linux)."""
    if prctl := getattr(LIBC, "prctl", None):
        prctl(PR_SET_PDEATHSIG, signum)
    if os.getppid() != parent:  # it died before we asked to be told
        os.kill(os.getpid(), signum)


def make_child_die_with_us(signum: int) -> Callable[[], None]:
    """A `preexec_fn`: the child gets `signum` when we end, and hears SIGINT and SIGTERM though we may not."""
    parent = os.getpid()

    def prepare_child() -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        die_with_parent(parent, signum)

    return prepare_child


def close_to_others() -> None:
    """Other processes of our user, and so the command's jobs, do not read our environment (Linux)."""
    if prctl := getattr(LIBC, "prctl", None):
        prctl(PR_SET_DUMPABLE, 0)


class Respawn:
    def __init__(self, command: list[str], user: str | None = None, umask: int = -1) -> None:
        self.command = command
        self.options: dict[str, Any] = {"umask": umask}
        if user:
            account = pwd.getpwnam(user)
            self.options |= {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
        self.child: subprocess.Popen[bytes] | None = None
        self.received_signal: int | None = None
        self.supervisor = os.getppid()

    def handle_signal(self, signum: int, frame: FrameType | None = None) -> None:
        # Nobody waits for us to end well when our supervisor has gone.
        self.received_signal = signum if os.getppid() == self.supervisor else signal.SIGKILL
        if self.child:
            self.child.send_signal(self.received_signal)

    def run(self) -> int:
        while self.received_signal is None:
            # Nobody but its supervisor should have to end it: without one it would go on unseen.
            self.child = subprocess.Popen(
                self.command, preexec_fn=make_child_die_with_us(signal.SIGKILL), **self.options
            )
            if self.received_signal is not None:  # between the look at it and the start
                self.child.send_signal(self.received_signal)
            status = self.child.wait()
            if self.received_signal is not None or status == WRONG_USAGE:
                return status if status >= 0 else 128 - status
            ending = f"was killed by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
            print(f"{ending}; starting it again", file=sys.stderr, flush=True)  # noqa: T201
            self.child = None
            self.wait_until(time.monotonic() + PAUSE)
        return 0

    def wait_until(self, moment: float) -> None:
        while self.received_signal is None and time.monotonic() < moment:
            time.sleep(0.05)

    def wait_for_url(self, url: str) -> None:
        while self.received_signal is None and not is_answering(url):
            self.wait_until(time.monotonic() + 0.1)


def is_answering(url: str) -> bool:
    """Does this URL answer with a success?"""
    try:
        with DIRECTLY.open(url, timeout=2) as response:
            return 200 <= response.status < 300
    except (OSError, http.client.HTTPException):
        return False


def main() -> int:
    parser = argparse.ArgumentParser(
        allow_abbrev=False, prog="python -m controlplane.standalone.respawn", description=__doc__
    )
    parser.add_argument("--after", metavar="URL", help="wait until it answers")
    parser.add_argument("--user", metavar="NAME", help="who it runs as")
    parser.add_argument(
        "--umask", metavar="OCTAL", type=lambda text: int(text, 8), default=-1, help="what it begins with"
    )
    parser.add_argument("command", nargs="+", metavar="COMMAND")
    arguments = parser.parse_args()
    close_to_others()
    respawn = Respawn(arguments.command, arguments.user, arguments.umask)
    for signum in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signum, respawn.handle_signal)
    if arguments.after:
        respawn.wait_for_url(arguments.after)
    return respawn.run()


if __name__ == "__main__":
    sys.exit(main())
