"""A pool process: it calls one function after the other, and imports their modules once.

Command: `python -m controlplane.agent.processes.pool_child BEGUN ANSWERS PULSE`, file descriptors. Standard input
brings lines of JSON. The first line is `{"preload": [modules], "max_memory": bytes}`. Each call is a line with the id
of the attempt, the function and the variables, then a line with the payload.

BEGUN holds the id of the last call that began. The agent reads it if this process dies, because a call that has not
begun goes to another process.

ANSWERS gets `R` when the process is ready, and one line for each call: `E ID WHY<tab>RESULT`, or `N ID WHY` if the call
did not begin. The process must be replaced if WHY is not empty.
"""

from __future__ import annotations

import contextvars
import importlib
import json
import os
import sys
from contextlib import suppress
from typing import IO, Any

from controlplane.agent.from_code import job_context
from controlplane.agent.from_code.pulse import start_pulse
from controlplane.agent.from_code.stack_file import open_stack_file
from controlplane.agent.processes import callable_child, pool_django, source_files
from controlplane.agent.processes.callable_child import SUCCESS
from controlplane.agent.processes.surroundings import Surroundings

QUIET_AFTER = 1.0  # seconds without a call, after which database connections are closed


class PoolProcess:
    def __init__(self, calls: IO[bytes], begun: int, answers: int) -> None:
        self._calls, self._begun, self._answers = calls, begun, answers

    def serve(self) -> None:
        """Serve calls until the agent closes the pipe."""
        first = json.loads(self._calls.readline())
        for module in first["preload"]:
            with suppress(Exception):
                importlib.import_module(module)
        self._sources = source_files.of_this_process()
        self._sources.add_modules()
        self._surroundings = Surroundings(first["max_memory"])
        self._answer(b"R")
        while True:
            pool_django.wait_for_call(self._calls, QUIET_AFTER)
            line, payload = self._calls.readline(), self._calls.readline()
            if not payload.endswith(b"\n"):
                return
            self._serve_call(json.loads(line), payload)

    def _serve_call(self, call: dict[str, Any], payload: bytes) -> None:
        key = call["id"].encode()
        if self._sources.are_found_changed():
            self._answer(b"N %s its source files have changed" % key)
            return
        os.pwrite(self._begun, key + b"\n", 0)
        path, variables = call["function"], call["variables"]
        with suppress(BaseException):  # the call below reports the error
            callable_child.import_function(path)
        surroundings = self._surroundings
        surroundings.note()
        os.environ.update(variables)
        pool_django.begin()
        text = contextvars.copy_context().run(self._call, path, payload, call["modules"], variables)
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):
                stream.flush()
        try:
            why = pool_django.end()
            why = surroundings.put_back(has_failed=not text.startswith(SUCCESS)) or why
        except Exception as error:  # the result must not be lost
            why = f"what it left behind cannot be found: {error!r}"
        result = text.encode(errors="surrogatepass").replace(b"\n", b" ")
        self._sources.add_modules()
        self._answer(b"E %s %s\t%s" % (key, why.replace("\t", " ").replace("\n", " ").encode(errors="replace"), result))

    def _call(self, path: str, payload: bytes, modules: str, variables: dict[str, str]) -> str:
        job_context.begin_attempt(variables)
        try:
            return callable_child.run_callable(path, json.loads(payload), modules)
        finally:
            job_context.end_attempt()

    def _answer(self, line: bytes) -> None:
        rest = memoryview(line + b"\n")
        while rest:
            rest = rest[os.write(self._answers, rest) :]


def main() -> None:
    begun, answers, pulse = map(int, sys.argv[1:4])
    sys.argv = [callable_child.__file__]
    for descriptor in (begun, answers):
        os.set_inheritable(descriptor, False)
    calls = os.fdopen(os.dup(0), "rb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    start_pulse(pulse)
    open_stack_file()
    sys.__stdout__.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # so that printed lines are reported at once
    job_context.bind_threads()
    PoolProcess(calls, begun, answers).serve()


if __name__ == "__main__":
    main()
