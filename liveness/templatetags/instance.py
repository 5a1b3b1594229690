"""What the Instance pages write many times over: too often for an include each."""

from functools import lru_cache
from uuid import UUID

from django import template
from django.utils.html import escape, format_html
from django.utils.safestring import SafeString

from liveness.pages import words

register = template.Library()


@register.filter
@lru_cache(maxsize=256)
def badge(state: str) -> SafeString:
    """A state as icon, word and colour."""
    return format_html(
        '<span class="badge s-{0}"><svg class="icon" aria-hidden="true"><use href="#i-{0}"/></svg>{0}</span>', state
    )


@register.filter
def page_of(id: UUID, name: str) -> str:
    """The address of the page of a server, a job or an execution; quicker than {% url %}, which looks for it anew."""
    return words.page_of(name, id)


@register.filter
def breakable(name: str) -> SafeString:
    """A long name that may be broken between its words."""
    return SafeString(escape(name).replace("_", "_<wbr>"))
