"""Polls: an open page requests its live part and gets an empty response if nothing has changed."""

import re
from hashlib import sha256

from django.http import HttpRequest, HttpResponse
from django_htmx.http import HttpResponseStopPolling
from django_htmx.middleware import HtmxDetails

COUNTED = re.compile(rb'(data-(?:age|left)=")[^"]*("[^>]*>)[^<]*')
"""Ages and remaining times. The script counts them between two polls, so they are not a change."""


def is_poll(request: HttpRequest) -> bool:
    """Return True if the request is a poll. It needs no middleware in a project."""
    return bool(HtmxDetails(request))


def answer_poll(request: HttpRequest, part: HttpResponse, *, is_over: bool) -> HttpResponse:
    """Return 204 if the page shows this part already, and 286 (which ends the polls) if it will not change again."""
    lasting = COUNTED.sub(rb"\1\2", part.content)
    tag = f'"{sha256(lasting).hexdigest()[:32]}"'
    if is_over and part.status_code == 200:
        part.status_code = HttpResponseStopPolling.status_code
    elif request.headers.get("If-None-Match", "").removeprefix("W/") == tag:
        part = HttpResponse(status=204)
    part.headers["ETag"] = tag
    return part
