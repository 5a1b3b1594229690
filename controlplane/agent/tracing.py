"""Spans, if opentelemetry-api is installed (`controlplane[otel]`). An SDK, installed separately, exports them.

Without it, `traceparent` is still passed on, so that a trace is not broken.
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
    """Parse a traceparent header and return its trace context. The current span does not become its parent."""
    return w3c.extract({KEY: traceparent} if traceparent else {}, context=load("opentelemetry.context").Context())


def write_context(context: Any = None) -> str | None:
    """Return `context` as a traceparent header, by default the current context. Return None if there is no trace."""
    carrier: dict[str, str] = {}
    w3c.inject(carrier, context=context)
    return carrier.get(KEY)


def current_traceparent() -> str | None:
    """Return the traceparent of the current span."""
    return write_context() if api else None


@contextmanager
def span_of_submission(traceparent: str | None = None) -> Iterator[str | None]:
    """Open a span in the current trace, otherwise in that of `traceparent`.

    Yield the traceparent to store with the jobs.
    """
    if not api:
        yield traceparent
        return
    tracer = get_tracer()
    if isinstance(tracer, api.ProxyTracer):  # without an SDK a span would record nothing
        yield current_traceparent() or traceparent
        return
    is_around = api.get_current_span().get_span_context().is_valid
    parent = None if is_around or not traceparent else read_context(traceparent)
    with tracer.start_as_current_span("job submit", parent, kind=api.SpanKind.PRODUCER):
        yield current_traceparent() or traceparent


class AttemptSpans:
    """The spans of one attempt: `job claim` until its code starts, then, inside it, `job attempt` until the code ends.

    `job claim` links to the claim of the previous attempt. A span is exported when it ends. A killed worker exports
    only the first one, so the next attempt links to that.
    """

    def __init__(self, item: dict[str, Any]) -> None:
        job = item["job"]
        self._of_claim: str | None = None  # set if the span is recorded
        self._of_job: str | None = job.get(KEY)
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
        """Return the fields for the STARTED report."""
        return {KEY: self._of_claim} if self._of_claim else {}

    def begin_code(self) -> str | None:
        """Return the traceparent for the code."""
        if not api:
            return self._of_job
        self._spans[0].end()
        self._begin("attempt", self._context)
        return write_context(self._context)

    def end(self, report: dict[str, Any] | None) -> None:
        """End the last span with the report of the attempt. None means that the attempt was lost."""
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
