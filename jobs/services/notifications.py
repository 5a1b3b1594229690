"""Notifications: one signed POST when a job or an execution ends, to the addresses in its `notify`.

The database writes them to the outbox of alerts, in the transaction of the end (triggers `notify_end`). They are sent
after the messages of alerts. The secret of the token that submitted the work signs them, so no client can sign for
another client or for the control plane.
"""

import base64
import json
import secrets
import threading
import time
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from urllib.parse import urlsplit
from uuid import UUID

from django.db.models import F, Value
from django.db.models.functions import Coalesce

from controlplane.core.transactions import retried_atomic
from jobs.alert_errors import MessageUnknown
from jobs.conf import conf
from jobs.services.alert_calls import BadStatus, NotSent, NotTried, RefusedAddress, mask_of_address
from jobs.services.alert_channels import call_with_timeout, count_running_calls, post_webhook
from jobs.services.alerts import SENDING_BUDGET, note_delivery
from jobs.sql import sql
from jobs.sql.rows.alerts import LeasedMessage
from liveness.models import ApiToken
from liveness.services.action_events import INSTANCE, record_action

AT_ONCE = 16
"""Notifications that are leased together. Each receiver among them has a thread, so all are tried within the lease."""
RUNNING_CALLS_LIMIT = 100
"""Largest number of calls that run, with those that were abandoned because a receiver sends too slowly."""
CALLS_OF_TOKEN = 10
"""The same for the notifications of one token, so that one client cannot stop those of others."""
running = threading.Lock()
"""Held by the run of this process, so that slow receivers take only one thread of an executor."""


def send_notifications() -> int:
    """Send due notifications, to several receivers at once, unless another run does. Return how many were sent."""
    if not running.acquire(blocking=False):
        return 0
    try:
        return send_due_notifications()
    finally:
        running.release()


def send_due_notifications() -> int:
    began, sent = time.monotonic(), 0
    with ThreadPoolExecutor(AT_ONCE, "notifications") as pool:
        while time.monotonic() - began < SENDING_BUDGET:
            leased = sql.lease_message.fetch_rows(only=None, are_notifications=True, most=AT_ONCE)
            if not leased:
                break
            signing = read_secrets({message.token for message in leased if message.token})
            by_receiver: dict[tuple[UUID | None, str], list[LeasedMessage]] = {}
            for message in leased:
                by_receiver.setdefault((message.token, name_receiver(message)), []).append(message)
            for results in pool.map(partial(post_in_order, signing, began), by_receiver.values()):
                sent += sum(note_delivery(message, refusal) is None for message, refusal in results)
    return sent


def post_in_order(
    signing: dict[UUID, str], began: float, messages: list[LeasedMessage]
) -> list[tuple[LeasedMessage, NotSent | None]]:
    """Post the notifications of one token to one receiver, one after the other. Uses no database.

    If the receiver cannot be reached, and when the time of this run is over, the others are not tried. So a slow
    receiver does not hold up those of other clients.
    """
    results: list[tuple[LeasedMessage, NotSent | None]] = []
    later: NotSent | None = None
    for message in messages:
        if later is None and results and time.monotonic() - began > SENDING_BUDGET:
            later = NotTried("The calls before it took too long.")
        refusal = later or post_notification(message, signing)
        results.append((message, refusal))
        if refusal is not None and later is None and not isinstance(refusal, BadStatus):
            later = NotTried(f"The call before it failed: {refusal}")
    return results


def post_notification(message: LeasedMessage, signing: dict[UUID, str]) -> NotSent | None:
    """Post one notification. Return why it was not sent, or None."""
    url = message.url or ""
    secret = signing.get(message.token) if message.token else None
    if secret is None:
        return NotSent("No token owns this notification, so no secret signs it.")
    own = f"notify {message.token} "
    if count_running_calls() >= RUNNING_CALLS_LIMIT or count_running_calls(own) >= CALLS_OF_TOKEN:
        return NotTried("Too many calls to receivers have not ended yet.")
    allowed = conf().notify_allow_private
    call = partial(post_webhook, url, message.id, json.loads(message.payload), secret, allow_private=allowed)
    try:
        call_with_timeout(f"{own}{name_receiver(message)}", call, mask_of_address(url, has_host=True))
    except RefusedAddress:
        # A client must not learn the private addresses that names have here.
        return NotSent("The address is in a private network. An operator may allow this (NOTIFY_ALLOW_PRIVATE).")
    except NotSent as refusal:
        return refusal
    return None


def name_receiver(message: LeasedMessage) -> str:
    """Return the host and port of the receiver, without user and password."""
    return urlsplit(message.url or "").netloc.rpartition("@")[2].lower()


def read_secrets(tokens: Collection[UUID]) -> dict[UUID, str]:
    """Return the secrets of these tokens. A token without one gets one."""
    found = dict(ApiToken.objects.filter(pk__in=tokens).values_list("pk", "webhook_secret"))
    return {token: secret or make_secret(token) for token, secret in found.items()}


def make_secret(token: UUID) -> str:
    """Return the secret that signs the notifications of a token. It is made at the first call and never changes."""
    fresh = f"whsec_{base64.b64encode(secrets.token_bytes(32)).decode()}"
    ApiToken.objects.filter(pk=token).update(webhook_secret=Coalesce(F("webhook_secret"), Value(fresh)))
    return str(ApiToken.objects.values_list("webhook_secret", flat=True).get(pk=token))


@retried_atomic
def send_again(
    message: UUID, by: str, token: UUID | None = None, *, namespaces: Collection[str] | None = None, note: str = ""
) -> None:
    """Try again to send a message that was given up. `token` is the client whose notification it must be (None: any).

    Raises MessageUnknown if there is no such message, or if it was sent or will be tried again anyway.
    """
    within = None if namespaces is None else list(namespaces)
    if not sql.send_message_again.fetch_rows(message=message, token=token, namespaces=within):
        raise MessageUnknown
    record_action("send_message_again", by, note, INSTANCE)
