"""Forms of limits: set a rule, and delete one."""

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse

from controlplane.console.actions.confirmation import render_confirmation
from controlplane.console.actions.limits import DELETE, SET, LimitForm
from controlplane.console.actions.servers import OptionalNoteForm, request_actor
from controlplane.console.page import (
    FORM_METHODS,
    reached_namespaces,
    require_permission,
    require_reader,
    show_not_found,
    within_reach,
)
from jobs.models import LimitRule
from jobs.services import limit_rules
from liveness.models import DEFAULT_NAMESPACE
from liveness.selectors.namespaces import known_namespaces


@require_reader("job", FORM_METHODS)
def set_rule(request: HttpRequest) -> HttpResponse:
    """Show and process the form of a rule. `?pattern=` and `?namespace=` fill it in with the rule that is there."""
    require_permission(request, SET.permission)
    reached = reached_namespaces(request)
    names = {DEFAULT_NAMESPACE, *known_namespaces()} if reached is None else reached
    known = sorted(names, key=lambda name: (name != DEFAULT_NAMESPACE, name))
    rule = find_rule(request, request.POST.get("namespace") or request.GET.get("namespace") or DEFAULT_NAMESPACE)
    form = LimitForm(
        request.POST if request.method == "POST" else None, initial=fill_form(request, rule), namespaces=known
    )
    if not form.is_valid():
        return render_confirmation(
            request, "Set a limit", SET, form, reverse("instance:limits"), tab="limits", button="Set limit",
            would=1, total=1,
        )  # fmt: skip
    given = form.cleaned_data
    limit_rules.set_limit(given["namespace"], given["pattern"], given, request_actor(request))
    messages.success(request, f"Limit of {given['pattern']} set.")
    return redirect("instance:limits")


def find_rule(request: HttpRequest, namespace: str) -> LimitRule | None:
    """Return the rule that the form or the address names, if the user reaches it."""
    pattern = request.POST.get("pattern") or request.GET.get("pattern") or ""
    return within_reach(request, LimitRule.objects.filter(pattern=pattern, namespace=namespace)).first()


def fill_form(request: HttpRequest, rule: LimitRule | None) -> dict[str, Any]:
    named = {name: request.GET[name] for name in ("pattern", "namespace") if name in request.GET}
    return {name: getattr(rule, name) for name in (*limit_rules.FIELDS, "note")} | named if rule else named


@require_reader("job", FORM_METHODS)
def delete_rule(request: HttpRequest) -> HttpResponse:
    """Confirm and perform the deletion of the rule with `?pattern=` and `?namespace=`."""
    require_permission(request, DELETE.permission)
    rule = find_rule(request, request.GET.get("namespace") or DEFAULT_NAMESPACE)
    if rule is None:
        return show_not_found(request, "limit")
    form = OptionalNoteForm(request.POST if request.method == "POST" else None)
    if not form.is_valid():
        return render_confirmation(
            request, f"Delete the limit of {rule.pattern}", DELETE, form, reverse("instance:limits"), tab="limits",
            button="Delete limit", would=1, total=1,
        )  # fmt: skip
    limit_rules.delete_limit(rule.namespace, rule.pattern, request_actor(request), form.cleaned_data["note"])
    messages.success(request, f"Limit of {rule.pattern} deleted.")
    return redirect("instance:limits")
