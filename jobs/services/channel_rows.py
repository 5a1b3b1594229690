"""Channels of alerts that people add on the page. The settings may have others."""

from importlib.util import find_spec
from urllib.parse import urlsplit
from uuid import UUID

from django.core.exceptions import ValidationError
from django.core.validators import validate_email

from controlplane.core.transactions import retried_atomic
from jobs.alert_errors import ChannelUnknown, ImpossibleChannel
from jobs.conf import alerts_conf
from jobs.models import AlertChannel
from jobs.services.alert_channels import describe_address
from jobs.sql import sql
from liveness.services.action_events import INSTANCE, record_action

WEBHOOK, EMAIL, APPRISE = KINDS = ("webhook", "email", "apprise")


@retried_atomic
def add_channel(kind: str, address: str, by: str, note: str = "") -> AlertChannel:
    """Store a channel. Messages about incidents that begin from now on are also sent there.

    The event shows no secret parts of the address. Raises ImpossibleChannel.
    """
    refuse_impossible(kind, address)
    sql.lock_channels.fetch_rows(address=address)
    if AlertChannel.objects.filter(kind=kind, address=address).exists():
        raise ImpossibleChannel("There is a channel with this address already.")
    channel = AlertChannel.objects.create(kind=kind, address=address)
    shown = {"channel": {"old": None, "new": describe_channel(channel)}}
    record_action("add_channel", by, note, INSTANCE, changes=shown)
    return channel


@retried_atomic
def remove_channel(channel: UUID, by: str, note: str = "") -> None:
    """Delete a channel. Its waiting messages are given up at their next try. Raises ChannelUnknown."""
    row = AlertChannel.objects.filter(pk=channel).select_for_update(no_key=True).first()
    if row is None:
        raise ChannelUnknown
    shown = {"channel": {"old": describe_channel(row), "new": None}}
    row.delete()
    record_action("remove_channel", by, note, INSTANCE, changes=shown)


def refuse_impossible(kind: str, address: str) -> None:
    """Raise ImpossibleChannel if no message could be sent over such a channel."""
    try:
        parts = urlsplit(address)
        has_host = bool(parts.hostname) and parts.port != 0
    except ValueError as error:
        raise ImpossibleChannel(f"This is no address: {error}.") from None
    if any(character.isspace() for character in address):
        raise ImpossibleChannel("An address has no spaces. Add each address as a channel of its own.")
    if kind == WEBHOOK:
        if not address.startswith(("http://", "https://")):
            raise ImpossibleChannel("The address of a webhook begins with http:// or https://.")
        if not has_host:
            raise ImpossibleChannel("The address names no host. Write it like https://example.org/hook.")
        if not alerts_conf().webhook_secret:
            raise ImpossibleChannel("Webhooks are signed. Set ALERTS_WEBHOOK_SECRET first.")
    elif kind == EMAIL:
        try:
            validate_email(address)
        except ValidationError:
            raise ImpossibleChannel("This is no e-mail address.") from None
    elif kind == APPRISE:
        if find_spec("apprise") is None:
            raise ImpossibleChannel("Apprise is not installed: run `pip install 'controlplane[chat]'`.")
        if "://" not in address:
            raise ImpossibleChannel("The address of a chat begins with its service, like slack:// or tgram://.")
    else:
        raise ImpossibleChannel(f"The kind is one of {', '.join(KINDS)}.")


def describe_channel(channel: AlertChannel) -> str:
    return f"{channel.name}: {describe_address(channel.kind, channel.address)}"
