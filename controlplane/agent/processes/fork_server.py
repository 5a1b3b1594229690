"""A process that has imported modules and forks for each call of their functions, and for each pool process.

Command: `python -m controlplane.agent.processes.fork_server MODULES CHANNEL`, with commas between the modules.

CHANNEL is a socket. The fork server sends `ready` once, or `!` and the reason why it cannot fork. Then each message
brings the file descriptors of one process. The response is the process id of its reaper, which becomes a child of the
agent, or `!` and a reason. The processes below that reaper are as below any other (reaper.py): a session and a group of
their own, the fence, death with the agent. Only the interpreter and the modules are loaded already.

A module can be forked if forks can share the effects of its import. It must start no threads, open no sockets, pipes or
files (except to append), make no temporary directory, and not read the variables of a job. If one of several modules
does, the fork server starts again without it.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
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
import tempfile
import threading
import time
from typing import Any, NoReturn

from controlplane.agent.processes import attempt_mark, pool_child, reaper, source_files  # noqa: F401 (forks need pool_child)

READY = b"ready"
DESCRIPTORS = 10  # command, control, status, stdin, stdout, stderr, at most three for the code, perhaps the lock
OF_JOB = b"JOB_"


def import_fit(module: str) -> str:
    """Import the module. Return why it cannot be forked, or an empty text."""
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
        return "it opens sockets, pipes or files when it is imported"
    if any(type(item) is tempfile.TemporaryDirectory for item in gc.get_objects()):
        return "it makes a temporary directory when it is imported"  # the first fork that ends would delete it
    if any(key.startswith(OF_JOB) for key in read):
        return "it looks at its job when it is imported"
    return ""


def serve(channel: socket.socket, marks: dict[str, int]) -> str | None:
    """Serve until the agent closes the channel, then return None.

    Each forked process returns from this function with the name of its program, and has its arguments in `sys.argv`.
    `marks` are the addresses from attempt_mark.reserve().
    """
    sources = source_files.of_this_process()
    while True:
        message, descriptors, _, _ = socket.recv_fds(channel, 16, DESCRIPTORS)
        if not message:
            return None
        if sources.have_changed():
            _close(*descriptors)
            channel.send(b"!its files have changed")
            continue
        for stream in filter(None, (sys.stdout, sys.stderr)):
            stream.flush()  # otherwise each fork would write the buffer again
        pids, pid = os.pipe()
        # Fork twice and end the process between: the reaper becomes a child of the agent, which adopts orphans.
        if (middle := os.fork()) == 0:
            channel.close()
            os.close(pids)
            if program := _fork_reaper(descriptors, pid, marks):
                return program
        _close(pid, *descriptors)
        reaper_pid = os.read(pids, 32)
        os.close(pids)
        with contextlib.suppress(ChildProcessError):  # a module may ignore SIGCHLD
            os.waitpid(middle, 0)
        channel.send(reaper_pid or b"!it cannot be forked")


def _fork_reaper(descriptors: list[int], pid: int, marks: dict[str, int]) -> str | None:
    """Fork the reaper. This returns only in the process of the code."""
    try:
        if child := os.fork():
            os.write(pid, str(child).encode())
            os._exit(0)
        os.close(pid)
        return _become_reaper(marks, *descriptors)
    except OSError:
        os._exit(1)


def _become_reaper(
    marks: dict[str, int],
    command: int,
    control: int,
    status: int,
    stdin: int,
    stdout: int,
    stderr: int,
    *rest: int,
) -> str:
    os.setsid()
    gc.disable()
    handlers = {number: signal.getsignal(number) for number in reaper.CHANGED}
    for standard, descriptor in enumerate((stdin, stdout, stderr)):
        os.dup2(descriptor, standard)
        os.close(descriptor)
    with open(command, "rb") as file:
        argv, env, _, passed, _, marker = marshal.load(file)  # noqa: S302 (from our own agent)
    own, lock = list(rest[: len(passed)]), next(iter(rest[len(passed) :]), None)
    reaper.prepare()
    guard = reaper.Reaper(control, lock)
    select.select([control], [], [])  # wait for the first line: until then the agent does not know this reaper
    guard.read()
    if guard.ending:
        reaper.leave(None)
    parent = os.getpid()
    guard.main = reaper.fork(status)
    if guard.main:
        guard.guard(status, own, marker=marker)
    reaper.become_code(parent)
    # Until here the lock shows that this process lives. From now on the mark does, which others must be able to read.
    attempt_mark.write(marks, env)
    reaper.prctl(reaper.DUMPABLE, 1)
    guard.close()
    os.close(status)
    for number, handler in handlers.items():
        if handler is not None:
            signal.signal(number, handler)
    gc.enable()
    # The rest of the environment is the same. The import may have added variables, which this process keeps.
    os.environ.update({name: value for name, value in env.items() if name.encode().startswith(OF_JOB)})
    if numpy := sys.modules.get("numpy.random"):
        numpy.seed()  # otherwise all calls get the same random numbers; Python reseeds its own generator
    program = str(argv[2])  # after `python -m`
    place = importlib.import_module(program).__file__
    sys.argv = [str(place), *argv[3 : -len(own)], *map(str, own)]  # as without a fork server
    return program


def exit_quickly(files: list[Any]) -> NoReturn:
    """Exit like the interpreter does, but do not destroy the objects, because that takes longer than all else.

    Flush `files` and the files that were opened after they were listed.
    """
    threading._shutdown()  # type: ignore[attr-defined]  # joins threads that are not daemons
    atexit._run_exitfuncs()
    for file in [*files, *_open_files(), sys.stdout, sys.stderr]:
        with contextlib.suppress(OSError, ValueError):
            file.flush()
    os._exit(0)


def _open_files() -> list[Any]:
    """Return the open files, except those that `gc.freeze` has hidden."""
    return [item for item in gc.get_objects() if type(item) in (io.TextIOWrapper, io.BufferedWriter)]


def _unshareable() -> set[tuple[int, int]]:
    """Return the open files that two processes must not share: all except directories, devices and logs.

    A regular file has one position for all processes. That does no harm if they only append to it.
    """
    files = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            status = os.fstat(int(name))
        except OSError:
            continue  # the file descriptor of listdir() itself
        is_log = stat.S_ISREG(status.st_mode) and fcntl.fcntl(int(name), fcntl.F_GETFL) & os.O_APPEND
        if not (is_log or stat.S_ISCHR(status.st_mode) or stat.S_ISDIR(status.st_mode)):
            files.add((int(name), status.st_ino))
    return files


def _start_again(modules: list[str], channel: int, folder: str, environment: dict[str, str]) -> NoReturn:
    """Become a new interpreter that imports these modules, in the folder and environment of the first start."""
    os.set_inheritable(channel, True)
    os.chdir(folder)
    command = [sys.executable, "-m", "controlplane.agent.processes.fork_server", ",".join(modules), str(channel)]
    os.execve(sys.executable, command, {**environment, **attempt_mark.EMPTY})  # noqa: S606 (this program again)


def _close(*descriptors: int) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


def main() -> None:
    modules, descriptor = sys.argv[1].split(","), int(sys.argv[2])
    os.set_inheritable(descriptor, False)
    reaper.prctl(reaper.PDEATHSIG, signal.SIGKILL)
    channel, marks = socket.socket(fileno=descriptor), attempt_mark.reserve()
    began, folder, environment = time.time_ns(), os.getcwd(), dict(os.environ)
    for module in modules:
        if problem := import_fit(module):
            if others := [one for one in modules if one != module]:
                _start_again(others, descriptor, folder, environment)
            channel.send(f"!{problem}".encode()[:1000])
            return
    if source_files.of_this_process().were_written_since(began):
        _start_again(modules, descriptor, folder, environment)
    reaper.prctl(reaper.DUMPABLE, 0)  # no job's code may attach to this process, and so to later calls
    files = _open_files()
    gc.freeze()  # the collector skips existing objects, so forks do not copy their memory
    channel.send(READY)
    if program := serve(channel, marks):
        sys.modules[program].main()
        exit_quickly(files)


if __name__ == "__main__":
    main()
