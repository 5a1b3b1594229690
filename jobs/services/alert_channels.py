"""How a message goes out: a signed webhook, e-mail, or whatever Apprise speaks to."""

import json
import socket
import threading
import warnings
from collections.abc import Callable
from datetime import UTC, datetime
from ipaddress import ip_address
from typing import Any
from urllib.parse import unquote, urlsplit
from uuid import UUID

import urllib3
from django.core.mail import EmailMessage, get_connection

from jobs.conf import alerts_conf

TIMEOUT = urllib3.Timeout(connect=3, read=5)
MAIL_TIMEOUT = 10
PATIENCE = 15
"""Seconds after which nobody waits for a call any more: a receiver that sends a byte now and then keeps all limits of
its socket."""

calls: dict[str, threading.Thread] = {}
"""What is under way, or was left, by its channel."""


class NotSent(Exception):
    """Why a message did not go out. It is tried again, unless that is final."""

    is_final = False


class RefusedAddress(NotSent):
    """It leads into a private network."""


class NoSuchChannel(NotSent):
    is_final = True


def list_channels() -> list[str]:
    """The channels that the settings name."""
    settings = alerts_conf()
    return [
        *(f"webhook {number}" for number, _ in enumerate(settings.webhook_urls.split(), 1)),
        # Each for itself: of several addresses in one e-mail a server may refuse some, and the others would hide it.
        *(f"email {number}" for number, _ in enumerate(settings.email_to.split(), 1)),
        *(f"apprise {number}" for number, _ in enumerate(settings.apprise_urls.split(), 1)),
    ]


def send_message(channel: str, id: UUID, event: str, payload: dict[str, Any]) -> None:
    """Send it. Raises NotSent."""
    if channel not in list_channels():
        raise NoSuchChannel("The settings do not name this channel any more.")
    kind, _, number = channel.partition(" ")
    send: Callable[[], None] = {
        "webhook": lambda: post_webhook(alerts_conf().webhook_urls.split()[int(number) - 1], id, payload),
        "email": lambda: send_mail(alerts_conf().email_to.split()[int(number) - 1], id, payload),
        "apprise": lambda: notify_apprise(alerts_conf().apprise_urls.split()[int(number) - 1], payload),
    }[kind]
    call_patiently(channel, send)


def call_patiently(channel: str, call: Callable[[], None]) -> None:
    """Call, in a thread that is left to itself when it takes too long; of a channel there is one at a time, so that a
    receiver that hangs takes no thread of those that check servers, and none but its own. Raises NotSent."""
    if (before := calls.get(channel)) is not None and before.is_alive():
        raise NotSent("An earlier call has not ended yet.")
    raised: list[BaseException] = []

    def run() -> None:
        try:
            call()
        except BaseException as error:
            raised.append(error)

    calls[channel] = thread = threading.Thread(target=run, name=f"alerts by {channel}", daemon=True)
    thread.start()
    thread.join(PATIENCE)
    if thread.is_alive():
        raise NotSent(f"It has not ended within {PATIENCE} seconds.")
    match raised:
        case [NotSent() as error]:
            raise error
        case [Exception() as error]:
            # Whatever a library of somebody's chat raises: the other messages are sent all the same.
            raise NotSent(f"{type(error).__name__}: {error}".split("\n")[0]) from error
        case [error]:
            raise error


def post_webhook(url: str, id: UUID, payload: dict[str, Any]) -> None:
    """As Standard Webhooks has it: the id is the same at each try, so that a receiver knows what it has already."""
    from standardwebhooks import Webhook

    body = json.dumps(payload, sort_keys=True, separators=(",", ":"))
    now = datetime.now(UTC)
    headers = {
        "Content-Type": "application/json",
        "User-Agent": "controlplane",
        "webhook-id": str(id),
        "webhook-timestamp": str(int(now.timestamp())),
        "webhook-signature": Webhook(alerts_conf().webhook_secret or "").sign(str(id), now, body),
    }
    status = call_url("POST", url, headers, body.encode(), allow_private=alerts_conf().webhook_allow_private)
    if not 200 <= status < 300:
        raise NotSent(f"It answered {status}.")


def call_url(method: str, url: str, headers: dict[str, str], body: bytes | None, *, allow_private: bool) -> int:
    """The status of the answer, whose body is not read. Redirects are not followed. Raises NotSent.

    The name is looked up once, and that address is called: what it may be cannot change in between.
    """
    parts = urlsplit(url)
    host, tls = parts.hostname or "", parts.scheme == "https"
    port = parts.port or (443 if tls else 80)
    address = find_address(host, port, allow_private=allow_private)
    pool: urllib3.HTTPConnectionPool
    if tls:
        pool = urllib3.HTTPSConnectionPool(address, port, server_hostname=host, assert_hostname=host, timeout=TIMEOUT)
    else:
        pool = urllib3.HTTPConnectionPool(address, port, timeout=TIMEOUT)
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    with pool:
        answer = pool.urlopen(
            method,
            target,
            body=body,
            headers={**headers, "Host": parts.netloc.rpartition("@")[2]},
            retries=False,
            redirect=False,
            preload_content=False,
        )
        answer.close()
        return answer.status


def find_address(host: str, port: int, *, allow_private: bool) -> str:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise NotSent(f"{host} cannot be looked up: {error}") from None
    for *_, (address, *_) in found:
        if not allow_private and not ip_address(str(address).partition("%")[0]).is_global:
            raise RefusedAddress(f"{host} is {address}, in a private network: ALERTS[WEBHOOK_ALLOW_PRIVATE] is off.")
    return str(found[0][4][0])


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
    """What Django's connection to it is made with. Raises ValueError."""
    usual_ports = {"smtp": 25, "submission": 587, "smtps": 465}
    try:
        parts = urlsplit(url)
        port = parts.port or usual_ports[parts.scheme]
        if not parts.hostname or parts.path.strip("/") or parts.query or parts.fragment:
            raise ValueError
    except (KeyError, ValueError):
        # What was written is not repeated: a password may stand in it.
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
    title, text = describe_message(payload)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of its many plugins, whatever they import
        from apprise import Apprise

        apprise = Apprise()
        if not apprise.add(url):
            raise NotSent("Apprise does not know such an address.")
        if not apprise.notify(body=text, title=title):
            raise NotSent("Apprise could not deliver it.")


def describe_message(payload: dict[str, Any]) -> tuple[str, str]:
    """Subject and text, for people."""
    data = payload["data"]
    word = {"incident.opened": "", "incident.ended": "Over: ", "test": "Test: "}[payload["type"]]
    lines = [data["summary"], "", f"Instance: {data['instance']}"]
    for key, label in (("rule", "Rule"), ("opened_at", "Since"), ("ended_at", "Over since"), ("incident", "Incident")):
        if data.get(key):
            lines.append(f"{label}: {data[key]}")
    return f"[{data['instance']}] {word}{data['summary']}", "\n".join(lines)
