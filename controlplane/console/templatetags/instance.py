"""What the Instance pages write many times over: too often for an include each."""

from functools import lru_cache
from typing import Any
from uuid import UUID

from django import template
from django.templatetags.static import static
from django.utils.html import conditional_escape, escape, format_html
from django.utils.safestring import SafeString

from controlplane.console.presenters import formatting
from controlplane.console.presenters.jobs import doubt_about
from controlplane.console.views.page import viewable
from liveness.services.action_events import Subject
from liveness.states import Subject as SubjectType

register = template.Library()

PAGES = (SubjectType.SERVER, SubjectType.JOB, SubjectType.EXECUTION, SubjectType.TRIGGER)
"""What has a page for each."""


@register.filter
@lru_cache(maxsize=256)
def badge(state: str) -> SafeString:
    """A state as icon, word and colour."""
    return format_html(
        '<span class="badge s-{0}"><svg class="icon" aria-hidden="true"><use href="#i-{0}"/></svg>{0}</span>', state
    )


@register.filter
def mark(slot: Any) -> SafeString:
    """What came of a slot of a trigger, where there are many: a shape, with the word and the moment in its title."""
    return format_html(
        '<span class="slot-mark s-{0}" title="{0}, {1} UTC"><svg class="icon" aria-hidden="true">'
        '<use href="#i-{0}"/></svg><span class="visually-hidden">{0}</span></span>',
        slot.outcome, f"{slot.slot:%Y-%m-%d %H:%M:%S}",
    )  # fmt: skip


@register.filter
@lru_cache(maxsize=256)
def badge_on(state: str, server: str | None) -> SafeString:
    """The state of a job, or of an attempt, that a server has: never as if all were well where that is not heard."""
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
    """The name of what has a page, which leads there; for who may not view that only its name."""
    if what not in context["sees"]:
        return conditional_escape(label)
    return formatting.link_to(formatting.page_url(what, id), label)


@register.simple_tag(takes_context=True)
def subject(context: template.Context, event: Any) -> SafeString:
    """What an event is about, which leads to its page where it has one."""
    of = Subject(SubjectType(event.subject_type), event.subject_id, event.subject_name)
    label = str(of) or "the whole instance"
    return link(context, of.type.value, event.subject_id, label) if of.type in PAGES else conditional_escape(label)


@register.simple_tag(takes_context=True)
def stylesheet(context: template.Context) -> SafeString:
    """Ours, once in a page: the admin of our own has it already, that of another project has not."""
    request = context["request"]
    if getattr(request, "has_stylesheet", False):
        return SafeString("")
    request.has_stylesheet = True
    return format_html('<link rel="stylesheet" href="{}">', static("controlplane/instance.css"))


@register.filter
def thousands(number: int | str) -> str:
    """1,200; what is in words already stays."""
    return formatting.format_number(number) if isinstance(number, int) else number


@register.filter
def views_anything(user: Any) -> bool:
    """Whether the Instance pages have something for somebody."""
    return bool(viewable(user))


@register.filter
def page_of(id: UUID | str, name: str) -> str:
    """The address of the page of one thing; quicker than {% url %}, which looks for it anew."""
    return formatting.page_url(name, id)


@register.filter
def breakable(name: str) -> SafeString:
    """A long name that may be broken between its words."""
    return SafeString(escape(name).replace("_", "_<wbr>"))
