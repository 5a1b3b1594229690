"""Page *API tokens*: the list, the form of a new token, and the revocation of one."""

from typing import Any
from uuid import UUID

from django.contrib import messages
from django.contrib.admin.models import ADDITION, CHANGE, LogEntry
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse

from controlplane.console.actions.confirmation import render_confirmation
from controlplane.console.actions.servers import request_actor
from controlplane.console.actions.tokens import ADD, REVOCATION, REVOKE, VIEW, RevokeForm, TokenForm
from controlplane.console.form_page import render_form
from controlplane.console.formatting import time_since, time_until
from controlplane.console.page import (
    FORM_METHODS,
    HOME,
    reached_namespaces,
    render_page,
    require_permission,
    require_reader,
    show_not_found,
)
from controlplane.console.views.trigger_forms import list_namespaces
from controlplane.core.ids import parse_uuid
from controlplane.core.problems import UNCACHED
from controlplane.core.transactions import retried_atomic
from liveness.errors import TokenCreatedBefore
from liveness.selectors.api_tokens import callable_tokens, tokens_page
from liveness.selectors.namespaces import namespace_of_new
from liveness.services import revocation, tokens

TOKENS_A_PAGE = 50
TRAIL = [HOME, ("API tokens", "instance:tokens")]


@require_reader("server")
def show_tokens(request: HttpRequest) -> HttpResponse:
    """Show the API tokens, latest first. `?before=` an id shows the next page."""
    require_permission(request, VIEW)
    return show_list(request)


def show_list(request: HttpRequest, new: str = "") -> HttpResponse:
    """Show the tokens. `new` is the text of a token that was just created."""
    before = parse_uuid(request.GET.get("before"))
    rows = tokens_page(reached_namespaces(request), before, TOKENS_A_PAGE + 1)
    shown = {
        "title": "API tokens",
        "trail": [HOME],
        "tokens": [present_token(row) for row in rows[:TOKENS_A_PAGE]],
        "new": new,
        "before": before,
        "older": len(rows) > TOKENS_A_PAGE and f"?before={rows[TOKENS_A_PAGE - 1].pk}",
        "may_add": request.user.has_perm(ADD),
        "may_revoke": request.user.has_perm(REVOKE),
    }
    return render_page(request, "tokens", shown, lives=not new)


def present_token(row: Any) -> dict[str, Any]:
    is_expired = row.expires_at is not None and row.expires_at <= row.now
    return {
        "it": row,
        "made": time_since(row.created_at, row.now),
        "revoked": row.revoked_at and time_since(row.revoked_at, row.now),
        "expired": is_expired and time_since(row.expires_at, row.now),
        "expires": row.expires_at and not is_expired and time_until(row.expires_at, row.now),
        "bounds": [
            f"{label} {', '.join(value) if isinstance(value, list) else value}"
            for label, value in (
                ("types", row.types), ("tags", row.tags), ("cluster", row.cluster), ("servers", row.max_servers)
            )
            if value is not None
        ],
    }  # fmt: skip


@require_reader("server", FORM_METHODS)
def add_token(request: HttpRequest) -> HttpResponse:
    """Show the form of a new token, or create the token and show its text once."""
    require_permission(request, VIEW)
    require_permission(request, ADD)
    reached = reached_namespaces(request)
    first = {"namespace": namespace_of_new(reached), "role": "worker"}
    form = TokenForm(
        request.POST if request.method == "POST" else None, initial=first, namespaces=list_namespaces(reached)
    )
    if form.is_valid():
        try:
            page = show_list(request, create_token(request, form.cleaned_data))
        except TokenCreatedBefore as refused:
            form.add_error(None, refused.detail)
        else:
            page.headers["Cache-Control"] = UNCACHED["Cache-Control"]
            return page
    return render_form(
        request, "New token", form, tab="tokens", trail=TRAIL, button="Create", back=reverse("instance:tokens")
    )


@retried_atomic
def create_token(request: HttpRequest, given: dict[str, Any]) -> str:
    namespace = given.get("namespace") or namespace_of_new(reached_namespaces(request))
    text = tokens.create_token(
        given["name"], given["role"], given["lifetime"], by=request_actor(request), note=given["note"],
        namespace=namespace, id=given["id"],
    )  # fmt: skip
    write_entry(request, ADDITION, given["name"], f"Created: {given['note']}")
    return text


@require_reader("server", FORM_METHODS)
def revoke_token(request: HttpRequest, token: UUID) -> HttpResponse:
    """Confirm and perform the revocation of a token."""
    require_permission(request, VIEW)
    require_permission(request, REVOKE)
    row: Any = callable_tokens(reached_namespaces(request)).filter(pk=token).first()
    if row is None:
        return show_not_found(request, "token")
    form = RevokeForm(request.POST if request.method == "POST" else None)
    applies, problem = row.revoked_at is None, ""
    if form.is_valid():
        given = form.cleaned_data
        count, servers = revocation.revoke_tokens(
            row.prefix, request_actor(request), given["note"], with_servers=given["with_servers"]
        )
        if count:
            write_entry(request, CHANGE, str(row), f"Revoked: {given['note']}")
            also = f" Servers disconnected: {servers}." if given["with_servers"] else ""
            messages.success(request, f"Revoked: {row.name}.{also}")
            return redirect("instance:tokens")
        applies, problem = False, "The token is already revoked."
    return render_confirmation(
        request, f"Revoke: {row.name}", REVOCATION, form, reverse("instance:tokens"), problem, tab="tokens",
        button="Revoke", would=int(applies), total=1, token=row,
    )  # fmt: skip


def write_entry(request: HttpRequest, flag: int, name: str, message: str) -> None:
    """Write an entry to the admin log."""
    user: Any = request.user
    LogEntry.objects.create(
        user_id=user.pk, action_flag=flag, object_repr=f"API token {name}"[:200], change_message=message.rstrip(": ")
    )
