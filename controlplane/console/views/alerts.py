"""Alert pages: incidents, rules with their mutes, and the outbox of messages."""

from datetime import datetime
from typing import Any
from urllib.parse import urlsplit

from django import forms
from django.contrib import messages
from django.contrib.admin.models import CHANGE, LogEntry
from django.db.models import Q
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse

from controlplane.console.actions.alerts import (
    ADD_PERMISSION,
    MUTE,
    PERMISSION,
    REMOVE_PERMISSION,
    TEST,
    UNMUTE,
    AlertAction,
    MuteForm,
)
from controlplane.console.actions.confirmation import render_confirmation
from controlplane.console.actions.servers import OptionalNoteForm, request_actor
from controlplane.console.formatting import time_since, time_until
from controlplane.console.page import FORM_METHODS, HOME, render_page, require_permission, require_reader, viewable
from controlplane.console.selectors.filters.activity import IncidentFilter
from controlplane.console.selectors.listing import link_to_older
from controlplane.core.ids import parse_uuid
from jobs.conf import alerts_conf
from jobs.selectors.alerts import channels_and_time, incidents_page, mutes, stored_messages
from jobs.services import alerts
from jobs.services.alert_channels import MessageChannel, describe_address, list_channels, read_channels
from liveness.selectors.clock import database_time

INCIDENTS_A_PAGE, MESSAGES_SHOWN = 50, 50
EVERY_RULE = "all"
RULES = {
    "server_lost": ("server", "A server is DISCONNECTED or in ERROR (one incident for each cluster)."),
    "brake": ("server", "The brake holds a type of server, in all clusters or in one."),
    "check_overdue": ("server", "No liveness check has completed for three intervals."),
    "quarantine": ("job", "A job is in quarantine."),
    "no_matching_worker": ("job", "Jobs wait for tags that no alive worker has."),
    "stuck_job": ("job", "A job is stuck until an operator acts. Its flag is the reason."),
    "deadline_missed": ("job", "A job or an execution has not ended at its deadline."),
    "answer_waits": ("execution", "A step waits for an answer of a person."),
    "version_skew": ("server", "Alive workers of one cluster run different versions."),
    "oldest_waiting": ("job", "A job has waited longer than ALERTS[OLDEST_WAITING]."),
    "oldest_snapshot": ("server", "A snapshot is older than ALERTS[OLDEST_SNAPSHOT], so VACUUM keeps dead rows."),
    "hold_open": ("job", "A hold has been in force for longer than ALERTS[HOLD_OPEN]."),
    "failures_a_minute": ("job", "At least ALERTS[FAILURES_A_MINUTE] jobs fail each minute."),
}
"""Kind of object (a key of `VIEWS`) and description for each alert rule."""


@require_reader(about_instance=True)
def show_alerts(request: HttpRequest) -> HttpResponse:
    """Show incidents (open ones first), rules, mutes and the outbox, limited to the rules that the user may view."""
    chosen = IncidentFilter(request.GET)
    before = parse_uuid(request.GET.get("before"))
    added, now = channels_and_time()
    known = [rule for rule, (what, _) in RULES.items() if what in viewable(request.user)]
    muted = mutes(now)
    until = {rule: time_until(mute.until, now) for rule, mute in muted.items()}
    found = list(incidents_page(chosen.condition & Q(rule__in=known), before, INCIDENTS_A_PAGE + 1))
    incidents = [present_incident(row, now) for row in found[:INCIDENTS_A_PAGE]]
    of_alerts = Q(incident=None, url=None) | Q(incident__rule__in=known)
    notified = Q(url__isnull=False) if "job" in viewable(request.user) else Q(pk__in=[])
    messages = stored_messages(of_alerts, notified, MESSAGES_SHOWN)
    shown = {
        "title": "Alerts",
        "trail": [HOME],
        "filter": chosen,
        "open": [row for row in incidents if row["it"].ended_at is None],
        "ended": [row for row in incidents if row["it"].ended_at is not None],
        "before": before,
        "older": len(found) > INCIDENTS_A_PAGE and link_to_older(chosen, found[INCIDENTS_A_PAGE - 1].pk),
        "rules": [
            {
                "rule": rule,
                "meaning": RULES[rule][1],
                "is_on": is_on(rule),
                "mute": muted.get(rule),
                "until": until.get(rule),
            }
            for rule in known
        ],
        "all_muted": muted.get(EVERY_RULE),
        "now": now,
        "until": until,
        "channels": [present_channel(name, channel) for name, channel in read_channels(added).items()],
        "may_add_channel": request.user.has_perm(ADD_PERMISSION),
        "may_remove_channel": request.user.has_perm(REMOVE_PERMISSION),
        "outbox": [present_message(row, now) for row in messages.latest],
        "undelivered": [present_message(row, now) for row in messages.undelivered],
        "undelivered_notifications": [present_message(row, now) for row in messages.undelivered_notifications],
        "may": "server" in viewable(request.user) and request.user.has_perm(PERMISSION),
    }
    return render_page(request, "alerts", shown)


def is_on(rule: str) -> bool:
    """Return True if the settings enable this rule."""
    return getattr(alerts_conf(), rule) not in (False, None)


def present_incident(row: Any, now: datetime) -> dict[str, Any]:
    end = row.ended_at or now
    return {
        "it": row,
        "opened": time_since(row.opened_at, now),
        "ended": row.ended_at and time_since(row.ended_at, now),
        "lasted": (end - row.opened_at).total_seconds(),
        "deliveries": list_deliveries(row.messages),
    }


def list_deliveries(outcomes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the channels that got each event of an incident, and the messages that are not sent yet.

    Events with the same channels and no unsent message are merged into one entry.
    """
    deliveries = []
    for event in ("opened", "updated", "ended"):
        if about := [message for message in outcomes if message["event"] == event]:
            sent = sorted({message["channel"] for message in about if message["is_sent"]})
            deliveries.append({"event": event, "sent": sent, "unsent": [row for row in about if not row["is_sent"]]})
    if (
        len(deliveries) == 2
        and deliveries[0]["sent"] == deliveries[1]["sent"]
        and not (deliveries[0]["unsent"] or deliveries[1]["unsent"])
    ):
        return [{**deliveries[0], "event": "opened, ended"}]
    return deliveries


def present_channel(name: str, channel: MessageChannel) -> dict[str, Any]:
    return {"name": name, "address": describe_address(channel.kind, channel.address), "row": channel.row}


def present_message(row: Any, now: datetime) -> dict[str, Any]:
    return {
        "it": row,
        "receiver": urlsplit(row.url).netloc.rpartition("@")[2] if row.url else row.channel,
        "made": time_since(row.created_at, now),
        "sent": row.sent_at and time_since(row.sent_at, now),
        "due": row.next_try_at and (time_until(row.next_try_at, now) if row.next_try_at > now else "the next check"),
    }


@require_reader("server", FORM_METHODS, about_instance=True)
def mute_rule(request: HttpRequest) -> HttpResponse:
    """Stop messages about the rule in `?rule=` for a chosen time."""
    rule = read_rule(request)
    form = MuteForm(request.POST if request.method == "POST" else None)
    if not form.is_valid():
        return confirm(request, MUTE, form, rule)
    note, seconds = form.cleaned_data["note"], form.cleaned_data["duration"]
    until = alerts.mute(rule, seconds, request_actor(request), note)
    return finish(request, MUTE, rule, note, f"Muted {name_of(rule)} until {until:%Y-%m-%d %H:%M:%S} UTC.")


@require_reader("server", FORM_METHODS, about_instance=True)
def unmute_rule(request: HttpRequest) -> HttpResponse:
    """Send messages about the rule in `?rule=` again."""
    rule = read_rule(request)
    now = database_time()
    is_muted = rule in mutes(now)
    form = OptionalNoteForm(request.POST if request.method == "POST" else None)
    if not form.is_valid() or not is_muted:
        problem = f"{name_of(rule).capitalize()} is not muted." if form.is_bound and not is_muted else ""
        return confirm(request, UNMUTE, form, rule, problem, applies=is_muted)
    alerts.mute(rule, 0, request_actor(request), form.cleaned_data["note"])
    return finish(request, UNMUTE, rule, form.cleaned_data["note"], f"Unmuted {name_of(rule)}.")


@require_reader("server", FORM_METHODS, about_instance=True)
def test_channels(request: HttpRequest) -> HttpResponse:
    """Write a test message for each channel, or for that in `?channel=`, to the outbox.

    The message is sent later, so that a slow receiver does not block this request.
    """
    require_permission(request, PERMISSION)
    channels, only = list_channels(), request.GET.get("channel")
    if only is not None:
        channels = [name for name in channels if name == only]
    form = forms.Form(request.POST if request.method == "POST" else None)
    if not form.is_valid() or not channels:
        return render_confirmation(
            request, f"Send a test{f': {only}' if only else ''}", TEST, form, reverse("instance:alerts"), tab="alerts",
            noun="message", would=len(channels), total=len(channels),
        )  # fmt: skip
    alerts.write_test(only)
    return finish(request, TEST, "", "", f"Test messages for {', '.join(channels)} were added to the outbox.")


def read_rule(request: HttpRequest) -> str:
    """Return the rule in `?rule=`, or `EVERY_RULE`.

    Raise PermissionDenied, or Http404 if the rule does not exist.
    """
    require_permission(request, PERMISSION)
    rule = request.GET.get("rule", EVERY_RULE)
    if rule != EVERY_RULE and rule not in RULES:
        raise Http404(f"There is no alert rule {rule}.")
    return rule


def name_of(rule: str) -> str:
    return "all rules" if rule == EVERY_RULE else rule


def confirm(
    request: HttpRequest, action: AlertAction, form: Any, rule: str, problem: str = "", *, applies: bool = True
) -> HttpResponse:
    would = 0 if not applies else len(RULES) if rule == EVERY_RULE else 1
    title = f"{action.label}: {name_of(rule)}"
    return render_confirmation(
        request, title, action, form, reverse("instance:alerts"), problem, tab="alerts", noun="rule", would=would,
        total=1, button=title,
    )  # fmt: skip


def finish(request: HttpRequest, action: AlertAction, rule: str, note: str, said: str) -> HttpResponse:
    """Write an entry to the admin log, show a success message and redirect to the alerts page."""
    user: Any = request.user
    LogEntry.objects.create(
        user_id=user.pk, action_flag=CHANGE, object_repr=f"alerts {rule}".strip(),
        change_message=f"{action.label}: {note}".rstrip(": "),
    )  # fmt: skip
    messages.success(request, said)
    return redirect("instance:alerts")
