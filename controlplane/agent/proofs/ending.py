"""Prove that nothing of a server runs any more, from its file alone."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from controlplane.agent.processes import attempt_mark, host
from controlplane.agent.processes.server_file import ALL_CODE, ServerRecord, attempt_of, markers_of

NAMESPACE_END = 1.0  # seconds that the kernel may take to end a PID namespace whose agent has ended
KILL_PATIENCE = 5.0  # seconds for one try to end what carries the mark of an attempt
CLEANUP_PATIENCE = 60.0  # seconds for the command that removes a container or a pod
PAUSE = 0.01  # seconds between two looks
AGENT, SENTINEL, COMMAND = b"controlplane.agent", b"controlplane.agent.proofs.sentinel", b"controlplane-agent"
"""Arguments by which agents and sentinels are known. They hide their environment."""


class NotProved(Exception):
    """Failure of a proof, because a process of the server may run. `is_final`: a later try cannot succeed either."""

    def __init__(self, why: str, *, is_final: bool = False) -> None:
        super().__init__(why)
        self.is_final = is_final


@dataclass(frozen=True)
class Proof:
    """Proof that no process of a server runs. `by_boot`: the machine was booted since, if nothing else ran there."""

    record: ServerRecord
    by_boot: bool


@contextmanager
def locked(path: Path) -> Iterator[int]:
    """Hold the lock of a server's file. Raise NotProved if it is held, FileNotFoundError if the file is gone."""
    descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise NotProved("its agent or a reaper still runs") from None
        if not os.path.samestat(os.fstat(descriptor), path.lstat()):
            raise FileNotFoundError(path)
        yield descriptor
    finally:
        os.close(descriptor)


def prove_end(path: Path, descriptor: int, spare: Collection[int] = ()) -> Proof:
    """Prove the end of the server whose locked file this is. Raise NotProved.

    Leftover processes of its attempts are killed first, because their reapers may have been killed too. `spare` are
    processes that have started another program since and belong to no dead server.
    """
    try:
        record = ServerRecord.read(descriptor)
    except ValueError as error:
        raise NotProved(f"{path} cannot be read: {error}", is_final=True) from None
    here = host.this_host()
    if record.machine != here.machine:
        raise NotProved("it ran on another machine", is_final=True)
    if record.boot != here.boot:
        if here.is_container or record.namespace != here.namespace or not here.machine:
            raise NotProved("it ran in a container before this boot", is_final=True)
    elif os.fstat(descriptor).st_ino != record.inode:
        raise NotProved("its file is a copy", is_final=True)
    elif record.namespace == here.namespace:
        end_marked_processes(path, spare)
    elif record.ends_namespace:
        time.sleep(NAMESPACE_END)
    else:
        raise NotProved("it ran in a PID namespace that may still live", is_final=True)
    for marker in markers_of(path):
        clean_up(marker)
        marker.unlink(missing_ok=True)
    return Proof(record, by_boot=record.boot != here.boot)


def end_marked_processes(path: Path, spare: Collection[int]) -> None:
    """Kill all code whose markers are left, and wait until it is gone. Raise NotProved."""
    markers = markers_of(path)
    if not markers:
        return
    if host.is_proc_hidden():
        raise NotProved("/proc hides processes", is_final=True)
    marks = {mark_of(marker) for marker in markers}
    began = min(float(read_marker(marker).get("began", 0)) for marker in markers)
    until = time.monotonic() + KILL_PATIENCE
    while True:
        left = kill_marked(marks, began, spare)
        if not left:
            return
        if time.monotonic() >= until:
            raise NotProved(f"processes {sorted(left)} cannot be ended or looked at")
        time.sleep(PAUSE)


def kill_marked(marks: set[bytes], began: float, spare: Collection[int]) -> set[int]:
    """Kill each process with one of these marks. Return their ids, and the ids of processes that may hide such a mark.

    `began`: uptime in seconds before which none of them can have started.
    """
    left = set()
    for pid in {int(name) for name in os.listdir("/proc") if name.isdigit()} - {*spare}:
        with suppress(ProcessLookupError, FileNotFoundError):
            handle = os.pidfd_open(pid)  # so that the signal reaches this process, and none that has its number later
            try:
                if is_marked(pid, marks, began):
                    left.add(pid)
                    with suppress(PermissionError):
                        signal.pidfd_send_signal(handle, signal.SIGKILL)
            finally:
                os.close(handle)
    return left


def is_marked(pid: int, marks: set[bytes], began: float) -> bool:
    """Return True for a living process that has one of these marks, or that may have one but hides it."""
    try:
        return not marks.isdisjoint(Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"))
    except PermissionError:
        pass
    status = Path(f"/proc/{pid}/status").read_text()
    is_ours = f"\nUid:\t{os.getuid()}\t" in status  # not by the owner of /proc/PID: that is root for a hidden process
    return is_ours and started_at(pid) >= began - 1 and not is_below_agent(pid)


def started_at(pid: int) -> float:
    """Return the uptime in seconds at which a process started."""
    return int(read_stat(pid)[19]) / os.sysconf("SC_CLK_TCK")


def is_below_agent(pid: int) -> bool:
    """Return True for agents, sentinels, and all processes below a living agent.

    Processes that a dead agent left never get another agent as their parent.
    """
    while pid > 1:
        if pid == os.getpid() or is_agent(pid):
            return True
        pid = int(read_stat(pid)[1])
    return False


def is_agent(pid: int) -> bool:
    words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    return not {AGENT, SENTINEL}.isdisjoint(words) or any(os.path.basename(word) == COMMAND for word in words[:2])


def read_stat(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat from the state on."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def mark_of(marker: Path) -> bytes:
    """Return the mark in the environment of the code of a marker. Raise NotProved if it is not known."""
    if attempt_of(marker) != ALL_CODE:
        return attempt_mark.text(attempt_of(marker))
    if not (mark := read_marker(marker).get("mark")):
        raise NotProved(f"{marker} cannot be read", is_final=True)
    return str(mark).encode()


def read_marker(marker: Path) -> dict[str, Any]:
    """Return the content of a marker, or nothing if its agent was killed before it was written."""
    try:
        content = json.loads(marker.read_text() or "{}")
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def clean_up(marker: Path) -> None:
    """Remove the container or the pod of a marked attempt. Raise NotProved if it may still run."""
    cleanup = read_marker(marker).get("cleanup")
    if not cleanup:
        return
    try:
        subprocess.run(cleanup, check=True, timeout=CLEANUP_PATIENCE, stdin=subprocess.DEVNULL, capture_output=True)
    except (OSError, subprocess.SubprocessError) as error:
        raise NotProved(f"its container or pod may still run: {error}") from None
