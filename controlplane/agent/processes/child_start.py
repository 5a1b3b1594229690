"""The start of one child process: its pipes, the file with its command, and its reaper (reaper.py)."""

from __future__ import annotations

import contextlib
import marshal
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from typing import IO

from controlplane.agent.limits import RESULT_KEPT
from controlplane.agent.processes import reaper
from controlplane.agent.processes.child_pipes import CHUNK, AnswerLines, CallFeed, InputFeed, OutputTail
from controlplane.agent.processes.child_process import ChildCommand, ChildProcess
from controlplane.agent.processes.fork_servers import ForkedProcess

OutputHandler = Callable[[str, bytes], None]  # with STDOUT or STDERR
Fork = Callable[[Sequence[int]], ForkedProcess | None]

STDOUT_KEPT = 16 * 1024  # bytes
STDERR_KEPT = 4 * 1024  # bytes
ANSWER_HEAD = 4096  # bytes of a line of a pool process besides a result
PULSE_KEPT = 1  # one byte is enough to show a sign of life
# The agent's own Python may need these variables.
INHERITED = {name: os.environ[name] for name in ["LD_LIBRARY_PATH"] if name in os.environ}


def start_below_reaper(
    key: str,
    command: ChildCommand,
    on_output: OutputHandler,
    fork: Fork | None,
    marker: str | None = None,
    lock: int | None = None,
) -> ChildProcess | None:
    """Start a command below a new reaper. Raise OSError if that is not possible.

    `fork` makes the reaper a fork of a process that has imported the module to call. None starts a new interpreter.
    `marker` and `lock` are those of server_file.py, if there is a file. Return None if `fork` has failed.
    """
    argv, held = list(command.argv), [] if lock is None else [lock]
    with contextlib.ExitStack() as ours, contextlib.ExitStack() as theirs:
        beats, pulse = _pipe(ours, theirs) if command.with_pulse else (None, None)
        answers, answered = _pipe(ours, theirs) if command.is_pool else (None, None)
        result = ours.enter_context(_result_file()) if command.with_result else None
        descriptors = [file.fileno() for file in (result, answered, pulse) if file]
        argv += map(str, descriptors)
        what = theirs.enter_context(tempfile.TemporaryFile())
        what.write(marshal.dumps((argv, command.env, command.cwd, descriptors, command.cleanup, marker)))
        what.seek(0)
        listening, control = _pipe(theirs, ours)
        says, status = _pipe(ours, theirs)
        reads, stdin = _pipe(theirs, ours)
        (stdout, writes), (stderr, complains) = _pipe(ours, theirs), _pipe(ours, theirs)
        passed = [what.fileno(), listening.fileno(), status.fileno()]
        process: ForkedProcess | subprocess.Popen[bytes] | None
        if fork:
            process = fork([*passed, reads.fileno(), writes.fileno(), complains.fileno(), *descriptors, *held])
        else:
            process = subprocess.Popen(
                [sys.executable, "-I", "-S", reaper.__file__, *map(str, [*passed, *held])],
                env=INHERITED,  # the environment of the job is for its code alone
                stdin=reads,
                stdout=writes,
                stderr=complains,
                pass_fds=[*passed, *descriptors, *held],
                start_new_session=True,
            )
        if process:
            ours.pop_all()
    if process is None:
        return None
    os.set_blocking(control.fileno(), False)  # a stopped reaper must not block the agent
    tails = (
        OutputTail(stdout, STDOUT_KEPT, partial(on_output, "STDOUT")),
        OutputTail(stderr, STDERR_KEPT, partial(on_output, "STDERR")),
    )
    messages = OutputTail(says, CHUNK, lambda chunk: None)
    feed = (CallFeed if command.is_pool else InputFeed)(stdin, memoryview(command.stdin))
    child = ChildProcess(key, command, process, control, feed, tails, messages, result)
    if beats:
        child.pulse = OutputTail(beats, PULSE_KEPT, lambda chunk: child.record_sign())
    if answers:
        child.answers = AnswerLines(answers, RESULT_KEPT + ANSWER_HEAD)
    return child


def _result_file() -> IO[bytes]:
    """Return a file for the result of the code, or for the id of the last call that a pool process began.

    It is in memory if possible, because the disk may be full.
    """
    if sys.platform == "linux":
        return open(os.memfd_create("result"), "w+b")
    return tempfile.TemporaryFile()


def _pipe(reads: contextlib.ExitStack, writes: contextlib.ExitStack) -> tuple[IO[bytes], IO[bytes]]:
    """Return both ends of a pipe. Each is closed with its stack."""
    here, there = os.pipe()
    return reads.enter_context(open(here, "rb", buffering=0)), writes.enter_context(open(there, "wb", buffering=0))
