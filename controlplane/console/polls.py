"""Polls: an open page requests its live part and gets an empty response if nothing has changed."""

import re
from hashlib import sha256

from django.http import HttpRequest, HttpResponse
from django_htmx.http import HttpResponseStopPolling
from django_htmx.middleware import HtmxDetails

COUNTED = re.compile(rb'(data-(?:age|left)=")[^"]*("[^>]*>)[^<]*')
"""Ages and remaining times. The script counts them between two polls, so a new number is not a change."""


def is_poll(request: HttpRequest) -> bool:
    """Return True if the request is a poll. This works without our middleware in a host project."""
    return bool(HtmxDetails(request))


def answer_poll(request: HttpRequest, part: HttpResponse, *, is_over: bool) -> HttpResponse:
    """Return the live part. Return 204 if the page shows it already, and 286 if it is final: then the polls end."""
    lasting = COUNTED.sub(rb"\1\2", part.content)
    tag = f'"{sha256(lasting).hexdigest()[:32]}"'
    if is_over and part.status_code == 200:
        part.status_code = HttpResponseStopPolling.status_code
    elif request.headers.get("If-None-Match", "").removeprefix("W/") == tag:
        part = HttpResponse(status=204)
    part.headers["ETag"] = tag
    return part
