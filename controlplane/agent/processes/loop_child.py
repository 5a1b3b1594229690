"""A pool process with an event loop: it runs several calls at once.

Command: `python -m controlplane.agent.processes.loop_child UNUSED ANSWERS PULSE`, file descriptors. Standard input
brings the same lines as that of pool_child.py, and two more: `C ID` cancels a call, and `Q` asks the process to end
after its calls.

ANSWERS gets `R` when the process is ready, and for each call `B ID` when it begins, `O ID STREAM TEXT` for its output
(TEXT is JSON), and `E ID WHY<tab>RESULT`; or `N ID WHY` if it does not begin. If WHY is not empty, the process must be
replaced. That is found out when no call runs.

Coroutines run in the event loop. Functions run one after the other in one thread, because they would stop the loop.
"""

from __future__ import annotations

import asyncio
import contextvars
import importlib
import inspect
import json
import os
import sys
import weakref
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import IO, Any

from controlplane.agent.from_code import job_context
from controlplane.agent.from_code.pulse import start_pulse
from controlplane.agent.from_code.stack_file import open_stack_file
from controlplane.agent.processes import callable_child, pool_django, source_files
from controlplane.agent.processes.attempt_output import RUNNING, Answers, AttemptOutput
from controlplane.agent.processes.pool_child import QUIET_AFTER
from controlplane.agent.processes.surroundings import Surroundings

LINE_LIMIT = 64 * 2**20  # bytes of a line on standard input


class CountingExecutor(ThreadPoolExecutor):
    """Threads for `asyncio.to_thread`. It knows which calls of an attempt have not ended."""

    def __init__(self) -> None:
        super().__init__(thread_name_prefix="to-thread")
        self._calls: dict[str, set[Future[Any]]] = {}

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **named: Any) -> Future[Any]:
        future = super().submit(function, *arguments, **named)
        if key := RUNNING.get():
            self._calls.setdefault(key, set()).add(future)
        return future

    def take_running(self, key: str) -> list[Future[Any]]:
        """Return the calls of an attempt that have not ended, and forget them."""
        return [future for future in self._calls.pop(key, ()) if not future.done()]


class LoopProcess:
    def __init__(self, answers: Answers, outputs: tuple[AttemptOutput, AttemptOutput]) -> None:
        self._answers, self._outputs = answers, outputs
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._functions = ThreadPoolExecutor(1, "functions")
        self._to_thread = CountingExecutor()
        self._background: dict[str, weakref.WeakSet[asyncio.Task[Any]]] = {}
        self._quiet: asyncio.TimerHandle | None = None

    async def serve(self, calls: IO[bytes]) -> None:
        """Serve calls until the agent closes the pipe or asks for the end."""
        loop = asyncio.get_running_loop()
        loop.set_default_executor(self._to_thread)
        loop.set_task_factory(self._make_task)
        reader = asyncio.StreamReader(LINE_LIMIT)
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), calls)
        first = json.loads(await reader.readline())
        for module in first["preload"]:
            with suppress(Exception):
                importlib.import_module(module)
        self._functions.submit(int).result()  # its thread is there before the surroundings are recorded
        self._sources, self._surroundings = source_files.of_this_process(), Surroundings(first["max_memory"])
        self._sources.add_modules()
        self._answers.write(b"R")
        while (line := await reader.readline()) not in (b"", b"Q\n"):
            if line.startswith(b"C "):
                if task := self._tasks.get(line[2:-1].decode()):
                    task.cancel()
                continue
            payload = await reader.readline()
            if not payload.endswith(b"\n"):
                break
            self._begin(json.loads(line), payload)
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    def _begin(self, call: dict[str, Any], payload: bytes) -> None:
        key = call["id"]
        if not self._tasks:
            if self._quiet:
                self._quiet.cancel()
            if self._sources.are_found_changed():
                self._answers.write(b"N %s its source files have changed" % key.encode())
                return
            with suppress(BaseException):  # the call below reports the error
                callable_child.import_function(call["function"])
            self._surroundings.note()
        self._answers.write(b"B %s" % key.encode())
        run = self._run(key, call, payload)
        task = self._tasks[key] = asyncio.get_running_loop().create_task(run, context=contextvars.copy_context())
        task.add_done_callback(lambda task: self._end_cancelled(key, task))

    def _end_cancelled(self, key: str, task: asyncio.Task[None]) -> None:
        """Answer for a call that was cancelled before its first step, or while its end was prepared."""
        if self._tasks.get(key) is not task:
            return  # it has answered
        del self._tasks[key]
        error = json.dumps({"error": callable_child.describe_error(asyncio.CancelledError())})
        self._answers.write(b"E %s \t%s" % (key.encode(), error.encode()))

    def _make_task(self, loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> asyncio.Task[Any]:
        """Make a task, and remember which attempt it belongs to."""
        task = asyncio.Task(coroutine, loop=loop, **options)
        if key := RUNNING.get():
            self._background.setdefault(key, weakref.WeakSet()).add(task)
        return task

    async def _run(self, key: str, call: dict[str, Any], payload: bytes) -> None:
        RUNNING.set(key)
        job_context.begin_attempt(call["variables"])
        text = await self._call(call["function"], payload, call["modules"])
        await self._end_background(key)
        job_context.end_attempt()
        for output in self._outputs:
            output.end(key)
        why = ""
        if len(self._tasks) == 1:
            try:
                why = await self._look_around()
            except Exception as error:  # the result must not be lost
                why = f"what it left behind cannot be found: {error!r}"
        del self._tasks[key]
        result = text.encode(errors="surrogatepass").replace(b"\n", b" ")
        why = why.replace("\t", " ").replace("\n", " ")
        self._answers.write(b"E %s %s\t%s" % (key.encode(), why.encode(errors="replace"), result))

    async def _call(self, path: str, payload: bytes, modules: str) -> str:
        """Call the function and return the JSON object with its result or error. Raise nothing."""
        try:
            found = callable_child.find_function(path, modules)
            if isinstance(found, str):
                return found
            function = getattr(found, "in_event_loop", found)
            argument = json.loads(payload)
            if inspect.iscoroutinefunction(function):
                result = await function(argument)
            else:
                result = await self._run_in_thread(function, argument)
                if inspect.iscoroutine(result):
                    result = await result
        except BaseException as error:  # a SystemExit is a failure too
            return json.dumps({"error": callable_child.describe_error(error)})
        return callable_child.encode_result(result, path)

    async def _end_background(self, key: str) -> None:
        """Cancel the tasks that an attempt has left, and wait for them and for its calls in threads."""
        tasks = {task for task in self._background.pop(key, ()) if not task.done()}
        for task in tasks:
            task.cancel()
        left = {*tasks, *map(asyncio.wrap_future, self._to_thread.take_running(key))}
        while left:
            with suppress(asyncio.CancelledError):  # the agent kills this process if that takes too long
                _, left = await asyncio.wait(left)

    async def _run_in_thread(self, function: Callable[[Any], Any], argument: Any) -> Any:
        context = contextvars.copy_context()
        future = asyncio.get_running_loop().run_in_executor(self._functions, context.run, function, argument)
        try:
            return await asyncio.shield(future)
        finally:
            while not future.done():  # a thread cannot be cancelled
                with suppress(asyncio.CancelledError):
                    await asyncio.wait([future])

    async def _look_around(self) -> str:
        """Put back the surroundings when no other call runs. Return why the process must be replaced, or nothing."""
        why = await self._in_database_thread(pool_django.end)
        if len(self._tasks) > 1:
            return ""  # another call has begun in the meantime
        why = self._surroundings.put_back() or why
        self._sources.add_modules()
        self._quiet = asyncio.get_running_loop().call_later(QUIET_AFTER, self._close_connections)
        return why

    def _close_connections(self) -> None:
        if not self._tasks:
            self._closing = asyncio.ensure_future(self._in_database_thread(pool_django.close_idle))

    async def _in_database_thread(self, function: Callable[[], Any]) -> Any:
        """Call a function in the thread in which coroutines use Django's database, and in that of functions."""
        if "django.db" not in sys.modules:
            return ""
        from asgiref.sync import sync_to_async  # Django has it

        found = await asyncio.get_running_loop().run_in_executor(self._functions, function)
        return await sync_to_async(function)() or found


def main() -> None:
    _, answers, pulse = map(int, sys.argv[1:4])
    sys.argv = [callable_child.__file__]
    os.set_inheritable(answers, False)
    calls = os.fdopen(os.dup(0), "rb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    start_pulse(pulse)
    open_stack_file()
    pipe = Answers(answers)
    outputs = AttemptOutput("STDOUT", pipe), AttemptOutput("STDERR", pipe)
    sys.stdout, sys.stderr = outputs
    job_context.bind_threads()
    asyncio.run(LoopProcess(pipe, outputs).serve(calls))


if __name__ == "__main__":
    main()
