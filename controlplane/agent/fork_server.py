"""A process that has imported a module, and is forked for each call of a function of it:
`python -m controlplane.agent.fork_server MODULE CHANNEL`.

CHANNEL, a socket, gets `ready` once, or `!` and why no call is to be forked from here. Then each message on it brings
the descriptors of a call, and is answered with the process id of its reaper, which is the agent's own child, or with
`!` and why there is none. What comes below that reaper is as below any other (reaper.py): a session and a group of its
own, the fence, death with the agent. Only the interpreter and the module are there already.

A module is fit for this if what it does at its import can be shared by forks: it starts no threads, opens no sockets or
pipes, and does not look at what job it is imported for.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import io
import marshal
import os
import select
import signal
import socket
import stat
import sys
import threading
from dataclasses import dataclass
from typing import Any, NoReturn

from controlplane.agent import callable_child, reaper

READY = b"ready"
DESCRIPTORS = 8  # of a call: command, control, status, stdin, stdout, stderr, result, pulse
OF_JOB = b"JOB_"


@dataclass(frozen=True)
class Call:
    """What this process is to do, which was forked for it."""

    function: str
    modules: str
    result: int
    pulse: int


class Sources:
    """The files of what was imported, but for what is installed: with the next change of one a call needs a new
    process."""

    def __init__(self) -> None:
        roots = tuple({os.path.join(prefix, "") for prefix in (sys.prefix, sys.base_prefix)})
        files = {str(getattr(module, "__file__", None) or "") for module in list(sys.modules.values())}
        self._times = {file: _changed_at(file) for file in files if file and not file.startswith(roots)}

    def have_changed(self) -> bool:
        return any(_changed_at(file) != time for file, time in self._times.items())


def import_fit(module: str) -> str:
    """Import it; why it is not fit, or nothing."""
    shared = _unshareable()
    read: set[bytes] = set()
    environ: Any = os.environ
    encode = environ.encodekey

    def encode_noted(key: str) -> Any:
        read.add(encode(key))
        return encode(key)

    environ.encodekey = encode_noted
    try:
        importlib.import_module(module)
    except BaseException as error:
        return f"it cannot be imported: {error!r}"
    finally:
        environ.encodekey = encode
    if len(os.listdir("/proc/self/task")) > 1:
        return "it starts threads when it is imported"
    if _unshareable() - shared:
        return "it opens sockets or pipes when it is imported"
    if any(key.startswith(OF_JOB) for key in read):
        return "it looks at its job when it is imported"
    return ""


def serve(channel: socket.socket) -> Call | None:
    """In each process that is forked for a call: that call. None at the end, in this process."""
    sources = Sources()
    while True:
        message, descriptors, _, _ = socket.recv_fds(channel, 16, DESCRIPTORS)
        if not message:
            return None
        if sources.have_changed():
            _close(*descriptors)
            channel.send(b"!its files have changed")
            continue
        for stream in (sys.stdout, sys.stderr):
            stream.flush()  # or each call writes it again
        pids, pid = os.pipe()
        # A child of a child that ends: the reaper becomes a child of the agent, which adopts orphans.
        if (middle := os.fork()) == 0:
            channel.close()
            os.close(pids)
            if call := _fork_reaper(descriptors, pid):
                return call
        _close(pid, *descriptors)
        reaper_pid = os.read(pids, 32)
        os.close(pids)
        reaper.try_to(os.waitpid, middle, 0)
        channel.send(reaper_pid or b"!it cannot be forked")


def _fork_reaper(descriptors: list[int], pid: int) -> Call | None:
    """Returns in the process of the code alone."""
    try:
        if child := os.fork():
            os.write(pid, str(child).encode())
            os._exit(0)
        os.close(pid)
        return _become_reaper(*descriptors)
    except OSError:
        os._exit(1)


def _become_reaper(
    command: int, control: int, status: int, stdin: int, stdout: int, stderr: int, result: int, pulse: int
) -> Call:
    os.setsid()
    gc.disable()
    handlers = {number: signal.getsignal(number) for number in reaper.CHANGED}
    for standard, descriptor in enumerate((stdin, stdout, stderr)):
        os.dup2(descriptor, standard)
        os.close(descriptor)
    with open(command, "rb") as file:
        argv, env, *_ = marshal.load(file)  # noqa: S302 (from our own agent)
    reaper.prepare()
    guard = reaper.Reaper(control)
    select.select([control], [], [])  # our agent knows us from its first line on; before that nothing begins
    guard.read()
    if guard.ending:
        reaper.leave(None)
    parent = os.getpid()
    guard.main = os.fork()
    if guard.main:
        guard.guard(status, [result, pulse])
    reaper.become_code(parent)
    guard.close()
    os.close(status)
    for number, handler in handlers.items():
        if handler is not None:
            signal.signal(number, handler)
    reaper.prctl(reaper.DUMPABLE, 1)
    gc.enable()
    os.environ.clear()
    os.environ.update(env)
    if numpy := sys.modules.get("numpy.random"):
        numpy.seed()  # or the calls share their random numbers; Python's own are seen to by itself
    sys.argv = [callable_child.__file__, argv[3], argv[4], str(result), str(pulse)]  # as without us
    return Call(argv[3], argv[4], result, pulse)


def exit_quickly(files: list[Any]) -> NoReturn:
    """As an interpreter exits, but for the objects that there are, which it takes longer to end than all else: of these
    `files`, and those opened since they were listed, are flushed."""
    threading._shutdown()  # type: ignore[attr-defined]  # joins what is no daemon
    atexit._run_exitfuncs()
    for file in [*files, *_open_files(), sys.stdout, sys.stderr]:
        with contextlib.suppress(OSError, ValueError):
            file.flush()
    os._exit(0)


def _open_files() -> list[Any]:
    """But for those that `gc.freeze` has hidden."""
    return [item for item in gc.get_objects() if type(item) in (io.TextIOWrapper, io.BufferedWriter)]


def _unshareable() -> set[tuple[int, int]]:
    """Of our open files those that two processes must not share: all but regular ones and devices."""
    files = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            status = os.fstat(int(name))
        except OSError:
            continue  # the listing's own
        if not (stat.S_ISREG(status.st_mode) or stat.S_ISCHR(status.st_mode) or stat.S_ISDIR(status.st_mode)):
            files.add((int(name), status.st_ino))
    return files


def _changed_at(file: str) -> int | None:
    try:
        return os.stat(file).st_mtime_ns
    except OSError:
        return None


def _close(*descriptors: int) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


def main() -> None:
    module, descriptor = sys.argv[1], int(sys.argv[2])
    os.set_inheritable(descriptor, False)
    reaper.prctl(reaper.PDEATHSIG, signal.SIGKILL)
    channel = socket.socket(fileno=descriptor)
    if problem := import_fit(module):
        channel.send(f"!{problem}".encode()[:1000])
        return
    reaper.prctl(reaper.DUMPABLE, 0)  # no code of a job attaches itself to us, and so to those after it
    files = _open_files()
    gc.freeze()  # what is there already is not looked through, and so not copied, in each fork
    channel.send(READY)
    if call := serve(channel):
        callable_child.run_job(call.function, call.modules, call.result, call.pulse)
        exit_quickly(files)


if __name__ == "__main__":
    main()
