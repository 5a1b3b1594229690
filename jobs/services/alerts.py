"""Finds what somebody is to be told of, and tells it: one message when an incident begins, and one when it is over.

What is to be sent is written in the transaction that finds it, and is sent afterwards from there: a crash loses none. A
message has one id however often it is tried, so where a crash comes between the sending and its note, the receiver
knows that it has it already.
"""

import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from typing import Any
from uuid import UUID

import structlog

from controlplane.core.durations import describe_duration
from controlplane.core.transactions import retried_atomic
from jobs.conf import alerts_conf
from jobs.models import AlertMessage
from jobs.selectors.instance import instance_figures
from jobs.services.alert_channels import NotSent, call_patiently, call_url, list_channels, send_message
from jobs.sql import sql
from jobs.sql.rows.alerts import LeasedMessage, NotedIncidents
from jobs.states import Flag
from liveness.conf import conf as liveness_conf
from liveness.selectors.clock import is_check_late
from liveness.services import timetable
from liveness.services.action_events import INSTANCE, record_action

log = structlog.get_logger()

RECENT_LOSS_SECONDS = 300
"""Seconds that a lost server is told of, however soon it was retired."""
GIVEN_UP_AFTER = 86400
KEPT = 90 * 86400
SENDING_BUDGET = 5
"""Seconds after which no other message is begun: the rest is for the next time."""
HEARTBEAT_EVERY = 60
RULES = (
    "server_lost", "brake", "check_overdue", "quarantine", "no_matching_worker", "version_skew", "oldest_waiting",
    "failures_a_minute",
)  # fmt: skip


def run_alerts() -> None:
    """Find, write, send; by one process at a time."""
    if not timetable.try_begin_task("send_alerts", liveness_conf().interval / 2):
        return
    figures = instance_figures()
    note_incidents(list(find_conditions(figures)))
    send_due_messages()
    if not is_check_late(figures["check_age"]):
        send_heartbeat()


def find_conditions(figures: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """What the rules that are switched on find: each with its rule, subject, summary and details."""
    rules, incidents = alerts_conf(), figures["incidents"]
    for fact in sql.read_alert_facts.fetch_rows(lately=float(RECENT_LOSS_SECONDS)):
        if getattr(rules, fact.rule):
            names = ", ".join(fact.names) + (" …" if fact.servers > len(fact.names) else "")
            summary = (
                f"{count_of(fact.servers, 'server')} of cluster {fact.cluster} lost: {names}"
                if fact.rule == "server_lost"
                else f"Workers of cluster {fact.cluster} run {fact.servers} versions: {names}"
            )
            yield build_condition(fact.rule, summary, fact.cluster, count=fact.servers, names=fact.names)
    for brake in figures["brakes"] or []:
        if rules.brake:
            of = f" of cluster {brake['cluster']}" if brake["cluster"] else ""
            summary = f"The brake holds {brake['type']}{of}: {brake['silent']} of {brake['alive']} fell silent at once"
            subject = "/".join(filter(None, (brake["type"], brake["cluster"])))
            yield build_condition("brake", summary, subject, silent=brake["silent"], alive=brake["alive"])
    age = figures["check_age"]
    if rules.check_overdue and age is not None and is_check_late(age):
        summary = f"No liveness check has gone through for {describe_duration(age)}: lost servers go unnoticed"
        yield build_condition("check_overdue", summary, seconds=age)
    if rules.quarantine and (count := incidents["quarantined"]):
        yield build_condition("quarantine", f"{count_of(count, 'job')} in quarantine", count=count)
    if rules.no_matching_worker and (count := figures["flags"][Flag.WAITS_FOR_TAGS] + soon_failing(figures)):
        summary = f"{count_of(count, 'job')} waiting for tags that no worker alive has"
        yield build_condition("no_matching_worker", summary, count=count)
    if rules.oldest_waiting is not None and (figures["waiting"] or 0) > rules.oldest_waiting:
        summary = f"The oldest waiting job has waited for {describe_duration(figures['waiting'])}"
        yield build_condition("oldest_waiting", summary, seconds=figures["waiting"])
    rate = incidents["failed_lately"] / 5
    if rules.failures_a_minute is not None and rate >= rules.failures_a_minute:
        yield build_condition("failures_a_minute", f"{rate:g} jobs fail each minute", per_minute=rate)


def soon_failing(figures: dict[str, Any]) -> int:
    """Jobs that fail unless a worker with their tags comes."""
    return sum(row["jobs"] for row in figures["to_be_failed"] or [])


def build_condition(rule: str, summary: str, subject: str = "", **details: Any) -> dict[str, Any]:
    return {"rule": rule, "subject": subject, "summary": summary, "details": details}


def count_of(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


@retried_atomic
def note_incidents(conditions: list[dict[str, Any]]) -> NotedIncidents:
    """Open, keep and end incidents, with the messages that tell of it."""
    noted = sql.note_incidents.fetch_only_row(
        found=json.dumps(conditions),
        settle_after=float(alerts_conf().settle_after),
        channels=list_channels(),
        name=alerts_conf().name,
    )
    sql.mark_announced.fetch_rows()
    sql.delete_old_alerts.fetch_rows(kept=float(KEPT))
    if noted.opened or noted.ended:
        log.info("Incidents", opened=noted.opened, ended=noted.ended, messages=noted.messages)
    return noted


def send_due_messages(only: UUID | None = None) -> int:
    """Send what is due, one after the other; how many went out."""
    began, sent = time.monotonic(), 0
    while time.monotonic() - began < SENDING_BUDGET and (message := sql.lease_message.fetch_row(only=only)):
        sent += send_leased(message) is None
    return sent


def send_leased(message: LeasedMessage) -> str | None:
    """Send one message, and note what came of it; why it could not be sent, if so."""
    error, is_final = None, False
    try:
        send_message(message.channel, message.id, message.event, json.loads(message.payload))
    except NotSent as refusal:
        error, is_final = str(refusal)[:1000], refusal.is_final
        log.warning("An alert could not be sent", channel=message.channel, error=error, tries=message.tries)
    sql.note_delivery.fetch_rows(
        message=message.id, error=error, is_final=is_final, given_up_after=float(GIVEN_UP_AFTER)
    )
    return error


def write_test() -> list[AlertMessage]:
    """A test message for each channel, to be sent with what is due next."""
    payload = {
        "type": "test",
        "timestamp": datetime.now(UTC).isoformat(),
        "data": {"instance": alerts_conf().name, "rule": "test", "summary": "This is a test of alerts."},
    }
    return [AlertMessage.objects.create(event="test", channel=channel, payload=payload) for channel in list_channels()]


def send_test() -> dict[str, str]:
    """A test message over each channel, at once; what came of each: empty, or why it could not be sent."""
    results = {}
    for message in write_test():
        leased = sql.lease_message.fetch_row(only=message.pk)
        results[message.channel] = (send_leased(leased) if leased else "Another process sends it.") or ""
    return results


@retried_atomic
def mute(rule: str, seconds: float, by: str, note: str = "") -> datetime:
    """Nobody is told of what a rule finds (`all`: of nothing) until then; 0 seconds: they are told again.

    What is found meanwhile and is still there at the end is told then.
    """
    record_action("mute_alerts" if seconds else "unmute_alerts", by, note, INSTANCE)
    return sql.mute_alerts.fetch_only_row(rule=rule, seconds=float(seconds), by=by, note=note).until


def send_heartbeat() -> None:
    """Ask for the dead man's address, each minute."""
    url = alerts_conf().heartbeat_url
    if not url or not timetable.try_begin_task("alert_heartbeat", HEARTBEAT_EVERY - 5):
        return
    try:
        call_patiently("heartbeat", partial(ask_heartbeat_url, url))
    except NotSent as refusal:
        log.warning("The dead man's switch could not be reached", error=str(refusal))


def ask_heartbeat_url(url: str) -> None:
    status = call_url("GET", url, {}, None, allow_private=True)
    if not 200 <= status < 300:
        raise NotSent(f"It answered {status}.")
