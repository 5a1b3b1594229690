"""Channels of alert messages: signed webhooks, e-mail, and the services that Apprise knows."""

import json
import threading
import warnings
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit
from uuid import UUID

from django.core.mail import EmailMessage, get_connection

from controlplane.agent.secrets.mask import SecretMask
from jobs.conf import alerts_conf
from jobs.models import AlertChannel
from jobs.services.alert_calls import BadStatus, NotSent, call_url, mask_of_address
from jobs.services.alert_texts import describe_message, write_for_service

MAIL_TIMEOUT = 10
CALL_TIMEOUT = 15
"""Seconds after which a call is abandoned. A socket timeout is not enough, because a receiver that sends a byte now
and then never reaches it."""

NOTIFY_TYPES = {"critical": "failure", "warning": "warning"}
"""Apprise's notify types by severity. Chat services choose a colour or an icon by them."""

calls: dict[str, threading.Thread] = {}
"""The running or abandoned call of each channel."""


class NoSuchChannel(NotSent):
    is_final = True


class MessageChannel(NamedTuple):
    kind: str
    address: str
    row: AlertChannel | None = None
    """None if it is in the settings."""


def read_channels(added: Iterable[AlertChannel] | None = None) -> dict[str, MessageChannel]:
    """Return the channels by name: first from the settings, then from the page.

    The latter are read from the database, unless the caller has read them.
    """
    rows = AlertChannel.objects.order_by("pk") if added is None else added
    settings = alerts_conf()
    # Each address is a separate channel, because a server may refuse some addresses of an e-mail and accept others.
    given = {"webhook": settings.webhook_urls, "email": settings.email_to, "apprise": settings.apprise_urls}
    channels = {
        f"{kind} {number}": MessageChannel(kind, address)
        for kind, addresses in given.items()
        for number, address in enumerate(addresses.split(), 1)
    }
    return channels | {row.name: MessageChannel(row.kind, row.address, row) for row in rows}


def list_channels() -> list[str]:
    """Return the names of all channels."""
    return list(read_channels())


def describe_address(kind: str, address: str) -> str:
    """Return an address as people may see it: an e-mail address whole, any other without its secret parts."""
    if kind == "email":
        return address
    parts = urlsplit(address)
    return f"{parts.scheme}://{parts.hostname}/…" if kind == "webhook" else f"{parts.scheme}://…"


def send_message(channel: str, id: UUID, event: str, payload: dict[str, Any]) -> None:
    """Send a message over a channel. Raises NotSent."""
    found = read_channels().get(channel)
    if found is None:
        raise NoSuchChannel(f"The channel {channel!r} was removed.")
    kind, address, _ = found
    send: Callable[[], None] = {
        "webhook": lambda: post_alert(address, id, payload),
        "email": lambda: send_mail(address, id, payload),
        "apprise": lambda: notify_apprise(address, payload),
    }[kind]
    hidden = alerts_conf().email_url or "" if kind == "email" else address
    call_with_timeout(channel, send, mask_of_address(hidden, has_host=kind != "apprise"))


def call_with_timeout(channel: str, call: Callable[[], None], mask: SecretMask) -> None:
    """Make a call in a thread, and abandon the thread if it takes too long. Raises NotSent.

    Each channel has one call at a time, so a receiver that hangs blocks at most one thread, and never the checks.
    """
    if (before := calls.get(channel)) is not None and before.is_alive():
        raise NotSent("The previous call of this channel has not ended yet.")
    raised: list[BaseException] = []

    def run() -> None:
        try:
            call()
        except BaseException as error:
            raised.append(error)

    calls[channel] = thread = threading.Thread(target=run, name=f"alerts by {channel}", daemon=True)
    thread.start()
    thread.join(CALL_TIMEOUT)
    if thread.is_alive():
        raise NotSent(f"The call has not ended within {CALL_TIMEOUT} seconds.")
    calls.pop(channel, None)
    match raised:
        case [NotSent() as error]:
            raise type(error)(mask.mask_text(str(error))) from None
        case [Exception() as error]:
            # Libraries of chat services may raise any error. The other messages must be sent anyway.
            raise NotSent(mask.mask_text(f"{type(error).__name__}: {error}".split("\n")[0])) from None
        case [error]:
            raise error


def count_running_calls(prefix: str = "") -> int:
    """Return the number of calls that have not ended, of channels with this prefix. Forget those that have ended."""
    for channel, thread in list(calls.items()):
        if not thread.is_alive() and thread.ident is not None:
            calls.pop(channel, None)
    return sum(channel.startswith(prefix) for channel in list(calls))


def post_alert(url: str, id: UUID, payload: dict[str, Any]) -> None:
    settings = alerts_conf()
    post_webhook(url, id, payload, settings.webhook_secret or "", allow_private=settings.webhook_allow_private)


def post_webhook(url: str, id: UUID, payload: dict[str, Any], secret: str, *, allow_private: bool) -> None:
    """Post a message as Standard Webhooks demand: each try has the same id, so the receiver can ignore repetitions.

    `secret` signs it. `allow_private` allows addresses in private networks.
    """
    from standardwebhooks import Webhook

    body = json.dumps(payload, sort_keys=True, separators=(",", ":"))
    now = datetime.now(UTC)
    headers = {
        "Content-Type": "application/json",
        "User-Agent": "controlplane",
        "webhook-id": str(id),
        "webhook-timestamp": str(int(now.timestamp())),
        "webhook-signature": Webhook(secret).sign(str(id), now, body),
    }
    status = call_url("POST", url, headers, body.encode(), allow_private=allow_private)
    if not 200 <= status < 300:
        raise BadStatus(f"The receiver responded with {status}.")


def send_mail(to: str, id: UUID, payload: dict[str, Any]) -> None:
    subject, text = describe_message(payload)
    settings = alerts_conf()
    server = read_mail_server(settings.email_url) if settings.email_url else {}
    with get_connection(timeout=MAIL_TIMEOUT, **server) as connection:
        EmailMessage(
            subject,
            text,
            from_email=settings.email_from,
            to=[to],
            headers={"Message-ID": f"<{id}@controlplane>"},
            connection=connection,
        ).send()


def read_mail_server(url: str) -> dict[str, Any]:
    """Return the arguments of Django's mail connection for the URL of a mail server. Raises ValueError."""
    usual_ports = {"smtp": 25, "submission": 587, "smtps": 465}
    try:
        parts = urlsplit(url)
        port = parts.port or usual_ports[parts.scheme]
        if not parts.hostname or parts.path.strip("/") or parts.query or parts.fragment:
            raise ValueError
    except (KeyError, ValueError):
        # The URL is not part of the message, because it may contain a password.
        raise ValueError("write submission://user:password@host, smtps://user:password@host or smtp://host") from None
    return {
        "backend": "django.core.mail.backends.smtp.EmailBackend",
        "host": parts.hostname,
        "port": port,
        "username": unquote(parts.username or ""),
        "password": unquote(parts.password or ""),
        "use_tls": parts.scheme == "submission",
        "use_ssl": parts.scheme == "smtps",
    }


def notify_apprise(url: str, payload: dict[str, Any]) -> None:
    """Send a message as text, which Apprise converts to the format of the service. Raises NotSent."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # slow, because Apprise imports many plugins
        try:
            from apprise import Apprise, NotifyFormat
        except ModuleNotFoundError:
            raise NotSent("Apprise is not installed: run `pip install 'controlplane[chat]'`.") from None

        apprise = Apprise()
        if not apprise.add(url):
            raise NotSent("Apprise does not support this address.")
        for service in apprise:
            format = service.resolve_format(NotifyFormat.TEXT)
            subject, text = write_for_service(urlsplit(url).scheme.lower(), format.value, payload)
            one = Apprise()
            one.add(service)
            kind = NOTIFY_TYPES.get(payload["data"].get("severity"), "info")
            if payload["type"] == "incident.ended":
                kind = "success"
            if not one.notify(body=text, title=subject, body_format=NotifyFormat.TEXT, notify_type=kind):
                raise NotSent("Apprise could not deliver the message.")
