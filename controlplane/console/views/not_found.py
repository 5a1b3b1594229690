"""Where every trail begins, and the page of what is not there."""

from django.http import HttpResponse

from controlplane.console.views.page import HtmxRequest, render_page

HOME = ("Instance", "instance:overview")


def show_not_found(request: HtmxRequest, what: str) -> HttpResponse:
    """Nothing has this id, or not any more."""
    shown = {"title": f"Unknown {what}", "trail": [HOME], "what": what, "list": f"instance:{what}s"}
    return render_page(request, "unknown", shown, status=404)
