"""Calls about notifications: signed POSTs to the addresses in `notify` of jobs and executions that have ended."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, cast

from controlplane.client.answer_parts import Notification
from controlplane.client.requests import Reference, id_of
from controlplane.client.session import Session


class NotificationCalls(Session):
    def notification_secret(self) -> str:
        """Return the secret that signs the notifications of this token's jobs and executions."""
        return cast(str, self.call("GET", "/notifications/secret")["secret"])

    def notifications(
        self, *, state: Literal["waiting", "sent", "given_up"] | None = None, namespace: str | None = None,
        page: int | None = None,
    ) -> Iterator[Notification]:  # fmt: skip
        """Yield notifications, latest first, fetched in pages of `page`."""
        return self.items("/notifications", {"state": state, "namespace": namespace, "limit": page})

    def send_again(self, notification: Reference, note: str = "") -> None:
        """Send a notification again that was given up."""
        self.call("POST", f"/notifications/{id_of(notification)}/send-again", {"note": note})
