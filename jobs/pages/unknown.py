"""Where every trail begins, and the page of what is not there."""

from django.http import HttpResponse

from liveness.pages.reading import HtmxRequest, page

HOME = ("Instance", "instance:overview")


def unknown(request: HtmxRequest, what: str) -> HttpResponse:
    """Nothing has this id, or not any more."""
    return page(request, "unknown", {"title": f"Unknown {what}", "trail": [HOME], "what": what}, status=404)
