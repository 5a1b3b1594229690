"""Store incidents, and send messages when an incident begins, grows or ends.

A message is stored in the transaction that finds its incident, and sent afterwards, so a crash loses no message. All
tries of a message have the same id. If the process crashes after sending and before recording that, the receiver gets
the message twice, with the same id.
"""

import json
import time
from datetime import UTC, datetime
from functools import partial
from typing import Any
from uuid import UUID

import structlog

from controlplane.core.model_fields import ClockTimestamp
from controlplane.core.transactions import retried_atomic
from jobs.conf import alerts_conf
from jobs.models import AlertMessage, AlertMute
from jobs.selectors.instance import instance_figures
from jobs.services.alert_calls import NotSent, NotTried, call_url, mask_of_address
from jobs.services.alert_channels import call_with_timeout, list_channels, send_message
from jobs.services.alert_rules import INFO, find_conditions, link_to
from jobs.sql import sql
from jobs.sql.rows.alerts import LeasedMessage, NotedIncidents
from liveness.conf import conf as liveness_conf
from liveness.selectors.clock import is_check_late
from liveness.services import timetable
from liveness.services.action_events import INSTANCE, record_action

log = structlog.get_logger()

GIVEN_UP_AFTER = 86400
KEPT = 90 * 86400
NOTIFICATIONS_KEPT = 7 * 86400
SENDING_BUDGET = 5
"""Seconds after which a run sends no more messages. The next run sends the rest."""
HEARTBEAT_EVERY = 60
UPDATE_GAP, LONGEST_GAP = 10, 600
"""Seconds: gaps between two messages about new items of an incident grow by UPDATE_GAP, up to LONGEST_GAP."""


def run_alerts() -> None:
    """Find conditions, store messages and send them, in one process at a time."""
    if not timetable.try_begin_task("send_alerts", liveness_conf().interval / 2):
        return
    figures = instance_figures()
    note_incidents(list(find_conditions(figures)))
    send_due_messages()
    if not is_check_late(figures["check_age"]):
        send_heartbeat()


@retried_atomic
def note_incidents(conditions: list[dict[str, Any]]) -> NotedIncidents:
    """Open, update and end incidents, and store the messages about them."""
    found = json.dumps(conditions)
    noted = sql.note_incidents.fetch_only_row(
        found=found,
        settle_after=float(alerts_conf().settle_after),
        update_gap=float(UPDATE_GAP),
        longest_gap=float(LONGEST_GAP),
        channels=list_channels(),
        name=alerts_conf().name,
    )
    if noted.announced or noted.updated:
        sql.mark_announced.fetch_rows(found=found, announced=noted.announced, updated=noted.updated)
    sql.delete_old_alerts.fetch_rows(kept=float(KEPT), notifications_kept=float(NOTIFICATIONS_KEPT))
    if noted.opened or noted.ended:
        log.info("Incidents", opened=noted.opened, ended=noted.ended, messages=noted.messages)
    return noted


def send_due_messages(only: UUID | None = None) -> int:
    """Send due messages one after the other. Return how many were sent."""
    began, sent = time.monotonic(), 0
    while time.monotonic() - began < SENDING_BUDGET and (message := lease_alert(only)):
        sent += send_leased(message) is None
    return sent


def lease_alert(only: UUID | None) -> LeasedMessage | None:
    """Lease the next due message of an alert, or this one."""
    return sql.lease_message.fetch_row(only=only, are_notifications=False, most=1)


def send_leased(message: LeasedMessage) -> str | None:
    """Send one leased message and record the result. Return the error, or None if it was sent."""
    refusal = None
    try:
        send_message(message.channel, message.id, message.event, json.loads(message.payload))
    except NotSent as refused:
        refusal = refused
    return note_delivery(message, refusal)


def note_delivery(message: LeasedMessage, refusal: NotSent | None) -> str | None:
    """Record the result of a try. Return the error, or None if the message was sent."""
    error, is_final = None, False
    if refusal is not None:
        error, is_final = str(refusal)[:1000], refusal.is_final
        log.warning("A message could not be sent", channel=message.channel, error=error, tries=message.tries)
    sql.note_delivery.fetch_rows(
        message=message.id, error=error, is_final=is_final, given_up_after=float(GIVEN_UP_AFTER),
        was_tried=not isinstance(refusal, NotTried),
    )  # fmt: skip
    return error


def write_test(only: str | None = None) -> list[AlertMessage]:
    """Store a test message for each channel, or for `only` one. It is sent with the next due messages."""
    payload = {
        "type": "test",
        "timestamp": datetime.now(UTC).isoformat(),
        "data": {
            "instance": alerts_conf().name,
            "rule": "test",
            "severity": INFO,
            "url": link_to("alerts"),
            "summary": "This is a test alert.",
        },
    }
    channels = list_channels() if only is None else [only]
    return [AlertMessage.objects.create(event="test", channel=channel, payload=payload) for channel in channels]


def send_test() -> dict[str, str]:
    """Send a test message over each channel now. Return the error of each channel; empty means that it was sent."""
    return {channel: send_leased(lease_test(channel)) or "" for channel in list_channels()}


@retried_atomic
def lease_test(channel: str) -> LeasedMessage:
    """Store a test message and lease it in the same transaction, so that no other process sends it first."""
    [message] = write_test(channel)
    return sql.lease_message.fetch_only_row(only=message.pk, are_notifications=False, most=1)


@retried_atomic
def mute(rule: str, seconds: float, by: str, note: str = "") -> datetime:
    """Mute a rule (`all`: every rule) for `seconds` seconds; 0 ends the mute. Return the end of the mute.

    Conditions that begin during the mute and still exist at its end are announced then.
    """
    if seconds or AlertMute.objects.filter(rule=rule, until__gt=ClockTimestamp()).exists():
        record_action("mute_alerts" if seconds else "unmute_alerts", by, note, INSTANCE)
    return sql.mute_alerts.fetch_only_row(rule=rule, seconds=float(seconds), by=by, note=note).until


def send_heartbeat() -> None:
    """Call the address of the dead man's switch, once a minute."""
    url = alerts_conf().heartbeat_url
    if not url or not timetable.try_begin_task("alert_heartbeat", HEARTBEAT_EVERY - 5):
        return
    try:
        call_with_timeout("heartbeat", partial(ask_heartbeat_url, url), mask_of_address(url, has_host=True))
    except NotSent as refusal:
        log.warning("The dead man's switch could not be reached", error=str(refusal))


def ask_heartbeat_url(url: str) -> None:
    status = call_url("GET", url, {}, None, allow_private=True)
    if not 200 <= status < 300:
        raise NotSent(f"The receiver responded with {status}.")
