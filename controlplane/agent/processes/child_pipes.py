"""Pipes between the agent and its child processes. No child may block the agent."""

from __future__ import annotations

import os
import selectors
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import IO

import structlog

log = structlog.get_logger()
CHUNK = 65536
REST = 32  # chunks that are read from a pipe after the end of its child


@dataclass
class PipeReader:
    """The part of a pipe's output that is kept: at most `kept` bytes of each line or of all."""

    pipe: IO[bytes]
    kept: int

    def take(self, chunk: bytes) -> None:
        raise NotImplementedError

    def transfer_data(self) -> bool:
        """Read what is available. Return False at the end of the pipe."""
        return self.read_chunk() != 0

    def read_chunk(self) -> int | None:
        """Read once. Return the number of bytes: 0 at the end, None if nothing is available."""
        try:
            chunk = os.read(self.pipe.fileno(), CHUNK)
        except BlockingIOError:
            return None
        self.take(chunk)
        return len(chunk)


@dataclass
class OutputTail(PipeReader):
    """The last bytes of a pipe. Earlier bytes are read and dropped, so that the child never blocks."""

    on_output: Callable[[bytes], None]
    data: bytearray = field(default_factory=bytearray)

    def take(self, chunk: bytes) -> None:
        self.on_output(chunk)
        self.data += chunk
        del self.data[: -self.kept]


@dataclass
class InputFeed:
    """The bytes that are still to be written to a pipe."""

    pipe: IO[bytes]
    rest: memoryview

    def transfer_data(self) -> bool:
        """Write as much as possible. Return False if all is written or the reader has closed the pipe."""
        try:
            self.rest = self.rest[os.write(self.pipe.fileno(), self.rest) :]
        except BlockingIOError:
            return True
        except BrokenPipeError:
            return False
        return bool(self.rest)


@dataclass
class CallFeed(InputFeed):
    """The calls for a pool process. The pipe stays open between calls."""

    def add(self, data: bytes) -> None:
        self.rest = memoryview(bytes(self.rest) + data)

    def transfer_data(self) -> bool:
        if self.rest:
            super().transfer_data()  # if its reader is gone, the process has ended, and that is noticed
        return True


@dataclass
class AnswerLines(PipeReader):
    """The lines that a pool process writes. Code in the process may write anything: a long line is cut."""

    lines: deque[bytes] = field(default_factory=deque)
    _rest: bytearray = field(default_factory=bytearray)

    def take(self, chunk: bytes) -> None:
        *whole, rest = chunk.split(b"\n")
        for line in whole:
            self.lines.append(bytes(self._rest + line)[: self.kept])
            self._rest.clear()
        if len(self._rest) <= self.kept:
            self._rest += rest


Stream = OutputTail | InputFeed | AnswerLines


class ChildPipes:
    """The pipes of all children. The selector returns the pipes that are ready."""

    def __init__(self, selector: selectors.BaseSelector) -> None:
        self._selector = selector

    def open(self, feed: InputFeed, streams: Iterable[OutputTail | AnswerLines]) -> None:
        """Begin to write and read the pipes of a new child. A pool process gets its calls by `send`."""
        if not isinstance(feed, CallFeed):
            self._register(feed, selectors.EVENT_WRITE)
        for stream in streams:
            self._register(stream, selectors.EVENT_READ)
        if not isinstance(feed, CallFeed):
            self._transfer(feed)

    def send(self, feed: CallFeed, data: bytes) -> None:
        """Write to a pool process, now or when it reads."""
        if feed.pipe.closed:
            return
        feed.add(data)
        feed.transfer_data()
        if feed.rest and not self._is_registered(feed):
            self._selector.register(feed.pipe, selectors.EVENT_WRITE, feed)

    def transfer_ready(self, ready: Iterable[tuple[selectors.SelectorKey, int]]) -> None:
        """Read from and write to the pipes that are ready, without waiting."""
        for key, _ in ready:
            if isinstance(key.data, Stream):
                self._transfer(key.data)

    def read_rest(self, stream: OutputTail | AnswerLines) -> None:
        """Read the rest of the output of a child that has ended, and close the pipe.

        Only REST chunks are read, because a process that escaped may hold the pipe open and write forever.
        """
        for _ in range(REST):
            if stream.pipe.closed or not stream.read_chunk():
                break
        self.close(stream)

    def close(self, stream: Stream) -> None:
        if not stream.pipe.closed:
            if self._is_registered(stream):
                self._selector.unregister(stream.pipe)
            stream.pipe.close()

    def _transfer(self, stream: Stream) -> None:
        try:
            if stream.transfer_data():
                if isinstance(stream, CallFeed) and not stream.rest:
                    self._selector.unregister(stream.pipe)  # until there is another call
                return
        except Exception:  # an error in one attempt must not affect the others
            log.exception("Closed a stream of a job after an error")
        self.close(stream)

    def _is_registered(self, stream: Stream) -> bool:
        return stream.pipe in self._selector.get_map()

    def _register(self, stream: Stream, event: int) -> None:
        os.set_blocking(stream.pipe.fileno(), False)
        self._selector.register(stream.pipe, event, stream)
