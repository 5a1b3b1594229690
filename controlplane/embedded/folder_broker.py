"""Celery's messages in a folder. Unlike in kombu's filesystem transport, messages appear only when they are complete.

kombu writes into a file that its consumers already see. A consumer that looks at the wrong moment reads half a message,
and the Celery worker ends with an "unrecoverable error".
"""

from pathlib import Path
from time import monotonic_ns
from typing import Any
from uuid import uuid4

from kombu.transport import TRANSPORT_ALIASES, filesystem
from kombu.utils.json import dumps


class Channel(filesystem.Channel):
    def _put(self, queue: str, message: Any, **_: Any) -> None:  # type: ignore[override]
        # The name sorts by age. With a leading dot it belongs to no queue.
        name = f"{monotonic_ns():020}_{uuid4()}.{queue}.msg"
        draft = Path(self.data_folder_out) / f".{name}"
        draft.write_text(dumps(message))
        draft.rename(draft.with_name(name))


class Transport(filesystem.Transport):
    Channel = Channel


def install_transport() -> None:
    """Make `filesystem://` use this transport."""
    TRANSPORT_ALIASES["filesystem"] = f"{__name__}:Transport"
