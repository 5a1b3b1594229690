"""Template tags for components that a page writes many times, where an include would be too slow."""

from functools import lru_cache
from typing import Any
from uuid import UUID

from django import template
from django.templatetags.static import static
from django.utils.html import conditional_escape, escape, format_html, format_html_join
from django.utils.safestring import SafeString

from controlplane.console import formatting
from controlplane.console.access import list_entries, viewable
from controlplane.console.doubt import doubt_about
from controlplane.console.instance_name import environment_color, instance_name
from controlplane.console.presenters.jobs import short_id
from controlplane.console.presenters.log_text import show_log_text
from controlplane.console.sidebar import present_sidebar
from controlplane.core.program import program
from liveness.services.action_events import ActionSubject
from liveness.states import Subject as SubjectType

register = template.Library()

PAGES = (SubjectType.SERVER, SubjectType.JOB, SubjectType.EXECUTION, SubjectType.TRIGGER)
"""Subjects that have their own page."""


@register.filter
def state_words(state: str) -> str:
    """Return a state or an action as ordinary words, like "Not running"."""
    return formatting.format_state(state)


@register.filter
def log_text(line: str) -> SafeString:
    """Return a line of a log as HTML, with its colours and links."""
    return show_log_text(line)


@register.filter
@lru_cache(maxsize=256)
def badge(state: str) -> SafeString:
    """Return a state as icon, word and colour."""
    return format_html(
        '<span class="badge s-{0}"><svg class="icon" aria-hidden="true"><use href="#i-{0}"/></svg>{1}</span>',
        state, str(state).replace("_", " "),
    )  # fmt: skip


@register.filter
def mark(slot: Any) -> SafeString:
    """Return the outcome of a slot, or the state of its execution if that is known, as a small shape.

    The word and the time are in its title.
    """
    return format_html(
        '<span class="slot-mark s-{0}" title="{0}, {1} UTC"><svg class="icon" aria-hidden="true">'
        '<use href="#i-{0}"/></svg><span class="visually-hidden">{0}</span></span>',
        getattr(slot, "execution_state", None) or slot.outcome, f"{slot.slot:%Y-%m-%d %H:%M:%S}",
    )  # fmt: skip


@register.filter
@lru_cache(maxsize=256)
def badge_on(state: str, server: str | None) -> SafeString:
    """Return the state of a job or an attempt. It shows a warning if its server is silent or lost."""
    doubt = doubt_about(state, server)
    if not doubt:
        return badge(state)
    look = "SILENT" if doubt == "server silent" else "DISCONNECTED"
    return format_html(
        '<span class="badge s-{0}"><svg class="icon" aria-hidden="true"><use href="#i-{0}"/></svg>{1}, {2}</span>',
        look, state, doubt,
    )  # fmt: skip


@register.simple_tag(takes_context=True)
def link(context: template.Context, what: str, id: UUID | str, label: str) -> SafeString:
    """Return a link to the object's page, or only its name if the user may not view it."""
    if what not in context["sees"]:
        return conditional_escape(label)
    return formatting.link_to(formatting.page_url(what, id), label)


@register.simple_tag(takes_context=True)
def subject(context: template.Context, event: Any) -> SafeString:
    """Return the subject of an event, as a link if it has a page. Without a name it is shown by its short id."""
    of = ActionSubject(SubjectType(event.subject_type), short_id(event.subject_id), event.subject_name)
    label = str(of) or "the whole instance"
    if of.type == SubjectType.INCIDENT:
        return formatting.link_to(formatting.page_url("incident", event.subject_id), label)
    return link(context, of.type.value, event.subject_id, label) if of.type in PAGES else conditional_escape(label)


register.simple_tag(program)


@register.simple_tag
def instance() -> dict[str, str]:
    """Return the name of the instance and the colour of its environment."""
    return {"name": instance_name(), "color": environment_color()}


@register.simple_tag(takes_context=True)
def sidebar_groups(context: template.Context) -> list[dict[str, Any]]:
    """Return the sidebar of the page. A page outside the console has it without counts."""
    if "sidebar" in context:
        return list(context["sidebar"])
    request = context.get("request")
    user = getattr(request, "user", None)
    if request is None or user is None or not (user.is_active and user.is_staff):
        return []
    if not context.get("has_permission", True):
        return []
    match = request.resolver_match
    return present_sidebar(list_entries(user), (), f"{match.app_name}:{match.url_name}" if match else "")


@register.simple_tag
def main_pages() -> list[dict[str, Any]]:
    """Return the main entries of the sidebar for a page that cannot read the database."""
    return present_sidebar(("overview", "servers", "jobs"), (), "")


@register.filter
def has_grave(actions: Any) -> bool:
    """Return True if one of these actions is dangerous. Such actions are behind *More actions*."""
    return any(action.is_grave for _, action in actions)


@register.filter
def initials(user: Any) -> str:
    """Return up to two letters that stand for a user."""
    words = (user.get_full_name() or user.get_username()).replace(".", " ").split()
    return "".join(word[0] for word in words[:2]).upper() if len(words) > 1 else words[0][:2].upper() if words else "?"


@register.simple_tag(takes_context=True)
def stylesheet(context: template.Context) -> SafeString:
    """Return the link to our stylesheet, once in a page.

    Our own admin already has it, a host project's admin does not.
    """
    request = context["request"]
    if getattr(request, "has_stylesheet", False):
        return SafeString("")
    request.has_stylesheet = True
    sheets = ((static(f"controlplane/{name}.css"),) for name in ("instance", "lists", "drawings", "overview", "job"))
    return format_html_join("\n", '<link rel="stylesheet" href="{}">', sheets)


@register.filter
def thousands(number: int | str) -> str:
    """Return a number with commas, like 1,200. A text is returned unchanged."""
    return formatting.format_number(number) if isinstance(number, int) else number


@register.filter
def views_anything(user: Any) -> bool:
    """Return True if the user may open any of the Instance pages."""
    return bool(viewable(user))


@register.filter
def page_of(id: UUID | str, name: str) -> str:
    """Return the URL of an object's page. This is faster than {% url %}, which resolves the name each time."""
    return formatting.page_url(name, id)


@register.filter
def breakable(name: str) -> SafeString:
    """Return the name as HTML in which the browser may begin a new line after each underscore."""
    return SafeString(escape(name).replace("_", "_<wbr>"))
