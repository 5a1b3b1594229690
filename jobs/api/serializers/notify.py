"""Addresses that are notified of the end of a job or an execution, in requests and responses."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from rest_framework import serializers

from controlplane.core.answers import ModelAnswer
from controlplane.core.rest import ChoiceField, StrictSerializer, TextField
from jobs.choices import HookOf
from jobs.states import TERMINAL

NOTIFIED_LIMIT = 10
ENDS = sorted(state.value for state in TERMINAL)


class NotifyRequest(StrictSerializer):
    """Address that gets a POST when the work ends, and the states that it wants."""

    url = TextField(max_length=2000, help_text="Address, like https://example.org/hooks.")
    on = serializers.ListField(
        child=ChoiceField(ENDS),
        allow_empty=False,
        max_length=len(ENDS),
        required=False,
        help_text="States at the end that are notified. Default: all.",
    )

    def validate_url(self, url: str) -> str:
        try:
            parts = urlsplit(url)
            is_address = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:
            is_address = False
        if not is_address or not url.isascii() or not url.isprintable() or " " in url:
            raise serializers.ValidationError("Use the address of a receiver, like https://example.org/hooks.")
        return url

    def validate(self, target: dict[str, Any]) -> dict[str, Any]:
        return {"on": ENDS, **target}


class WithNotify(StrictSerializer):
    """Field of a submission with the addresses that are notified."""

    notify = NotifyRequest(
        many=True, required=False, help_text=f"Addresses that get a signed POST at its end, at most {NOTIFIED_LIMIT}."
    )

    def validate_notify(self, targets: list[dict[str, Any]]) -> list[dict[str, Any]]:
        if len(targets) > NOTIFIED_LIMIT:
            raise serializers.ValidationError(
                f"There are {len(targets)} addresses, but at most {NOTIFIED_LIMIT} are allowed."
            )
        return targets


class TargetField(serializers.CharField):
    """Address of a receiver. Responses show only its host, because the rest may be a secret."""

    def to_representation(self, value: str) -> str:
        return hide_path(value)


def hide_path(url: str) -> str:
    """Return an address with `***` in place of what may be secret: user, password, path and query."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    is_bare = host == parts.netloc and parts.path in ("", "/") and not (parts.query or parts.fragment)
    return url if is_bare else f"{parts.scheme}://{host}/***"


def hide_addresses(definition: Mapping[str, Any]) -> dict[str, Any]:
    """Return the definition of a step or an execution with its addresses as responses show them."""
    shown = dict(definition)
    if shown.get("notify"):
        shown["notify"] = [{**target, "url": hide_path(target["url"])} for target in shown["notify"]]
    for name in ("steps", *HookOf):
        if name in shown:
            shown[name] = [hide_addresses(step) for step in shown[name]]
    return shown


class NotifiedAddress(serializers.Serializer):
    url = TargetField()
    on = serializers.ListField(child=serializers.CharField())


class NotifyAnswer(ModelAnswer):
    """Response about a job or an execution."""

    notify = NotifiedAddress(many=True, allow_null=True, help_text="Receivers that are notified of its end.")
