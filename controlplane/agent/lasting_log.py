"""A log that cannot end its program: a full disk or a lack of file descriptors raises no error here."""

from __future__ import annotations

from collections.abc import MutableMapping
from contextlib import suppress
from typing import Any, TextIO

import structlog
from structlog.typing import Processor


class LastingStream:
    """Write to `stream`, and drop text that cannot be written."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        with suppress(OSError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError):
            self._stream.flush()


class LastingRenderer:
    """Render an event with `processors`. If one fails (some read files), render only the event's name."""

    def __init__(self, *processors: Processor) -> None:
        self._processors = processors

    def __call__(self, logger: Any, method: str, event: MutableMapping[str, Any]) -> Any:
        rendered: Any = dict(event)
        try:
            for processor in self._processors:
                rendered = processor(logger, method, rendered)
        except structlog.DropEvent:
            raise
        except Exception as error:
            return f"[{method}] {event.get('event')!r} ({type(error).__name__} while it was written)"
        return rendered
