"""The instructions in the response to a heartbeat."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any


@dataclass(frozen=True)
class Instructions:
    """The instructions of the control plane for this worker. Each response replaces the one before."""

    state: str  # of this server, as the control plane sees it
    cancel: list[str]  # ids of attempts whose jobs were cancelled
    lost: list[str]  # ids of attempts that the control plane has given up
    dump: list[str]  # ids of attempts whose stacks are wanted
    is_in_maintenance: bool
    blocks_claims: bool  # by a cordon, a drain or maintenance
    drain_at: float | None  # the deadline of a drain, on the control plane's wall clock
    config: tuple[int, list[str]] | None  # slots and tags of this worker; None: the response has none

    @classmethod
    def parse(cls, response: dict[str, Any]) -> Instructions:
        """Return the instructions in the body of a response."""
        maintenance, drain = bool(response.get("maintenance")), response.get("drain")
        deadline, config = (drain or {}).get("deadline"), response.get("config")
        return cls(
            state=str(response.get("state")),
            cancel=response.get("cancel") or [],
            lost=response.get("lost") or [],
            dump=response.get("dump") or [],
            is_in_maintenance=maintenance,
            blocks_claims=maintenance or bool(drain) or bool(response.get("cordoned")),
            config=(int(config["max_concurrent"]), list(config["tags"])) if config else None,
            drain_at=datetime.fromisoformat(deadline).timestamp() if deadline else None,
        )
