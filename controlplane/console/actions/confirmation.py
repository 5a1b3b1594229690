"""Page that asks an operator to confirm an action."""

from typing import Any

from django.http import HttpRequest, HttpResponse

from controlplane.console.page import HOME, render_page


def render_confirmation(
    request: HttpRequest, title: str, action: Any, form: Any, back: str, problem: str = "", **shown: Any
) -> HttpResponse:
    shown = {"title": title, "action": action, "form": form, "back": back, "problem": problem, **shown}
    return render_page(request, "confirm", {"trail": [HOME], **shown}, status=409 if problem else 200, lives=False)


def read_number(request: HttpRequest, name: str) -> int:
    text = request.POST.get(name, "0")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 16 else 0
