"""Page that sends a message of an alert or a notification again."""

from uuid import UUID

from django.http import HttpRequest, HttpResponse

from controlplane.console.actions.alerts import PERMISSION, SEND_AGAIN
from controlplane.console.actions.servers import OptionalNoteForm, request_actor
from controlplane.console.page import FORM_METHODS, require_permission, require_reader
from controlplane.console.views.alerts import confirm, finish
from jobs.alert_errors import MessageUnknown
from jobs.services import notifications


@require_reader("server", FORM_METHODS, about_instance=True)
def send_again(request: HttpRequest, message: UUID) -> HttpResponse:
    """Send a message again that could not be delivered."""
    require_permission(request, PERMISSION)
    form = OptionalNoteForm(request.POST if request.method == "POST" else None)
    if not form.is_valid():
        return confirm(request, SEND_AGAIN, form, "one message")
    note = form.cleaned_data["note"]
    try:
        notifications.send_again(message, request_actor(request), note=note)
    except MessageUnknown as problem:
        return confirm(request, SEND_AGAIN, form, "one message", problem.detail, applies=False)
    return finish(request, SEND_AGAIN, "", note, "The message is sent again with the next ones.")
