"""Page with a form that creates or changes one object."""

from typing import Any

from django.http import HttpRequest, HttpResponse

from controlplane.console.page import render_page
from controlplane.core.problems import Problem


def render_form(
    request: HttpRequest,
    title: str,
    form: Any,
    *,
    tab: str,
    trail: list[Any],
    button: str,
    back: str,
    problem: Problem | None = None,
) -> HttpResponse:
    """Return the page of a form. `tab` is the entry of the sidebar, `back` the address of the page before."""
    shown = {
        "title": title, "trail": trail, "tab": tab, "form": form, "button": button, "back": back, "problem": problem,
    }  # fmt: skip
    return render_page(request, "form", shown, status=problem.status if problem else 200, lives=False)
