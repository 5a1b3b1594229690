"""The checkpoint of an attempt: the JSON in the file that JOB_CHECKPOINT names, kept for the job's next attempt."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from controlplane.agent.from_code.outcomes import DEPTH_LIMIT, TooDeep, clean, parse
from controlplane.agent.from_code.reported_file import ReportedFile, read_file
from controlplane.agent.limits import CHECKPOINT_LIMIT

READ_LIMIT = 4 * CHECKPOINT_LIMIT  # bytes: it may be indented, and escaped


class CheckpointFile(ReportedFile):
    """A file with one JSON value. `on_refusal` gets a sentence if the value cannot be kept."""

    def __init__(self, path: Path, on_refusal: Callable[[str], None]) -> None:
        super().__init__(path)
        self._on_refusal = on_refusal
        self._known = self._doubted = b""

    def write_previous(self, value: Any) -> None:
        """Write the checkpoint of an earlier attempt for the code to read. Raise OSError."""
        if value is not None:
            self._known = json.dumps(value).encode()
            self.path.write_bytes(self._known)

    def read_news(self, *, is_last: bool) -> dict[str, Any] | None:
        data = read_file(self.path, READ_LIMIT + 1)
        if data in (b"", self._known):
            return None
        try:
            value = parse_checkpoint(data)
        except ValueError as error:
            # The code may still be writing. Refuse the value if it is the same at the next look.
            if is_last or data == self._doubted:
                self._known = data
                self._on_refusal(str(error))
            self._doubted = data
            return None
        self._known = data
        return {"event": "CHECKPOINT", "value": value}


def parse_checkpoint(data: bytes) -> Any:
    """Return the checkpoint. Raise ValueError with a sentence for the user."""
    if len(data) > READ_LIMIT:
        raise ValueError(f"the checkpoint has more than {CHECKPOINT_LIMIT} bytes of JSON")
    try:
        value = clean(parse(data))
    except TooDeep:
        raise ValueError(f"the checkpoint is nested more than {DEPTH_LIMIT} levels deep") from None
    except ValueError as error:
        raise ValueError(f"the checkpoint is not JSON: {error}") from None
    dump_checkpoint(value)
    return value


def dump_checkpoint(value: Any) -> str:
    """Return the value as compact JSON. Raise ValueError with a sentence if it is not JSON or too large."""
    try:
        text = json.dumps(value, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"the checkpoint is not JSON: {error}") from None
    if (size := len(text.encode(errors="surrogatepass"))) > CHECKPOINT_LIMIT:
        raise ValueError(f"the checkpoint has {size} bytes of JSON; the limit is {CHECKPOINT_LIMIT}")
    return text
