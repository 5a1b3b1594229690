"""Where every trail begins, and the page of what is not there."""

from django.http import HttpRequest, HttpResponse

from controlplane.console.views.page import render_page

HOME = ("Instance", "instance:overview")


def show_not_found(request: HttpRequest, what: str, plural: str = "") -> HttpResponse:
    """Nothing has this id, or not any more."""
    shown = {"title": f"Unknown {what}", "trail": [HOME], "what": what, "list": f"instance:{plural or what + 's'}"}
    return render_page(request, "unknown", shown, status=404)
