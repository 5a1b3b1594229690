"""Spans, where opentelemetry-api is installed (`controlplane[otel]`); who installs an SDK beside it says where they go.

A trace goes on from what `traceparent` says, whether or not it is installed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any


def load(name: str) -> Any:
    try:
        return import_module(name)
    except ModuleNotFoundError:
        return None


api = load("opentelemetry.trace")
w3c = api and load("opentelemetry.trace.propagation.tracecontext").TraceContextTextMapPropagator()
KEY = "traceparent"


def get_tracer() -> Any:
    return api.get_tracer("controlplane")


def read_context(traceparent: str | None) -> Any:
    """What it says, and nothing of what is current here."""
    return w3c.extract({KEY: traceparent} if traceparent else {}, context=load("opentelemetry.context").Context())


def write_context(context: Any = None) -> str | None:
    """As a header has it; of no context the current one. None: there is no trace."""
    carrier: dict[str, str] = {}
    w3c.inject(carrier, context=context)
    return carrier.get(KEY)


def current_traceparent() -> str | None:
    """Of the span that the code around is in."""
    return write_context() if api else None


@contextmanager
def span_of_submission(traceparent: str | None = None) -> Iterator[str | None]:
    """In the trace of who submits, or in that of the code around; yields what the jobs are to remember."""
    if not api:
        yield traceparent
        return
    is_around = api.get_current_span().get_span_context().is_valid
    parent = None if is_around or not traceparent else read_context(traceparent)
    with get_tracer().start_as_current_span("job submit", parent, kind=api.SpanKind.PRODUCER):
        yield current_traceparent() or traceparent


class AttemptSpans:
    """Of one attempt: `job claim` until its code begins, with a link to the claim of the attempt before, and
    in it `job attempt` until that has ended.

    A span is sent when it ends: of a worker that is killed only the first, so that is what the next one links to.
    """

    def __init__(self, item: dict[str, Any]) -> None:
        job = item["job"]
        self._of_claim: str | None = None  # where somebody records it
        self._of_job = job.get(KEY)
        self._spans: list[Any] = []
        if not api:
            return
        self._attributes = {
            "controlplane.job.id": str(job["id"]),
            "controlplane.attempt.id": str(item["id"]),
            "controlplane.attempt.number": item["number"],
        }
        former = job.get("former_traceparent")
        links = [api.Link(api.get_current_span(read_context(former)).get_span_context())] if former else []
        self._begin("claim", read_context(self._of_job), links)
        if self._spans[0].is_recording():
            self._of_claim = write_context(self._context)

    def fields(self) -> dict[str, str]:
        """What STARTED says of them."""
        return {KEY: self._of_claim} if self._of_claim else {}

    def begin_code(self) -> str | None:
        """The trace that the code is in."""
        if not api:
            return self._of_job
        self._spans[0].end()
        self._begin("attempt", self._context)
        return write_context(self._context)

    def end(self, report: dict[str, Any] | None) -> None:
        """With what is reported of it; None: it was lost."""
        for span in self._spans[-1:]:
            event, code = (report["event"], report.get("error", {}).get("code")) if report else ("LOST", None)
            span.set_attribute("controlplane.attempt.end", event)
            if code or not report:
                span.set_status(api.Status(api.StatusCode.ERROR, code or event))
            span.end()

    def _begin(self, name: str, parent: Any, links: Any = None) -> None:
        span = get_tracer().start_span(
            f"job {name}", parent, kind=api.SpanKind.CONSUMER, attributes=self._attributes, links=links
        )
        self._spans.append(span)
        self._context = api.set_span_in_context(span, parent)
