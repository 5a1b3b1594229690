"""Long polls: calls that respond when something has happened, or after the `wait` seconds of the caller.

Django does not wait. Its response has the header NOT_YET if the call should wait. The RSGI application in front of it
(controlplane.serving) holds this response back and repeats the call later. A waiting caller therefore holds a socket
but no thread. Under another server the caller gets the response at once and repeats the call.
"""

import math
from typing import Any

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

LONGEST_WAIT = 60
NOT_YET = "Not-Yet"
"""Header of a response that may be held back. Its value is the seconds from the first call on."""
FOLLOWED = "Followed-Jobs"
"""Header of a response that is held back until a job changes. It lists the jobs (jobs.services.followed_jobs)."""
ASKED_AGAIN = "controlplane.asked_again"
"""Key in the environ of a repeated call, whose response matters only if it has changed."""


class WaitField(serializers.FloatField):
    """Seconds to wait, in a query."""

    def __init__(self, **options: Any) -> None:
        help_text = "Respond when it has ended, or after so many seconds."
        super().__init__(**{"default": 0, "min_value": 0, "max_value": LONGEST_WAIT, "help_text": help_text, **options})

    def to_internal_value(self, data: Any) -> float:
        seconds = super().to_internal_value(data)
        if not math.isfinite(seconds):
            self.fail("invalid")
        return seconds


def is_asked_again(request: Request) -> bool:
    return bool(request.META.get(ASKED_AGAIN))


def not_yet(wait: float) -> Response:
    return mark_not_yet(Response({}), wait)


def mark_not_yet(response: Response, wait: float, followed: str = "") -> Response:
    """Let the response be held back for `wait` seconds, or until one of the `followed` jobs has changed."""
    if wait:
        response[NOT_YET] = f"{wait:g}"
        if followed:
            response[FOLLOWED] = followed
    return response
