"""Forms of channels of alerts: add one, remove one."""

from uuid import UUID

from django.http import HttpRequest, HttpResponse
from django.urls import reverse

from controlplane.console.actions.alerts import (
    ADD_CHANNEL,
    ADD_PERMISSION,
    REMOVE_CHANNEL,
    REMOVE_PERMISSION,
    ChannelForm,
)
from controlplane.console.actions.confirmation import render_confirmation
from controlplane.console.actions.servers import OptionalNoteForm, request_actor
from controlplane.console.page import FORM_METHODS, require_permission, require_reader, show_not_found
from controlplane.console.views.alerts import finish
from controlplane.core.problems import Problem
from jobs.alert_errors import ImpossibleChannel
from jobs.models import AlertChannel
from jobs.services import channel_rows


@require_reader("server", FORM_METHODS, about_instance=True)
def add_channel(request: HttpRequest) -> HttpResponse:
    """Show and process the form of a new channel."""
    require_permission(request, ADD_PERMISSION)
    form = ChannelForm(request.POST if request.method == "POST" else None)
    if form.is_valid():
        given = form.cleaned_data
        try:
            channel = channel_rows.add_channel(given["kind"], given["address"], request_actor(request), given["note"])
        except ImpossibleChannel as refused:
            form.add_error("address", refused.detail)
        else:
            return finish(request, ADD_CHANNEL, "", given["note"], f"Added: {channel.name}. Send a test to try it.")
    return render_confirmation(
        request, "Add channel", ADD_CHANNEL, form, reverse("instance:alerts"), tab="alerts", button="Add channel",
        would=1, total=1,
    )  # fmt: skip


@require_reader("server", FORM_METHODS, about_instance=True)
def remove_channel(request: HttpRequest, channel: UUID) -> HttpResponse:
    """Confirm and perform the removal of a channel."""
    require_permission(request, REMOVE_PERMISSION)
    row = AlertChannel.objects.filter(pk=channel).first()
    if row is None:
        return show_not_found(request, "channel", "alerts")
    form, problem = OptionalNoteForm(request.POST if request.method == "POST" else None), ""
    if form.is_valid():
        note = form.cleaned_data["note"]
        try:
            channel_rows.remove_channel(channel, request_actor(request), note)
        except Problem as refused:
            problem = refused.detail
        else:
            return finish(request, REMOVE_CHANNEL, "", note, f"Removed: {row.name}.")
    return render_confirmation(
        request, f"Remove: {channel_rows.describe_channel(row)}", REMOVE_CHANNEL, form, reverse("instance:alerts"),
        problem, tab="alerts", button="Remove", would=int(not problem), total=1,
    )  # fmt: skip
